/* f32 micro-kernel of matrix products from packed panels. Goto & van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008: a panel of b is kept in the L1 cache while panels of a are streamed, and a tile of the result
 * in registers. */

#ifndef LT_BACKEND_CPU_KERNELS_GEMM_H
#define LT_BACKEND_CPU_KERNELS_GEMM_H

#include "transpose.h"

/* Tile sizes: enough sums to hide the latency of a multiply-add, with registers left for operands. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECS = 2 };
#elif defined(__aarch64__)
enum { TILE_ROWS = 4, TILE_VECS = 1 }; /* with 6 GCC spills two sums, as it loads all rows first */
#else
enum { TILE_ROWS = 6, TILE_VECS = 1 };
#endif
enum {
    TILE_COLS = TILE_VECS * LANES,
    TILE_SUMS = TILE_COLS / SUMS,
    CROSSES = LANES % TILE_ROWS != 0
};
enum { PANELS = 4 }; /* panels of adjacent lanes packed together */

/* Iterates over the sums of a tile. Unrolled before GCC allocates registers: otherwise it would spill all sums to the
 * stack before and after the loop. */
#define FOR_SUMS(r, v)                                          \
    _Pragma("GCC unroll 8") for (int r = 0; r < TILE_ROWS; r++) \
        _Pragma("GCC unroll 8") for (int v = 0; v < TILE_SUMS; v++)

/* Unrolls a loop over steps: on AVX2 loop overhead is one in eight instructions. */
#define FOUR_STEPS _Pragma("GCC unroll 4")

/* Saves a full row of a tile: y = alpha * sum + beta * y. */
ALWAYS void save_tile_row(const lt_tile_save *s, const sums sum[TILE_SUMS], float *y)
{
#pragma GCC unroll 8
    for (int v = 0; v < TILE_SUMS; v++) {
        loose_sums *to = (loose_sums *)(y + (int64_t)v * SUMS);
        sums fresh = sum[v] * s->alpha;
        if (s->beta != 0) /* with beta 0 y is not read */
            fresh += s->beta * *to;
        *to = fresh;
    }
}

/* Saves the first s->cols columns of a row: y = alpha * sum + beta * y. */
ALWAYS void save_partial_row(const lt_tile_save *s, const float *sum, float *y)
{
    for (int v = 0; v < TILE_VECS && v * LANES < s->cols; v++) {
        const int n = s->cols - v * LANES < LANES ? s->cols - v * LANES : LANES;
        vec fresh = *(const vec *)(const void *)(sum + v * LANES) * s->alpha;
        if (s->beta != 0)
            fresh += s->beta * load(y, v * LANES, n, LT_STORE_F32);
        save(y, v * LANES, fresh, n, LT_STORE_F32);
    }
}

/* Finds the rows of a tile if tiles can cross panels of a; invalid rows repeat the first. */
ALWAYS void find_tile_rows(const float *a, int64_t depth, const lt_tile_save *s, const float **row)
{
    for (int r = 0; r < TILE_ROWS && CROSSES; r++)
        row[r] = r >= s->rows ? a : a + r + (s->lane + r < LANES ? 0 : (depth - 1) * LANES);
}

/* y [rows, cols] = alpha * a' b + beta * y. a: panels, starting at lane s->lane; b: panels of TILE_COLS lanes. */
static void gemm_tile(const float *a, const float *b, int64_t depth, const lt_tile_save *s,
                      float *y)
{
    sums sum[TILE_ROWS][TILE_SUMS];
    const float *row[TILE_ROWS];
    find_tile_rows(a, depth, s, row);
    for (int r = 0; r < TILE_ROWS; r++) {
        __builtin_prefetch(y + r * s->step, 1);
        __builtin_prefetch(y + r * s->step + TILE_COLS - 1, 1);
    }
    FOR_SUMS(r, v)
        sum[r][v] = (sums){0};
    FOUR_STEPS
    for (int64_t k = 0; k < depth; k++) {
        sums right[TILE_SUMS];
        for (int64_t v = 0; v < TILE_SUMS; v++)
            right[v] = *(const loose_sums *)(b + (v * SUMS / LANES * depth + k) * LANES
                                             + v * SUMS % LANES);
        FOR_SUMS(r, v)
            sum[r][v] = add_product(CROSSES ? row[r][k * LANES] : a[k * LANES + r], right[v],
                                    sum[r][v], false);
    }
    if (s->rows == TILE_ROWS && s->cols == TILE_COLS) {
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++)
            save_tile_row(s, sum[r], y + r * s->step);
        return;
    }
    float rest[TILE_ROWS][TILE_COLS] __attribute__((aligned(64)));
    FOR_SUMS(r, v)
        *(sums *)(rest[r] + v * SUMS) = sum[r][v];
    for (int r = 0; r < s->rows; r++)
        save_partial_row(s, rest[r], y + r * s->step);
}

