/* Runs a plan on a stream: memory is checked when it is asked for, read, computed with and written when
 * the stream comes to it. Tensors lie as their descriptors say, whatever that is. */

#include "dnn.h"
#include "standin.h"
#include "tensor/backend/dtype.h"

#include <cinttypes>

namespace dnn
{

counts counted;

namespace
{

enum { N, C, H, W, SPOILT = 0xA5 };

/* A run: everything by value, since it may run later, and again with a captured graph. */
struct job {
    std::shared_ptr<const program> graph;
    std::shared_ptr<const engine> how;
    std::vector<char *> memory;           /* by tensor; NULL: virtual */
    std::vector<std::vector<char>> value; /* tensors that are passed by value */
    char *workspace;
};

int64_t elements(const tensor &t)
{
    return t.dim[N] * t.dim[C] * t.dim[H] * t.dim[W];
}

size_t extent(const tensor &t)
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++)
        last += (t.dim[i] - 1) * t.stride[i];
    return (size_t)(last + 1) * data_bytes(t.type);
}

template <class T> T at(const char *memory, int64_t i)
{
    T x;
    memcpy(&x, memory + i * (int64_t)sizeof x, sizeof x);
    return x;
}

float load(const char *memory, cudnnDataType_t type, int64_t i)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return at<float>(memory, i);
    case CUDNN_DATA_HALF:
        return lt_f32_from_f16(at<uint16_t>(memory, i));
    case CUDNN_DATA_BFLOAT16:
        return lt_f32_from_bf16(at<uint16_t>(memory, i));
    case CUDNN_DATA_DOUBLE:
        return (float)at<double>(memory, i);
    case CUDNN_DATA_INT64:
        return (float)at<int64_t>(memory, i);
    case CUDNN_DATA_INT32:
        return (float)at<int32_t>(memory, i);
    default:
        standin_die("cudnn: a tensor of type %d", (int)type);
    }
}

void store(char *memory, cudnnDataType_t type, int64_t i, float x)
{
    if (type == CUDNN_DATA_FLOAT) {
        x = standin_nan(x);
        memcpy(memory + i * (int64_t)sizeof x, &x, sizeof x);
        return;
    }
    if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16)
        standin_die("cudnn: a result of type %d", (int)type);
    const uint16_t bits = standin_is_own_nan(x)     ? 0x7FFF
                          : type == CUDNN_DATA_HALF ? lt_f16_from_f32(x)
                                                    : lt_bf16_from_f32(x);
    memcpy(memory + i * (int64_t)sizeof bits, &bits, sizeof bits);
}

array empty(const tensor &t)
{
    array a = {{t.dim[N], t.dim[C], t.dim[H], t.dim[W]}, {}};
    a.x.assign((size_t)elements(t), 0);
    return a;
}

/* Calls f(index in the array, offset in memory) for each element. */
template <class F> void each(const tensor &t, F f)
{
    int64_t i = 0;
    for (int64_t n = 0; n < t.dim[N]; n++)
        for (int64_t h = 0; h < t.dim[H]; h++)
            for (int64_t w = 0; w < t.dim[W]; w++) {
                const int64_t first = n * t.stride[N] + h * t.stride[H] + w * t.stride[W];
                for (int64_t c = 0; c < t.dim[C]; c++, i++)
                    f(i, first + c * t.stride[C]);
            }
}

void read_inputs(const job &j, std::vector<array> &arrays)
{
    std::vector<bool> made(arrays.size(), false);
    for (const operation &o : j.graph->operations)
        for (int t : o.out)
            made[t] = true;
    for (size_t i = 0; i < arrays.size(); i++) {
        const tensor &t = j.graph->tensors[i];
        const char *memory = t.by_value ? j.value[i].data() : j.memory[i];
        arrays[i] = empty(t);
        if (!made[i])
            each(t,
                 [&](int64_t to, int64_t from) { arrays[i].x[to] = load(memory, t.type, from); });
    }
}

/* Returns the multiplications and additions of a matrix product; masked elements count. */
double product_flops(const program &p, const operation &o)
{
    const tensor &a = p.tensors[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC)];
    const tensor &y = p.tensors[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC)];
    return 2.0 * (double)elements(y) * (double)a.dim[W];
}

/* Counts the bytes that one kernel for the whole graph moves, and its multiplications and additions. Each tensor
 * counts once; of an image under a strided 1x1 filter only the pixels read. */
