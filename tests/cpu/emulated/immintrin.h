/* Replaces the compiler's <immintrin.h>: emulates the instructions that src/tensor/backend/cpu uses in plain C with
 * GCC's vector types, so that the kernels of all instruction sets run on every x86-64 processor. Intel's Software
 * Developer's Manual, volume 2, specifies them; tests/cpu/instructions.c compares them with the real ones.
 *
 * SIMDe is not used: its VDPBF16PS rounds products and sums separately and keeps subnormal numbers, and it has no
 * tiles.
 *
 * Faults of the hardware trap: misaligned operands, tiles without a configuration. A missing instruction does not
 * compile; an immediate operand that no kernel uses traps. */
#ifndef LT_TESTS_EMULATED_IMMINTRIN_H
#define LT_TESTS_EMULATED_IMMINTRIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMULATED static inline __attribute__((unused))

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef short __m512bh __attribute__((vector_size(64), may_alias));
typedef float __m256 __attribute__((vector_size(32), may_alias));
typedef double __m256d __attribute__((vector_size(32), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef short __m256bh __attribute__((vector_size(32), may_alias));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef long long __m128i_u __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;

enum { _CMP_GT_OQ = 0x1e, _MM_FROUND_TO_NEAREST_INT = 0, _MM_FROUND_NO_EXC = 8 };

/* The elements of a register. */
typedef union emulated_zmm {
    __m512 ps;
    __m512i si;
    __m512bh bh;
    __m256 half_ps[2];
    __m256i half[2];
    float f[16];
    uint32_t u[16];
    uint16_t h[32];
    uint64_t q[8];
    uint8_t block[4][16];
} emulated_zmm;

#define EMULATED_OF_PS(v) ((emulated_zmm){.ps = (v)})
#define EMULATED_OF_SI(v) ((emulated_zmm){.si = (v)})

EMULATED void emulated_expect(int condition)
{
    if (!condition)
        __builtin_trap();
}

EMULATED void emulated_expect_aligned(const void *p, uintptr_t bytes)
{
    emulated_expect((uintptr_t)p % bytes == 0);
}

/* --- Memory --- */

EMULATED __m128i _mm_loadu_si128(const __m128i_u *p)
{
    return (__m128i)*p;
}

EMULATED __m128i _mm_loadu_si64(const void *p)
{
    long long low;
    memcpy(&low, p, sizeof low);
    return (__m128i){low, 0};
}

EMULATED __m512i _mm512_loadu_si512(const void *p)
{
    emulated_zmm r;
    memcpy(&r, p, sizeof r);
    return r.si;
}

EMULATED __m512i _mm512_load_si512(const void *p)
{
    emulated_expect_aligned(p, sizeof(__m512i));
    return _mm512_loadu_si512(p);
}

EMULATED __m512 _mm512_loadu_ps(const void *p)
{
    return (__m512)_mm512_loadu_si512(p);
}

EMULATED void _mm512_storeu_ps(void *p, __m512 v)
{
    memcpy(p, &v, sizeof v);
}

EMULATED void _mm512_store_si512(void *p, __m512i v)
{
    emulated_expect_aligned(p, sizeof v);
    memcpy(p, &v, sizeof v);
}

EMULATED void _mm256_store_si256(__m256i *p, __m256i v)
{
    emulated_expect_aligned(p, sizeof v);
    memcpy(p, &v, sizeof v);
}

/* Elements of `size` bytes whose bits of the mask are 1; memory of the others is not touched. */
EMULATED void emulated_copy_masked(void *to, const void *from, uint32_t mask, int count,
                                   size_t size)
{
    for (int i = 0; i < count; i++)
        if (mask >> i & 1)
            memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)i * size, size);
}

EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void *p)
{
    emulated_zmm r = {{0}};
    emulated_copy_masked(&r, p, mask, 16, sizeof(float));
    return r.ps;
}

EMULATED void _mm512_mask_storeu_ps(void *p, __mmask16 mask, __m512 v)
{
    emulated_copy_masked(p, &v, mask, 16, sizeof(float));
}

EMULATED __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void *p)
{
    emulated_zmm r = {{0}};
    emulated_copy_masked(&r, p, mask, 32, sizeof(uint16_t));
    return r.si;
}

EMULATED void _mm512_mask_storeu_epi16(void *p, __mmask32 mask, __m512i v)
{
    emulated_copy_masked(p, &v, mask, 32, sizeof(uint16_t));
}

EMULATED __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void *p)
{
    emulated_zmm r = {{0}};
    emulated_copy_masked(&r, p, mask, 16, sizeof(uint16_t));
    return r.half[0];
}

EMULATED void _mm256_mask_storeu_epi16(void *p, __mmask16 mask, __m256i v)
{
    emulated_copy_masked(p, &v, mask, 16, sizeof(uint16_t));
}

