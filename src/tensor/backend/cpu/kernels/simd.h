/* Vectors of sixteen floats, stored as f32 or bf16. With AVX-512 a vector is one register; for other targets the
 * compiler splits it: two registers on x86-64, four on ARM64. Only this file and functions.h's square root use intrinsics. */
#ifndef LT_BACKEND_CPU_KERNELS_SIMD_H
#define LT_BACKEND_CPU_KERNELS_SIMD_H

#include "software_fma.h"
#include "tensor/backend/cpu/kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { LANES = 16 };

#define ALWAYS static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(64)));
typedef float loose_vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(64)));
typedef int32_t lanes __attribute__((vector_size(64)));
typedef double wide __attribute__((vector_size(128)));
typedef uint16_t half __attribute__((vector_size(32)));
typedef uint16_t loose_half __attribute__((vector_size(32), aligned(2), may_alias));

ALWAYS vec vec_set(float value)
{
    return (vec){value, value, value, value, value, value, value, value,
                 value, value, value, value, value, value, value, value};
}

/* One register, for values kept over a loop: without AVX-512 it is part of a vector, and GCC would keep a vector of
 * sixteen in memory, which makes a matrix product several times slower. */
#if defined(__AVX512F__)
enum { SUMS = LANES };
#elif defined(__aarch64__)
enum { SUMS = LANES / 4 };
#else
enum { SUMS = LANES / 2 };
#endif
typedef float sums __attribute__((vector_size(SUMS * 4)));
typedef float loose_sums __attribute__((vector_size(SUMS * 4), aligned(4), may_alias));
typedef uint32_t sums_bits __attribute__((vector_size(SUMS * 4)));
typedef int32_t sums_lanes __attribute__((vector_size(SUMS * 4)));
typedef uint16_t sums_half __attribute__((vector_size(SUMS * 2)));
typedef uint16_t loose_sums_half __attribute__((vector_size(SUMS * 2), aligned(2), may_alias));

/* Returns a * b + c, rounded once; twice in the default generic set, which lacks the instruction. A plain a * b + c is
 * rounded twice on every set: the compiler contracts nothing. */
ALWAYS sums fused(sums a, sums b, sums c)
{
#if defined(__AVX512F__)
    return (sums)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (sums)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (sums)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(LT_SOFTWARE_FMA)
    enum { PARTS = sizeof a / sizeof(four_floats) };
    four_floats x[PARTS], y[PARTS], z[PARTS];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    memcpy(z, &c, sizeof c);
    for (int i = 0; i < PARTS; i++)
        z[i] = software_fma(x[i], y[i], z[i]);
    memcpy(&c, z, sizeof c);
    return c;
#else
    return a * b + c;
#endif
}

/* Comparisons, register by register: GCC would compare a vector of two registers element by element. */
enum { REGISTERS = LANES / SUMS };
#define COMPARISON(name, type, part, op)                   \
    ALWAYS lanes name(type a, type b)                      \
    {                                                      \
        part left[REGISTERS], right[REGISTERS];            \
        sums_lanes result[REGISTERS];                      \
        lanes all;                                         \
        memcpy(left, &a, sizeof a);                        \
        memcpy(right, &b, sizeof b);                       \
        for (int i = 0; i < REGISTERS; i++)                \
            result[i] = (sums_lanes)(left[i] op right[i]); \
        memcpy(&all, result, sizeof all);                  \
        return all;                                        \
    }
COMPARISON(below, vec, sums, <)
COMPARISON(at_most, vec, sums, <=)
COMPARISON(equals, vec, sums, ==)
COMPARISON(below_lanes, lanes, sums_lanes, <)
COMPARISON(equals_lanes, lanes, sums_lanes, ==)

