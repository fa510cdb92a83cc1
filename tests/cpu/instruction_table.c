/* Compiled twice, as real_instructions and as emulated_instructions. */

#include "instructions.h"

#include <immintrin.h>

#if defined(LT_TESTS_EMULATED_IMMINTRIN_H)
#define TABLE emulated_instructions
#define TARGET(name)
#else
#define TABLE        real_instructions
#define TARGET(name) __attribute__((target(name)))
#endif

#define TARGET_AVX2        TARGET("avx2,fma")
#define TARGET_AVX512      TARGET("avx512f,avx512bw,avx512vl,avx512dq")
#define TARGET_AVX512_BF16 TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#define TARGET_AMX         TARGET("amx-tile,amx-bf16")

#define OF(type, x)  (*(const type *)in->x)
#define PS(x)        OF(__m512, x)
#define SI(x)        OF(__m512i, x)
#define BH(x)        OF(__m512bh, x)
#define HALF(x)      OF(__m256i, x)
#define HALF_PS(x)   OF(__m256, x)
#define OUT(type)    (*(type *)out)
#define MASK16       ((__mmask16)in->mask)
#define FIRST(type)  (*(const type *)in->a)
#define CONFIGURE(r) _tile_loadconfig((r).byte)

/* A tile configuration: rows and bytes per row. */
typedef struct config {
    uint8_t byte[64];
} config;

static config tiles_of(int rows, int bytes)
{
    config c = {{1}};
    for (int t = 0; t < 8; t++) {
        c.byte[16 + 2 * t] = (uint8_t)bytes;
        c.byte[48 + t] = (uint8_t)rows;
    }
    __asm__ volatile("" : : "r"(&c) : "memory");
    return c;
}

#define WHOLE_TILES                    \
    const config c = tiles_of(16, 64); \
    CONFIGURE(c);

/* Clears NaN: the order of operands decides which one propagates. */
#define NUMBERS_OF(type, y) ((type)((type##_bits)(y) & (type##_bits)((y) == (y))))
typedef __m256i __m256d_bits;
typedef __m512i __m512d_bits;