EMULATED __m512 _mm512_maskz_mov_ps(__mmask16 mask, __m512 v)
{
    return _mm512_maskz_loadu_ps(mask, &v);
}

/* --- Constants, parts, integers --- */

EMULATED __m256 _mm256_setzero_ps(void)
{
    return (__m256){0};
}

EMULATED __m512 _mm512_setzero_ps(void)
{
    return (__m512){0};
}

EMULATED __m512i _mm512_setzero_si512(void)
{
    return (__m512i){0};
}

EMULATED __m512 _mm512_set1_ps(float x)
{
    emulated_zmm r;
    for (int i = 0; i < 16; i++)
        r.f[i] = x;
    return r.ps;
}

EMULATED __m512i _mm512_set1_epi32(int x)
{
    emulated_zmm r;
    for (int i = 0; i < 16; i++)
        r.u[i] = (uint32_t)x;
    return r.si;
}

EMULATED __m512i _mm512_set1_epi16(short x)
{
    emulated_zmm r;
    for (int i = 0; i < 32; i++)
        r.h[i] = (uint16_t)x;
    return r.si;
}

EMULATED __m512i emulated_set_epi16(const short highest_first[32])
{
    emulated_zmm r;
    for (int i = 0; i < 32; i++)
        r.h[i] = (uint16_t)highest_first[31 - i];
    return r.si;
}

#define _mm512_set_epi16(...) emulated_set_epi16((const short[32]){__VA_ARGS__})

EMULATED __m256i _mm512_castsi512_si256(__m512i v)
{
    return EMULATED_OF_SI(v).half[0];
}

EMULATED __m256i _mm512_extracti64x4_epi64(__m512i v, int high)
{
    return EMULATED_OF_SI(v).half[high & 1];
}

EMULATED __m512i _mm512_add_epi16(__m512i a, __m512i b)
{
    emulated_zmm x = EMULATED_OF_SI(a), y = EMULATED_OF_SI(b);
    for (int i = 0; i < 32; i++)
        x.h[i] = (uint16_t)(x.h[i] + y.h[i]);
    return x.si;
}

EMULATED __m512i _mm512_slli_epi32(__m512i v, unsigned count)
{
    emulated_zmm x = EMULATED_OF_SI(v);
    for (int i = 0; i < 16; i++)
        x.u[i] = count < 32 ? x.u[i] << count : 0;
    return x.si;
}

EMULATED __m512i _mm512_cvtepu8_epi32(__m128i v)
{
    uint8_t byte[16];
    emulated_zmm r;
    memcpy(byte, &v, sizeof byte);
    for (int i = 0; i < 16; i++)
        r.u[i] = byte[i];
    return r.si;
}

EMULATED __m256i _mm256_cvtepu8_epi32(__m128i v)
{
    return _mm512_castsi512_si256(_mm512_cvtepu8_epi32(v));
}

EMULATED __m512i _mm512_cvtepu16_epi32(__m256i v)
{
    uint16_t half[16];
    emulated_zmm r;
    memcpy(half, &v, sizeof half);
    for (int i = 0; i < 16; i++)
        r.u[i] = half[i];
    return r.si;
}

/* --- Shuffles --- */

/* Interleaves the elements from `first` of each 16 bytes of a and b. */
EMULATED __m512i emulated_unpack(__m512i a, __m512i b, size_t size, size_t first)
{
    const emulated_zmm x = EMULATED_OF_SI(a), y = EMULATED_OF_SI(b);
    emulated_zmm r;
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < 8; k += size) {
            memcpy(&r.block[i][2 * k], &x.block[i][first + k], size);
            memcpy(&r.block[i][2 * k + size], &y.block[i][first + k], size);
        }
    return r.si;
}

EMULATED __m512i _mm512_unpacklo_epi32(__m512i a, __m512i b)
{
    return emulated_unpack(a, b, 4, 0);
}

EMULATED __m512i _mm512_unpackhi_epi32(__m512i a, __m512i b)
{
    return emulated_unpack(a, b, 4, 8);
}

EMULATED __m512i _mm512_unpacklo_epi64(__m512i a, __m512i b)
{
    return emulated_unpack(a, b, 8, 0);
}

EMULATED __m512i _mm512_unpackhi_epi64(__m512i a, __m512i b)
{
    return emulated_unpack(a, b, 8, 8);
}

/* Two blocks of 16 bytes of a, two of b, each named by two bits. */
EMULATED __m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int blocks)
{
    const emulated_zmm x = EMULATED_OF_SI(a), y = EMULATED_OF_SI(b);
    emulated_zmm r;
    for (int i = 0; i < 4; i++)
        memcpy(r.block[i], (i < 2 ? &x : &y)->block[blocks >> 2 * i & 3], sizeof *r.block);
    return r.si;
}

