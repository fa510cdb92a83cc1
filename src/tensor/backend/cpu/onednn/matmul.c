/* Matrix products by oneDNN: its matmul in bf16, its sgemm in f32. Transposes and batches are strides. */

#include "base/parallel.h"
#include "onednn.h"
#include "tensor/backend/cpu/gemm/matmul_job.h"
#include "tensor/backend/cpu/operands.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { B = LT_MATMUL_BATCH, ROWS = LT_MATMUL_ROWS, COLS = LT_MATMUL_COLS };

typedef struct batch {
    const lt_matmul_job *p;
    dnnl_status_t status;
} batch;

static void multiply_batches(void *context, int64_t begin, int64_t end)
{
    batch *all = context;
    const lt_matmul_job *p = all->p;
    const int64_t m = p->y.shape.dim[ROWS], n = p->y.shape.dim[COLS], k = p->a.shape.dim[COLS];
    bool ta, tb, ty;
    int64_t lda, ldb, ldy;
    lt_matmul_find_stride(&p->a, &ta, &lda);
    lt_matmul_find_stride(&p->b, &tb, &ldb);
    lt_matmul_find_stride(&p->y, &ty, &ldy);
    for (int64_t i = begin; i < end; i++) {
        const float *a = (const float *)p->a.data + i * p->a.stride[B];
        const float *b = (const float *)p->b.data + i * p->b.stride[B];
        float *y = (float *)p->y.data + i * p->y.stride[B];
        dnnl_status_t st =
            ty ? dnnl_sgemm(tb ? 'N' : 'T', ta ? 'N' : 'T', n, m, k, 1, b, ldb, a, lda, 0, y,
                            ldy) /* y' = b' a' */
               : dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, 0, y, ldy);
        if (st)
            all->status = st;
    }
}

/* A product split along its longer dimension. */
typedef struct split {
    const lt_matmul_job *p;
    int axis;
    int64_t size, count; /* rows or columns of a part; parts of a matrix */
    dnnl_status_t status;
} split;

static split split_product(const lt_matmul_job *p)
{
    enum { LEAST = 128, WORK = 1 << 20 }; /* rows; multiplications */
    const int64_t *dim = p->y.shape.dim;
    split all = {.p = p, .axis = dim[ROWS] < dim[COLS] ? COLS : ROWS};
    const int64_t each =
        dim[ROWS] * dim[COLS] / lt_cpu_max(dim[all.axis], 1) * p->a.shape.dim[COLS];
    all.size = lt_cpu_max(lt_cpu_ceil_div(WORK, lt_cpu_max(each, 1)), LEAST);
    all.count = lt_cpu_ceil_div(dim[all.axis], all.size);
    return all;
}

static void multiply_split_part(void *context, int64_t begin, int64_t end)
{
    split *all = context;
    for (int64_t i = begin; i < end; i++) {
        lt_matmul_job part = *all->p;
        lt_view *from = all->axis == ROWS ? &part.a : &part.b, *to = &part.y;
        const int64_t first = i % all->count * all->size,
                      size = lt_cpu_min(to->shape.dim[all->axis] - first, all->size);
        from->data = (float *)from->data + first * from->stride[all->axis];
        to->data = (float *)to->data + first * to->stride[all->axis];
        from->shape.dim[all->axis] = to->shape.dim[all->axis] = size;
        batch one = {&part, dnnl_success};
        multiply_batches(&one, i / all->count, i / all->count + 1);
        if (one.status)
            all->status = one.status;
    }
}

/* Multiplies by dnnl_sgemm() in parts, each on one thread. */
static dnnl_status_t multiply_split(const lt_matmul_job *p)
{
    split all = split_product(p);
    const int64_t count = p->y.shape.dim[B] * all.count;
    const int threads = lt_parallel_threads();
    if (count == 1)
        lt_parallel_set_threads(1);
    lt_parallel_range(count, 1, multiply_split_part, &all);
    if (count == 1)
        lt_parallel_set_threads(threads);
    return all.status;
}

/* Returns true if oneDNN 2.6's sgemm on AVX2 would take up to twice as long as the built-in product: it does not pack
 * few rows, and reads its second operand by rows that are whole pages apart, which map to the same sets of L1. */
static bool has_cache_conflicts(const lt_matmul_job *p)
{
    enum { PAGE = 1024, FEW = 32 };
    bool ty, ta, tb;
    int64_t ldy, lda, ldb;
    lt_matmul_find_stride(&p->y, &ty, &ldy);
    lt_matmul_find_stride(&p->a, &ta, &lda);
    lt_matmul_find_stride(&p->b, &tb, &ldb);
    const bool by_rows = ty ? ta : !tb; /* a is the second where y is transposed */
    return by_rows && (lda % PAGE == 0 || ldb % PAGE == 0)
           && p->y.shape.dim[ty ? COLS : ROWS] >= FEW;
}

/* On AVX2 oneDNN's sgemm splits some sums over threads, so that results would depend on their number: multiplies parts
 * instead. Not seen with AVX-512. */
static dnnl_status_t multiply_by_sgemm(const lt_cpu *cpu, const lt_matmul_job *p)
{
    if (cpu->isa < LT_ISA_AVX512)
        return multiply_split(p);
    /* One gemm uses all threads; many small ones are distributed over them. */
    batch all = {p, dnnl_success};
    const int64_t batches = p->y.shape.dim[B];
    if (batches >= 2 * (int64_t)lt_parallel_threads())
        lt_parallel_range(batches, 1, multiply_batches, &all);
    else
        multiply_batches(&all, 0, batches);
    return all.status;
}

