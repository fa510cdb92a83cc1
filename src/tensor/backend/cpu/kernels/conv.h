/* A tile of a convolution's result: some pixels by TILE_COLS channels, whose sums over all taps stay in
 * registers. Pixels are read where they lie; weights are packed as matrix products want them. */

#include "gemm.h"

/* The sums of all taps. In bf16 two steps are one element of 32 bits. */
ALWAYS void conv_sums(const lt_conv_tile *t, vec sum[TILE_ROWS][TILE_VECS], lt_cpu_store s)
{
    const int64_t steps = s == LT_STORE_BF16 ? t->depth / 2 : t->depth;
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECS; v++)
            sum[r][v] = (vec){0};
    for (int64_t tap = 0; tap < t->taps; tap++) {
        const float *row[TILE_ROWS], *b = (const float *)((const char *)t->w + t->tap[tap]);
        for (int r = 0; r < TILE_ROWS; r++) {
            const int64_t at = t->at[tap * TILE_ROWS + r];
            row[r] = (const float *)(at < 0 ? t->zeros : (const char *)t->x + at * t->pixel);
        }
        const float *next = tap || !t->next ? row[0] : (const float *)t->next;
        for (int64_t k = 0; k < steps; k++, b += TILE_COLS) {
            __builtin_prefetch(next + k * TILE_ROWS);
            vec right[TILE_VECS];
            for (int v = 0; v < TILE_VECS; v++)
                right[v] = *(const loose_vec *)(b + v * LANES);
            for (int r = 0; r < TILE_ROWS; r++) {
                float number;
                memcpy(&number, row[r] + k, sizeof number);
                const vec left = vec_set(number);
                for (int v = 0; v < TILE_VECS; v++)
                    sum[r][v] = s == LT_STORE_BF16 ? multiply_add_pairs(left, right[v], sum[r][v])
                                                   : multiply_add(left, right[v], sum[r][v]);
            }
        }
    }
}

ALWAYS void *conv_row(const lt_conv_tile *t, int row, lt_cpu_store s)
{
    const int64_t size = s == LT_STORE_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (char *)t->y + t->to[row] * t->channels * size;
}

ALWAYS void conv_tile_any(const lt_conv_tile *t, lt_cpu_store s)
{
    vec sum[TILE_ROWS][TILE_VECS];
    conv_sums(t, sum, s);
    if (t->rows == TILE_ROWS && t->cols == TILE_COLS) { /* constants: the sums stay in registers */
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < TILE_VECS; v++)
                save(conv_row(t, r, s), v * LANES, sum[r][v], LANES, s);
        return;
    }
    vec rest[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECS; v++)
            rest[r][v] = sum[r][v];
    for (int r = 0; r < t->rows; r++)
        for (int v = 0; v < TILE_VECS && v * LANES < t->cols; v++) {
            const int n = t->cols - v * LANES < LANES ? t->cols - v * LANES : LANES;
            save(conv_row(t, r, s), v * LANES, rest[r][v], n, s);
        }
}
