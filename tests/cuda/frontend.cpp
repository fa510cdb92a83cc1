/* The graphs of convolutions and attention, built once by this project and once by NVIDIA's cudnn-frontend: cuDNN's heuristics
 * must propose the same engines with the same knobs in the same order, in modes A, B and fallback. What lt_dnn_propose
 * gives is those of mode A that the rules allow, or of fallback. Asked without a device, as in planning.c. */

#include <cudnn_frontend.h>

extern "C" {
#include "attention_shapes.h"
#include "graphs.h"
}

#include <algorithm>
#include <cstdio>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <vector>

namespace fe = cudnn_frontend;
using tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using list = std::vector<std::string>;

namespace
{

enum { MOST = 96, KNOBS = 64 };

std::shared_ptr<const fe::DeviceProperties> their_device;

/* --- by the frontend --- */

fe::DataType_t type_of(lt_dtype dtype)
{
    return dtype == LT_F16    ? fe::DataType_t::HALF
           : dtype == LT_BF16 ? fe::DataType_t::BFLOAT16
                              : fe::DataType_t::FLOAT;
}

struct builder {
    fe::graph::Graph graph;
    lt_dtype dtype;
    std::vector<int64_t> x, w, y, pad, stride;

    tensor image(const std::vector<int64_t> &dim, lt_dtype of)
    {
        return graph.tensor(fe::graph::Tensor_attributes()
                                .set_dim(dim)
                                .set_stride({dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]})
                                .set_data_type(type_of(of)));
    }

    tensor vector(int64_t channels, lt_dtype of)
    {
        return image({1, channels, 1, 1}, of);
    }

    /* What an operation gives, between operations or in memory. */
    static tensor result(tensor t, const std::vector<int64_t> &dim, lt_dtype of, bool memory)
    {
        t->set_dim(dim).set_stride({dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]});
        t->set_data_type(type_of(of)).set_output(memory);
        return t;
    }

    tensor point(fe::PointwiseMode_t mode, tensor a, tensor b, lt_dtype of, bool memory = false)
    {
        auto how = fe::graph::Pointwise_attributes().set_mode(mode).set_compute_data_type(
            fe::DataType_t::FLOAT);
        return result(b ? graph.pointwise(a, b, how) : graph.pointwise(a, how), x, of, memory);
    }

    template <class attributes> attributes geometry() const
    {
        attributes a;
        a.set_padding(pad).set_stride(stride).set_dilation({1, 1}).set_compute_data_type(
            fe::DataType_t::FLOAT);
        return a;
    }

    /* relu(x * scale + shift) */
    tensor apply(tensor of)
    {
        tensor scaled = point(fe::PointwiseMode_t::MUL, of, vector(x[1], dtype), dtype);
        tensor shifted = point(fe::PointwiseMode_t::ADD, scaled, vector(x[1], dtype), dtype);
        return point(fe::PointwiseMode_t::RELU_FWD, shifted, nullptr, dtype);
    }

    void forward(bool applied, bool statistics)
    {
        tensor in = image(x, dtype), filter = image(w, dtype);
        if (applied)
            in = apply(in);
        tensor out =
            result(graph.conv_fprop(in, filter, geometry<fe::graph::Conv_fprop_attributes>()), y,
                   dtype, true);
        if (!statistics)
            return;
        auto sums = graph.genstats(
            out, fe::graph::Genstats_attributes().set_compute_data_type(fe::DataType_t::FLOAT));
        for (tensor &sum : sums)
            sum->set_data_type(fe::DataType_t::FLOAT).set_output(true);
    }

    void grad_w(bool applied)
    {
        tensor in = image(x, dtype), grad = image(y, dtype);
        if (applied)
            in = apply(in);
        result(graph.conv_wgrad(grad, in, geometry<fe::graph::Conv_wgrad_attributes>()), w, dtype,
               true);
    }

    void grad_x(bool sums)
    {
        tensor filter = image(w, dtype), grad = image(y, dtype);
        tensor dx = graph.conv_dgrad(grad, filter, geometry<fe::graph::Conv_dgrad_attributes>());
        result(dx, x, sums ? LT_F32 : dtype, !sums);
        if (!sums)
            return;
        tensor read = image(x, dtype), mean = vector(x[1], LT_F32), rstd = vector(x[1], LT_F32);
        tensor gamma = vector(x[1], LT_F32), beta = vector(x[1], LT_F32);
        tensor at = point(fe::PointwiseMode_t::SUB, read, mean, LT_F32);
        at = point(fe::PointwiseMode_t::MUL, at, rstd, LT_F32);
        at = point(fe::PointwiseMode_t::MUL, at, gamma, LT_F32);
        at = point(fe::PointwiseMode_t::ADD, at, beta, LT_F32);
        tensor masked = point(fe::PointwiseMode_t::RELU_BWD, dx, at, dtype, true);
        for (tensor &out :
             graph.dbn_weight(masked, read, mean, rstd, gamma, fe::graph::DBN_weight_attributes()))
            out->set_data_type(fe::DataType_t::FLOAT).set_output(true);
    }

    void build(conv_graph kind)
    {
        switch (kind) {
        case PLAIN_FORWARD:
        case BLOCKS_FORWARD:
            return forward(false, false);
        case WITH_STATISTICS:
        case BLOCKS_WITH_STATISTICS:
            return forward(false, true);
        case APPLY_WITH_STATISTICS:
            return forward(true, true);
        case PLAIN_GRAD_W:
        case BLOCKS_GRAD_W:
            return grad_w(false);
        case APPLY_GRAD_W:
            return grad_w(true);
        case PLAIN_GRAD_X:
            return grad_x(false);
        case GRAD_X_NORM:
            return grad_x(true);
        case ADD_WITH_STATISTICS: /* the two are asked for in planning.c alone */
        case NORM_GRAD_X:
            break;
        }
    }
};

