/* Which engines there are for a graph on an H200, with their notes: as cuDNN 9.19 answers for one that
 * is described to it, but few of each kind, and some that a program has to know to leave alone. */

#include "dnn.h"
#include "standin.h"

#include <algorithm>
#include <regex>

namespace dnn
{
namespace
{

constexpr int CORE = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
constexpr int REDUCED = CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
constexpr int CHANGING = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
constexpr int WINOGRAD = CUDNN_NUMERICAL_NOTE_WINOGRAD;
constexpr int COMPILES = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
constexpr int64_t ODD = 131, MOST = 8 << 20; /* the library's workspaces are no round numbers */

int64_t count(const tensor &t)
{
    return t.dim[0] * t.dim[1] * t.dim[2] * t.dim[3];
}

bool is_channels_last(const tensor &t)
{
    const int64_t *d = t.dim;
    const int64_t want[] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
    for (int i = 0; i < 4; i++)
        if (d[i] > 1 && t.stride[i] != want[i])
            return false;
    return true;
}

/* Properties of a graph that decide which engines support it. */
struct traits {
    cudnnDataType_t type; /* type of the factors, or of the first tensor */
    bool mixed;           /* the factors or the result in memory differ in type */
    bool aligned;         /* both numbers of channels are multiples of 8 */
    bool even, nhwc, one_by_one;
    bool vectors_fit; /* inputs of the pointwise operations have the convolution's type */
    int64_t out;      /* elements of its result */
};

traits look(const program &p)
{
    traits t = {p.tensors[0].type, false, false, true, true, false, true, 0};
    for (const tensor &one : p.tensors)
        t.nhwc = t.nhwc && is_channels_last(one);
    if (p.anchor == p.operations.size())
        return t;
    const operation &o = p.operations[p.anchor];
    const conv_names &names = names_of(o.what->type);
    const tensor &x = p.tensors[o.role.at(names.x)], &w = p.tensors[o.role.at(names.w)];
    const tensor &y = p.tensors[o.role.at(names.y)];
    t.type = o.what->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? y.type
                                                                                          : x.type;
    for (const tensor *one : {&x, &w, &y})
        t.mixed = t.mixed || (!one->is_virtual && one->type != t.type);
    t.aligned = x.dim[1] % 8 == 0 && w.dim[0] % 8 == 0;
    t.even = x.dim[1] % 2 == 0 && w.dim[0] % 2 == 0;
    t.one_by_one = w.dim[2] == 1 && w.dim[3] == 1;
    t.out = count(p.tensors[o.out[0]]);
    for (size_t i = 0; i < p.anchor; i++)
        for (int in : p.operations[i].in)
            t.vectors_fit = t.vectors_fit && p.tensors[in].type == t.type;
    return t;
}

engine hopper(int64_t number, bool f32)
{
    return {number, {CORE}, {}, f32 ? TF32 : PLAIN, 0, true, false};
}

engine compiled(int64_t number, bool f32)
{
    return {number,
            {CORE},
            {COMPILES, CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API},
            f32 ? TF32 : PLAIN,
            0,
            false,
            false};
}

/* One convolution. */
std::vector<engine> plain(const program &p, const traits &t, bool fallback)
{
    const bool f32 = t.type == CUDNN_DATA_FLOAT, gradient = p.signature != "fwd";
    const int64_t bytes = std::min<int64_t>(t.out * (int64_t)sizeof(float), MOST) + ODD;
    const engine simple = {3, {}, {}, PLAIN, bytes / 2, false, false};
    if (t.mixed)
        return fallback ? std::vector<engine>{} : std::vector<engine>{compiled(91, f32)};
    if (fallback)
        return {
            compiled(90, f32), {1, {REDUCED, CHANGING}, {}, COARSE, bytes, false, false}, simple};
    std::vector<engine> all;
    if (t.nhwc && (t.aligned || !f32))
        all.push_back(hopper(47, f32));
    all.push_back({21, {CORE}, {}, f32 ? TF32 : PLAIN, 0, true, true}); /* makes no plan */
    if (t.nhwc)
        all.push_back({12, {CORE}, {}, f32 ? TF32 : PLAIN, bytes, false, false});
    if (gradient)
        all.push_back({0, {CHANGING}, {}, CHANGES, 0, false, false});
    if (f32 && !gradient && !t.one_by_one)
        all.push_back({5, {WINOGRAD}, {}, COARSE, 2 * bytes, false, false});
    if (!f32 && p.signature == "wgrad")
        all.push_back({61, {CORE, REDUCED}, {}, COARSE, 0, false, false});
    if (f32 || !t.nhwc || !t.even)
        all.push_back(simple);
    return all;
}

enum support { NOT, JIT, FAST, FAST_AND_JIT };

/* Engines by type: f16 with channels in multiples of 8, other f16, bf16, f32. */
struct pattern {
    const char *signature;
    support aligned, half, brain, single;
    bool even, one_by_one; /* only then */
};
const pattern patterns[] = {
    {"fwd stats", FAST_AND_JIT, JIT, JIT, JIT, false, false},
    {"mul add relu fwd stats", FAST_AND_JIT, JIT, JIT, JIT, true, false},
    {"mul add relu! fwd stats", FAST, NOT, NOT, NOT, false, false},
    {"mul add( mul add)? add relu! fwd stats", FAST, NOT, NOT, NOT, false, true},
    {"mul add relu wgrad", FAST, NOT, NOT, NOT, false, false},
    {"dgrad sub mul mul add drelu normgrad", FAST, NOT, NOT, NOT, false, false},
    {"dgrad( add)?( drelu)?( sum)?", JIT, JIT, JIT, JIT, false, false},
    {"fwd( mul)?( add)?( add)?( relu)?", JIT, JIT, JIT, JIT, false, false},
    {"((mul|add|sub|relu|drelu|identity) ?)+", JIT, JIT, JIT, JIT, false, false},
    {"finalize", FAST, FAST, NOT, NOT, false, false},
};

support supported(const pattern &q, const traits &t)
{
    if (!t.nhwc || (q.one_by_one && !t.one_by_one)
        || (q.even && !t.even && t.type != CUDNN_DATA_FLOAT))
        return NOT;
    if (t.type == CUDNN_DATA_HALF)
        return !t.aligned || t.mixed ? q.half
               : t.vectors_fit       ? q.aligned
               : q.aligned == FAST   ? NOT
                                     : q.half;
    return t.type == CUDNN_DATA_BFLOAT16 ? q.brain : q.single;
}

std::vector<engine> fused(const program &p, const traits &t, bool fallback)
{
    std::vector<engine> all;
    for (const pattern &q : patterns) {
        if (!std::regex_match(p.signature, std::regex(q.signature)))
            continue;
        const support s = supported(q, t);
        if ((s == FAST || s == FAST_AND_JIT) && !fallback) {
            all = {hopper(70, false), hopper(71, false)};
            all[1].workspace = std::min<int64_t>(t.out * 2, MOST) + ODD;
        }
        if (s == JIT || s == FAST_AND_JIT)
            all.push_back(compiled(92, t.type == CUDNN_DATA_FLOAT));
        break;
    }
    return all;
}

const char *const forward_attention =
    "matmul mul( index index( add sub)? ge select)? max sub exp sum log add div matmul";
const char *const backward_attention =
    "mul sum mul matmul mul sub( index index( add sub)? ge select)? exp reshape matmul( sum)? "
    "matmul sub mul mul reshape matmul( sum)? reshape matmul";

bool is_16_bit(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

int64_t padded(int64_t rows)
{
    const int64_t tile = 128;
    return (rows + tile - 1) / tile * tile;
}

/* Attention, of tensors of one 16-bit type whose heads are no wider than 128. The first operation's
 * result is as large as q in both directions, or has q's rows and keys' columns. */
std::vector<engine> attention(const program &p, bool backward)
{
    const tensor *queries = nullptr, *scores = nullptr;
    for (const operation &o : p.operations)
        if (o.what->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !queries) {
            queries = &p.tensors[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC)];
            scores = &p.tensors[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC)];
        }
    const int64_t width = queries->dim[3];
    for (const tensor &t : p.tensors)
        for (int i = 0; i < 4 && is_16_bit(t.type) && !t.is_virtual; i++)
            if (t.type != queries->type || (t.dim[i] > 1 && t.stride[i] > 1 && t.stride[i] % 8))
                return {};
    if (!is_16_bit(queries->type) || width % 8 || width > 128)
        return {};
    const int64_t bytes = backward ? scores->dim[0] * scores->dim[1] * padded(scores->dim[2])
                                         * padded(scores->dim[3]) * 2
                                   : 0;
    engine none = compiled(6, false), good = compiled(backward ? 7 : 2, false);
    none.fails = true;
    none.workspace = good.workspace = bytes + ODD;
    return {none, good};
}

/* A finalized engine of the graph. */
std::shared_ptr<body> engine_body(const ref &graph, const engine &e)
{
    auto b = std::make_shared<body>();
    b->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    put(*b, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    put(*b, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e.number);
    b->finalized = make_engine(*b) == CUDNN_STATUS_SUCCESS;
    return b;
}

std::shared_ptr<body> config_body(const ref &graph, const engine &e)
{
    auto b = std::make_shared<body>();
    b->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    put(*b, CUDNN_ATTR_ENGINECFG_ENGINE, {engine_body(graph, e)});
    b->finalized = make_config(*b) == CUDNN_STATUS_SUCCESS;
    return b;
}

} /* namespace */

std::vector<engine> engines_of(const program &p, bool fallback)
{
    if (standin_lies(STANDIN_NO_ENGINE))
        return {};
    const traits t = look(p);
    const bool alone = p.operations.size() == 1 && p.anchor == 0;
    for (bool backward : {false, true})
        if (std::regex_match(p.signature,
                             std::regex(backward ? backward_attention : forward_attention)))
            return fallback ? std::vector<engine>{} : attention(p, backward);
    return alone ? plain(p, t, fallback) : fused(p, t, fallback);
}

std::shared_ptr<const engine> find_engine(const program &p, int64_t number)
{
    for (bool fallback : {false, true})
        for (const engine &e : engines_of(p, fallback))
            if (e.number == number)
                return std::make_shared<engine>(e);
    return nullptr;
}

/* No engine at all is a success with no results. */
cudnnStatus_t make_heuristics(body &b)
{
    const ref graph = refers(b, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const auto mode = get(b, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    if (mode < 0 || mode >= CUDNN_HEUR_MODES_COUNT)
        return refuse(CUDNN_STATUS_BAD_PARAM, "heuristics of mode %d", (int)mode);
    std::vector<ref> results;
    counted.heuristics++;
    for (const engine &e : engines_of(*graph->graph, mode == CUDNN_HEUR_MODE_FALLBACK))
        results.push_back(config_body(graph, e));
    put(b, CUDNN_ATTR_ENGINEHEUR_RESULTS, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t make_engine(body &b)
{
    b.graph = refers(b, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->graph;
    b.how = find_engine(*b.graph, get(b, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, int64_t{-1}));
    if (!b.how)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such engine for '%s'",
                      b.graph->signature.c_str());
    put(b, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, b.how->numeric.size(),
        b.how->numeric.data());
    put(b, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, b.how->behavior.size(),
        b.how->behavior.data());
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t make_config(body &b)
{
    const ref e = refers(b, CUDNN_ATTR_ENGINECFG_ENGINE);
    b.graph = e->graph;
    b.how = e->how;
    put(b, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &b.how->workspace);
    return CUDNN_STATUS_SUCCESS;
}

} /* namespace dnn */
