/* A stand-in for cuBLASLt's products of matrices: layouts, dtypes, alignments and algorithms are checked
 * as strictly as the reference allows; sums are f32's. Source: the cuBLASLt API reference. */

#include "cublaslt.h"

#include "loops.h"
#include "tensor/backend/dtype.h"

#include <cstring>

using namespace blaslt;

namespace
{

constexpr size_t WANTED = 16; /* bytes that operands are aligned to */

/* An algorithm is for one problem only. */
enum { SIMPLE, SPLIT, SPLIT_COARSELY };
struct algorithm {
    int64_t kind;
    uint64_t problem;
    int64_t workspace;
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm does not fit");

struct matrix {
    const char *data;
    const layout *l;
};
struct problem {
    const operation *op;
    const layout *a, *b, *c, *d;
    int64_t m, n, k;
};

size_t bytes_of(int32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

bool is_known(int32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* Returns true if the columns do not overlap. */
bool is_sound(const layout &l)
{
    const int64_t least = l.order == CUBLASLT_ORDER_ROW ? l.columns : l.rows;
    return l.rows > 0 && l.columns > 0 && l.leading >= least && l.batches > 0
           && (l.order == CUBLASLT_ORDER_ROW || l.order == CUBLASLT_ORDER_COL);
}

size_t extent(const layout &l)
{
    const int64_t lines = l.order == CUBLASLT_ORDER_ROW ? l.rows : l.columns;
    const int64_t length = l.order == CUBLASLT_ORDER_ROW ? l.columns : l.rows;
    return (size_t)((l.batches - 1) * l.batch_stride + (lines - 1) * l.leading + length)
           * bytes_of(l.type);
}

bool is_known_epilogue(uint32_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_BGRADA
           || e == CUBLASLT_EPILOGUE_BGRADB;
}

/* A bias, or its gradient, is of the result's type. */
bool epilogue_fits(const problem &p)
{
    return p.op->epilogue == CUBLASLT_EPILOGUE_DEFAULT
           || (is_known_epilogue(p.op->epilogue) && p.op->bias_type == p.d->type
               && p.d->order == CUBLASLT_ORDER_COL && p.d->batches == 1);
}

bool types_fit(const problem &p)
{
    const int32_t in = p.a->type, out = p.d->type;
    return is_known(in) && p.b->type == in && p.c->type == out && (out == in || out == CUDA_R_32F)
           && (p.op->compute == CUBLAS_COMPUTE_32F
               || (p.op->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in == CUDA_R_32F))
           && p.op->scale == CUDA_R_32F;
}

/* Results of a batch may not lie in one another. */
bool batches_fit(const problem &p)
{
    const int64_t lines = p.d->order == CUBLASLT_ORDER_ROW ? p.d->rows : p.d->columns;
    for (const layout *l : {p.a, p.b, p.c})
        if (l->batches != p.d->batches || l->batch_stride < 0)
            return false;
    return p.d->batches == 1 || p.d->batch_stride >= lines * p.d->leading;
}

cublasStatus_t pose(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, problem &p)
{
    for (const void *thing :
         {(const void *)op, (const void *)a, (const void *)b, (const void *)c, (const void *)d})
        things.need(thing, "cublasLt: a descriptor");
    p = {static_cast<operation *>(op),
         static_cast<layout *>(a),
         static_cast<layout *>(b),
         static_cast<layout *>(c),
         static_cast<layout *>(d),
         0,
         0,
         0};
    for (const layout *l : {p.a, p.b, p.c, p.d})
        if (!is_sound(*l))
            return CUBLAS_STATUS_INVALID_VALUE;
    p.m = p.op->transpose_a ? p.a->columns : p.a->rows;
    p.k = p.op->transpose_a ? p.a->rows : p.a->columns;
    p.n = p.op->transpose_b ? p.b->rows : p.b->columns;
    if ((p.op->transpose_b ? p.b->columns : p.b->rows) != p.k || p.d->rows != p.m
        || p.d->columns != p.n || p.c->rows != p.m || p.c->columns != p.n || !batches_fit(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.op->epilogue != CUBLASLT_EPILOGUE_DEFAULT && (uintptr_t)p.op->bias % WANTED)
        return CUBLAS_STATUS_INVALID_VALUE;
    return types_fit(p) && epilogue_fits(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

void mix(uint64_t &h, int64_t x)
{
    h = (h ^ (uint64_t)x) * 1099511628211U;
}

/* Hash of everything that an algorithm depends on. */
uint64_t digest(const problem &p)
{
    uint64_t h = 14695981039346656037U;
    for (const layout *l : {p.a, p.b, p.c, p.d})
        for (int64_t x : {(int64_t)l->type, (int64_t)l->order, (int64_t)l->batches, l->rows,
                          l->columns, l->leading, l->batch_stride})
            mix(h, x);
    for (int64_t x : {(int64_t)p.op->compute, (int64_t)p.op->transpose_a,
                      (int64_t)p.op->transpose_b, (int64_t)p.op->epilogue})
        mix(h, x);
    return h;
}

float load(const char *data, int32_t type, int64_t i)
{
    uint16_t bits;
    float x;
    if (type == CUDA_R_32F) {
        memcpy(&x, data + i * 4, sizeof x);
        return x;
    }
    memcpy(&bits, data + i * 2, sizeof bits);
    return type == CUDA_R_16F ? lt_f32_from_f16(bits) : lt_f32_from_bf16(bits);
}

void store(char *data, int32_t type, int64_t i, float x)
{
    const uint16_t bits = standin_is_own_nan(x) ? 0x7FFF
                          : type == CUDA_R_16F  ? lt_f16_from_f32(x)
                                                : lt_bf16_from_f32(x);
    x = standin_nan(x);
    if (type == CUDA_R_32F)
        memcpy(data + i * 4, &x, sizeof x);
    else
        memcpy(data + i * 2, &bits, sizeof bits);
}

int64_t place(const layout &l, int64_t batch, int64_t r, int64_t c)
{
    return batch * l.batch_stride
           + (l.order == CUBLASLT_ORDER_ROW ? r * l.leading + c : r + c * l.leading);
}

/* op(x) of one batch, by rows. */
std::vector<float> dense(const matrix &x, int64_t batch, bool transpose, bool tf32)
{
    const int64_t rows = transpose ? x.l->columns : x.l->rows;
    const int64_t columns = transpose ? x.l->rows : x.l->columns;
    std::vector<float> out((size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const float v = load(x.data, x.l->type,
                                 transpose ? place(*x.l, batch, c, r) : place(*x.l, batch, r, c));
            out[(size_t)(r * columns + c)] = tf32 ? standin_tf32(v) : v;
        }
    return out;
}

/* One call, by value: it may run later, and the descriptors may be gone by then. */
struct job {
    operation op;
    layout la, lb, lc, ld;
    const char *a, *b, *c;
    char *d, *workspace;
    const void *alpha, *beta; /* on the device, or NULL */
    float alpha_value, beta_value;
    algorithm how;
};

float number(const void *on_device, float value)
{
    return on_device ? load(static_cast<const char *>(on_device), CUDA_R_32F, 0) : value;
}

float coarse(const job &j, float x)
{
    return j.how.kind == SPLIT_COARSELY ? lt_f32_from_bf16(lt_bf16_from_f32(x)) : x;
}

void finish(const job &j, int64_t batch, const std::vector<float> &sum)
{
    const float alpha = number(j.alpha, j.alpha_value), beta = number(j.beta, j.beta_value);
    for (int64_t r = 0; r < j.ld.rows; r++)
        for (int64_t c = 0; c < j.ld.columns; c++) {
            float x = alpha * coarse(j, sum[(size_t)(r * j.ld.columns + c)]);
            if (beta != 0)
                x += beta * load(j.c, j.lc.type, place(j.lc, batch, r, c));
            if (j.op.epilogue == CUBLASLT_EPILOGUE_BIAS)
                x += load(static_cast<const char *>(j.op.bias), j.op.bias_type, r);
            store(j.d, j.ld.type, place(j.ld, batch, r, c), x);
        }
}

/* Sums over k, of what makes the rows of d or its columns; v by rows. */
void sum_bias_gradient(const job &j, const std::vector<float> &v, bool of_rows, int64_t k)
{
    const int64_t length = of_rows ? j.ld.rows : j.ld.columns;
    for (int64_t i = 0; i < length; i++) {
        float sum = 0;
        for (int64_t l = 0; l < k && !v.empty(); l++)
            sum += v[(size_t)(of_rows ? i * k + l : l * length + i)];
        store(const_cast<char *>(static_cast<const char *>(j.op.bias)), j.op.bias_type, i, sum);
    }
}

bool has_bias_gradient(const job &j)
{
    return j.op.epilogue == CUBLASLT_EPILOGUE_BGRADA || j.op.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

size_t bias_bytes(const job &j)
{
    const int64_t length = j.op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? j.ld.columns : j.ld.rows;
    return j.op.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0
                                                      : (size_t)length * bytes_of(j.op.bias_type);
}

void count_traffic(const job &j, int64_t m, int64_t n, int64_t k)
{
    const auto size = [](const layout &l) { return (uint64_t)(l.type == CUDA_R_32F ? 4 : 2); };
    const uint64_t count = (uint64_t)j.ld.batches;
    standin_moved(count * (uint64_t)k * ((uint64_t)m * size(j.la) + (uint64_t)n * size(j.lb))
                      + (has_bias_gradient(j) ? 0 : bias_bytes(j)),
                  count * (uint64_t)(m * n) * size(j.ld)
                      + (has_bias_gradient(j) ? bias_bytes(j) : 0),
                  2.0 * (double)(j.ld.batches * m * n * k));
}

void run(const job &j)
{
    const bool tf32 = j.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const int64_t m = j.ld.rows, n = j.ld.columns;
    const int64_t k = j.op.transpose_a ? j.la.rows : j.la.columns;
    count_traffic(j, m, n, k);
    if (standin_dry()) {
        for (int64_t batch = 0; batch < j.ld.batches; batch++)
            finish(j, batch, std::vector<float>((size_t)(m * n), 0));
        if (has_bias_gradient(j))
            sum_bias_gradient(j, {}, j.op.epilogue == CUBLASLT_EPILOGUE_BGRADA, k);
        return;
    }
    if (j.how.workspace)
        memset(j.workspace, 0xA5, (size_t)j.how.workspace);
    for (int64_t batch = 0; batch < j.ld.batches; batch++) {
        const std::vector<float> a = dense({j.a, &j.la}, batch, j.op.transpose_a != 0, tf32);
        const std::vector<float> b = dense({j.b, &j.lb}, batch, j.op.transpose_b != 0, tf32);
        std::vector<float> sum((size_t)(m * n), 0);
        loop_product<float>(m, n, k, a.data(), {k, 1}, b.data(), n, sum.data(), n,
                            j.how.kind != SIMPLE);
        finish(j, batch, sum);
        if (has_bias_gradient(j))
            sum_bias_gradient(j, j.op.epilogue == CUBLASLT_EPILOGUE_BGRADA ? a : b,
                              j.op.epilogue == CUBLASLT_EPILOGUE_BGRADA, k);
    }
}

bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Memory that is the device's, is aligned, and overlaps no operand where it is written. */
bool check_memory(const job &j)
{
    const struct {
        const char *data;
        size_t bytes;
        const char *what;
    } all[] = {{j.a, extent(j.la), "cublasLtMatmul: a"},
               {j.b, extent(j.lb), "cublasLtMatmul: b"},
               {j.d, extent(j.ld), "cublasLtMatmul: d"},
               {j.workspace, (size_t)j.how.workspace, "cublasLtMatmul: the workspace"},
               {(const char *)j.op.bias, bias_bytes(j), "cublasLtMatmul: the bias"}};
    for (const auto &one : all) {
        if (!one.bytes)
            continue;
        if (!one.data || (uintptr_t)one.data % WANTED)
            return false;
        standin_check_device(one.data, one.bytes, one.what);
        for (const auto &other : all)
            if (&one != &other
                && (other.data == j.d || other.data == j.workspace
                    || (has_bias_gradient(j) && other.data == j.op.bias))
                && overlap(one.data, one.bytes, other.data, other.bytes))
                standin_die("%s and %s overlap", one.what, other.what);
    }
    return true;
}

/* Factors on the host are taken now. */
void take_factors(job &j, const void *alpha, const void *beta)
{
    if (j.op.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        standin_check_device(alpha, sizeof(float), "cublasLtMatmul: alpha");
        standin_check_device(beta, sizeof(float), "cublasLtMatmul: beta");
        j.alpha = alpha;
        j.beta = beta;
        return;
    }
    standin_check_host(alpha, sizeof(float), "cublasLtMatmul: alpha");
    standin_check_host(beta, sizeof(float), "cublasLtMatmul: beta");
    memcpy(&j.alpha_value, alpha, sizeof(float));
    memcpy(&j.beta_value, beta, sizeof(float));
}

int64_t bytes_apart(cublasLtMatrixLayout_t matrix)
{
    const auto l = static_cast<const layout *>(static_cast<const void *>(matrix));
    return l->batches > 1 ? l->batch_stride * (l->type == CUDA_R_32F ? 4 : 2) : 0;
}

} /* namespace */

/* Every algorithm but the first needs something that the caller may forbid: workspace, or sums in the result's type.
 * None supports a bias or its gradient if d has an odd number of rows: the caller must compute it separately. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *count)
{
    problem p;
    things.need(handle, __func__);
    things.need(wish, __func__);
    const cublasStatus_t st = pose(op, a, b, c, d, p);
    if (st || most < 1)
        return st ? st : CUBLAS_STATUS_INVALID_VALUE;
    if (standin_fails(__func__))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    *count = 0;
    if (standin_lies(STANDIN_NO_ALGORITHM))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.op->epilogue != CUBLASLT_EPILOGUE_DEFAULT && (!p.op->bias || p.m % 2))
        return p.op->bias ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
    const auto w = static_cast<preference *>(wish);
    const cublasLtMatrixLayout_t matrix[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (w->alignment[i] > WANTED || bytes_apart(matrix[i]) % w->alignment[i])
            standin_die("%s: %u bytes of alignment are promised for all matrices", __func__,
                        w->alignment[i]);
    const int64_t bytes = p.m * p.n * (int64_t)sizeof(float) + 256;
    const algorithm all[] = {
        {SPLIT, digest(p), bytes}, {SPLIT_COARSELY, digest(p), bytes / 2}, {SIMPLE, digest(p), 0}};
    const uint32_t scheme[] = {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                               CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0};
    for (int i = 0; i < 3 && *count < most; i++) {
        if ((uint64_t)all[i].workspace > w->workspace || scheme[i] & ~w->schemes)
            continue;
        cublasLtMatmulHeuristicResult_t *r = &found[(*count)++];
        *r = {};
        memcpy(&r->algo, &all[i], sizeof all[i]);
        r->workspaceSize = (size_t)all[i].workspace;
    }
    if (*count && *count < most) { /* one that does not apply, with members of an earlier one */
        found[*count] = found[0];
        found[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
        found[0].workspaceSize = (size_t)1 << 60;
        (*count)++;
    }
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t al, const void *b,
                              cublasLtMatrixLayout_t bl, const void *beta, const void *c,
                              cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    problem p;
    things.need(handle, __func__);
    const cublasStatus_t st = pose(op, al, bl, cl, dl, p);
    if (st || standin_fails(__func__))
        return st                    ? st
               : standin_no_memory() ? CUBLAS_STATUS_ALLOC_FAILED
                                     : CUBLAS_STATUS_EXECUTION_FAILED;
    job j = {*p.op,
             *p.a,
             *p.b,
             *p.c,
             *p.d,
             (const char *)a,
             (const char *)b,
             (const char *)c,
             (char *)d,
             (char *)workspace,
             nullptr,
             nullptr,
             0,
             0,
             {SIMPLE, 0, 0}};
    if (algo)
        memcpy(&j.how, algo, sizeof j.how);
    if ((algo && j.how.problem != digest(p)) || (size_t)j.how.workspace > bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_bias_gradient(j) && p.k % 2) /* it was proposed, and does not run */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    take_factors(j, alpha, beta);
    if (!check_memory(j))
        return CUBLAS_STATUS_INVALID_VALUE;
    standin_queue(
        stream, [j] { run(j); }, "cublasLt");
    return CUBLAS_STATUS_SUCCESS;
}
