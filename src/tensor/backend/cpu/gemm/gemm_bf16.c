/* bf16 micro-kernel for AVX512_BF16: VDPBF16PS adds two steps' products to 16 sums. See gemm.h. f32 operands are
 * rounded to nearest even during packing; subnormals become 0. */

#include "tensor/backend/cpu/gemm_microkernel.h"
#include "tensor/backend/cpu/transpose_avx512.h"

#include <immintrin.h>

/* NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): indices inside a tile */

enum { ROWS = 8, VECS = 2, LANES = 16, COLS = VECS * LANES, PAIRS = 16 };

/* --- Packing --- */

static inline __mmask32 mask32(int64_t count)
{
    return count >= 2 * LANES ? 0xFFFFFFFF : count <= 0 ? 0 : (__mmask32)((1U << count) - 1);
}

/* Loads 32 adjacent elements, f32 rounded to bf16; elements from count on are 0. */
static inline __m512i load_32_as_bf16(const lt_gemm_operand *x, int64_t at, int64_t count)
{
    const float *f = (const float *)x->data + at;
    if (count <= 0)
        return _mm512_setzero_si512();
    if (x->dtype == LT_BF16)
        return _mm512_maskz_loadu_epi16(mask32(count), (const uint16_t *)x->data + at);
    return (__m512i)_mm512_cvtne2ps_pbh(
        _mm512_maskz_loadu_ps(lt_first_lanes_avx512(count - LANES), f + LANES),
        _mm512_maskz_loadu_ps(lt_first_lanes_avx512(count), f));
}

/* Destination of pairs of steps of 16 lanes: one panel of columns or two panels of rows. */
typedef struct destination {
    uint16_t *to;
    int64_t next; /* elements between pairs of steps */
    int64_t high; /* element offset of lanes 8 to 15; 0: directly after lane 7 */
} destination;

static inline destination get_destination(uint16_t *to, int64_t lane, int64_t steps, int width)
{
    const int64_t panel = (steps + 1) / 2 * 2 * width;
    return (destination){.to = to + lane / width * panel + 2 * (lane % width),
                         .next = (int64_t)2 * width,
                         .high = width < LANES ? panel : 0};
}

static inline void store_pairs(const destination *p, int64_t pair, __m512i v)
{
    uint16_t *to = p->to + pair * p->next;
    if (!p->high) {
        _mm512_store_si512(to, v);
        return;
    }
    _mm256_store_si256((__m256i *)(void *)to, _mm512_castsi512_si256(v));
    _mm256_store_si256((__m256i *)(void *)(to + p->high), _mm512_extracti64x4_epi64(v, 1));
}

/* Packs 16 lanes from `first` on, count of them valid, whose steps are adjacent. */
static inline void pack_adjacent_steps(const lt_gemm_operand *x, int64_t first, int64_t count,
                                       int64_t steps, destination p)
{
    for (int64_t k = 0; k < steps; k += 2 * PAIRS) {
        __m512i row[LANES];
        for (int l = 0; l < LANES; l++)
            row[l] = load_32_as_bf16(x, (first + l) * x->lane + k, l < count ? steps - k : 0);
        lt_transpose_avx512(row);
        const int64_t left = (steps - k + 1) / 2;
        for (int64_t i = 0; i < PAIRS && i < left; i++)
            store_pairs(&p, k / 2 + i, row[i]);
    }
}

/* Interleaves lanes first .. first+15 of two steps: (a0, b0), (a1, b1), ... */
static inline __m512i interleave(__m512i a, __m512i b, int first)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(a, _mm512_add_epi16(low, _mm512_set1_epi16((short)first)), b);
}

enum { GROUPS = 2 }; /* groups of 32 lanes packed together: two cache lines of bf16 */

/* Packs count adjacent lanes from `first` on, at most 32 * GROUPS. */
static inline void pack_adjacent_lanes(const lt_gemm_operand *x, int64_t first, int64_t count,
                                       int64_t steps, const destination p[2 * GROUPS])
{
    for (int64_t k = 0; k < steps; k += 2)
        for (int g = 0; g < GROUPS && g * 2 * LANES < count; g++) {
            const int64_t at = first + (int64_t)g * 2 * LANES,
                          here = count - (int64_t)g * 2 * LANES;
            const __m512i a = load_32_as_bf16(x, at + k * x->step, here);
            const __m512i b = load_32_as_bf16(x, at + (k + 1) * x->step, k + 1 < steps ? here : 0);
            store_pairs(&p[2 * g], k / 2, interleave(a, b, 0));
            store_pairs(&p[2 * g + 1], k / 2, interleave(a, b, LANES));
        }
}