EMULATED __m512i _mm512_permutex2var_epi16(__m512i a, __m512i index, __m512i b)
{
    const emulated_zmm x = EMULATED_OF_SI(a), y = EMULATED_OF_SI(b), at = EMULATED_OF_SI(index);
    emulated_zmm r;
    for (int i = 0; i < 32; i++)
        r.h[i] = (at.h[i] & 32 ? &y : &x)->h[at.h[i] & 31];
    return r.si;
}

/* --- Floats --- */

EMULATED __m512 _mm512_add_ps(__m512 a, __m512 b)
{
    return a + b;
}

/* a * b + c for one rounding to a float. In double the product is exact; the sum, where it is not, is made odd in its
 * last bit on the side where the exact one is (Boldo and Melquiond, 2008). */
EMULATED double emulated_multiply_add(float a, float b, float c)
{
    const double product = (double)a * (double)b, term = (double)c, sum = product + term;
    const double of_term = sum - product, error = (product - (sum - of_term)) + (term - of_term);
    uint64_t bits;
    double odd;
    memcpy(&bits, &sum, sizeof bits);
    const uint64_t inexact = (error < 0) | (error > 0), inwards = (error < 0) ^ (sum < 0);
    bits += (inexact & ~bits & 1) * (1 - 2 * inwards);
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

EMULATED __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c)
{
    emulated_zmm x = EMULATED_OF_PS(a), y = EMULATED_OF_PS(b), z = EMULATED_OF_PS(c);
    for (int i = 0; i < 16; i++)
        z.f[i] = (float)emulated_multiply_add(x.f[i], y.f[i], z.f[i]);
    return z.ps;
}

EMULATED __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c)
{
    emulated_zmm x = {.half_ps = {a}}, y = {.half_ps = {b}}, z = {.half_ps = {c}};
    for (int i = 0; i < 8; i++)
        z.f[i] = (float)emulated_multiply_add(x.f[i], y.f[i], z.f[i]);
    return z.half_ps[0];
}

EMULATED __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c)
{
    for (int i = 0; i < 8; i++)
        c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}

EMULATED __m256d _mm256_fmadd_pd(__m256d a, __m256d b, __m256d c)
{
    for (int i = 0; i < 4; i++)
        c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}

EMULATED __m512 _mm512_sqrt_ps(__m512 v)
{
    emulated_zmm x = EMULATED_OF_PS(v);
    for (int i = 0; i < 16; i++)
        x.f[i] = __builtin_sqrtf(x.f[i]);
    return x.ps;
}

EMULATED __m256 _mm256_sqrt_ps(__m256 v)
{
    emulated_zmm x = {.half_ps = {v}};
    for (int i = 0; i < 8; i++)
        x.f[i] = __builtin_sqrtf(x.f[i]);
    return x.half_ps[0];
}

/* The second where one is a NaN, or both are 0. */
EMULATED __m512 _mm512_max_ps(__m512 a, __m512 b)
{
    emulated_zmm x = EMULATED_OF_PS(a), y = EMULATED_OF_PS(b);
    for (int i = 0; i < 16; i++)
        y.f[i] = x.f[i] > y.f[i] ? x.f[i] : y.f[i];
    return y.ps;
}

EMULATED __m512 _mm512_min_ps(__m512 a, __m512 b)
{
    emulated_zmm x = EMULATED_OF_PS(a), y = EMULATED_OF_PS(b);
    for (int i = 0; i < 16; i++)
        y.f[i] = x.f[i] < y.f[i] ? x.f[i] : y.f[i];
    return y.ps;
}

EMULATED __m256 _mm256_max_ps(__m256 a, __m256 b)
{
    for (int i = 0; i < 8; i++)
        b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}

EMULATED __m256 _mm256_min_ps(__m256 a, __m256 b)
{
    for (int i = 0; i < 8; i++)
        b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
}

EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int comparison)
{
    const emulated_zmm x = EMULATED_OF_PS(a), y = EMULATED_OF_PS(b);
    unsigned mask = 0;
    emulated_expect(comparison == _CMP_GT_OQ);
    for (unsigned i = 0; i < 16; i++)
        mask |= (unsigned)(x.f[i] > y.f[i]) << i;
    return (__mmask16)mask;
}

EMULATED __m256 _mm256_cmp_ps(__m256 a, __m256 b, int comparison)
{
    emulated_expect(comparison == _CMP_GT_OQ);
    return (__m256)(a > b);
}

EMULATED int _mm256_movemask_ps(__m256 v)
{
    const emulated_zmm x = {.half_ps = {v}};
    int mask = 0;
    for (int i = 0; i < 8; i++)
        mask |= (int)(x.u[i] >> 31) << i;
    return mask;
}