/* Attention, of one node or two of the frontend's, which it makes operations of. */
struct attention_builder {
    fe::graph::Graph &graph;
    const lt_attention_problem &p;

    std::vector<int64_t> dims(bool keys) const
    {
        return {p.batch, keys ? p.kv_heads : p.heads, keys ? p.keys : p.queries, p.width};
    }

    tensor of(tensor t, int slot, bool keys) const
    {
        const lt_attention_strides &s = p.stride[slot];
        t->set_dim(dims(keys)).set_stride({s.batch, s.head, s.row, 1});
        t->set_data_type(type_of(p.dtype));
        return t;
    }

    tensor input(int slot, bool keys = false)
    {
        return of(graph.tensor(fe::graph::Tensor_attributes()), slot, keys);
    }

    /* A number for each query. */
    tensor column(tensor t) const
    {
        t->set_dim({p.batch, p.heads, p.queries, 1})
            .set_stride({p.heads * p.queries, p.queries, 1, 1})
            .set_data_type(fe::DataType_t::FLOAT);
        return t;
    }

    template <class attributes> attributes how() const
    {
        attributes a;
        a.set_attn_scale(0.125f);
        if (p.causal && p.keys == p.queries)
            a.set_causal_mask(true);
        else if (p.causal)
            a.set_causal_mask_bottom_right(true);
        return a;
    }

    void forward(tensor q, tensor k, tensor v)
    {
        auto out = graph.sdpa(q, k, v,
                              how<fe::graph::SDPA_attributes>()
                                  .set_implementation(fe::AttentionImplementation_t::COMPOSITE)
                                  .set_generate_stats(true));
        of(out[0], LT_ATTENTION_Y, false)->set_output(true);
        column(out[1])->set_output(true);
    }