/* Packs all lanes; `to` has space for a multiple of 32. */
static inline void pack_panels(lt_gemm_operand x, int64_t lanes, int64_t steps, int width,
                               uint16_t *to)
{
    const int64_t whole = (lanes + 2 * LANES - 1) / (2 * LANES) * 2 * LANES;
    for (int64_t first = 0; first < whole && x.step == 1; first += LANES)
        pack_adjacent_steps(&x, first, lanes - first, steps,
                            get_destination(to, first, steps, width));
    for (int64_t first = 0; first < whole && x.step != 1; first += (int64_t)GROUPS * 2 * LANES) {
        destination p[2 * GROUPS];
        for (int i = 0; i < 2 * GROUPS; i++)
            p[i] = get_destination(to, first + (int64_t)i * LANES, steps, width);
        pack_adjacent_lanes(&x, first, lanes - first, steps, p);
    }
}

static void pack_operand(const lt_gemm_operand *x, int64_t lanes, int64_t steps, int width,
                         void *to)
{
    if (width == COLS && x->dtype == LT_BF16) /* constants: no branches in the loops */
        pack_panels((lt_gemm_operand){x->data, LT_BF16, x->lane, x->step}, lanes, steps, COLS, to);
    else if (width == COLS)
        pack_panels((lt_gemm_operand){x->data, LT_F32, x->lane, x->step}, lanes, steps, COLS, to);
    else if (x->dtype == LT_BF16)
        pack_panels((lt_gemm_operand){x->data, LT_BF16, x->lane, x->step}, lanes, steps, ROWS, to);
    else
        pack_panels((lt_gemm_operand){x->data, LT_F32, x->lane, x->step}, lanes, steps, ROWS, to);
}

/* --- Multiplying --- */

typedef __m512 sums[ROWS][VECS];

static inline __attribute__((always_inline)) void add_initial_sums(const lt_gemm_save *s, int rows,
                                                                   sums sum)
{
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECS; v++)
            sum[r][v] = _mm512_add_ps(
                sum[r][v], _mm512_maskz_loadu_ps(lt_first_lanes_avx512(s->cols - v * LANES),
                                                 s->from + r * s->from_step + v * LANES));
}

static inline __attribute__((always_inline)) void add_bias(const lt_gemm_save *s, int rows,
                                                           sums sum)
{
    for (int v = 0; v < VECS; v++) {
        const __m512 bias =
            _mm512_maskz_loadu_ps(lt_first_lanes_avx512(s->cols - v * LANES), s->bias + v * LANES);
        for (int r = 0; r < rows; r++)
            sum[r][v] = _mm512_add_ps(sum[r][v], bias);
    }
}

/* Adds initial sums and bias, and stores the tile. rows is the constant ROWS for full tiles, which keeps the sums in
 * registers. */
static inline __attribute__((always_inline)) void store_tile(const lt_gemm_save *s, int rows,
                                                             sums sum)
{
    const __mmask32 cols = mask32(s->cols);
    if (s->from)
        add_initial_sums(s, rows, sum);
    if (s->bias)
        add_bias(s, rows, sum);
    if (s->dtype == LT_BF16) {
        uint16_t *to = s->to;
        for (int r = 0; r < rows; r++)
            _mm512_mask_storeu_epi16(to + r * s->to_step, cols,
                                     (__m512i)_mm512_cvtne2ps_pbh(sum[r][1], sum[r][0]));
        return;
    }
    float *to = s->to;
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(to + r * s->to_step, (__mmask16)cols, sum[r][0]);
        _mm512_mask_storeu_ps(to + r * s->to_step + LANES, (__mmask16)(cols >> LANES), sum[r][1]);
    }
}