/* A sequence of the compiler: by halves. */
EMULATED float _mm512_reduce_add_ps(__m512 v)
{
    emulated_zmm x = EMULATED_OF_PS(v);
    for (int across = 8; across; across /= 2)
        for (int i = 0; i < across; i++)
            x.f[i] += x.f[i + across];
    return x.f[0];
}

EMULATED int emulated_is_nan(uint32_t bits)
{
    return (bits & 0x7FFFFFFF) > 0x7F800000;
}

/* To the nearest integer, ties to even. */
EMULATED __m512 _mm512_roundscale_ps(__m512 v, int how)
{
    emulated_zmm x = EMULATED_OF_PS(v);
    emulated_expect(how == (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    for (int i = 0; i < 16; i++) {
        const uint32_t sign = x.u[i] & 0x80000000;
        const emulated_zmm magic = {.u = {0x4B000000 | sign}}; /* 2^23 */
        if ((x.u[i] & 0x7FFFFFFF) >= 0x4B000000) {
            x.u[i] |= emulated_is_nan(x.u[i]) ? 0x00400000 : 0;
            continue;
        }
        x.f[i] = x.f[i] + magic.f[0] - magic.f[0];
        x.u[i] |= sign;
    }
    return x.ps;
}

/* x * 2^floor(n), rounded once. */
EMULATED float emulated_scale(float x, float n)
{
    enum { MOST = 600 }; /* beyond, every float is 0 or infinite */
    if (__builtin_isinf(n)) {
        const emulated_zmm of_x = {.f = {x}};
        if (emulated_is_nan(of_x.u[0]) && of_x.u[0] & 0x00400000) /* even of a quiet NaN */
            return n < 0 ? 0 : n;
        return n > 0 ? x * n : x * 0;
    }
    if (x != x || n != n)
        return x + n;
    int power = n < -MOST ? -MOST : n > MOST ? MOST : (int)n;
    power -= (float)power > n;
    const uint64_t exponent = (uint64_t)(power + 1023) << 52;
    double factor;
    memcpy(&factor, &exponent, sizeof factor);
    return (float)((double)x * factor);
}

EMULATED __m512 _mm512_scalef_ps(__m512 x, __m512 n)
{
    emulated_zmm a = EMULATED_OF_PS(x), b = EMULATED_OF_PS(n);
    for (int i = 0; i < 16; i++)
        a.f[i] = emulated_scale(a.f[i], b.f[i]);
    return a.ps;
}

/* --- bf16 --- */

/* Subnormal numbers become 0 and keep their sign. */
EMULATED float emulated_flush(float x)
{
    emulated_zmm r = {.f = {x}};
    r.u[0] &= r.u[0] & 0x7F800000 ? 0xFFFFFFFF : 0x80000000;
    return r.f[0];
}

/* To nearest even; a NaN's upper half, quiet. */
EMULATED uint16_t emulated_to_bf16(float x)
{
    const emulated_zmm r = {.f = {emulated_flush(x)}};
    const uint32_t u = r.u[0];
    return (uint16_t)(emulated_is_nan(u) ? u >> 16 | 0x40 : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

EMULATED __m256bh _mm512_cvtneps_pbh(__m512 v)
{
    const emulated_zmm x = EMULATED_OF_PS(v);
    emulated_zmm r;
    for (int i = 0; i < 16; i++)
        r.h[i] = emulated_to_bf16(x.f[i]);
    return (__m256bh)r.half[0];
}

/* The second operand comes first. */
EMULATED __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    emulated_zmm r;
    r.half[0] = (__m256i)_mm512_cvtneps_pbh(low);
    r.half[1] = (__m256i)_mm512_cvtneps_pbh(high);
    return r.bh;
}

/* a * b + c of bf16 numbers and a float, rounded once. Operands and result are flushed: those that would be
 * subnormal even when rounded as normal ones are. */
EMULATED float emulated_multiply_add_bf16(uint16_t a, uint16_t b, float c)
{
    const emulated_zmm x = {.u = {(uint32_t)a << 16, (uint32_t)b << 16}};
    const double sum =
        emulated_multiply_add(emulated_flush(x.f[0]), emulated_flush(x.f[1]), emulated_flush(c));
    return (float)(__builtin_fabs(sum) < 0x1.FFFFFFp-127 ? 0 * sum : sum);
}

/* The upper pair's product first. */
EMULATED __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b)
{
    emulated_zmm s = EMULATED_OF_PS(sum), x = {.bh = a}, y = {.bh = b};
    for (int i = 0; i < 16; i++) {
        const float upper = emulated_multiply_add_bf16(x.h[2 * i + 1], y.h[2 * i + 1], s.f[i]);
        s.f[i] = emulated_multiply_add_bf16(x.h[2 * i], y.h[2 * i], upper);
    }
    return s.ps;
}

#include "tiles.h"

#endif