    void backward(tensor q, tensor k, tensor v)
    {
        tensor lse = column(graph.tensor(fe::graph::Tensor_attributes()));
        tensor y = input(LT_ATTENTION_Y), dy = input(LT_ATTENTION_DY);
        auto out = graph.sdpa_backward(
            q, k, v, y, dy, lse,
            how<fe::graph::SDPA_backward_attributes>().set_deterministic_algorithm(true));
        of(out[0], LT_ATTENTION_DQ, false)->set_output(true);
        of(out[1], LT_ATTENTION_DK, true)->set_output(true);
        of(out[2], LT_ATTENTION_DV, true)->set_output(true);
    }

    void build()
    {
        graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_sm_version(90);
        tensor q = input(LT_ATTENTION_Q), k = input(LT_ATTENTION_K, true);
        tensor v = input(LT_ATTENTION_V, true);
        p.backward ? backward(q, k, v) : forward(q, k, v);
    }
};

builder begin(conv_graph kind, const conv_shape &s, int batch, lt_dtype dtype)
{
    const int pad = s.size / 2, out = (s.side + 2 * pad - s.size) / s.stride + 1;
    builder b;
    b.dtype = dtype;
    b.x = {batch, s.channels, s.side, s.side}, b.w = {s.filters, s.channels, s.size, s.size};
    b.y = {batch, s.filters, out, out}, b.pad = {pad, pad}, b.stride = {s.stride, s.stride};
    if (kind >= BLOCKS_FORWARD && kind <= BLOCKS_GRAD_W) {
        b.x = {batch, 16, 115, 115}, b.w = {64, 16, 4, 4}, b.y = {batch, 64, 112, 112};
        b.pad = {0, 0}, b.stride = {1, 1};
    }
    return b;
}

/* Gives what heuristics propose to the frontend for a new graph; `why`, if that is nothing. */
using maker = std::function<list(fe::HeurMode_t mode, std::string &why)>;

/* All that they propose for the graph that `build` fills. */
list theirs(fe::graph::Graph &graph, const std::function<void()> &build, fe::HeurMode_t mode,
            std::string &why)
{
    list found;
    graph.set_device_properties(their_device);
    graph.set_compute_data_type(fe::DataType_t::FLOAT);
    build();
    auto status = graph.validate();
    if (status.is_good())
        status = graph.build_operation_graph();
    if (status.is_good())
        status = graph.create_execution_plans({mode});
    why = status.get_message();
    for (int64_t i = 0; status.is_good() && i < graph.get_execution_plan_count(); i++) {
        std::string name;
        if (graph.get_plan_name_at_index(i, name).is_good())
            found.push_back(name);
    }
    return found;
}

maker of_convolution(conv_graph kind, const conv_shape &shape, int batch, lt_dtype dtype)
{
    return [=](fe::HeurMode_t mode, std::string &why) {
        builder b = begin(kind, shape, batch, dtype);
        return theirs(
            b.graph, [&] { b.build(kind); }, mode, why);
    };
}

maker of_attention(const lt_attention_problem &p)
{
    return [p](fe::HeurMode_t mode, std::string &why) {
        fe::graph::Graph graph;
        attention_builder b = {graph, p};
        return theirs(
            graph, [&] { b.build(); }, mode, why);
    };
}

/* --- by this project --- */

/* As the frontend names a plan: eng7_k2=1_k3=0. */
std::string describe_config(cudnnBackendDescriptor_t config)
{
    int64_t engine_index = -1, count = 0;
    cudnnBackendDescriptor_t engine, choice[KNOBS];
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                             &count, &engine);
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                             &engine_index);
    for (auto &c : choice)
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &c);
    std::string words = "eng" + std::to_string(engine_index);
    count = 0;
    cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, &count, choice);
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendKnobType_t type;
        int64_t value = 0, one;
        cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                 1, &one, &type);
        cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                 &one, &value);
        words += "_k" + std::to_string((int)type) + "=" + std::to_string(value);
    }
    for (auto &c : choice)
        cudnnBackendDestroyDescriptor(c);
    cudnnBackendDestroyDescriptor(engine);
    return words;
}

