/* Matrix products by cuBLASLt: f32, in TF32 if the device allows it, f16 and bf16, with sums in f32. The algorithm is
 * autotuned at the first call with a shape. Formulas: detail/kernels.h, part 2. */

#include "kernels.h"
#include "operands.h"
#include "plan_cache.h"
#include "plan_log.h"
#include "product.h"
#include "strided_iter.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, Y, BIAS, OPERANDS, MATRICES = BIAS, KEY = 512, MOST_TRIED = 8 };

static const size_t most_workspace = (size_t)64 << 20; /* bytes */

/* An algorithm with its descriptors. */
typedef struct plan {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    bool none; /* cuBLASLt has no algorithm with this epilogue */
} plan;

typedef struct call {
    const lt_view *a, *b, *y;
    lt_dtype dtype;      /* type of both factors */
    lt_dtype y_dtype;    /* that or f32 */
    bool keeps;          /* b's cast is cached */
    const lt_view *bias; /* [columns], or NULL */
    bool
        grad; /* a is the gradient of a biased output; the bias's gradient is the sum of a's columns */
    bool separate; /* the bias is added, or its gradient summed, after the product, which is f32 */
} call;

static bool has_epilogue(const call *p)
{
    return p->bias && !p->separate;
}

static void release_plan(void *plan_data)
{
    plan *p = plan_data;
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    if (p->a)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->d)
        cublasLtMatrixLayoutDestroy(p->d);
    free(p);
}

static void close_products(lt_cuda *c, void *data)
{
    lt_plan_cache *cache = data;
    (void)c;
    lt_plan_cache_free(&cache);
}

static lt_status get_cache(lt_cuda *c, lt_plan_cache **out)
{
    lt_cuda_part *part = &c->part[LT_CUDA_PRODUCTS];
    lt_plan_cache *made;
    if (!part->data) {
        LT_TRY(lt_plan_cache_new(&made, "", release_plan));
        part->data = made;
        part->close = close_products;
    }
    *out = part->data;
    return LT_OK;
}

static cudaDataType_t data_type(lt_dtype dtype)
{
    return dtype == LT_F32 ? CUDA_R_32F : dtype == LT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static cublasComputeType_t compute_type(const lt_cuda *c, lt_dtype dtype)
{
    return dtype == LT_F32 && c->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static lt_status make_layout(lt_cuda *c, cublasLtMatrixLayout_t *out, const lt_blas_matrix *m,
                             lt_dtype dtype, int64_t batches)
{
    const int32_t count = (int32_t)batches;
    LT_CUBLAS_TRY(c, cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t)m->rows,
                                                (uint64_t)m->columns, m->leading));
    LT_CUBLAS_TRY(c, cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                      &count, sizeof count));
    LT_CUBLAS_TRY(c, cublasLtMatrixLayoutSetAttribute(*out,
                                                      CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                      &m->batch_stride, sizeof m->batch_stride));
    return LT_OK;
}

static lt_status set_bias(lt_cuda *c, const plan *p, const void *bias)
{
    LT_CUBLAS_TRY(c, cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                    sizeof bias));
    return LT_OK;
}

/* The bias has d's dtype and is along its rows; its gradient is along the rows of op(a) or the columns of op(b). The
 * heuristics use the alignment of its address (cublasLt.h): that of an operand. */
static lt_status set_epilogue(lt_cuda *c, const call *p, bool swapped, const plan *out)
{
    static const _Alignas(16) char aligned[16]; /* not read */
    const uint32_t epilogue = !p->grad  ? CUBLASLT_EPILOGUE_BIAS
                              : swapped ? CUBLASLT_EPILOGUE_BGRADB
                                        : CUBLASLT_EPILOGUE_BGRADA;
    const int32_t type = (int32_t)data_type(p->y_dtype);
    LT_CUBLAS_TRY(c, cublasLtMatmulDescSetAttribute(out->op, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &epilogue, sizeof epilogue));
    LT_CUBLAS_TRY(c, cublasLtMatmulDescSetAttribute(out->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                    &type, sizeof type));
    return set_bias(c, out, aligned);
}

