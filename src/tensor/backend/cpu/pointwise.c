/* Elementwise functions of one or two operands and their gradients, in f32 and bf16. Views of one dense layout are
 * processed directly, others block by block through small row-major copies. Other dtypes fall back to the reference
 * backend. Formulas: detail/pointwise.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tensor/backend/dtype.h"

enum { OUT, DY, A, B, OPERANDS };

enum { GRAIN = 65536, BLOCK = 512 }; /* elements of a chunk, in L2; of a copied block, in L1 */

typedef struct job {
    const lt_cpu_kernels *kernels;
    const lt_pointwise *f;
    int input;                     /* operand of a gradient */
    const lt_view *view[OPERANDS]; /* DY NULL: computes the value; B NULL: unary function */
    int dims, order[LT_MAX_DIMS];  /* the output's dimensions > 1, outermost first */
} job;

static void run_row(const job *j, lt_cpu_store store, char *const at[OPERANDS], int64_t count)
{
    const lt_pointwise_row row = {j->f, j->input, at[DY], at[A], at[B], at[OUT]};
    j->kernels->of[store].pointwise(&row, count);
}

static void compute_dense_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const lt_dtype dtype = j->view[OUT]->dtype;
    char *at[OPERANDS] = {NULL};
    for (int k = 0; k < OPERANDS; k++)
        if (j->view[k])
            at[k] = (char *)j->view[k]->data + (size_t)begin * lt_dtype_size(dtype);
    run_row(j, lt_cpu_store_from_dtype(dtype), at, end - begin);
}

/* Multi-index of an element, in the order of the output's memory. */
typedef struct position {
    int64_t index[LT_MAX_DIMS];
} position;

static position index_to_position(const job *j, int64_t element)
{
    position p = {{0}};
    const lt_shape *shape = &j->view[OUT]->shape;
    for (int k = j->dims - 1; k >= 0; k--) {
        const int64_t extent = shape->dim[j->order[k]];
        p.index[j->order[k]] = element % extent;
        element /= extent;
    }
    return p;
}

/* Advances p by a run of at most `left` elements along the innermost dimension. Returns the run's length. */
static int64_t advance_run(const job *j, position *p, int64_t left)
{
    const lt_shape *shape = &j->view[OUT]->shape;
    int k = j->dims - 1;
    const int64_t count = lt_cpu_min(shape->dim[j->order[k]] - p->index[j->order[k]], left);
    p->index[j->order[k]] += count;
    for (; k > 0 && p->index[j->order[k]] == shape->dim[j->order[k]]; k--) {
        p->index[j->order[k]] = 0;
        p->index[j->order[k - 1]]++;
    }
    return count;
}

static int64_t position_offset(const lt_view *v, const position *p)
{
    int64_t offset = 0;
    for (int d = 0; d < v->shape.ndim; d++)
        offset += p->index[d] * v->stride[d];
    return offset;
}

static void load_run(const lt_view *v, int64_t offset, int64_t stride, int64_t count, float *to)
{
    const float *f = (const float *)v->data + offset;
    const uint16_t *h = (const uint16_t *)v->data + offset;
    if (v->dtype == LT_F32)
        for (int64_t i = 0; i < count; i++)
            to[i] = f[i * stride];
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = lt_f32_from_bf16(h[i * stride]);
}

static void save_run(const lt_view *v, int64_t offset, int64_t stride, int64_t count,
                     const float *from)
{
    float *f = (float *)v->data + offset;
    uint16_t *h = (uint16_t *)v->data + offset;
    if (v->dtype == LT_F32)
        for (int64_t i = 0; i < count; i++)
            f[i * stride] = from[i];
    else
        for (int64_t i = 0; i < count; i++)
            h[i * stride] = lt_bf16_from_f32(from[i]);
}

/* Copies count elements of an operand, starting at p, to a block; for OUT from the block. */
static void copy_operand_block(const job *j, int operand, position p, int64_t count, float *copy)
{
    const lt_view *v = j->view[operand];
    const int64_t stride = v->stride[j->order[j->dims - 1]];
    for (int64_t done = 0, run; done < count; done += run) {
        const int64_t offset = position_offset(v, &p);
        run = advance_run(j, &p, count - done);
        if (operand == OUT)
            save_run(v, offset, stride, run, copy + done);
        else
            load_run(v, offset, stride, run, copy + done);
    }
}

static void compute_strided_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    _Alignas(64) float copy[OPERANDS][BLOCK];
    char *at[OPERANDS] = {NULL};
    for (int k = 0; k < OPERANDS; k++)
        at[k] = j->view[k] ? (char *)copy[k] : NULL;
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t count = lt_cpu_min(BLOCK, end - i);
        const position p = index_to_position(j, i);
        for (int k = DY; k < OPERANDS; k++)
            if (j->view[k])
                copy_operand_block(j, k, p, count, copy[k]);
        run_row(j, LT_STORE_F32, at, count);
        copy_operand_block(j, OUT, p, count, copy[OUT]);
    }
}

/* Computes all elements. Returns false if the reference backend has to. */
static bool try_fast_pointwise(job *j)
{
    const lt_view *y = j->view[OUT];
    bool dense = true;
    for (int k = 0; k < OPERANDS; k++) {
        if (j->view[k] && !lt_cpu_is_fast_dtype(j->view[k]->dtype))
            return false;
        dense = dense
                && (!j->view[k]
                    || (j->view[k]->dtype == y->dtype && lt_cpu_has_same_layout(y, j->view[k])));
    }
    j->dims = lt_cpu_sort_dims_by_stride(y, -1, j->order);
    if (!j->dims && y->shape.ndim) /* one element: iterates along any dimension */
        j->order[j->dims++] = 0;
    if (!dense && !j->dims)
        return false;
    lt_parallel_range(lt_cpu_element_count(y), GRAIN,
                      dense ? compute_dense_chunk : compute_strided_chunk, j);
    return true;
}

static job make_job(void *ctx, const lt_pointwise *f)
{
    const lt_cpu *cpu = ctx;
    return (job){.kernels = cpu->kernels, .f = f};
}

lt_status lt_cpu_pointwise(void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
                           const lt_view *y)
{
    job j = make_job(ctx, f);
    j.view[OUT] = y;
    j.view[A] = a;
    j.view[B] = b;
    return try_fast_pointwise(&j) ? LT_OK : lt_backend_ref()->pointwise(ctx, f, a, b, y);
}

lt_status lt_cpu_pointwise_grad(void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
                                const lt_view *a, const lt_view *b, const lt_view *d)
{
    job j = make_job(ctx, f);
    j.input = input;
    j.view[OUT] = d;
    j.view[DY] = dy;
    j.view[A] = a;
    j.view[B] = b;
    return try_fast_pointwise(&j) ? LT_OK
                                  : lt_backend_ref()->pointwise_grad(ctx, f, input, dy, a, b, d);
}