/* All that heuristics propose for a graph of ours. */
list ours(const lt_dnn_graph &g, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t device)
{
    list found;
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristics, config[MOST];
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);
    cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g.graph);
    cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                             &mode);
    cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    for (auto &c : config)
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c);
    if (cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS)
        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count, config);
    for (int64_t i = 0; i < count; i++)
        found.push_back(describe_config(config[i]));
    for (auto &c : config)
        cudnnBackendDestroyDescriptor(c);
    cudnnBackendDestroyDescriptor(heuristics);
    return found;
}

/* --- rows --- */

struct form {
    const char *name;
    conv_graph kind;
};

const form forms[] = {
    {"forward", PLAIN_FORWARD},
    {"gradient of x", PLAIN_GRAD_X},
    {"gradient of w", PLAIN_GRAD_W},
    {"forward + statistics", WITH_STATISTICS},
    {"apply + forward + statistics", APPLY_WITH_STATISTICS},
    {"apply + gradient of w", APPLY_GRAD_W},
    {"gradient of x + relu + sums", GRAD_X_NORM},
    {"blocks, forward", BLOCKS_FORWARD},
    {"blocks, forward + statistics", BLOCKS_WITH_STATISTICS},
    {"blocks, gradient of w", BLOCKS_GRAD_W},
};

const struct {
    const char *name;
    attention_shape shape;
} attention_shapes[] = {
    {"GPT-2", {true, true, 8, 12, 12, 1024, 1024, 64}},
    {"ViT-S", {false, true, 256, 6, 6, 197, 197, 64}},
    {"heads that share keys", {true, true, 4, 12, 4, 256, 256, 128}},
    {"rotary positions", {true, false, 8, 12, 12, 1024, 1024, 64}},
    {"more keys than queries", {true, false, 2, 4, 4, 33, 70, 64}},
};

struct {
    const char *name;
    fe::HeurMode_t frontend;
    cudnnBackendHeurMode_t backend;
} const modes[] = {{"A", fe::HeurMode_t::A, CUDNN_HEUR_MODE_A},
                   {"B", fe::HeurMode_t::B, CUDNN_HEUR_MODE_B},
                   {"fallback", fe::HeurMode_t::FALLBACK, CUDNN_HEUR_MODE_FALLBACK}};

cudnnBackendDescriptor_t our_device;
int passed, failed, proposals;

void row(const std::string &name, bool passes, const std::string &what)
{
    (passes ? passed : failed)++;
    if (!passes)
        std::printf("FAIL %s: %s\n", name.c_str(), what.c_str());
}

/* The frontend gives statistics the dtype of what they are of for their arithmetic, this project f32, which an engine
 * that is compiled wants: to the frontend it is not proposed. */
constexpr char only_ours[] = "eng3";

bool has_statistics(conv_graph kind)
{
    return kind == WITH_STATISTICS || kind == APPLY_WITH_STATISTICS
           || kind == BLOCKS_WITH_STATISTICS;
}

bool is_only_ours(const std::string &name)
{
    return name == only_ours || name.rfind(std::string(only_ours) + "_", 0) == 0;
}

/* Where two lists part. */
std::string difference(const list &a, const list &b)
{
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i])
        i++;
    return std::to_string(a.size()) + " and " + std::to_string(b.size()) + ", number "
           + std::to_string(i) + " is " + (i < a.size() ? a[i] : "none") + " and "
           + (i < b.size() ? b[i] : "none");
}

bool is_part(const list &few, const list &many)
{
    size_t at = 0;
    for (const std::string &word : many)
        at += at < few.size() && few[at] == word;
    return at == few.size();
}