/* Prefetches the initial sums while the tile is computed. */
static inline __attribute__((always_inline)) void prefetch_sums(const lt_gemm_save *s)
{
    for (int r = 0; r < s->rows && s->from; r++) {
        __builtin_prefetch(s->from + r * s->from_step, 1);
        __builtin_prefetch(s->from + r * s->from_step + s->cols - 1, 1);
    }
}

/* Computes a tile. Row r of a begins at a + row[r], with `next` elements between its pairs of steps. */
static inline __attribute__((always_inline)) void compute_tile(const uint16_t *a,
                                                               const int64_t row[ROWS],
                                                               int64_t next, const uint16_t *b,
                                                               int64_t steps, const lt_gemm_save *s)
{
    sums sum;
    prefetch_sums(s);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++)
            sum[r][v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < steps; k += 2, a += next) {
        __m512bh right[VECS];
        for (int v = 0; v < VECS; v++)
            right[v] = (__m512bh)_mm512_load_si512(b + k * COLS + (int64_t)v * 2 * LANES);
        for (int r = 0; r < ROWS; r++) {
            int32_t two;
            __builtin_memcpy(&two, a + row[r], sizeof two);
            const __m512bh left = (__m512bh)_mm512_set1_epi32(two);
            for (int v = 0; v < VECS; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
        }
    }
    if (s->rows == ROWS) {
        store_tile(s, ROWS, sum);
        return;
    }
    sums rest;
    __builtin_memcpy(rest, sum, sizeof rest);
    store_tile(s, s->rows, rest);
}

static void multiply_packed_tile(const void *a, const void *b, int64_t steps, const lt_gemm_save *s)
{
    const int64_t row[ROWS] = {0, 2, 4, 6, 8, 10, 12, 14};
    compute_tile(a, row, (int64_t)2 * ROWS, b, steps, s);
}

static void multiply_unpacked_tile(const void *a, int64_t step, const void *b, int64_t steps,
                                   const lt_gemm_save *s)
{
    int64_t row[ROWS];
    lt_gemm_offsets_of_rows(s, step, ROWS, row);
    compute_tile(a, row, 2, b, steps, s);
}

/* --- Few rows --- */

enum { MAX_DOTS_ROWS = 4, AT_ONCE = 2 }; /* AT_ONCE columns give sums enough to hide latency */

static inline __attribute__((always_inline)) void
dots_adjacent_steps(const lt_gemm_operand *a, const lt_gemm_operand *b, int64_t col, int64_t steps,
                    const lt_gemm_save *s, int rows)
{
    __m512 sum[AT_ONCE][MAX_DOTS_ROWS];
    for (int c = 0; c < AT_ONCE; c++)
        for (int r = 0; r < rows; r++)
            sum[c][r] = _mm512_setzero_ps();
    for (int64_t k = 0; k < steps; k += 2 * LANES)
        for (int c = 0; c < AT_ONCE; c++) {
            const int64_t there = col + c < s->cols ? col + c : col;
            const __m512bh right = (__m512bh)load_32_as_bf16(b, there * b->lane + k, steps - k);
            for (int r = 0; r < rows; r++)
                sum[c][r] = _mm512_dpbf16_ps(
                    sum[c][r], (__m512bh)load_32_as_bf16(a, r * a->lane + k, steps - k), right);
        }
    for (int c = 0; c < AT_ONCE && col + c < s->cols; c++)
        for (int r = 0; r < rows; r++) {
            const float bias = s->bias ? s->bias[col + c] : 0;
            const __m512 y = _mm512_set1_ps(_mm512_reduce_add_ps(sum[c][r]) + bias);
            const int64_t at = r * s->to_step + col + c;
            if (s->dtype == LT_F32)
                _mm512_mask_storeu_ps((float *)s->to + at, 1, y);
            else
                _mm256_mask_storeu_epi16((uint16_t *)s->to + at, 1, (__m256i)_mm512_cvtneps_pbh(y));
        }
}

/* Broadcasts steps k and k+1 of a row as one 32-bit word. */
static inline __m512bh broadcast_pair(const lt_gemm_operand *a, int row, int64_t k, int64_t steps)
{
    const uint16_t *at = (const uint16_t *)a->data + row * a->lane + k;
    const uint32_t next = k + 1 < steps ? at[1] : 0;
    return (__m512bh)_mm512_set1_epi32((int32_t)(at[0] | next << 16));
}

