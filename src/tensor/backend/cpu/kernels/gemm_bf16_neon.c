/* bf16 micro-kernel for ARM64's BFDOT, which adds two steps' products to four sums. See gemm.h. f32 operands are rounded to
 * nearest even during packing; the instruction takes subnormals as 0. */

#include "simd.h"
#include "tensor/backend/cpu/gemm_microkernel.h"

enum { ROWS = 4, COLS = LANES };

/* --- Packing --- */

ALWAYS uint16_t element_as_bf16(lt_gemm_operand x, int64_t at)
{
    uint32_t u;
    if (x.dtype == LT_BF16)
        return ((const uint16_t *)x.data)[at];
    memcpy(&u, (const float *)x.data + at, sizeof u);
    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(u >> 16 | 0x40); /* NaN */
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

/* Packs steps k and k+1 (the second may be missing) of count lanes from `first` on, with zeros up to width. */
ALWAYS void pack_pair(lt_gemm_operand x, int64_t first, int64_t count, int64_t k, bool both,
                      int width, uint16_t *to)
{
    const int64_t at = first * x.lane + k * x.step;
    for (int64_t l = 0; l < count; l++) {
        to[2 * l] = element_as_bf16(x, at + l * x.lane);
        to[2 * l + 1] = both ? element_as_bf16(x, at + l * x.lane + x.step) : 0;
    }
    memset(to + 2 * count, 0, (size_t)(2 * (width - count)) * sizeof *to);
}

ALWAYS void pack_panels(lt_gemm_operand x, int64_t lane_count, int64_t steps, int width,
                        uint16_t *to)
{
    for (int64_t first = 0; first < lane_count; first += width) {
        const int64_t count = lane_count - first < width ? lane_count - first : width;
        for (int64_t k = 0; k < steps; k += 2, to += 2 * (ptrdiff_t)width)
            pack_pair(x, first, count, k, k + 1 < steps, width, to);
    }
}

static void pack_operand(const lt_gemm_operand *x, int64_t lane_count, int64_t steps, int width,
                         void *to)
{
    const lt_dtype dtype = x->dtype;
    if (dtype == LT_BF16 && x->step == 1) /* constants: no branches in the loops */
        pack_panels((lt_gemm_operand){x->data, LT_BF16, x->lane, 1}, lane_count, steps, width, to);
    else if (dtype == LT_BF16)
        pack_panels((lt_gemm_operand){x->data, LT_BF16, 1, x->step}, lane_count, steps, width, to);
    else if (x->step == 1)
        pack_panels((lt_gemm_operand){x->data, LT_F32, x->lane, 1}, lane_count, steps, width, to);
    else
        pack_panels((lt_gemm_operand){x->data, LT_F32, 1, x->step}, lane_count, steps, width, to);
}

/* --- Multiplying --- */

/* Adds initial sums and bias, and stores the first rows and columns of a tile. */
ALWAYS void store_tile(const lt_gemm_save *s, const registers sum[ROWS])
{
    const lt_cpu_store store = s->dtype == LT_BF16 ? LT_STORE_BF16 : LT_STORE_F32;
    for (int r = 0; r < s->rows; r++) {
        vec y = registers_to_vec(&sum[r]);
        if (s->from)
            y += load(s->from + r * s->from_step, 0, s->cols, LT_STORE_F32);
        if (s->bias)
            y += load(s->bias, 0, s->cols, LT_STORE_F32);
        save(s->to, r * s->to_step, y, s->cols, store);
    }
}

/* Computes a tile. Row r of a begins at a + row[r], with `next` elements between its pairs of steps. */
ALWAYS void compute_tile(const uint16_t *a, const int64_t row[ROWS], int64_t next,
                         const uint16_t *b, int64_t steps, const lt_gemm_save *s)
{
    registers sum[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        sum[r] = zero_registers();
    for (int64_t k = 0; k < steps; k += 2, a += next, b += 2 * COLS) {
        registers right;
        memcpy(&right, b, sizeof right);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            float left;
            memcpy(&left, a + row[r], sizeof left);
#pragma GCC unroll 4
            for (int v = 0; v < REGISTERS; v++)
                sum[r].part[v] = add_product(left, right.part[v], sum[r].part[v], true);
        }
    }
    store_tile(s, sum);
}

static void multiply_packed_tile(const void *a, const void *b, int64_t steps, const lt_gemm_save *s)
{
    const int64_t row[ROWS] = {0, 2, 4, 6};
    compute_tile(a, row, (int64_t)2 * ROWS, b, steps, s);
}

static void multiply_unpacked_tile(const void *a, int64_t step, const void *b, int64_t steps,
                                   const lt_gemm_save *s)
{
    int64_t row[ROWS];
    lt_gemm_offsets_of_rows(s, step, ROWS, row);
    compute_tile(a, row, 2, b, steps, s);
}

/* Products of few rows are packed too: max_dots_rows is 0. */
const lt_gemm_microkernel lt_gemm_bf16 = {
    .rows = ROWS,
    .cols = COLS,
    .steps_per_instruction = 2,
    .size = sizeof(uint16_t),
    .pack = pack_operand,
    .tile = multiply_packed_tile,
    .can_skip_packing_a = lt_gemm_has_pairs_of_steps,
    .tile_unpacked = multiply_unpacked_tile,
};
