/* Inverses of symmetric positive definite matrices in f32 and f64. */
#ifndef LT_BACKEND_CPU_KERNELS_INVERSE_H
#define LT_BACKEND_CPU_KERNELS_INVERSE_H

#include "simd.h"

/* Bytes of a register, and rows of a tile whose sums fit the registers. */
#if defined(__AVX512F__)
#define SWEEP_BYTES 64
#define SWEEP_ROWS  8
#elif defined(__AVX2__)
#define SWEEP_BYTES 32
#define SWEEP_ROWS  4
#else
#define SWEEP_BYTES 16
#define SWEEP_ROWS  4
#endif
#define SWEEP_BLOCK LT_CPU_INVERSE_BLOCK

#define REAL        float
#define SWEEP(name) name##_f32
#include "sweep.h"
#undef REAL
#undef SWEEP

#define REAL        double
#define SWEEP(name) name##_f64
#include "sweep.h"
#undef REAL
#undef SWEEP

#define ADD_INVERSE(name, DATA, REAL, inverse)                                               \
    static bool name(const lt_inverse_term *t)                                               \
    {                                                                                        \
        const int64_t n = t->n, padded = lt_cpu_inverse_padded_size(n), ld = padded + LANES; \
        const DATA *a = t->a;                                                                \
        DATA *y = t->y;                                                                      \
        REAL *m = t->work;                                                                   \
        for (int64_t i = 0; i < padded; i++) {                                               \
            for (int64_t j = 0; j <= i; j++)                                                 \
                m[i * ld + j] = i < n ? (REAL)a[i * n + j] : 0;                              \
            m[i * ld + i] = i < n ? m[i * ld + i] + (REAL)t->shift : 1;                      \
        }                                                                                    \
        if (!inverse(m, padded, ld, m + padded * ld))                                        \
            return false;                                                                    \
        const DATA weight = (DATA)-t->weight;                                                \
        for (int64_t i = 0; i < n; i++)                                                      \
            for (int64_t j = 0; j <= i; j++)                                                 \
                y[i * n + j] = (t->first ? 0 : y[i * n + j]) + weight * (DATA)m[i * ld + j]; \
        return true;                                                                         \
    }
/* Instances of the inverse: f32, f64 on f32 data, f64. Each returns false if a + shift I is not positive definite. */
ADD_INVERSE(add_inverse, float, float, inverse_f32)
ADD_INVERSE(add_inverse_wide, float, double, inverse_f64)
ADD_INVERSE(add_inverse_f64, double, double, inverse_f64)
#undef ADD_INVERSE

#endif