/* Widens SUMS bytes to integers; GCC would do it one by one. */
ALWAYS sums_lanes widen_bytes(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (sums_lanes)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
#elif defined(__AVX2__)
    return (sums_lanes)_mm256_cvtepu8_epi32(_mm_loadu_si64(p));
#elif defined(__aarch64__)
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return (sums_lanes)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
#else
    sums_lanes all = {0};
    for (int i = 0; i < SUMS; i++)
        all[i] = p[i];
    return all;
#endif
}

/* Compares n bytes, and zeros after them, with one byte. */
ALWAYS lanes equals_bytes(const uint8_t *p, int n, uint8_t byte)
{
    uint8_t all[LANES] = {0};
    lanes result;
    sums_lanes part[REGISTERS];
    if (n < LANES)
        p = memcpy(all, p, (size_t)n);
    for (int i = 0; i < REGISTERS; i++)
        part[i] = (sums_lanes)(widen_bytes(p + i * SUMS) == byte);
    memcpy(&result, part, sizeof result);
    return result;
}

/* A vector as registers, for accumulation over a loop. */
typedef struct registers {
    sums part[REGISTERS];
} registers;

ALWAYS registers zero_registers(void)
{
    registers r;
    for (int i = 0; i < REGISTERS; i++)
        r.part[i] = (sums){0};
    return r;
}

ALWAYS registers as_registers(vec v)
{
    registers r;
    memcpy(r.part, &v, sizeof v);
    return r;
}

ALWAYS void add_to_registers(registers *r, vec v)
{
    const registers more = as_registers(v);
    for (int i = 0; i < REGISTERS; i++)
        r->part[i] += more.part[i];
}

/* Adds products: r += a * b. */
ALWAYS void add_products_to(registers *r, vec a, vec b)
{
    const registers left = as_registers(a), right = as_registers(b);
    for (int i = 0; i < REGISTERS; i++)
        r->part[i] = fused(left.part[i], right.part[i], r->part[i]);
}

ALWAYS vec registers_to_vec(const registers *r)
{
    vec v;
    memcpy(&v, r->part, sizeof v);
    return v;
}

/* Stores register by register: GCC would move a vector of two through the stack. */
ALWAYS void store_all(float *p, vec v)
{
    const registers from = as_registers(v);
    for (int i = 0; i < REGISTERS; i++)
        *(loose_sums *)(p + i * SUMS) = from.part[i];
}

ALWAYS vec choose(lanes which, vec yes, vec no)
{
    return (vec)(((lanes)yes & which) | ((lanes)no & ~which));
}

/* Returns i + lane index. */
ALWAYS lanes lane_numbers(int64_t i)
{
    const lanes number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return number + (int)i;
}

/* Returns the sum of count (a power of two) numbers by pairwise halving; overwrites them. */
ALWAYS float sum_by_halving(float *number, int count)
{
    for (int across = count / 2; across; across /= 2)
        for (int i = 0; i < across; i++)
            number[i] += number[i + across];
    return number[0];
}

/* Returns the sum of all lanes, in the same order on every instruction set. */
ALWAYS float sum_lanes_by_halving(vec v)
{
    float lane[LANES];
    memcpy(lane, &v, sizeof lane);
    return sum_by_halving(lane, LANES);
}

#if defined(__AVX512F__)
ALWAYS vec widen(half h)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
}
#else
ALWAYS vec widen(half h)
{
    return (vec)(__builtin_convertvector(h, bits) << 16);
}
#endif

/* Rounds to bf16, to nearest even; NaN remains NaN. */
ALWAYS half narrow_exactly(vec v)
{
    const bits u = (bits)v, up = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    const bits number = (bits)equals(v, v);
    return __builtin_convertvector((up & number) | ((u >> 16 | 0x40) & ~number), half);
}

