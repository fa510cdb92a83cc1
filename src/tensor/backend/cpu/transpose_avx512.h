/* In-register transpose, and masks of lanes, for files that are compiled for AVX-512. */
#ifndef LT_BACKEND_CPU_TRANSPOSE_AVX512_H
#define LT_BACKEND_CPU_TRANSPOSE_AVX512_H

#include <immintrin.h>
#include <stdint.h>

enum { LT_TRANSPOSE_LANES = 16 };

/* Returns the mask of the first lanes, at most 16; none below 0. */
static inline __mmask16 lt_first_lanes_avx512(int64_t count)
{
    return count >= LT_TRANSPOSE_LANES ? 0xFFFF : count <= 0 ? 0 : (__mmask16)((1U << count) - 1);
}

/* Transposes 16 x 16 words of 32 bits in place. */
static inline void lt_transpose_avx512(__m512i r[LT_TRANSPOSE_LANES])
{
    __m512i t[LT_TRANSPOSE_LANES];
    for (int i = 0; i < LT_TRANSPOSE_LANES; i += 2) { /* interleave pairs of rows, by 32 bits */
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < LT_TRANSPOSE_LANES; i += 4) /* interleave four rows, by 64 bits */
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) { /* interleave eight rows, then sixteen, by 128 bits */
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