lt_status lt_onednn_multiply_f32(lt_cpu *cpu, const lt_matmul_job *p, bool *done)
{
    *done = cpu->onednn && !(cpu->isa == LT_ISA_AVX2 && has_cache_conflicts(p));
    return *done ? lt_dnnl_check(multiply_by_sgemm(cpu, p), "sgemm") : LT_OK;
}

static dnnl_status_t make_matrix_desc(dnnl_memory_desc_t *md, const lt_view *v)
{
    bool transposed;
    int64_t stride;
    lt_matmul_find_stride(v, &transposed, &stride);
    const int64_t *d = v->shape.dim;
    const bool once = v->stride[B] == 0; /* repeated for all batches */
    const dnnl_dims_t dims = {once ? 1 : d[B], d[ROWS], d[COLS]};
    const int64_t count = stride * (transposed ? d[COLS] : d[ROWS]);
    const dnnl_dims_t strides = {d[B] > 1 && !once ? v->stride[B] : count, transposed ? 1 : stride,
                                 transposed ? stride : 1};
    return lt_md_make(md, 3, dims, v->dtype == LT_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static void make_key(const lt_matmul_job *p, int64_t key[LT_PRIMITIVE_KEY])
{
    const lt_view *v[] = {&p->a, &p->b, &p->y};
    memset(key, 0, LT_PRIMITIVE_KEY * sizeof *key);
    key[1] = v[0]->shape.dim[B]; /* key[0] == 0: not a convolution */
    key[2] = v[2]->shape.dim[ROWS];
    key[3] = v[2]->shape.dim[COLS];
    key[4] = v[0]->shape.dim[COLS];
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 3; d++)
            key[5 + 3 * i + d] = v[i]->stride[d];
    key[14] = lt_cpu_has_data(&p->bias);
    key[15] = p->y.dtype;
    key[16] = lt_parallel_threads();
}

static lt_status create_matmul_primitive(lt_onednn *onednn, lt_primitive *prim,
                                         const dnnl_memory_desc_t mds[3],
                                         const dnnl_memory_desc_t *bias)
{
    dnnl_primitive_desc_t pd;
    if (lt_matmul_describe(&pd, onednn->engine, mds, bias, onednn->attr))
        return LT_OK; /* prim->primitive remains NULL */
    lt_status st = lt_primitive_create_memory(onednn, &prim->x, lt_md_as_argument(&mds[0]));
    if (!st)
        st = lt_primitive_create_memory(onednn, &prim->w, lt_md_as_argument(&mds[1]));
    if (!st)
        st = lt_primitive_create_memory(onednn, &prim->y, lt_md_as_argument(&mds[2]));
    if (!st && bias)
        st = lt_primitive_create_memory(onednn, &prim->b, lt_md_as_argument(bias));
    if (!st)
        st = lt_primitive_create_scratchpad(onednn, prim, pd);
    if (!st)
        st = lt_dnnl_check(dnnl_primitive_create(&prim->primitive, pd), "matmul");
    dnnl_primitive_desc_destroy(pd);
    return st;
}

static lt_status fill_primitive(lt_onednn *onednn, lt_primitive *prim, const void *problem)
{
    const lt_matmul_job *p = problem;
    dnnl_memory_desc_t mds[3] = {0}, bias = {0};
    const bool has_bias = lt_cpu_has_data(&p->bias);
    const dnnl_dims_t dims = {1, 1, p->y.shape.dim[COLS]};
    const dnnl_dims_t strides = {dims[2], dims[2], 1};
    dnnl_status_t made = make_matrix_desc(&mds[0], &p->a);
    if (!made)
        made = make_matrix_desc(&mds[1], &p->b);
    if (!made)
        made = make_matrix_desc(&mds[2], &p->y);
    if (!made && has_bias)
        made = lt_md_make(&bias, 3, dims, dnnl_f32, strides);

    lt_status st = LT_OK;
    if (!made)
        st = create_matmul_primitive(onednn, prim, mds, has_bias ? &bias : NULL);
    for (int i = 0; i < 3; i++)
        lt_md_free(&mds[i]);
    lt_md_free(&bias);
    return st;
}

lt_status lt_onednn_multiply_bf16(lt_cpu *cpu, const lt_matmul_job *p, bool *done)
{
    lt_matmul_job f = *p;
    bool transposed;
    int64_t stride;
    *done = false;
    if (!cpu->onednn || cpu->isa < LT_ISA_AVX512
        || !lt_matmul_find_stride(&p->y, &transposed, &stride) || transposed)
        return LT_OK;
    LT_TRY(lt_matmul_make_readable(cpu, LT_CPU_COPY_X, LT_BF16, &f.a));
    LT_TRY(lt_matmul_make_readable(cpu, LT_CPU_COPY_W, LT_BF16, &f.b));
    int64_t key[LT_PRIMITIVE_KEY];
    make_key(&f, key);
    lt_primitive *prim;
    LT_TRY(lt_primitive_find_or_create(cpu->onednn, key, fill_primitive, &f, &prim));
    if (!prim->primitive)
        return LT_OK;
    dnnl_memory_set_data_handle(prim->x, f.a.data);
    dnnl_memory_set_data_handle(prim->w, f.b.data);
    dnnl_memory_set_data_handle(prim->y, f.y.data);
    if (prim->b) {
        void *bias;
        LT_TRY(lt_cpu_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        dnnl_memory_set_data_handle(prim->b, bias);
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, prim->x},
                                    {DNNL_ARG_WEIGHTS, prim->w},
                                    {DNNL_ARG_DST, prim->y},
                                    {DNNL_ARG_BIAS, prim->b}};
    *done = true;
    return lt_primitive_run(cpu, prim, args, prim->b ? 4 : 3);
}
