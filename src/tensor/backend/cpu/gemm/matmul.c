/* The entries matmul and linear: bf16 by the built-in micro-kernel or oneDNN, f32 by oneDNN or the built-in product.
 * Transposes and batches are strides. */

#include "gemm.h"
#include "matmul_job.h"
#include "product.h"
#include "tensor/backend/cpu/operands.h"

enum { B = LT_MATMUL_BATCH, ROWS = LT_MATMUL_ROWS, COLS = LT_MATMUL_COLS };

static lt_operand strided_operand(const lt_view *v, int64_t index, int lanes)
{
    const int steps = ROWS + COLS - lanes;
    return (lt_operand){(const float *)v->data + index * v->stride[B],
                        lt_axis_1d(v->shape.dim[lanes], v->stride[lanes]),
                        lt_axis_1d(v->shape.dim[steps], v->stride[steps])};
}

/* Returns y = a b, or y' = b' a' if y's columns are strided. */
static lt_product make_builtin_product(const lt_matmul_job *p, int64_t index)
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

static lt_status multiply_f32_builtin(lt_cpu *cpu, const lt_matmul_job *p)
{
    const int64_t batches = p->y.shape.dim[B];
    lt_product *list = NULL;
    LT_TRY(LT_ALLOC(&list, batches));
    for (int64_t i = 0; i < batches; i++)
        list[i] = make_builtin_product(p, i);
    const lt_status st = lt_cpu_multiply_list(cpu, list, (size_t)batches);
    lt_free(list);
    return st;
}

static lt_status multiply_f32(lt_cpu *cpu, const lt_matmul_job *p)
{
    lt_matmul_job f = *p;
    if (p->weight)
        LT_TRY(lt_cpu_round_weight(cpu, p->a.dtype, &f.b));
    LT_TRY(lt_matmul_make_readable(cpu, LT_CPU_COPY_X, LT_F32, &f.a));
    LT_TRY(lt_matmul_make_readable(cpu, LT_CPU_COPY_W, LT_F32, &f.b));
    if (lt_cpu_has_data(&p->bias)) {
        void *bias;
        LT_TRY(lt_cpu_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        f.bias = lt_cpu_dense_view(bias, LT_F32, p->bias.shape);
    }
    bool transposed;
    int64_t stride;
    const bool direct = p->y.dtype == LT_F32 && lt_matmul_find_stride(&p->y, &transposed, &stride);
    if (!direct) {
        void *y =
            lt_cpu_scratch(cpu, LT_CPU_COPY_Y, (size_t)lt_cpu_element_count(&p->y) * sizeof(float));
        if (!y)
            return LT_E_NOMEM;
        f.y = lt_cpu_dense_view(y, LT_F32, p->y.shape);
    }
    bool done;
    LT_TRY(lt_onednn_multiply_f32(cpu, &f, &done));
    if (!done)
        LT_TRY(multiply_f32_builtin(cpu, &f));
    if (lt_cpu_has_data(&f.bias))
        lt_cpu_add_bias(cpu, &f.y, f.bias.data);
    return direct ? LT_OK : lt_cpu_cast(cpu, &f.y, &p->y);
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
static lt_status multiply_bf16_builtin(lt_cpu *cpu, const lt_matmul_job *p, bool *done)
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
        LT_TRY(lt_cpu_get_input(cpu, LT_CPU_BIAS, &p->bias, LT_F32, &bias));
        g.bias = bias;
    }
    return lt_gemm(cpu, kernel, &g);
}

static lt_status run_product(lt_cpu *cpu, const lt_matmul_job *p)
{
    if (p->a.dtype == LT_BF16 && (p->b.dtype == LT_BF16 || p->weight)
        && lt_cpu_is_fast_dtype(p->y.dtype)) {
        bool done;
        LT_TRY(multiply_bf16_builtin(cpu, p, &done));
        if (done)
            return LT_OK;
        LT_TRY(lt_onednn_multiply_bf16(cpu, p, &done));
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

lt_status lt_cpu_matmul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    if (has_f64(a, b, y))
        return lt_backend_ref()->matmul(ctx, a, b, y);
    lt_matmul_job p = {.a = *a, .b = *b, .y = *y, .weight = is_parameter(b)};
    if (is_parameter(a))
        LT_TRY(lt_cpu_round_weight(ctx, b->dtype, &p.a));
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

lt_status lt_cpu_linear(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    if (has_f64(x, w, y))
        return lt_backend_ref()->linear(ctx, x, w, bias, y);
    lt_matmul_job p = {.a = as_batch_of_one(x, false),
                       .b = as_batch_of_one(w, true),
                       .y = as_batch_of_one(y, false),
                       .weight = true};
    if (lt_cpu_has_data(bias))
        p.bias = *bias;
    return run_product(ctx, &p);
}