ALWAYS bool is_consecutive(const int64_t *at, int count)
{
    bool rise = true;
    for (int i = 1; i < count; i++)
        rise = rise && at[i] == at[0] + i;
    return rise;
}

/* Packs `steps` adjacent steps from k on of a panel by a transpose. */
static void pack_adjacent_steps(const lt_panel *p, int first, int64_t k, int steps, float *to)
{
    const int used = p->lanes - first < LANES ? p->lanes - first : LANES;
    const int64_t *lane = p->lane + first;
    const float *from = p->data + p->step[k];
    if (used == LANES && steps == LANES) {
        transpose_square(from, lane, to + k * LANES, LANES);
        return;
    }
    vec row[LANES];
    for (int l = 0; l < LANES; l++)
        row[l] = l < used ? load_first(from + lane[l], steps) : (vec){0};
    transpose(row);
    for (int i = 0; i < steps; i++)
        *(loose_vec *)(to + (k + i) * LANES) = row[i];
}

/* Packs a panel whose lanes are not adjacent. */
static void pack_panel(const lt_panel *p, int first, float *to)
{
    for (int64_t k = 0; k < p->depth; k += LANES) {
        const int steps = p->depth - k < LANES ? (int)(p->depth - k) : LANES;
        if (is_consecutive(p->step + k, steps)) {
            pack_adjacent_steps(p, first, k, steps, to);
            continue;
        }
        for (int i = 0; i < steps; i++)
            for (int l = 0; l < LANES && first + l < p->lanes; l++)
                to[(k + i) * LANES + l] = p->data[p->lane[first + l] + p->step[k + i]];
    }
}

/* Packs panels of adjacent lanes, a few at a time to limit the number of write streams. */
ALWAYS void pack_adjacent_lanes(const lt_panel *p, int first, int panels, float *to)
{
    const int rest = p->lanes - first - (panels - 1) * LANES;
    const int whole = rest < LANES ? panels - 1 : panels;
    const float *from[PANELS];
    for (int i = 0; i < panels; i++)
        from[i] = p->data + p->lane[first + i * LANES];
    for (int64_t k = 0; k < p->depth; k++) {
        float *row = to + k * LANES;
        for (int i = 0; i < whole; i++)
            *(loose_vec *)(row + i * LANES * p->depth) = *(const loose_vec *)(from[i] + p->step[k]);
        if (whole < panels)
            *(loose_vec *)(row + whole * LANES * p->depth) =
                load_first(from[whole] + p->step[k], rest);
    }
}

/* Returns how many of the next panels, at most PANELS, have adjacent lanes. */
ALWAYS int count_adjacent_panels(const lt_panel *p, int first)
{
    int panels = 0;
    for (; panels < PANELS && first < p->lanes; panels++, first += LANES)
        if (!is_consecutive(p->lane + first, p->lanes - first < LANES ? p->lanes - first : LANES))
            break;
    return panels;
}

static void gemm_pack(const lt_panel *p, float *to)
{
    const int64_t panel = LANES * p->depth;
    const int whole = p->lanes / LANES, all = (p->lanes + TILE_COLS - 1) / TILE_COLS * TILE_VECS;
    memset(to + whole * panel, 0, (size_t)((all - whole) * panel) * sizeof *to);
    for (int first = 0, panels; first < p->lanes; first += panels * LANES) {
        panels = count_adjacent_panels(p, first);
        if (panels) {
            pack_adjacent_lanes(p, first, panels, to + first * p->depth);
            continue;
        }
        panels = 1;
        pack_panel(p, first, to + first * p->depth);
    }
}

ALWAYS void transpose_strided_square(const float *x, int64_t step_x, float *y, int64_t step_y)
{
    int64_t at[LANES];
    for (int r = 0; r < LANES; r++)
        at[r] = r * step_x;
    transpose_square(x, at, y, step_y);
}

/* Transposes a block: y[j][i] = x[i][j]. */
static void transpose_block(const float *x, int64_t step_x, int64_t rows, int64_t cols, float *y,
                            int64_t step_y)
{
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < cols; j += LANES) {
            const float *from = x + i * step_x + j;
            float *to = y + j * step_y + i;
            if (i + LANES <= rows && j + LANES <= cols) {
                transpose_strided_square(from, step_x, to, step_y);
                continue;
            }
            for (int64_t r = 0; r < LANES && i + r < rows; r++)
                for (int64_t c = 0; c < LANES && j + c < cols; c++)
                    to[c * step_y + r] = from[r * step_x + c];
        }
}

#endif