void count_traffic(const program &p)
{
    std::vector<bool> made(p.tensors.size(), false), read(p.tensors.size(), false);
    std::vector<double> share(p.tensors.size(), 1);
    double flops = 0, bytes[2] = {};
    for (const operation &o : p.operations) {
        for (int i : o.in)
            read[i] = true;
        for (int i : o.out)
            made[i] = true;
        if (o.what->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            flops += product_flops(p, o);
        if (!is_convolution(o.what->type))
            continue;
        const conv_names &names = names_of(o.what->type);
        const tensor &w = p.tensors[o.role.at(names.w)], &y = p.tensors[o.role.at(names.y)];
        const int x = o.role.at(names.x);
        flops += 2.0 * (double)elements(y) * (double)(w.dim[C] * w.dim[H] * w.dim[W]);
        if (w.dim[H] * w.dim[W] == 1)
            share[x] =
                (double)(y.dim[H] * y.dim[W]) / (double)(p.tensors[x].dim[H] * p.tensors[x].dim[W]);
    }
    for (size_t i = 0; i < made.size(); i++)
        if (!p.tensors[i].is_virtual && (made[i] || read[i]))
            bytes[made[i]] += (double)elements(p.tensors[i]) * (double)data_bytes(p.tensors[i].type)
                              * (made[i] ? 1 : share[i]);
    standin_moved((uint64_t)bytes[0], (uint64_t)bytes[1], flops);
}

bool is_attention(const program &p)
{
    return p.signature.find("matmul") != std::string::npos;
}

void run_job(const job &j, bool backwards)
{
    count_traffic(*j.graph);
    if (is_attention(*j.graph)) /* its gradient's matrix of scores, written and read again */
        standin_moved((uint64_t)j.how->workspace, (uint64_t)j.how->workspace);
    if (standin_dry()) {
        for (const operation &o : j.graph->operations)
            for (int i : o.out)
                if (j.memory[i])
                    each(j.graph->tensors[i], [&](int64_t, int64_t to) {
                        store(j.memory[i], j.graph->tensors[i].type, to, 0);
                    });
        return;
    }
    std::vector<array> arrays(j.graph->tensors.size());
    if (j.how->workspace)
        memset(j.workspace, SPOILT, j.how->workspace);
    read_inputs(j, arrays);
    for (const operation &o : j.graph->operations) {
        run(o, arrays, j.how->how, backwards);
        for (int i : o.out)
            for (float &x : arrays[i].x)
                x = rounded(x, j.graph->tensors[i].type);
    }
    for (const operation &o : j.graph->operations)
        for (int i : o.out)
            if (j.memory[i])
                each(j.graph->tensors[i], [&](int64_t from, int64_t to) {
                    store(j.memory[i], j.graph->tensors[i].type, to, arrays[i].x[from]);
                });
}

/* The pack's pointer with that id, or NULL. */
char *find(const std::vector<int64_t> &uid, const body &pack, int64_t wanted)
{
    const value &v = pack.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < uid.size(); i++)
        if (uid[i] == wanted) {
            char *p;
            memcpy(&p, v.bytes.data() + i * sizeof p, sizeof p);
            return p;
        }
    return nullptr;
}

cudnnStatus_t take_pointers(job &j, const body &pack)
{
    const std::vector<int64_t> uid = numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    j.memory.assign(j.graph->tensors.size(), nullptr);
    j.value.resize(j.graph->tensors.size());
    for (size_t i = 0; i < j.memory.size(); i++) {
        const tensor &t = j.graph->tensors[i];
        char *p = t.is_virtual ? nullptr : find(uid, pack, t.uid);
        if (t.is_virtual)
            continue;
        if (!p)
            return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no pointer for tensor %" PRId64,
                          t.uid);
        if (t.by_value) {
            standin_check_host(p, data_bytes(t.type), "cudnnBackendExecute: a scalar");
            j.value[i].assign(p, p + data_bytes(t.type));
            continue;
        }
        if ((uintptr_t)p % (uintptr_t)t.alignment)
            return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                          "tensor %" PRId64 " is not aligned to %" PRId64, t.uid, t.alignment);
        standin_check_device(p, extent(t), "cudnnBackendExecute: a tensor");
        j.memory[i] = p;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Returns true if two tensors share a byte; interleaved parts of one tensor do not. */