static lt_status make_plan(lt_cuda *c, const call *p, const lt_blas_product *b, plan *out)
{
    const int32_t ta = b->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t tb = b->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    *out = (plan){0};
    LT_CUBLAS_TRY(c, cublasLtMatmulDescCreate(&out->op, compute_type(c, p->dtype), CUDA_R_32F));
    LT_CUBLAS_TRY(
        c, cublasLtMatmulDescSetAttribute(out->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    LT_CUBLAS_TRY(
        c, cublasLtMatmulDescSetAttribute(out->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    if (has_epilogue(p))
        LT_TRY(set_epilogue(c, p, b->swapped, out));
    LT_TRY(make_layout(c, &out->a, &b->a, p->dtype, b->batches));
    LT_TRY(make_layout(c, &out->b, &b->b, p->dtype, b->batches));
    return make_layout(c, &out->d, &b->d, p->y_dtype, b->batches);
}

/* Returns the alignment in bytes of all matrices of a batch whose first one is aligned to 16. */
static uint32_t batch_alignment(const lt_blas_matrix *m, lt_dtype dtype)
{
    uint32_t bytes = 16;
    while (m->batch_stride * (int64_t)lt_dtype_size(dtype) % bytes)
        bytes /= 2;
    return bytes;
}

/* Queries the heuristics; *count 0: no algorithm. Excludes partial sums in 16 bits. */
static lt_status query_heuristics(lt_cuda *c, const plan *p, const call *k,
                                  const lt_blas_product *of, cublasLtMatmulHeuristicResult_t *found,
                                  int *count)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = batch_alignment(&of->a, k->dtype), b = batch_alignment(&of->b, k->dtype);
    const uint32_t d = batch_alignment(&of->d, k->y_dtype);
    cublasLtMatmulPreference_t wish;
    LT_CUBLAS_TRY(c, cublasLtMatmulPreferenceCreate(&wish));
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } all[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most_workspace, sizeof most_workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d},
    };
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof all / sizeof *all && !st; i++)
        st = cublasLtMatmulPreferenceSetAttribute(wish, all[i].name, all[i].value, all[i].bytes);
    if (!st)
        st = cublasLtMatmulAlgoGetHeuristic(c->cublaslt, p->op, p->a, p->b, p->d, p->d, wish,
                                            MOST_TRIED, found, count);
    cublasLtMatmulPreferenceDestroy(wish);
    if (st == CUBLAS_STATUS_NOT_SUPPORTED) {
        *count = 0;
        return LT_OK;
    }
    LT_TRY(lt_cuda_check(c, LT_CUDA_CUBLAS, (int)st, "cublasLtMatmulAlgoGetHeuristic"));
    const int given = *count;
    *count = 0;
    for (int i = 0; i < given; i++) /* other members are valid only with this state */
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[(*count)++] = found[i];
    return LT_OK;
}

static lt_status run_plan(lt_cuda *c, const plan *p, const lt_operand *operand, bool swapped,
                          void *workspace)
{
    const float one = 1, zero = 0;
    const void *a = operand[swapped ? B : A].use.data, *b = operand[swapped ? A : B].use.data;
    void *d = operand[Y].use.data;
    if (operand[BIAS].view)
        LT_TRY(set_bias(c, p, operand[BIAS].use.data));
    LT_CUBLAS_TRY(c, cublasLtMatmul(c->cublaslt, p->op, &one, a, p->a, b, p->b, &zero, d, p->d, d,
                                    p->d, &p->algorithm, workspace, p->workspace,
                                    c->stream[LT_CUDA_MAIN]));
    return LT_OK;
}

