/* Elementwise entries with one or two inputs. Formulas: ext/kernels.h, part 1. Arithmetic is in f32,
 * for f64 data in f64. */

#include "launch.cuh"

namespace
{

struct add_rule {
    template <class R> __device__ R operator()(R a, R b) const
    {
        return a + b;
    }
};

struct mul_rule {
    template <class R> __device__ R operator()(R a, R b) const
    {
        return a * b;
    }
};

struct relu_grad_rule {
    template <class R> __device__ R operator()(R dy, R y) const
    {
        return y > 0 ? dy : R(0);
    }
};

struct relu_rule {
    template <class R> __device__ R operator()(R x, R) const
    {
        return x < 0 ? R(0) : x; /* NaN stays NaN */
    }
};

struct scale_rule {
    double factor;
    template <class R> __device__ R operator()(R x, R) const
    {
        return x * R(factor);
    }
};

/* y[i] = rule(a[i], b[i]), all dense: vectors of eight, and single elements at the end. */
template <class T, class Rule>
__global__ void dense(const T *a, const T *b, T *y, int64_t count, Rule rule)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LT_VECTOR_WIDTH;
    if (i + LT_VECTOR_WIDTH <= count) {
        float u[LT_VECTOR_WIDTH], v[LT_VECTOR_WIDTH] = {};
        load_vector(a + i, u);
        if (b)
            load_vector(b + i, v);
#pragma unroll
        for (int k = 0; k < LT_VECTOR_WIDTH; k++)
            u[k] = rule(u[k], v[k]);
        store_vector(y + i, u);
        return;
    }
    for (int64_t k = i; k < count; k++)
        set(y + k, rule(to_float(a[k]), b ? to_float(b[k]) : 0.0F));
}

/* Any strides and dtypes; operands of the walk are y, a, b. */
template <class Rule>
__global__ void strided(lt_walk walk, lt_view y, lt_view a, lt_view b, Rule rule)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_WALK_OPERANDS];
    if (i >= walk.count)
        return;
    lt_walk_offsets(&walk, i, at);
    if (y.dtype == LT_F64) {
        const double v = b.data ? lt_element(b.data, b.dtype, at[2]) : 0;
        lt_set_element(y.data, y.dtype, at[0], rule(lt_element(a.data, a.dtype, at[1]), v));
    } else {
        const float v = b.data ? lt_element_f32(b.data, b.dtype, at[2]) : 0;
        lt_set_element_f32(y.data, y.dtype, at[0], rule(lt_element_f32(a.data, a.dtype, at[1]), v));
    }
}

bool can_vectorize(const lt_view *y, const lt_view *a, const lt_view *b)
{
    return y->dtype != LT_F64 && a->dtype == y->dtype && is_aligned(y->data) && is_aligned(a->data)
           && (!b || (b->dtype == y->dtype && is_aligned(b->data)));
}

template <class Rule>
lt_status run(lt_cuda *c, const char *name, Rule rule, const lt_view *a, const lt_view *b,
              const lt_view *y)
{
    const lt_view *const view[] = {y, a, b};
    lt_view none = {};
    lt_walk walk;
    LT_TRY(lt_cuda_begin(c, name));
    lt_walk_over(&walk, view, b ? 3 : 2);
    if (can_vectorize(y, a, b) && lt_walk_is_dense(&walk)) {
        const unsigned blocks = blocks_for(walk.count, THREADS * LT_VECTOR_WIDTH);
        WITH_TYPE(c, y->dtype,
                  dense<T><<<blocks, THREADS, 0, main_stream(c)>>>(
                      (const T *)a->data, b ? (const T *)b->data : (const T *)NULL, (T *)y->data,
                      walk.count, rule))
    } else {
        strided<<<blocks_for(walk.count, THREADS), THREADS, 0, main_stream(c)>>>(
            walk, *y, *a, b ? *b : none, rule);
    }
    return lt_cuda_end(c);
}

lt_status add(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return run((lt_cuda *)ctx, "add", add_rule(), a, b, y);
}

lt_status mul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return run((lt_cuda *)ctx, "mul", mul_rule(), a, b, y);
}

lt_status relu_grad(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return run((lt_cuda *)ctx, "relu_grad", relu_grad_rule(), a, b, y);
}

lt_status relu(void *ctx, const lt_view *x, const lt_view *y)
{
    return run((lt_cuda *)ctx, "relu", relu_rule(), x, NULL, y);
}

lt_status scale(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    scale_rule rule;
    rule.factor = factor;
    return run((lt_cuda *)ctx, "scale", rule, x, NULL, y);
}

} /* namespace */

extern "C" void lt_cuda_install_elementwise(lt_backend *be)
{
    be->add = add;
    be->mul = mul;
    be->relu = relu;
    be->relu_grad = relu_grad;
    be->scale = scale;
}