#if defined(__AVX512BF16__)
/* Rounds to bf16 likewise, but the instruction flushes subnormals to 0. */
ALWAYS half narrow(vec v)
{
    return (half)_mm512_cvtneps_pbh((__m512)v);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* Rounds to bf16 likewise. */
ALWAYS half narrow(vec v)
{
    float32x4_t part[REGISTERS];
    bfloat16x8_t two[REGISTERS / 2];
    half h;
    memcpy(part, &v, sizeof v);
    for (int i = 0; i < REGISTERS / 2; i++)
        two[i] = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(part[2 * i]), part[2 * i + 1]);
    memcpy(&h, two, sizeof h);
    return h;
}
#else
ALWAYS half narrow(vec v)
{
    return narrow_exactly(v);
}
#endif

/* Returns c plus the product of the high, then of the low bf16 of each 32-bit lane; the instructions take subnormals as
 * 0. ARM64's rounds the products' sum and the result to odd. */
#if defined(__AVX512BF16__)
enum { HAS_PAIRS = 1 };
ALWAYS sums multiply_add_pairs(sums a, sums b, sums c)
{
    return (sums)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
enum { HAS_PAIRS = 1 };
ALWAYS sums multiply_add_pairs(sums a, sums b, sums c)
{
    return (sums)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
#else
enum { HAS_PAIRS = 0 }; /* no instruction: converts to f32 first, which is as fast */
ALWAYS sums multiply_add_pairs(sums a, sums b, sums c)
{
    const sums_bits high = (sums_bits){0} + 0xFFFF0000;
    c = fused((sums)((sums_bits)a & high), (sums)((sums_bits)b & high), c);
    return fused((sums)((sums_bits)a << 16), (sums)((sums_bits)b << 16), c);
}
#endif

/* Returns a * b + c, fused. */
ALWAYS registers multiply_add_registers(registers a, registers b, registers c)
{
    for (int i = 0; i < REGISTERS; i++)
        c.part[i] = fused(a.part[i], b.part[i], c.part[i]);
    return c;
}

ALWAYS vec multiply_add(vec a, vec b, vec c)
{
    const registers r = multiply_add_registers(as_registers(a), as_registers(b), as_registers(c));
    return registers_to_vec(&r);
}

#if defined(__AVX512F__)
/* Returns a mask whose bit i is set if lane i is > 0. */
ALWAYS unsigned positive_lanes_mask(vec v)
{
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_GT_OQ);
}

/* Clears lanes whose bit is 0. */
ALWAYS vec keep_lanes(unsigned mask, vec v)
{
    return (vec)_mm512_maskz_mov_ps((__mmask16)mask, (__m512)v);
}

ALWAYS vec load_first(const float *p, int n)
{
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), p);
}

ALWAYS void store_first(float *p, vec v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1U << n) - 1), (__m512)v);
}

ALWAYS half load_half_first(const uint16_t *p, int n)
{
    return (half)_mm256_maskz_loadu_epi16((__mmask16)((1U << n) - 1), p);
}

ALWAYS void store_half_first(uint16_t *p, half v, int n)
{
    _mm256_mask_storeu_epi16(p, (__mmask16)((1U << n) - 1), (__m256i)v);
}
#else
#if defined(__AVX2__)
ALWAYS unsigned positive_lanes_mask(vec v)
{
    __m256 part[2];
    memcpy(part, &v, sizeof part);
    const __m256 zero = _mm256_setzero_ps();
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(part[0], zero, _CMP_GT_OQ))
           | (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(part[1], zero, _CMP_GT_OQ)) << 8;
}
#else
ALWAYS unsigned positive_lanes_mask(vec v)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < LANES; i++)
        mask |= (unsigned)(v[i] > 0) << i;
    return mask;
}
#endif

ALWAYS vec keep_lanes(unsigned mask, vec v)
{
    const bits bit = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                      1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    const lanes miss = equals_lanes((lanes)(((bits){0} + mask) & bit), (lanes){0});
    return (vec)((bits)v & ~(bits)miss);
}