bool share_bytes(const char *a, const tensor &at, const char *b, const tensor &bt)
{
    std::vector<bool> taken(extent(at), false);
    bool shared = false;
    each(at, [&](int64_t, int64_t i) {
        for (size_t k = 0; k < data_bytes(at.type); k++)
            taken[i * data_bytes(at.type) + k] = true;
    });
    each(bt, [&](int64_t, int64_t i) {
        const char *first = b + i * (int64_t)data_bytes(bt.type);
        for (size_t k = 0; k < data_bytes(bt.type); k++)
            shared =
                shared || (first + k >= a && first + k < a + taken.size() && taken[first + k - a]);
    });
    return shared;
}

bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a && b && a < b + b_bytes && b < a + a_bytes;
}

/* Outputs and workspace must not overlap anything. */
void check_overlaps(const job &j)
{
    const std::vector<tensor> &t = j.graph->tensors;
    std::vector<bool> written(t.size(), false);
    for (const operation &o : j.graph->operations)
        for (int i : o.out)
            written[i] = true;
    for (size_t i = 0; i < t.size(); i++) {
        if (overlap(j.memory[i], extent(t[i]), j.workspace, j.how->workspace))
            standin_die("cudnnBackendExecute: tensor %d and the workspace overlap", (int)t[i].uid);
        for (size_t k = 0; k < t.size() && written[i]; k++)
            if (k != i && overlap(j.memory[i], extent(t[i]), j.memory[k], extent(t[k]))
                && share_bytes(j.memory[i], t[i], j.memory[k], t[k]))
                standin_die("cudnnBackendExecute: tensors %d and %d overlap", (int)t[i].uid,
                            (int)t[k].uid);
    }
}

cudnnStatus_t take_workspace(job &j, const body &pack)
{
    j.workspace = get(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, (char *)nullptr);
    if (!j.how->workspace)
        return CUDNN_STATUS_SUCCESS;
    if (!j.workspace)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                      "a plan with %" PRId64 " bytes of workspace without one", j.how->workspace);
    if ((uintptr_t)j.workspace % 16)
        return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the workspace is not aligned");
    standin_check_device(j.workspace, j.how->workspace, "cudnnBackendExecute: the workspace");
    return CUDNN_STATUS_SUCCESS;
}

/* LATHER_STANDIN_PLANS=properties|ordinal|handle: plans that got their device from another source do not run.
 * LATHER_STANDIN_BROKEN=N: plans of engine N do not run. */
bool runs_here(const body &plan)
{
    const char *wanted = getenv("LATHER_STANDIN_PLANS"), *broken = getenv("LATHER_STANDIN_BROKEN");
    const ref device = refers(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    const char *way = !device                                                 ? "handle"
                      : device->values.count(CUDNN_ATTR_DEVICEPROP_DEVICE_ID) ? "ordinal"
                                                                              : "properties";
    return (!wanted || !*wanted || !strcmp(wanted, way))
           && (!broken || !*broken || atoll(broken) != plan.how->number);
}

/* The order of its sums changes with each run. */
bool next_order(arithmetic how)
{
    static unsigned runs;
    return how == CHANGES && runs++ % 2;
}

} /* namespace */
} /* namespace dnn */

using namespace dnn;

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    if (!handle || !plan || !pack)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    const cudaStream_t stream = stream_of(handle, __func__);
    const ref p = content_of(plan, __func__), v = content_of(pack, __func__);
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
        || v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no plan, or no variant pack");
    if (!p->finalized || !v->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or pack is not finalized");
    if (standin_fails(__func__))
        return refuse(standin_no_memory() ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                                          : CUDNN_STATUS_EXECUTION_FAILED,
                      "as was asked for");
    if (standin_lies(STANDIN_REFUSES_CAPTURE) && !standin_allowed(__func__))
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a plan that cannot be captured");
    if (!runs_here(*p))
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a plan that does not run here");
    job j = {p->graph, p->how, {}, {}, nullptr};
    cudnnStatus_t st = take_pointers(j, *v);
    if (!st)
        st = take_workspace(j, *v);
    if (st)
        return st;
    check_overlaps(j);
    counted.runs++;
    counted.engine = j.how->number;
    standin_queue(
        stream, [j] { run_job(j, next_order(j.how->how)); },
        standin_name("cudnn " + j.graph->signature));
    return CUDNN_STATUS_SUCCESS;
}

void standin_dnn_counts(counts *out)
{
    *out = counted;
}
