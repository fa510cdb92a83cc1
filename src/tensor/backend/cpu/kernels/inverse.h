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
#elif defined(__aarch64__)
#define SWEEP_BYTES 16
#define SWEEP_ROWS  8
#else
#define SWEEP_BYTES 16
#define SWEEP_ROWS  4
#endif
#define SWEEP_BLOCK LT_CPU_INVERSE_BLOCK

/* a * b + c of a register, rounded as by fused(). */
#if defined(__AVX512F__)
#define FUSED_FLOATS(a, b, c)  _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define FUSED_DOUBLES(a, b, c) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
#elif defined(__FMA__)
#define FUSED_FLOATS(a, b, c)  _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define FUSED_DOUBLES(a, b, c) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#elif defined(LT_SOFTWARE_FMA) || defined(__aarch64__)
#define FUSED_BY_LANES(name, real, fma)                                                  \
    typedef real name##_register __attribute__((vector_size(16)));                       \
    ALWAYS name##_register name(name##_register a, name##_register b, name##_register c) \
    {                                                                                    \
        for (unsigned i = 0; i < sizeof a / sizeof(real); i++)                           \
            c[i] = fma(a[i], b[i], c[i]);                                                \
        return c;                                                                        \
    }
FUSED_BY_LANES(fused_floats, float, __builtin_fmaf)
FUSED_BY_LANES(fused_doubles, double, __builtin_fma)
#if defined(LT_SOFTWARE_FMA)
#define FUSED_FLOATS software_fma
#else
#define FUSED_FLOATS fused_floats
#endif
#define FUSED_DOUBLES fused_doubles
#else
#define FUSED_FLOATS(a, b, c)  ((a) * (b) + (c))
#define FUSED_DOUBLES(a, b, c) ((a) * (b) + (c))
#endif

#define REAL        float
#define FUSED       FUSED_FLOATS
#define SWEEP(name) name##_f32
#include "sweep.h"
#undef REAL
#undef FUSED
#undef SWEEP

#define REAL        double
#define FUSED       FUSED_DOUBLES
#define SWEEP(name) name##_f64
#include "sweep.h"
#undef REAL
#undef FUSED
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