ALWAYS vec load_first(const float *p, int n)
{
    vec v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

ALWAYS void store_first(float *p, vec v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}

ALWAYS half load_half_first(const uint16_t *p, int n)
{
    half v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

ALWAYS void store_half_first(uint16_t *p, half v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}
#endif

/* larger() and smaller() of two: b if either is NaN or both are zero. */
#if defined(__AVX512F__)
#define MAX_OF(a, b) (sums) _mm512_max_ps((__m512)(a), (__m512)(b))
#define MIN_OF(a, b) (sums) _mm512_min_ps((__m512)(a), (__m512)(b))
#elif defined(__AVX2__)
#define MAX_OF(a, b) (sums) _mm256_max_ps((__m256)(a), (__m256)(b))
#define MIN_OF(a, b) (sums) _mm256_min_ps((__m256)(a), (__m256)(b))
#else
#define CHOOSE(which, a, b) (sums)(((sums_lanes)(a) & (which)) | ((sums_lanes)(b) & ~(which)))
#define MAX_OF(a, b)        CHOOSE((a) > (b), a, b)
#define MIN_OF(a, b)        CHOOSE((a) < (b), a, b)
#endif
#define EXTREME(name, of)                                    \
    ALWAYS vec name(vec a, vec b)                            \
    {                                                        \
        const registers left = as_registers(a);              \
        registers right = as_registers(b);                   \
        for (int i = 0; i < REGISTERS; i++)                  \
            right.part[i] = of(left.part[i], right.part[i]); \
        return registers_to_vec(&right);                     \
    }
EXTREME(larger, MAX_OF)
EXTREME(smaller, MIN_OF)

/* Returns the largest lane by pairwise halving; no lane may be NaN. */
ALWAYS float largest_lane(vec v)
{
#if defined(__AVX512F__)
#define FROM(k)                                                                               \
    k, k + 1, k + 2, k + 3, k + 4, k + 5, k + 6, k + 7, k + 8, k + 9, k + 10, k + 11, k + 12, \
        k + 13, k + 14, k + 15
    v = larger(v, __builtin_shufflevector(v, v, FROM(8)));
    v = larger(v, __builtin_shufflevector(v, v, FROM(4)));
    v = larger(v, __builtin_shufflevector(v, v, FROM(2)));
    return larger(v, __builtin_shufflevector(v, v, FROM(1)))[0];
#undef FROM
#else
    float lane[LANES];
    memcpy(lane, &v, sizeof lane);
    for (int across = LANES / 2; across; across /= 2)
        for (int i = 0; i < across; i++)
            lane[i] = lane[i] > lane[i + across] ? lane[i] : lane[i + across];
    return lane[0];
#endif
}

/* Returns a mask with all bits of the first n lanes set. */
ALWAYS lanes first_lanes(int n)
{
    return below_lanes(lane_numbers(0), (lanes){0} + n);
}

/* round_to_nearest() rounds |x| < 2^22 to integers; scale_by_power_of_2() returns 2^n * x for integers -126 <= n <= 127. */
#if defined(__AVX512F__)
ALWAYS vec round_to_nearest(vec x)
{
    return (vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

ALWAYS vec scale_by_power_of_2(vec x, vec n)
{
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)n);
}
#else
ALWAYS vec round_to_nearest(vec x)
{
    const vec magic = vec_set(0x1.8p23F); /* adding it rounds to a multiple of 1 */
    return x + magic - magic;
}

ALWAYS vec scale_by_power_of_2(vec x, vec n)
{
    return x * (vec)(lanes)((__builtin_convertvector(n, lanes) + 127) << 23);
}
#endif

/* Load and store elements i .. i+n-1 in this storage; if n < LANES the other lanes are 0. store is a constant in all
 * calls, so that branches are optimised away. */
ALWAYS vec load(const void *p, int64_t i, int n, lt_cpu_store store)
{
    if (store == LT_STORE_BF16) {
        const uint16_t *h = (const uint16_t *)p + i;
        if (n == LANES)
            return widen(*(const loose_half *)h);
        return widen(load_half_first(h, n));
    }
    const float *f = (const float *)p + i;
    if (n == LANES)
        return *(const loose_vec *)f;
    return load_first(f, n);
}

ALWAYS void save(void *p, int64_t i, vec v, int n, lt_cpu_store store)
{
    if (store == LT_STORE_BF16) {
        uint16_t *h = (uint16_t *)p + i;
        if (n == LANES)
            *(loose_half *)h = narrow(v);
        else
            store_half_first(h, narrow(v), n);
        return;
    }
    float *f = (float *)p + i;
    if (n == LANES)
        store_all(f, v);
    else
        store_first(f, v, n);
}

/* Returns sum + left * right, of floats or of pairs of bf16. */
ALWAYS sums add_product(float left, sums right, sums sum, bool pairs)
{
    const sums all = left - (sums){0};
    if (pairs)
        return multiply_add_pairs(all, right, sum);
    return fused(all, right, sum);
}

/* widen() and narrow() for values of one register. */
#if defined(__AVX512F__)
ALWAYS sums widen_sums(sums_half h)
{
    return widen(h);
}

ALWAYS sums_half narrow_sums(sums s)
{
    return narrow(s);
}
#else
ALWAYS sums widen_sums(sums_half h)
{
    return (sums)(__builtin_convertvector(h, sums_bits) << 16);
}

ALWAYS sums_half narrow_sums(sums s)
{
    const sums_bits u = (sums_bits)s, up = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    const sums_bits nan = (sums_bits)(s != s);
    return __builtin_convertvector((up & ~nan) | ((u >> 16 | 0x40) & nan), sums_half);
}
#endif

/* Load and store elements i .. i+SUMS-1, one register. */
ALWAYS sums load_sums(const void *p, int64_t i, lt_cpu_store store)
{
    if (store == LT_STORE_F32)
        return *(const loose_sums *)((const float *)p + i);
    return widen_sums(*(const loose_sums_half *)((const uint16_t *)p + i));
}

ALWAYS void save_sums(void *p, int64_t i, sums s, lt_cpu_store store)
{
    if (store == LT_STORE_F32)
        *(loose_sums *)((float *)p + i) = s;
    else
        *(loose_sums_half *)((uint16_t *)p + i) = narrow_sums(s);
}

/* load() and save() of registers: in loops around fused() GCC would move vectors of two registers through the stack. */
ALWAYS registers load_registers(const void *p, int64_t i, int n, lt_cpu_store store)
{
    registers r;
    if (n < LANES)
        return as_registers(load(p, i, n, store));
    for (int k = 0; k < REGISTERS; k++)
        r.part[k] = load_sums(p, i + k * SUMS, store);
    return r;
}

ALWAYS void save_registers(void *p, int64_t i, const registers *r, int n, lt_cpu_store store)
{
    if (n < LANES)
        save(p, i, registers_to_vec(r), n, store);
    else
        for (int k = 0; k < REGISTERS; k++)
            save_sums(p, i + k * SUMS, r->part[k], store);
}

/* Returns max(v, 0); NaN remains NaN. */
ALWAYS sums rectify_sums(sums v)
{
    return (sums)((sums_bits)v & (sums_bits) ~(v < 0));
}

ALWAYS vec rectify(vec v)
{
    return (vec)((bits)v & ~(bits)below(v, (vec){0}));
}

/* Runs body for i = 0, LANES, ... with n = LANES, then once with the remainder; the mask tells GCC 14 that it is
 * below LANES. */
#define FOR_LANES(i, n, count, body)                      \
    do {                                                  \
        int64_t i = 0;                                    \
        for (; i + LANES <= (count); i += LANES) {        \
            enum { n = LANES };                           \
            body                                          \
        }                                                 \
        if (i < (count)) {                                \
            const int n = (int)((count)-i) & (LANES - 1); \
            body                                          \
        }                                                 \
    } while (0)

/* Concatenates the values of two macros with an underscore. */
#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)

#endif
