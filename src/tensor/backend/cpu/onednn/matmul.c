/* Matrix products: bf16 by the built-in micro-kernel or oneDNN's matmul, f32 by oneDNN's sgemm. Transposes and batches
 * are strides. */

#include "base/parallel.h"
#include "onednn.h"
#include "tensor/backend/cpu/gemm/gemm.h"
#include "tensor/backend/cpu/gemm/product.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { B, ROWS, COLS }; /* dimensions of an operand */

/* y = a * b + bias; 3-D views, bias [N] or absent. */
typedef struct product {
    lt_view a, b, bias, y;
    bool weight; /* b is a parameter, rounded to a's dtype */
} product;

/* Finds the stride between rows (if transposed, columns). Returns false if a gemm cannot read the matrix. */
static bool find_gemm_stride(const lt_view *v, bool *transposed, int64_t *stride)
{
    const int64_t rows = v->shape.dim[ROWS], cols = v->shape.dim[COLS];
    *transposed = false;
    *stride = rows == 1 ? cols : v->stride[ROWS];
    if ((cols == 1 || v->stride[COLS] == 1) && *stride >= cols)
        return true;
    *transposed = true;
    *stride = cols == 1 ? rows : v->stride[COLS];
    return (rows == 1 || v->stride[ROWS] == 1) && *stride >= rows;
}

/* Replaces *v by a copy in the slot unless a gemm can read it in this dtype. */
static lt_status make_readable_by_gemm(lt_cpu *cpu, lt_cpu_slot slot, lt_dtype dtype, lt_view *v)
{
    bool transposed;
    int64_t stride;
    if (v->dtype == dtype && find_gemm_stride(v, &transposed, &stride))
        return LT_OK;
    if (v->stride[B] == 0)
        v->shape.dim[B] = 1; /* one copy for all batches */
    size_t bytes = (size_t)lt_cpu_element_count(v) * lt_dtype_size(dtype);
    void *data = lt_cpu_scratch(cpu, slot, bytes);
    if (!data)
        return LT_E_NOMEM;
    lt_view copy = lt_cpu_dense_view(data, dtype, v->shape);
    LT_TRY(lt_cpu_cast(cpu, v, &copy));
    if (v->shape.dim[B] == 1)
        copy.stride[B] = 0;
    *v = copy;
    return LT_OK;
}

typedef struct batch {
    const product *p;
    dnnl_status_t status;
} batch;

static void multiply_batches(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    batch *all = context;
    const product *p = all->p;
    const int64_t m = p->y.shape.dim[ROWS], n = p->y.shape.dim[COLS], k = p->a.shape.dim[COLS];
    bool ta, tb, ty;
    int64_t lda, ldb, ldy;
    find_gemm_stride(&p->a, &ta, &lda);
    find_gemm_stride(&p->b, &tb, &ldb);
    find_gemm_stride(&p->y, &ty, &ldy);
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

typedef struct bias_job {
    const lt_cpu_kernels *kernels;
    const lt_view *y;
    const float *bias;
} bias_job;

/* Adds the bias to rows of all batches. */
static void add_bias_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const bias_job *all = context;
    const lt_view *y = all->y;
    const int64_t rows = y->shape.dim[ROWS], cols = y->shape.dim[COLS], step = y->stride[COLS];
    for (int64_t i = begin; i < end; i++) {
        float *row = (float *)y->data + i / rows * y->stride[B] + i % rows * y->stride[ROWS];
        if (step == 1)
            all->kernels->of[LT_STORE_F32].add(row, all->bias, row, cols);
        else
            for (int64_t c = 0; c < cols; c++)
                row[c * step] += all->bias[c];
    }
}

static void add_bias(const lt_cpu *cpu, const product *p)
{
    enum { GRAIN = 65536 }; /* elements */
    const int64_t *dim = p->y.shape.dim;
    bias_job all = {cpu->kernels, &p->y, p->bias.data};
    lt_parallel(dim[B] * dim[ROWS], dim[COLS] < GRAIN ? GRAIN / dim[COLS] : 1, add_bias_rows, &all);
}

/* A product split along its longer dimension. */
typedef struct split {
    const product *p;
    int axis;
    int64_t size, count; /* rows or columns of a part; parts of a matrix */
    dnnl_status_t status;
} split;