/* Autotuning of algorithms, on the call's operands. */
typedef struct tuning {
    lt_cuda *c;
    plan *plan;
    cublasLtMatmulHeuristicResult_t found[MOST_TRIED];
    const lt_operand *operand;
    bool swapped;
    void *workspace;
} tuning;

static lt_status run_algorithm(void *context, int i)
{
    tuning *t = context;
    t->plan->algorithm = t->found[i].algo;
    t->plan->workspace = t->found[i].workspaceSize;
    return run_plan(t->c, t->plan, t->operand, t->swapped, t->workspace);
}

/* Logs the candidates with the key "product ...". */
static void log_algorithms(const tuning *t, const char *key, int count, const float *milliseconds,
                           int best)
{
    char named[KEY + 16];
    snprintf(named, sizeof named, "product %s", key);
    for (int i = 0; i < count; i++)
        lt_plan_log(t->c, &(lt_plan_line){.key = named,
                                          .kind = "algorithm",
                                          .candidate = i,
                                          .engine = -1,
                                          .workspace = t->found[i].workspaceSize,
                                          .milliseconds = milliseconds[i],
                                          .chosen = i == best});
}

static lt_status choose_algorithm(lt_cuda *c, plan *p, const call *k, const lt_blas_product *of,
                                  const char *key, lt_operand operand[OPERANDS])
{
    tuning t = {.c = c, .plan = p, .operand = operand, .swapped = of->swapped};
    float milliseconds[MOST_TRIED];
    int count = 0, best;
    size_t most = 0;
    LT_TRY(query_heuristics(c, p, k, of, t.found, &count));
    p->none = !count && has_epilogue(k);
    if (p->none)
        return LT_OK;
    if (!count)
        return lt_fail(LT_E_UNSUPPORTED,
                       "cuda:%d: %s: cuBLASLt has no algorithm for %s [%" PRId64 ",%" PRId64
                       "]%s x [%" PRId64 ",%" PRId64 "]%s",
                       c->ordinal, c->operation, lt_dtype_name(k->dtype), of->a.rows, of->a.columns,
                       of->transpose_a ? " transposed" : "", of->b.rows, of->b.columns,
                       of->transpose_b ? " transposed" : "");
    for (int i = 0; i < count; i++)
        most = t.found[i].workspaceSize > most ? t.found[i].workspaceSize : most;
    LT_TRY(lt_operands_open(c, operand, OPERANDS, most, &t.workspace));
    const lt_status st = lt_cuda_find_fastest(c, count, run_algorithm, &t, milliseconds, &best);
    log_algorithms(&t, key, count, milliseconds, st ? -1 : best);
    p->none = st && has_epilogue(k);
    if (st)
        return p->none ? LT_OK : st;
    p->algorithm = t.found[best].algo;
    p->workspace = t.found[best].workspaceSize;
    return LT_OK;
}

static void make_key(const call *p, const lt_blas_product *b, char key[KEY])
{
    const lt_blas_matrix *m[] = {&b->a, &b->b, &b->d};
    int used = snprintf(key, KEY, "%s %s%s %d %d %d %" PRId64, lt_dtype_name(p->dtype),
                        lt_dtype_name(p->y_dtype),
                        !has_epilogue(p) ? ""
                        : p->grad        ? " bias gradient"
                                         : " bias",
                        b->transpose_a, b->transpose_b, b->swapped, b->batches);
    for (int i = 0; i < MATRICES; i++)
        used += snprintf(key + used, (size_t)(KEY - used),
                         " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, m[i]->rows, m[i]->columns,
                         m[i]->leading, m[i]->batch_stride);
}