/* A graph of ours, which it resets, and what the frontend makes. */
void compare(const std::string &name, lt_dnn_graph &g, const maker &make, bool statistics)
{
    static const lt_dnn_rules rules = {false, true, (size_t)512 << 20};
    lt_dnn_choices choices = {};
    list found[3], kept;
    for (int m = 0; m < 3; m++) {
        std::string why;
        const list other = make(modes[m].frontend, why);
        list comparable = found[m] = ours(g, modes[m].backend, our_device);
        if (statistics)
            comparable.erase(std::remove_if(comparable.begin(), comparable.end(), is_only_ours),
                             comparable.end());
        proposals += (int)found[m].size();
        row(name + ", mode " + modes[m].name, comparable == other,
            difference(comparable, other) + ": " + why);
    }
    if (!lt_dnn_propose(&choices, &g, our_device, &rules))
        for (int i = 0; i < choices.count; i++)
            kept.push_back(describe_config(choices.item[i].config));
    row(name + ", what is kept", is_part(kept, found[0]) || is_part(kept, found[2]),
        std::to_string(kept.size()));
    lt_dnn_choices_clear(&choices);
    lt_dnn_reset(&g);
}

void compare_convolution(const std::string &name, conv_graph kind, const conv_shape &shape,
                         int batch, lt_dtype dtype)
{
    lt_dnn_graph g = {};
    if (build_graph(&g, kind, &shape, batch, dtype))
        return row(name, false, lt_error_message());
    compare(name, g, of_convolution(kind, shape, batch, dtype), has_statistics(kind));
}

void compare_attention(const char *name, const attention_shape &shape, lt_dtype dtype,
                       bool backward)
{
    lt_dnn_graph g = {};
    const lt_attention_problem p = attention_problem(&shape, dtype, backward);
    const std::string all = std::string("attention ") + (backward ? "backward, " : "forward, ")
                            + lt_dtype_name(dtype) + ", " + name;
    if (lt_attention_graph(&g, &p))
        return row(all, false, lt_error_message());
    compare(all, g, of_attention(p), false);
}

/* A graph that is another must not have the same list. */
void control()
{
    std::string why;
    lt_dnn_graph g = {};
    const list other =
        of_convolution(PLAIN_FORWARD, conv_shapes[2], 16, LT_BF16)(fe::HeurMode_t::A, why);
    row("control: another dtype has other engines",
        !build_graph(&g, PLAIN_FORWARD, &conv_shapes[2], 16, LT_F16) && !other.empty()
            && ours(g, CUDNN_HEUR_MODE_A, our_device) != other,
        why);
    lt_dnn_reset(&g);
}

bool open_device()
{
    const std::string text = lt_dnn_h200();
    auto device = std::make_shared<fe::DeviceProperties>();
    if (!dlopen(LT_CUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL)
        || lt_dnn_device(&our_device, text.c_str(), nullptr))
        return false;
    if (device->deserialize(std::vector<uint8_t>(text.begin(), text.end())).is_bad())
        return false;
    their_device = device;
    return true;
}

} // namespace

int main()
{
    static const int shapes[] = {1, 2, 6, 13, 22};
    if (!open_device()) {
        std::fprintf(stderr, "no planning here: %s\n", lt_error_message());
        return 77;
    }
    for (const form &f : forms)
        for (lt_dtype dtype : {LT_F16, LT_BF16, LT_F32})
            for (int s : shapes) {
                const bool blocks = f.kind >= BLOCKS_FORWARD;
                if ((dtype == LT_F32 && f.kind > PLAIN_GRAD_W) || (blocks && s != shapes[0]))
                    continue;
                compare_convolution(std::string(f.name) + ", " + lt_dtype_name(dtype) + ", shape "
                                        + std::to_string(s),
                                    f.kind, conv_shapes[blocks ? 0 : s], 64, dtype);
            }
    for (const auto &s : attention_shapes)
        for (lt_dtype dtype : {LT_F16, LT_BF16})
            for (bool backward : {false, true})
                compare_attention(s.name, s.shape, dtype, backward);
    control();
    cudnnBackendDestroyDescriptor(our_device);
    std::printf("%d proposals\n%d passed, %d failed\n", proposals, passed, failed);
    return failed != 0;
}