static split split_product(const product *p)
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

static void multiply_split_part(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    split *all = context;
    for (int64_t i = begin; i < end; i++) {
        product part = *all->p;
        lt_view *from = all->axis == ROWS ? &part.a : &part.b, *to = &part.y;
        const int64_t first = i % all->count * all->size,
                      size = lt_cpu_min(to->shape.dim[all->axis] - first, all->size);
        from->data = (float *)from->data + first * from->stride[all->axis];
        to->data = (float *)to->data + first * to->stride[all->axis];
        from->shape.dim[all->axis] = to->shape.dim[all->axis] = size;
        batch one = {&part, dnnl_success};
        multiply_batches(&one, i / all->count, i / all->count + 1, 0);
        if (one.status)
            all->status = one.status;
    }
}

/* Multiplies by dnnl_sgemm() in parts, each on one thread. */
static dnnl_status_t multiply_split(const product *p)
{
    split all = split_product(p);
    const int64_t count = p->y.shape.dim[B] * all.count;
    const int threads = lt_parallel_threads();
    if (count == 1)
        lt_parallel_set_threads(1);
    lt_parallel(count, 1, multiply_split_part, &all);
    if (count == 1)
        lt_parallel_set_threads(threads);
    return all.status;
}

static lt_operand strided_operand(const lt_view *v, int64_t index, int lanes)
{
    const int steps = ROWS + COLS - lanes;
    return (lt_operand){(const float *)v->data + index * v->stride[B],
                        lt_axis_1d(v->shape.dim[lanes], v->stride[lanes]),
                        lt_axis_1d(v->shape.dim[steps], v->stride[steps])};
}

/* Returns y = a b, or y' = b' a' if y's columns are strided. */
static lt_product make_builtin_product(const product *p, int64_t index)
{
    const lt_view *y = &p->y;
    const bool across = y->stride[COLS] != 1 && y->shape.dim[COLS] > 1;
    const int rows = across ? COLS : ROWS, cols = ROWS + COLS - rows;
    const lt_operand a = strided_operand(&p->a, index, ROWS),
                     b = strided_operand(&p->b, index, COLS);
    return (lt_product){.a = across ? b : a,
                        .b = across ? a : b,
                        .y = (float *)y->data + index * y->stride[B],
                        .row = lt_axis_1d(y->shape.dim[rows], y->stride[rows]),
                        .col = lt_axis_1d(y->shape.dim[cols], y->stride[cols]),
                        .rows = y->shape.dim[rows],
                        .cols = y->shape.dim[cols],
                        .depth = p->a.shape.dim[COLS],
                        .alpha = 1};
}

/* Returns true if oneDNN 2.6's sgemm on AVX2 would take up to twice as long as the built-in product: it does not pack
 * few rows, and reads its second operand by rows that are whole pages apart, which map to the same sets of L1. */
static bool has_cache_conflicts(const product *p)
{
    enum { PAGE = 1024, FEW = 32 };
    bool ty, ta, tb;
    int64_t ldy, lda, ldb;
    find_gemm_stride(&p->y, &ty, &ldy);
    find_gemm_stride(&p->a, &ta, &lda);
    find_gemm_stride(&p->b, &tb, &ldb);
    const bool by_rows = ty ? ta : !tb; /* a is the second where y is transposed */
    return by_rows && (lda % PAGE == 0 || ldb % PAGE == 0)
           && p->y.shape.dim[ty ? COLS : ROWS] >= FEW;
}

static lt_status multiply_f32_builtin(lt_cpu *cpu, const product *p)
{
    const int64_t batches = p->y.shape.dim[B];
    lt_product *list = lt_alloc((size_t)batches, sizeof *list);
    if (!list)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < batches; i++)
        list[i] = make_builtin_product(p, i);
    const lt_status st = lt_cpu_multiply_list(cpu, list, (size_t)batches);
    lt_free(list);
    return st;
}

/* On AVX2 oneDNN's sgemm splits some sums over threads, so that results would depend on their number: multiplies parts
 * instead. Not seen with AVX-512. */