/* Computes 64 columns from col on, where b's columns are adjacent. */
static inline __attribute__((always_inline)) void
dots_adjacent_columns(const lt_gemm_operand *a, const lt_gemm_operand *b, int64_t col,
                      int64_t steps, const lt_gemm_save *s, int rows)
{
    sums sum[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        for (int r = 0; r < rows; r++)
            sum[g][r][0] = sum[g][r][1] = _mm512_setzero_ps();
    for (int64_t k = 0; k < steps; k += 2)
        for (int g = 0; g < GROUPS; g++) {
            const int64_t at = col + (int64_t)g * COLS, count = s->cols - at;
            const __m512i one = load_32_as_bf16(b, at + k * b->step, count);
            const __m512i two =
                load_32_as_bf16(b, at + (k + 1) * b->step, k + 1 < steps ? count : 0);
            const __m512bh low = (__m512bh)interleave(one, two, 0);
            const __m512bh high = (__m512bh)interleave(one, two, LANES);
            for (int r = 0; r < rows; r++) {
                const __m512bh left = broadcast_pair(a, r, k, steps);
                sum[g][r][0] = _mm512_dpbf16_ps(sum[g][r][0], left, low);
                sum[g][r][1] = _mm512_dpbf16_ps(sum[g][r][1], left, high);
            }
        }
    const int64_t size = s->dtype == LT_F32 ? sizeof(float) : sizeof(uint16_t);
    for (int g = 0; g < GROUPS && col + g * COLS < s->cols; g++) {
        const int64_t at = col + (int64_t)g * COLS;
        lt_gemm_save part = *s;
        part.to = (char *)s->to + at * size;
        part.bias = s->bias ? s->bias + at : NULL;
        part.cols = (int)(s->cols - at);
        store_tile(&part, rows, sum[g]);
    }
}

/* Computes all dot products. Inlined with constant dtypes and rows, which keeps the sums in registers. */
static inline __attribute__((always_inline)) void
dots_all(lt_gemm_operand a, lt_gemm_operand b, int64_t steps, const lt_gemm_save *s, int rows)
{
    for (int64_t col = 0; col < s->cols && b.step == 1; col += AT_ONCE)
        dots_adjacent_steps(&a, &b, col, steps, s, rows);
    for (int64_t col = 0; col < s->cols && b.step != 1; col += (int64_t)GROUPS * COLS)
        dots_adjacent_columns(&a, &b, col, steps, s, rows);
}

static inline __attribute__((always_inline)) void dots_by_dtype(const lt_gemm_operand *a,
                                                                const lt_gemm_operand *b,
                                                                int64_t steps,
                                                                const lt_gemm_save *s, int rows)
{
    const lt_gemm_operand x = {a->data, LT_BF16, a->lane, 1};
    if (b->dtype == LT_BF16)
        dots_all(x, (lt_gemm_operand){b->data, LT_BF16, b->lane, b->step}, steps, s, rows);
    else
        dots_all(x, (lt_gemm_operand){b->data, LT_F32, b->lane, b->step}, steps, s, rows);
}

static void compute_dot_products(const lt_gemm_operand *a, const lt_gemm_operand *b, int64_t steps,
                                 const lt_gemm_save *s)
{
    if (s->rows == 1)
        dots_by_dtype(a, b, steps, s, 1);
    else if (s->rows == 2)
        dots_by_dtype(a, b, steps, s, 2);
    else if (s->rows == 3)
        dots_by_dtype(a, b, steps, s, 3);
    else
        dots_by_dtype(a, b, steps, s, MAX_DOTS_ROWS);
}

const lt_gemm_microkernel lt_gemm_bf16 = {
    .rows = ROWS,
    .cols = COLS,
    .steps_per_instruction = 2,
    .size = sizeof(uint16_t),
    .pack = pack_operand,
    .tile = multiply_packed_tile,
    .can_skip_packing_a = lt_gemm_has_pairs_of_steps,
    .tile_unpacked = multiply_unpacked_tile,
    .max_dots_rows = MAX_DOTS_ROWS,
    .dots = compute_dot_products,
};
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result) */
