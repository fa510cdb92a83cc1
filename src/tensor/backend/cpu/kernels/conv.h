/* Micro-kernel of direct convolution: TILE_ROWS pixels by TILE_COLS channels, with sums over all taps in registers.
 * Pixels are read in place, weights from packed panels. */

#include "gemm.h"

/* Computes the sums of a tile over all taps. In bf16 two steps are one 32-bit word. */
ALWAYS void compute_conv_sums(const lt_conv_tile *t, sums sum[TILE_ROWS][TILE_SUMS], lt_cpu_store s)
{
    const int64_t steps = s == LT_STORE_BF16 ? t->depth / 2 : t->depth;
    FOR_SUMS(r, v)
        sum[r][v] = (sums){0};
    for (int64_t tap = 0; tap < t->taps; tap++) {
        const float *row[TILE_ROWS], *b = (const float *)((const char *)t->w + t->tap[tap]);
        for (int r = 0; r < TILE_ROWS; r++) {
            const int64_t at = t->at[tap * TILE_ROWS + r];
            row[r] = (const float *)(at < 0 ? t->zeros : (const char *)t->x + at * t->pixel);
        }
        const float *next = tap || !t->next ? row[0] : (const float *)t->next;
        FOUR_STEPS
        for (int64_t k = 0; k < steps; k++, b += TILE_COLS) {
            __builtin_prefetch(next + k * TILE_ROWS);
            sums right[TILE_SUMS];
            for (int v = 0; v < TILE_SUMS; v++)
                right[v] = *(const loose_sums *)(b + (int64_t)v * SUMS);
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) {
                float left;
                memcpy(&left, row[r] + k, sizeof left);
#pragma GCC unroll 8
                for (int v = 0; v < TILE_SUMS; v++)
                    sum[r][v] = add_product(left, right[v], sum[r][v], s == LT_STORE_BF16);
            }
        }
    }
}

ALWAYS void *conv_output_row(const lt_conv_tile *t, int row, lt_cpu_store s)
{
    const int64_t size = s == LT_STORE_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (char *)t->y + t->to[row] * t->channels * size;
}

ALWAYS void conv_tile_any(const lt_conv_tile *t, lt_cpu_store s)
{
    sums sum[TILE_ROWS][TILE_SUMS];
    compute_conv_sums(t, sum, s);
    if (t->rows == TILE_ROWS
        && t->cols == TILE_COLS) { /* constants: the sums are kept in registers */
        FOR_SUMS(r, v)
            save_sums(conv_output_row(t, r, s), (int64_t)v * SUMS, sum[r][v], s);
        return;
    }
    float rest[TILE_ROWS][TILE_COLS] __attribute__((aligned(64)));
    FOR_SUMS(r, v)
        *(sums *)(rest[r] + v * SUMS) = sum[r][v];
    for (int r = 0; r < t->rows; r++)
        for (int v = 0; v < TILE_VECS && v * LANES < t->cols; v++) {
            const int n = t->cols - v * LANES < LANES ? t->cols - v * LANES : LANES;
            save(conv_output_row(t, r, s), v * LANES, *(vec *)(rest[r] + v * LANES), n, s);
        }
}

/* y [channels] += sum over n rows of a[i] * b[i], element by element. */
static void add_products(const float *const *a, const float *const *b, int64_t n, int64_t channels,
                         float *y)
{
    FOR_LANES(c, count, channels, {
        registers sum = as_registers(load(y, c, count, LT_STORE_F32));
        for (int64_t i = 0; i < n; i++)
            add_products_to(&sum, load(a[i], c, count, LT_STORE_F32),
                            load(b[i], c, count, LT_STORE_F32));
        save(y, c, registers_to_vec(&sum), count, LT_STORE_F32);
    });
}
