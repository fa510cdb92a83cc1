/* Fused multiply-add of four floats without the instruction. The product is exact in f64, where the sum is rounded to
 * odd, so that the conversion to f32 rounds as if it were the only one. Boldo & Melquiond, "Emulation of a FMA and
 * correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57, 2008; the sum's
 * error by Knuth's TwoSum. */
#ifndef LT_BACKEND_CPU_KERNELS_SOFTWARE_FMA_H
#define LT_BACKEND_CPU_KERNELS_SOFTWARE_FMA_H

#include <stdint.h>

typedef float four_floats __attribute__((vector_size(16)));
typedef float two_floats __attribute__((vector_size(8)));
typedef double two_doubles __attribute__((vector_size(16)));
typedef int64_t two_words __attribute__((vector_size(16)));

/* Returns a * b + c of floats; if inexact, whichever adjacent number has the last bit 1. */
static inline two_doubles multiply_add_to_odd(two_doubles a, two_doubles b, two_doubles c)
{
    const two_doubles product = a * b, sum = product + c, added = sum - product;
    const two_doubles error = (product - (sum - added)) + (c - added);
    const two_words inexact = (error < 0) | (error > 0); /* false for NaN: sum is infinite or NaN */
    const two_words inwards = (error < 0) ^ (sum < 0);
    return (two_doubles)(((two_words)sum + (inwards & inexact)) | (inexact & 1));
}

/* Returns two of the floats in f64. */
static inline two_doubles widen_floats(four_floats v, int high)
{
    const four_floats u = high ? __builtin_shufflevector(v, v, 2, 3, 2, 3) : v;
    return (two_doubles){(double)u[0], (double)u[1]};
}

/* Returns a * b + c, rounded once. */
static inline four_floats software_fma(four_floats a, four_floats b, four_floats c)
{
    two_floats half[2];
    for (int i = 0; i < 2; i++)
        half[i] = __builtin_convertvector(
            multiply_add_to_odd(widen_floats(a, i), widen_floats(b, i), widen_floats(c, i)),
            two_floats);
    return __builtin_shufflevector(half[0], half[1], 0, 1, 2, 3);
}

#endif
