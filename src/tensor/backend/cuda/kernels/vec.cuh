/* Evaluation of optimizers' expressions (vec.h), in double or in single precision. */
#ifndef LT_CUDA_VEC_CUH
#define LT_CUDA_VEC_CUH

#include "launch.cuh"
#include "vec.h"

/* The same as lt_vec_numbers in single precision, for f32 data. */
struct vec_numbers_f32 {
    float alpha, beta, gamma, delta;
    __device__ explicit vec_numbers_f32(const lt_vec_numbers &n)
        : alpha((float)n.alpha), beta((float)n.beta), gamma((float)n.gamma), delta((float)n.delta)
    {
    }
};

template <class Numbers, class T>
__device__ inline T evaluate_operation(lt_vec_op op, const Numbers &n, T a, T b, T y)
{
    const T kept = n.beta == 0 ? 0 : n.beta * y; /* 0 * NaN must not reach the result */
    switch (op) {
    case LT_VEC_AXPBY:
        return n.alpha * a + kept;
    case LT_VEC_SQUARE:
        return n.alpha * a * a + kept;
    case LT_VEC_MUL:
        return n.alpha * a * b;
    case LT_VEC_RSQRT:
        return n.alpha * a / (sqrt(n.beta * b) + n.gamma);
    case LT_VEC_POW:
        return n.alpha * a / (pow(n.beta * b, n.delta) + n.gamma);
    case LT_VEC_SIGN:
        return n.alpha * (T)((a > 0) - (a < 0));
    }
    return 0;
}

#endif