static dnnl_status_t multiply_by_sgemm(const lt_cpu *cpu, const product *p)
{
    if (cpu->isa < LT_ISA_AVX512)
        return multiply_split(p);
    /* One gemm uses all threads; many small ones are distributed over them. */
    batch all = {p, dnnl_success};
    const int64_t batches = p->y.shape.dim[B];
    if (batches >= 2 * (int64_t)lt_parallel_threads())
        lt_parallel(batches, 1, multiply_batches, &all);
    else
        multiply_batches(&all, 0, batches, 0);
    return all.status;
}

static lt_status multiply_f32(lt_cpu *cpu, const product *p)
{
    product f = *p;
    if (p->weight)
        LT_TRY(lt_onednn_round_weight(cpu, p->a.dtype, &f.b));
    LT_TRY(make_readable_by_gemm(cpu, LT_CPU_COPY_X, LT_F32, &f.a));
    LT_TRY(make_readable_by_gemm(cpu, LT_CPU_COPY_W, LT_F32, &f.b));
    if (lt_cpu_has_data(&p->bias)) {
        void *bias;
        LT_TRY(lt_onednn_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        f.bias = lt_cpu_dense_view(bias, LT_F32, p->bias.shape);
    }
    bool transposed;
    int64_t stride;
    const bool direct = p->y.dtype == LT_F32 && find_gemm_stride(&p->y, &transposed, &stride);
    if (!direct) {
        void *y =
            lt_cpu_scratch(cpu, LT_CPU_COPY_Y, (size_t)lt_cpu_element_count(&p->y) * sizeof(float));
        if (!y)
            return LT_E_NOMEM;
        f.y = lt_cpu_dense_view(y, LT_F32, p->y.shape);
    }
    if (cpu->isa == LT_ISA_AVX2 && has_cache_conflicts(&f))
        LT_TRY(multiply_f32_builtin(cpu, &f));
    else
        LT_TRY(lt_dnnl_check(multiply_by_sgemm(cpu, &f), "sgemm"));
    if (lt_cpu_has_data(&f.bias))
        add_bias(cpu, &f);
    return direct ? LT_OK : lt_cpu_cast(cpu, &f.y, &p->y);
}

static dnnl_status_t make_matrix_desc(dnnl_memory_desc_t *md, const lt_view *v)
{
    bool transposed;
    int64_t stride;
    find_gemm_stride(v, &transposed, &stride);
    const int64_t *d = v->shape.dim;
    const bool once = v->stride[B] == 0; /* repeated for all batches */
    const dnnl_dims_t dims = {once ? 1 : d[B], d[ROWS], d[COLS]};
    const int64_t count = stride * (transposed ? d[COLS] : d[ROWS]);
    const dnnl_dims_t strides = {d[B] > 1 && !once ? v->stride[B] : count, transposed ? 1 : stride,
                                 transposed ? stride : 1};
    return lt_md_make(md, 3, dims, v->dtype == LT_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static void make_key(const product *p, int64_t key[LT_PRIMITIVE_KEY])
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
    const product *p = problem;
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

/* Multiplies in bf16 by oneDNN's matmul; *done is false if oneDNN has none for this CPU. */
static lt_status multiply_bf16_onednn(lt_cpu *cpu, const product *p, bool *done)
{
    product f = *p;
    bool transposed;
    int64_t stride;
    *done = false;
    if (cpu->isa < LT_ISA_AVX512 || !find_gemm_stride(&p->y, &transposed, &stride) || transposed)
        return LT_OK;
    LT_TRY(make_readable_by_gemm(cpu, LT_CPU_COPY_X, LT_BF16, &f.a));
    LT_TRY(make_readable_by_gemm(cpu, LT_CPU_COPY_W, LT_BF16, &f.b));
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
        LT_TRY(lt_onednn_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        dnnl_memory_set_data_handle(prim->b, bias);
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, prim->x},
                                    {DNNL_ARG_WEIGHTS, prim->w},
                                    {DNNL_ARG_DST, prim->y},
                                    {DNNL_ARG_BIAS, prim->b}};
    *done = true;
    return lt_primitive_run(cpu, prim, args, prim->b ? 4 : 3);
}

/* Returns a matrix as gemm operand whose lanes are dimension `lanes`. */
static lt_gemm_operand get_gemm_operand(const lt_view *v, int lanes)
{
    lt_gemm_operand x = {v->data, v->dtype, v->stride[lanes], v->stride[ROWS + COLS - lanes]};
    const int64_t lane_count = v->shape.dim[lanes], steps = v->shape.dim[ROWS + COLS - lanes];
    if (steps == 1 && x.lane != 1)
        x.step = 1;
    else if (lane_count == 1 && x.step != 1)
        x.lane = 1;
    return x;
}

static bool fits_gemm(const lt_gemm_operand *x, bool rounds)
{
    return (x->lane == 1 || x->step == 1)
           && (x->dtype == LT_BF16 || (x->dtype == LT_F32 && rounds));
}

/* Multiplies by the built-in bf16 micro-kernel; *done is false if the CPU has none or the strides do not fit. */
static lt_status multiply_bf16_builtin(lt_cpu *cpu, const product *p, bool *done)
{
    const lt_gemm_microkernel *kernel = lt_gemm_microkernel_bf16(cpu->isa);
    const lt_view *y = &p->y;
    lt_gemm_product g = {.a = get_gemm_operand(&p->a, ROWS),
                         .b = get_gemm_operand(&p->b, COLS),
                         .y = y->data,
                         .y_dtype = y->dtype,
                         .rows = y->shape.dim[ROWS],
                         .cols = y->shape.dim[COLS],
                         .depth = p->a.shape.dim[COLS],
                         .y_step = y->stride[ROWS]};
    *done = kernel && y->shape.dim[B] == 1 && fits_gemm(&g.a, false) && fits_gemm(&g.b, p->weight)
            && (y->stride[COLS] == 1 || g.cols == 1) && g.depth > 0;
    if (!*done)
        return LT_OK;
    if (lt_cpu_has_data(&p->bias)) {
        void *bias;
        LT_TRY(lt_onednn_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        g.bias = bias;
    }
    return lt_gemm(cpu, kernel, &g);
}

static lt_status run_product(lt_cpu *cpu, const product *p)
{
    if (p->a.dtype == LT_BF16 && (p->b.dtype == LT_BF16 || p->weight)
        && lt_cpu_is_fast_dtype(p->y.dtype)) {
        bool done;
        LT_TRY(multiply_bf16_builtin(cpu, p, &done));
        if (done)
            return LT_OK;
        LT_TRY(multiply_bf16_onednn(cpu, p, &done));
        if (done)
            return LT_OK;
    }
    return multiply_f32(cpu, p);
}

static bool has_f64(const lt_view *a, const lt_view *b, const lt_view *y)
{
    return a->dtype == LT_F64 || b->dtype == LT_F64 || y->dtype == LT_F64;
}

/* Returns true for an f32 parameter, which is rounded to the dtype of 16-bit data. */
static bool is_parameter(const lt_view *v)
{
    return v->dtype == LT_F32 && v->version;
}

static lt_status matmul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    if (has_f64(a, b, y))
        return lt_backend_ref()->matmul(ctx, a, b, y);
    product p = {.a = *a, .b = *b, .y = *y, .weight = is_parameter(b)};
    if (is_parameter(a))
        LT_TRY(lt_onednn_round_weight(ctx, b->dtype, &p.a));
    return run_product(ctx, &p);
}

/* Returns a 2-D view as a batch of one. */
static lt_view as_batch_of_one(const lt_view *v, bool transpose)
{
    lt_view m = *v;
    const int first = transpose ? 1 : 0;
    m.shape = LT_SHAPE(1, v->shape.dim[first], v->shape.dim[1 - first]);
    m.stride[ROWS] = v->stride[first];
    m.stride[COLS] = v->stride[1 - first];
    m.stride[B] = 0;
    return m;
}

static lt_status linear(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    if (has_f64(x, w, y))
        return lt_backend_ref()->linear(ctx, x, w, bias, y);
    product p = {.a = as_batch_of_one(x, false),
                 .b = as_batch_of_one(w, true),
                 .y = as_batch_of_one(y, false),
                 .weight = true};
    if (lt_cpu_has_data(bias))
        p.bias = *bias;
    return run_product(ctx, &p);
}

void lt_cpu_install_products(lt_backend *be)
{
    be->matmul = matmul;
    be->linear = linear;
}
