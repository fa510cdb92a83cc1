/* Elementwise entries. Formulas: kernels.h, part 1; of functions and their gradients: tensor/backend/pointwise.h.
 * Arithmetic is in f32, for f64 data in f64. */

#include "launch.cuh"

#include <math.h>

namespace
{

#define PW_FUNCTION        __device__ inline
#define PW_CHOOSE(c, a, b) ((c) ? (a) : (b))

#define PW_REAL    float
#define PW_SET(x)  ((float)(x))
#define PW_EXP     expf
#define PW_LOG     logf
#define PW_LOG1P   log1pf
#define PW_SQRT    sqrtf
#define PW_TANH    tanhf
#define PW_POW     powf
#define PW_TAIL(x) (erfcf((x)*0.70710678118654752440F) / 2)
#include "tensor/backend/pointwise.h"

#undef PW_REAL
#undef PW_SET
#undef PW_EXP
#undef PW_LOG
#undef PW_LOG1P
#undef PW_SQRT
#undef PW_TANH
#undef PW_POW
#undef PW_TAIL
#undef PW_NORMAL
#undef PW_GELU_SLOPE
#define PW_REAL    double
#define PW_SET(x)  ((double)(x))
#define PW_EXP     exp
#define PW_LOG     log
#define PW_LOG1P   log1p
#define PW_SQRT    sqrt
#define PW_TANH    tanh
#define PW_POW     pow
#define PW_TAIL(x) (erfc((x)*0.70710678118654752440) / 2)
#include "tensor/backend/pointwise.h"

/* A rule computes an element from dy, a and b; what an entry lacks of these is 0. */

struct add_rule {
    template <class R> __device__ R operator()(R, R a, R b) const
    {
        return a + b;
    }
};

struct mul_rule {
    template <class R> __device__ R operator()(R, R a, R b) const
    {
        return a * b;
    }
};

struct scale_rule {
    double factor;
    template <class R> __device__ R operator()(R, R x, R) const
    {
        return x * R(factor);
    }
};

struct relu_rule {
    template <class R> __device__ R operator()(R, R x, R) const
    {
        return x < 0 ? R(0) : x; /* a NaN is kept */
    }
};

struct relu_grad_rule {
    template <class R> __device__ R operator()(R dy, R y, R) const
    {
        return y > 0 ? dy : R(0);
    }
};

struct value_rule {
    lt_pointwise f;
    template <class R> __device__ R operator()(R, R a, R b) const
    {
        return pw_evaluate(f, a, b);
    }
};

struct grad_rule {
    lt_pointwise f;
    int input;
    template <class R> __device__ R operator()(R dy, R a, R b) const
    {
        return pw_grad(f, input, dy, a, b);
    }
};

/* Returns the normal distribution function for 16-bit data; density: exp(-x^2/2). The tail over the density is a
 * polynomial of w = 1 / (1 + 0.3 |x|), fitted to errors of the tail of 2.1e-7 and 1.1e-4 of itself for |x| up to 40. */
__device__ inline float fast_normal_cdf(float x, float density)
{
    const float w = fast_inverse(1 + 0.3F * fabsf(x));
    float tail = 0.213551735F - 0.0769298459F * w;
    tail = -0.0113278105F + tail * w;
    tail = 0.13938667F + tail * w;
    tail = 0.115437205F + tail * w;
    tail = (0.119882043F + tail * w) * (w * density);
    return x < 0 ? tail : 1 - tail;
}

/* gelu, or its gradient, by fast instructions: for 16-bit data, as double only compiled. Formulas: pointwise.h. */
template <bool TANH, bool GRAD> struct gelu_rule {
    template <class R> __device__ R operator()(R dy, R a, R) const
    {
        const float x = (float)a, square = x * x;
        if (TANH) {
            const float cubic = 0.044715F * square;
            const float e = exp_for<lt_f16>(1.5957691216F * fabsf(x) * (-1 - cubic));
            const float near = fast_inverse(1 + e), far = e * near, s = x < 0 ? far : near;
            const float slope = 1.5957691216F * (1 + 3 * cubic);
            return GRAD ? dy * R(s + x * (far * near) * slope) : R(x * s);
        }
        const float density = exp_for<lt_f16>(-0.5F * square), p = fast_normal_cdf(x, density);
        return GRAD ? dy * R(p + x * (0.3989422804F * density)) : R(x * p);
    }
};

/* Operands of an entry; dy and b may be NULL. */
template <class T> struct places {
    const T *dy, *a, *b;
    T *y;
};

/* All dense: vectors of eight, and single elements at the end. */
template <class T, class Rule>
__global__ void apply_rule_dense(places<T> p, int64_t count, Rule rule)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LT_VECTOR_WIDTH;
    if (i + LT_VECTOR_WIDTH <= count) {
        float g[LT_VECTOR_WIDTH] = {}, u[LT_VECTOR_WIDTH], v[LT_VECTOR_WIDTH] = {};
        load_vector(p.a + i, u);
        if (p.b)
            load_vector(p.b + i, v);
        if (p.dy)
            load_vector(p.dy + i, g);
#pragma unroll
        for (int k = 0; k < LT_VECTOR_WIDTH; k++)
            u[k] = rule(g[k], u[k], v[k]);
        store_vector(p.y + i, u);
        return;
    }
    for (int64_t k = i; k < count; k++)
        store_float(p.y + k, rule(p.dy ? to_float(p.dy[k]) : 0.0F, to_float(p.a[k]),
                                  p.b ? to_float(p.b[k]) : 0.0F));
}

enum { OUT, A, B, DY };

struct operands {
    lt_view view[DY + 1]; /* data NULL: absent */
    int slot[DY + 1];     /* in the iterator, which has only the present operands */
};