static lt_status get_plan(lt_cuda *c, const call *p, const lt_blas_product *b,
                          lt_operand operand[OPERANDS], plan **out)
{
    lt_plan_cache *cache;
    char key[KEY];
    LT_TRY(get_cache(c, &cache));
    make_key(p, b, key);
    *out = lt_plan_cache_find(cache, key);
    if (*out)
        return LT_OK;
    plan *made = calloc(1, sizeof *made);
    if (!made)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory", c->ordinal);
    lt_status st = make_plan(c, p, b, made);
    if (!st)
        st = choose_algorithm(c, made, p, b, key, operand);
    if (st) {
        release_plan(made);
        return st;
    }
    *out = made;
    return lt_plan_cache_add(cache, key, made);
}

static bool supports_dtype(lt_dtype dtype)
{
    return dtype == LT_F32 || lt_cuda_is_16_bit(dtype);
}

/* Describes the product of the views, or of contiguous copies where cuBLASLt cannot read them. */
static lt_blas_product describe_product(const call *p, lt_operand operand[OPERANDS])
{
    const lt_view *view[] = {p->a, p->b, p->y};
    const lt_dtype dtype[] = {p->dtype, p->dtype, p->y_dtype};
    lt_view like[MATRICES];
    for (int i = 0; i < MATRICES; i++) {
        operand[i] = (lt_operand){.view = view[i],
                                  .dtype = dtype[i],
                                  .fits = lt_blas_can_read(view[i]),
                                  .written = i == Y};
        like[i] = *view[i];
        if (operand[i].fits && view[i]->dtype == dtype[i] && lt_operand_is_aligned(view[i]))
            continue;
        lt_view_set_dense_strides(&like[i]);
    }
    operand[B].keeps = operand[B].refresh = p->keeps;
    operand[BIAS] = (lt_operand){.view = has_epilogue(p) ? p->bias : NULL,
                                 .dtype = p->y_dtype,
                                 .fits = p->bias && lt_view_is_contiguous(p->bias),
                                 .written = p->grad,
                                 .keeps = p->keeps,
                                 .refresh = p->keeps};
    return lt_blas_describe(&like[A], &like[B], &like[Y]);
}

/* y = product + bias, rounded once, because the product is f32. */
static lt_status add_bias(lt_cuda *c, const lt_view *product, const call *p)
{
    lt_view wide = *p->bias;
    wide.shape = p->y->shape;
    wide.stride[0] = wide.stride[1] = 0;
    wide.stride[2] = p->bias->stride[0];
    return lt_cuda_table()->add(c, product, &wide, p->y);
}

static lt_status sum_bias_gradient(lt_cuda *c, const call *p)
{
    const lt_view *dy = p->a; /* transposed */
    lt_view rows = *dy, wide = *p->bias;
    rows.shape = LT_SHAPE(dy->shape.dim[2], dy->shape.dim[1]);
    rows.stride[0] = dy->stride[2];
    rows.stride[1] = dy->stride[1];
    wide.shape = LT_SHAPE(1, dy->shape.dim[1]);
    wide.stride[0] = 0;
    wide.stride[1] = p->bias->stride[0];
    return lt_cuda_table()->sum(c, 1, &rows, &wide);
}

/* Finds the plan; NULL: the bias needs a separate call. A bias is along the features, which are d's rows only if the
 * result is row-major. */
static lt_status prepare_plan(lt_cuda *c, const call *p, lt_operand operand[OPERANDS],
                              lt_blas_product *b, plan **out)
{
    *b = describe_product(p, operand);
    *out = NULL;
    if (has_epilogue(p) && !p->grad && !b->swapped)
        return LT_OK;
    LT_TRY(get_plan(c, p, b, operand, out));
    if ((*out)->none)
        *out = NULL;
    return LT_OK;
}

