/* The weight gradient's micro-kernel for AVX512_BF16: VDPBF16PS adds two pixels' products to 16 sums. Also packs pixels
 * for the AMX micro-kernel. See wgrad.h. */

#include "tensor/backend/cpu/transpose_avx512.h"
#include "wgrad_microkernel.h"

#include <immintrin.h>

/* NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): indices inside a tile */

enum { ROWS = 8, LANES = 16 };

/* Loads 32 channels of a pixel from `at` on; those from count on are zeros. */
static inline __m512i load_channels(const void *data, int64_t at, int64_t count)
{
    const uint16_t *base = data;
    if (at < 0 || count <= 0)
        return _mm512_setzero_si512();
    if (count >= 2 * LANES)
        return _mm512_loadu_si512(base + at);
    return _mm512_maskz_loadu_epi16((1U << count) - 1, base + at);
}

/* Interleaves two pixels: low gets (a0, b0), .., (a15, b15), high the channels 16 to 31. */
static inline void interleave_pixels(__m512i a, __m512i b, __m512i *low, __m512i *high)
{
    const __m512i first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    *low = _mm512_permutex2var_epi16(a, first, b);
    *high = _mm512_permutex2var_epi16(a, _mm512_add_epi16(first, _mm512_set1_epi16(LANES)), b);
}

void lt_wgrad_pack_x_avx512(const void *base, const int64_t *at, int64_t pixels, int64_t count,
                            void *out)
{
    uint16_t *to = out;
    for (int64_t p = 0; p < pixels; p += 2) {
        __m512i low, high;
        interleave_pixels(load_channels(base, at[p], count), load_channels(base, at[p + 1], count),
                          &low, &high);
        _mm512_store_si512(to + p * LT_WGRAD_COLUMNS, low);
        _mm512_store_si512(to + p * LT_WGRAD_COLUMNS + 2 * LANES, high);
    }
}

/* Packs panels of 8 rows per pair of pixels; a few pixels at a time, so that memory is read sequentially. */
static void pack_dy(const void *base, const int64_t *at, int64_t pixels, int64_t count, void *out)
{
    enum { STRIP = 16, AT_ONCE = 4 * ROWS };
    const uint16_t *from = base;
    const int64_t panel = ROWS * pixels, strips = (count + AT_ONCE - 1) / AT_ONCE;
    for (int64_t s = 0; s < (pixels + STRIP - 1) / STRIP * strips; s++) {
        const int64_t k = s % strips * AT_ONCE, first = s / strips * STRIP;
        for (int64_t p = first; p < first + STRIP && p < pixels; p += 2) {
            __m512i part[2];
            uint16_t *to = (uint16_t *)out + k * pixels + p * ROWS;
            interleave_pixels(load_channels(from + k, at[p], count - k),
                              load_channels(from + k, at[p + 1], count - k), &part[0], &part[1]);
            for (int i = 0; i < 4 && k + i * ROWS < count; i++) {
                __m256i rows = i % 2 ? _mm512_extracti64x4_epi64(part[i / 2], 1)
                                     : _mm512_castsi512_si256(part[i / 2]);
                _mm256_store_si256((__m256i *)(void *)(to + i * panel), rows);
            }
        }
    }
}

void lt_wgrad_pack_dy_tiles_avx512(const void *base, const int64_t *at, int64_t pixels,
                                   int64_t count, void *out)
{
    enum { DEPTH = 2 * LANES, TILE = LANES * DEPTH };
    const uint16_t *from = base;
    for (int64_t k = 0; k < count; k += DEPTH)
        for (int64_t p = 0; p < pixels; p += DEPTH) {
            __m512i low[LANES], high[LANES];
            uint16_t *to = (uint16_t *)out + k * pixels + p * DEPTH;
            for (int i = 0; i < LANES; i++)
                interleave_pixels(load_channels(from + k, at[p + 2 * i], count - k),
                                  load_channels(from + k, at[p + 2 * i + 1], count - k), &low[i],
                                  &high[i]);
            lt_transpose_avx512(low);
            lt_transpose_avx512(high);
            for (int i = 0; i < LANES; i++) {
                _mm512_store_si512(to + (int64_t)i * DEPTH, low[i]);
                _mm512_store_si512(to + TILE + (int64_t)i * DEPTH, high[i]);
            }
        }
}

static void multiply_panels(const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld,
                            bool add)
{
    const uint16_t *left = dy, *right = x;
    __m512 sum[ROWS][2];
    for (int k = 0; k < ROWS; k++)
        for (int c = 0; c < 2; c++)
            sum[k][c] =
                add ? _mm512_loadu_ps(dw + k * ld + (int64_t)c * LANES) : _mm512_setzero_ps();
    for (int64_t p = 0; p < pixels; p += 2) {
        __m512bh x0 = (__m512bh)_mm512_load_si512(right + p * LT_WGRAD_COLUMNS);
        __m512bh x1 = (__m512bh)_mm512_load_si512(right + p * LT_WGRAD_COLUMNS + 2 * LANES);
        for (int k = 0; k < ROWS; k++) {
            int32_t two;
            __builtin_memcpy(&two, left + p * ROWS + 2 * (int64_t)k, sizeof two);
            __m512bh d = (__m512bh)_mm512_set1_epi32(two);
            sum[k][0] = _mm512_dpbf16_ps(sum[k][0], d, x0);
            sum[k][1] = _mm512_dpbf16_ps(sum[k][1], d, x1);
        }
    }
    for (int k = 0; k < ROWS; k++)
        for (int c = 0; c < 2; c++)
            _mm512_storeu_ps(dw + k * ld + (int64_t)c * LANES, sum[k][c]);
}

const lt_wgrad_microkernel lt_wgrad_avx512 = {
    .rows = ROWS,
    .columns = LT_WGRAD_COLUMNS,
    .pixels = 2,
    .size = sizeof(uint16_t),
    .dy = pack_dy,
    .x = lt_wgrad_pack_x_avx512,
    .product = multiply_panels,
};
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result) */