/* Returns the operand's offset without indexing `at`, which would move it to local memory. */
__device__ int64_t offset_at(const operands &o, int k, const int64_t *at)
{
    const int64_t first = o.slot[k] == 0 ? at[0] : at[1], last = o.slot[k] == 2 ? at[2] : at[3];
    return o.slot[k] < 2 ? first : last;
}

__device__ double load_operand(const operands &o, int k, const int64_t *at)
{
    return o.view[k].data ? lt_element(o.view[k].data, o.view[k].dtype, offset_at(o, k, at)) : 0;
}

__device__ float load_operand_f32(const operands &o, int k, const int64_t *at)
{
    const lt_view *v = &o.view[k];
    return v->data ? lt_element_f32(v->data, v->dtype, offset_at(o, k, at)) : 0;
}

/* Any strides and dtypes. */
template <class Rule> __global__ void apply_rule_strided(lt_iter iter, operands o, Rule rule)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    if (i >= iter.count)
        return;
    lt_iter_offsets(&iter, i, at);
    if (o.view[OUT].dtype == LT_F64)
        lt_set_element(
            o.view[OUT].data, LT_F64, at[0],
            rule(load_operand(o, DY, at), load_operand(o, A, at), load_operand(o, B, at)));
    else
        lt_set_element_f32(o.view[OUT].data, o.view[OUT].dtype, at[0],
                           rule(load_operand_f32(o, DY, at), load_operand_f32(o, A, at),
                                load_operand_f32(o, B, at)));
}

bool can_vectorize(const operands &o)
{
    bool can = o.view[OUT].dtype != LT_F64;
    for (int k = OUT; k <= DY; k++)
        can = can
              && (!o.view[k].data
                  || (o.view[k].dtype == o.view[OUT].dtype && is_aligned(o.view[k].data)));
    return can;
}

template <class Rule>
lt_status run_elementwise(lt_cuda *c, const char *name, Rule rule,
                          const lt_view *const given[DY + 1])
{
    operands o = {};
    const lt_view *view[DY + 1];
    int count = 0;
    lt_iter iter;
    for (int k = OUT; k <= DY; k++)
        if (given[k]) {
            o.view[k] = *given[k];
            o.slot[k] = count;
            view[count++] = given[k];
        }
    LT_TRY(lt_cuda_begin(c, name));
    lt_iter_memory_order(&iter, view, count);
    if (can_vectorize(o) && lt_iter_is_dense(&iter)) {
        const unsigned blocks = blocks_for(iter.count, THREADS * LT_VECTOR_WIDTH);
        WITH_TYPE(c, o.view[OUT].dtype, {
            const places<T> p = {(const T *)o.view[DY].data, (const T *)o.view[A].data,
                                 (const T *)o.view[B].data, (T *)o.view[OUT].data};
            apply_rule_dense<T><<<blocks, THREADS, 0, main_stream(c)>>>(p, iter.count, rule);
        })
    } else {
        apply_rule_strided<<<blocks_for(iter.count, THREADS), THREADS, 0, main_stream(c)>>>(iter, o,
                                                                                            rule);
    }
    return lt_cuda_end(c);
}

lt_status add(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    const lt_view *const given[] = {y, a, b, NULL};
    return run_elementwise((lt_cuda *)ctx, "add", add_rule(), given);
}

lt_status mul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    const lt_view *const given[] = {y, a, b, NULL};
    return run_elementwise((lt_cuda *)ctx, "mul", mul_rule(), given);
}

lt_status scale(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    const scale_rule rule = {factor};
    const lt_view *const given[] = {y, x, NULL, NULL};
    return run_elementwise((lt_cuda *)ctx, "scale", rule, given);
}

lt_status relu(void *ctx, const lt_view *x, const lt_view *y)
{
    const lt_view *const given[] = {y, x, NULL, NULL};
    return run_elementwise((lt_cuda *)ctx, "relu", relu_rule(), given);
}

lt_status relu_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    const lt_view *const given[] = {dx, y, NULL, dy};
    return run_elementwise((lt_cuda *)ctx, "relu_grad", relu_grad_rule(), given);
}

/* Runs a rule of a function, or, if that is gelu and y has 16 bits, gelu by fast instructions. */
template <bool GRAD, class Rule>
lt_status run_function(lt_cuda *c, const char *name, const Rule &rule,
                       const lt_view *const given[DY + 1])
{
    const bool is_short = lt_dtype_size(given[OUT]->dtype) == 2;
    if (is_short && rule.f.kind == LT_POINTWISE_GELU_TANH)
        return run_elementwise(c, name, gelu_rule<true, GRAD>(), given);
    if (is_short && rule.f.kind == LT_POINTWISE_GELU)
        return run_elementwise(c, name, gelu_rule<false, GRAD>(), given);
    return run_elementwise(c, name, rule, given);
}

lt_status pointwise(void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
                    const lt_view *y)
{
    const value_rule rule = {*f};
    const lt_view *const given[] = {y, a, b, NULL};
    return run_function<false>((lt_cuda *)ctx, "pointwise", rule, given);
}

lt_status pointwise_grad(void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
                         const lt_view *a, const lt_view *b, const lt_view *d)
{
    const grad_rule rule = {*f, input};
    const lt_view *const given[] = {d, a, b, dy};
    return run_function<true>((lt_cuda *)ctx, "pointwise_grad", rule, given);
}

} /* namespace */

extern "C" void lt_cuda_install_elementwise(lt_backend *be)
{
    be->add = add;
    be->mul = mul;
    be->scale = scale;
    be->relu = relu;
    be->relu_grad = relu_grad;
    be->pointwise = pointwise;
    be->pointwise_grad = pointwise_grad;
}