static lt_status run_product(lt_cuda *c, const call *p)
{
    lt_operand operand[OPERANDS];
    lt_blas_product b;
    call separate = *p;
    plan *chosen;
    void *workspace;
    if (!supports_dtype(p->a->dtype) || !supports_dtype(p->b->dtype)
        || !supports_dtype(p->y->dtype))
        return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s of %s and %s to %s; there are f32, f16, bf16",
                       c->ordinal, c->operation, lt_dtype_name(p->a->dtype),
                       lt_dtype_name(p->b->dtype), lt_dtype_name(p->y->dtype));
    separate.separate = true;
    separate.y_dtype = LT_F32;
    LT_TRY(prepare_plan(c, p, operand, &b, &chosen));
    if (!chosen) {
        p = &separate;
        LT_TRY(prepare_plan(c, p, operand, &b, &chosen));
        LT_ASSERT(chosen); /* a plain product has an algorithm, or was an error */
    }
    LT_TRY(lt_operands_open(c, operand, OPERANDS, chosen->workspace, &workspace));
    LT_TRY(run_plan(c, chosen, operand, b.swapped, workspace));
    if (p->bias && p->separate && !p->grad)
        return add_bias(c, &operand[Y].use, p);
    LT_TRY(lt_operands_close(c, operand, OPERANDS));
    return p->bias && p->separate ? sum_bias_gradient(c, p) : LT_OK;
}

/* Returns the dtype in which a and b are multiplied: f32 if theirs differ, but a parameter is rounded to the
 * other's. */
static lt_dtype common_dtype(const lt_view *a, const lt_view *b)
{
    if (a->dtype == b->dtype)
        return a->dtype;
    if (a->dtype == LT_F32 && a->version)
        return b->dtype;
    return b->dtype == LT_F32 && b->version ? a->dtype : LT_F32;
}

static lt_status matmul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    lt_cuda *c = ctx;
    const lt_dtype dtype = common_dtype(a, b);
    const call p = {a, b, y, dtype, y->dtype == dtype ? dtype : LT_F32, false, NULL, false, false};
    LT_TRY(lt_cuda_begin(c, "matmul"));
    LT_TRY(run_product(c, &p));
    return lt_cuda_end(c);
}

/* Views a matrix as a batch of one. */
static lt_view as_batch_of_one(const lt_view *m, int rows, int columns)
{
    lt_view v = *m;
    v.shape = LT_SHAPE(1, m->shape.dim[rows], m->shape.dim[columns]);
    v.stride[0] = 0;
    v.stride[1] = m->stride[rows];
    v.stride[2] = m->stride[columns];
    return v;
}

static lt_status linear(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    lt_cuda *c = ctx;
    const lt_view a = as_batch_of_one(x, 0, 1), b = as_batch_of_one(w, 1, 0),
                  d = as_batch_of_one(y, 0, 1);
    const lt_dtype dtype = x->dtype;
    const bool biased = bias && bias->data, plain = y->dtype == dtype || y->dtype == LT_F32;
    const call p = {&a,    &b,    &d, dtype, plain ? y->dtype : LT_F32, true, biased ? bias : NULL,
                    false, !plain};
    LT_TRY(lt_cuda_begin(c, "linear"));
    LT_TRY(run_product(c, &p));
    return lt_cuda_end(c);
}

/* In f32, the bias's gradient is separate: with TF32 an epilogue might sum rounded values. */
static lt_status linear_grad_w(void *ctx, const lt_view *dy, const lt_view *x, const lt_view *dw,
                               const lt_view *db)
{
    lt_cuda *c = ctx;
    const lt_view a = as_batch_of_one(dy, 1, 0), b = as_batch_of_one(x, 0, 1),
                  d = as_batch_of_one(dw, 0, 1);
    const lt_dtype dtype = common_dtype(dy, x);
    const call p = {&a,    &b, &d,   dtype,          dw->dtype == dtype ? dtype : LT_F32,
                    false, db, true, dtype == LT_F32};
    LT_TRY(lt_cuda_begin(c, "linear_grad_w"));
    LT_TRY(run_product(c, &p));
    return lt_cuda_end(c);
}

void lt_cuda_install_products(lt_backend *be)
{
    be->matmul = matmul;
    be->linear = linear;
    be->linear_grad_w = linear_grad_w;
}