#define INSTRUCTIONS(X)                                                                            \
    X(AVX2, BITS, _mm_loadu_si64, OUT(__m128i) = _mm_loadu_si64(in->a + 3);)                       \
    X(AVX2, BITS, _mm_loadu_si128,                                                                 \
      OUT(__m128i) = _mm_loadu_si128((const __m128i_u *)(in->a + 3));)                             \
    X(AVX2, BITS, _mm256_setzero_ps, OUT(__m256) = _mm256_setzero_ps();)                           \
    X(AVX2, BITS, _mm256_store_si256, _mm256_store_si256((__m256i *)out, HALF(a));)                \
    X(AVX2, BITS, _mm256_cvtepu8_epi32, OUT(__m256i) = _mm256_cvtepu8_epi32(OF(__m128i, a));)      \
    X(AVX2, BITS, _mm256_cmp_ps, OUT(__m256) = _mm256_cmp_ps(HALF_PS(a), HALF_PS(b), _CMP_GT_OQ);) \
    X(AVX2, BITS, _mm256_movemask_ps, OUT(int) = _mm256_movemask_ps(HALF_PS(a));)                  \
    X(AVX2, NUMBERS, _mm256_sqrt_ps, OUT(__m256) = _mm256_sqrt_ps(HALF_PS(a));)                    \
    X(AVX2, NUMBERS, _mm256_fmadd_ps,                                                              \
      OUT(__m256) = _mm256_fmadd_ps(HALF_PS(a), HALF_PS(b), HALF_PS(c));)                          \
    X(AVX2, BITS, _mm256_fmadd_pd,                                                                 \
      const __m256d y = _mm256_fmadd_pd(OF(__m256d, a), OF(__m256d, b), OF(__m256d, c));           \
      OUT(__m256d) = NUMBERS_OF(__m256d, y);)                                                      \
    X(AVX2, BITS, _mm256_max_ps, OUT(__m256) = _mm256_max_ps(HALF_PS(a), HALF_PS(b));)             \
    X(AVX2, BITS, _mm256_min_ps, OUT(__m256) = _mm256_min_ps(HALF_PS(a), HALF_PS(b));)             \
    X(AVX512, BITS, _mm512_loadu_si512, OUT(__m512i) = _mm512_loadu_si512(in->a + 1);)             \
    X(AVX512, BITS, _mm512_load_si512, OUT(__m512i) = _mm512_load_si512(in->a);)                   \
    X(AVX512, BITS, _mm512_store_si512, _mm512_store_si512(out, SI(a));)                           \
    X(AVX512, BITS, _mm512_loadu_ps, OUT(__m512) = _mm512_loadu_ps(in->a + 2);)                    \
    X(AVX512, BITS, _mm512_storeu_ps, _mm512_storeu_ps((char *)out + 4, PS(a));)                   \
    X(AVX512, BITS, _mm512_maskz_loadu_ps,                                                         \
      OUT(__m512) = _mm512_maskz_loadu_ps(MASK16, in->a + 2);)                                     \
    X(AVX512, BITS, _mm512_mask_storeu_ps, _mm512_mask_storeu_ps((char *)out + 4, MASK16, PS(a));) \
    X(AVX512, BITS, _mm512_maskz_loadu_epi16,                                                      \
      OUT(__m512i) = _mm512_maskz_loadu_epi16(in->mask, in->a + 2);)                               \
    X(AVX512, BITS, _mm512_mask_storeu_epi16,                                                      \
      _mm512_mask_storeu_epi16((char *)out + 2, in->mask, SI(a));)                                 \
    X(AVX512, BITS, _mm256_maskz_loadu_epi16,                                                      \
      OUT(__m256i) = _mm256_maskz_loadu_epi16(MASK16, in->a + 2);)                                 \
    X(AVX512, BITS, _mm256_mask_storeu_epi16,                                                      \
      _mm256_mask_storeu_epi16((char *)out + 2, MASK16, HALF(a));)                                 \
    X(AVX512, BITS, _mm512_maskz_mov_ps, OUT(__m512) = _mm512_maskz_mov_ps(MASK16, PS(a));)        \
    X(AVX512, BITS, _mm512_setzero_ps, OUT(__m512) = _mm512_setzero_ps();)                         \
    X(AVX512, BITS, _mm512_setzero_si512, OUT(__m512i) = _mm512_setzero_si512();)                  \
    X(AVX512, BITS, _mm512_set1_ps, OUT(__m512) = _mm512_set1_ps(FIRST(float));)                   \
    X(AVX512, BITS, _mm512_set1_epi32, OUT(__m512i) = _mm512_set1_epi32(FIRST(int));)              \
    X(AVX512, BITS, _mm512_set1_epi16, OUT(__m512i) = _mm512_set1_epi16(FIRST(short));)            \
    X(AVX512, BITS, _mm512_set_epi16,                                                              \
      OUT(__m512i) =                                                                               \
          _mm512_set_epi16(FIRST(short), 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17,   \
                           16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, -1, 0);)            \
    X(AVX512, BITS, _mm512_castsi512_si256, OUT(__m256i) = _mm512_castsi512_si256(SI(a));)         \
    X(AVX512, BITS, _mm512_extracti64x4_epi64,                                                     \
      OUT(__m256i) = _mm512_extracti64x4_epi64(SI(a), 1);)                                         \
    X(AVX512, BITS, _mm512_add_epi16, OUT(__m512i) = _mm512_add_epi16(SI(a), SI(b));)              \
    X(AVX512, BITS, _mm512_slli_epi32, OUT(__m512i) = _mm512_slli_epi32(SI(a), 16);)               \
    X(AVX512, BITS, _mm512_cvtepu8_epi32, OUT(__m512i) = _mm512_cvtepu8_epi32(OF(__m128i, a));)    \
    X(AVX512, BITS, _mm512_cvtepu16_epi32, OUT(__m512i) = _mm512_cvtepu16_epi32(HALF(a));)         \
    X(AVX512, BITS, _mm512_unpacklo_epi32, OUT(__m512i) = _mm512_unpacklo_epi32(SI(a), SI(b));)    \
    X(AVX512, BITS, _mm512_unpackhi_epi32, OUT(__m512i) = _mm512_unpackhi_epi32(SI(a), SI(b));)    \
    X(AVX512, BITS, _mm512_unpacklo_epi64, OUT(__m512i) = _mm512_unpacklo_epi64(SI(a), SI(b));)    \
    X(AVX512, BITS, _mm512_unpackhi_epi64, OUT(__m512i) = _mm512_unpackhi_epi64(SI(a), SI(b));)    \
    X(AVX512, BITS, _mm512_shuffle_i32x4,                                                          \
      OUT(__m512i) = _mm512_shuffle_i32x4(SI(a), SI(b), 0x8d);)                                    \
    X(AVX512, BITS, _mm512_permutex2var_epi16,                                                     \
      OUT(__m512i) = _mm512_permutex2var_epi16(SI(a), SI(c), SI(b));)                              \
    X(AVX512, NUMBERS, _mm512_add_ps, OUT(__m512) = _mm512_add_ps(PS(a), PS(b));)                  \
    X(AVX512, NUMBERS, _mm512_fmadd_ps, OUT(__m512) = _mm512_fmadd_ps(PS(a), PS(b), PS(c));)       \
    X(AVX512, BITS, _mm512_fmadd_pd,                                                               \
      const __m512d y = _mm512_fmadd_pd(OF(__m512d, a), OF(__m512d, b), OF(__m512d, c));           \
      OUT(__m512d) = NUMBERS_OF(__m512d, y);)                                                      \
    X(AVX512, NUMBERS, _mm512_sqrt_ps, OUT(__m512) = _mm512_sqrt_ps(PS(a));)                       \
    X(AVX512, BITS, _mm512_max_ps, OUT(__m512) = _mm512_max_ps(PS(a), PS(b));)                     \
    X(AVX512, BITS, _mm512_min_ps, OUT(__m512) = _mm512_min_ps(PS(a), PS(b));)                     \
    X(AVX512, BITS, _mm512_cmp_ps_mask,                                                            \
      OUT(__mmask16) = _mm512_cmp_ps_mask(PS(a), PS(b), _CMP_GT_OQ);)                              \
    X(AVX512, VALUES, _mm512_reduce_add_ps, OUT(float) = _mm512_reduce_add_ps(PS(a));)             \
    X(AVX512, BITS, _mm512_roundscale_ps,                                                          \
      OUT(__m512) = _mm512_roundscale_ps(PS(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);)   \
    X(AVX512, NUMBERS, _mm512_scalef_ps, OUT(__m512) = _mm512_scalef_ps(PS(a), PS(b));)            \
    X(AVX512_BF16, BITS, _mm512_cvtneps_pbh, OUT(__m256i) = (__m256i)_mm512_cvtneps_pbh(PS(a));)   \
    X(AVX512_BF16, BITS, _mm512_cvtne2ps_pbh,                                                      \
      OUT(__m512i) = (__m512i)_mm512_cvtne2ps_pbh(PS(a), PS(b));)                                  \
    X(AVX512_BF16, NUMBERS, _mm512_dpbf16_ps,                                                      \
      OUT(__m512) = _mm512_dpbf16_ps(PS(c), BH(a), BH(b));)                                        \
    X(AMX, BITS, _tile_loadconfig, const config c = tiles_of(5, 24); CONFIGURE(c);                 \
      _tile_loadd(3, in->tile[0], 72); _tile_stored(3, out, 40); _tile_release();)                 \
    X(AMX, BITS, _tile_release, const config c = tiles_of(5, 24); CONFIGURE(c);                    \
      _tile_loadd(3, in->tile[0], 64); _tile_release(); CONFIGURE(c); _tile_stored(3, out, 64);    \
      _tile_release();)                                                                            \
    X(AMX, BITS, _tile_loadd, WHOLE_TILES _tile_loadd(0, in->tile[0], 64);                         \
      _tile_stored(0, out, 64); _tile_release();)                                                  \
    X(AMX, BITS, _tile_stored, WHOLE_TILES _tile_loadd(7, in->tile[0], 16);                        \
      _tile_stored(7, out, 64); _tile_release();)                                                  \
    X(AMX, BITS, _tile_zero, WHOLE_TILES _tile_loadd(1, in->tile[0], 64); _tile_zero(1);           \
      _tile_stored(1, out, 64); _tile_release();)                                                  \
    X(AMX, NUMBERS, _tile_dpbf16ps, WHOLE_TILES _tile_loadd(0, in->tile[0], 64);                   \
      _tile_loadd(1, in->tile[1], 64); _tile_loadd(2, in->tile[2], 64); _tile_dpbf16ps(0, 1, 2);   \
      _tile_stored(0, out, 64); _tile_release();)

#define FUNCTION(isa, same, name, ...)                                \
    TARGET_##isa static void run##name(const operands *in, void *out) \
    {                                                                 \
        (void)in;                                                     \
        __VA_ARGS__                                                   \
    }
INSTRUCTIONS(FUNCTION)

#define ROW(isa, same, name, ...) {#name, LT_ISA_##isa, same, run##name},
const instruction TABLE[] = {INSTRUCTIONS(ROW){0}};
