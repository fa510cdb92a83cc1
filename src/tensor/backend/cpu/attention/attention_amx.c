/* Attention's product of pairs of bf16 on AMX's tiles of 16 rows of 16 words. A packed panel of b is the layout of a
 * right tile. Of a, tiles are read in place where they are whole and contiguous, else copied: the edges, and those that
 * are stored by columns. Four tiles of sums, two by two, so that each loaded tile is used twice. */

#include "tensor/backend/cpu/amx.h"
#include "tensor/backend/cpu/attention.h"
#include "tensor/backend/cpu/transpose_avx512.h"

#include <string.h>

enum {
    SIDE = LT_AMX_ROWS, /* rows, columns and words of a tile */
    GROUP = 2 * SIDE,   /* rows and columns of four tiles of sums */
    MOST = 8, /* tiles along the contraction; a panel of b takes 2/3 of an L1 cache of 48 KiB */
    WORD = sizeof(float), /* bytes */
    PANEL_ROW = LT_ATTENTION_PANEL * WORD
};

/* A tile in memory. */
typedef struct operand {
    const void *at;
    int64_t stride; /* bytes between rows */
} operand;

/* Returns the part of the product left by the mask for rows r .. r+15. */
static lt_attention_part tile_row_part(const lt_attention_product *p, int64_t r)
{
    return lt_attention_product_part(p, r, lt_cpu_min(p->rows - r, SIDE));
}

/* Copies the tile of rows r .. r+15 and words k .. k+15 of a; elements outside of the rows or the part are 0. */
static void copy_left(const lt_attention_product *p, int64_t r, int64_t k,
                      const lt_attention_part *part, float *to)
{
    __m512i row[SIDE];
    const __mmask16 words =
        lt_first_lanes_avx512(part->end - k) & (__mmask16)~lt_first_lanes_avx512(part->begin - k);
    const __mmask16 rows = lt_first_lanes_avx512(p->rows - r);
    const bool by_rows = p->a_step == 1;
    for (int i = 0; i < SIDE; i++) {
        const float *from =
            by_rows ? p->a + (r + i) * p->a_row + k : p->a + r + (k + i) * p->a_step;
        const bool present = (by_rows ? rows : words) >> i & 1;
        row[i] = present ? (__m512i)_mm512_maskz_loadu_ps(by_rows ? words : rows, from)
                         : _mm512_setzero_si512();
    }
    if (!by_rows)
        lt_transpose_avx512(row);
    for (int i = 0; i < SIDE; i++)
        _mm512_store_si512(to + (size_t)i * SIDE, row[i]);
}

static operand left_operand(const lt_attention_product *p, int64_t r, int64_t k,
                            const lt_attention_part *part, float *copy)
{
    if (p->a_step == 1 && r + SIDE <= p->rows && part->begin <= k && k + SIDE <= part->end)
        return (operand){p->a + r * p->a_row + k, p->a_row * WORD};
    copy_left(p, r, k, part, copy);
    return (operand){copy, (int64_t)SIDE * WORD};
}

/* Columns of a panel and a range of the contraction's words. */
typedef struct panel {
    const float *b; /* at the first word */
    int64_t first, last, cols;
    int64_t tail_end; /* end of the words in the tail; 0: none yet */
    float *tail;      /* [16][64]: b's last tile, 0 after its end, where b is unset */
} panel;

/* Returns the tile of words k .. k+15, of which those before `end` count. */
static const float *right_tile(panel *b, int64_t k, int64_t end)
{
    const float *at = b->b + (k - b->first) * LT_ATTENTION_PANEL;
    if (k + SIDE <= end)
        return at;
    if (b->tail_end != end) {
        const size_t floats = (size_t)((end - k) * LT_ATTENTION_PANEL);
        memcpy(b->tail, at, floats * WORD);
        memset(b->tail + floats, 0, ((size_t)SIDE * LT_ATTENTION_PANEL - floats) * WORD);
        b->tail_end = end;
    }
    return b->tail;
}

/* Tiles to multiply, along the contraction: of two rows of tiles, and of b's columns. */
typedef struct factors {
    operand left[2][MOST];
    const float *right[MOST];
    int count;
} factors;

/* c = or += the products. below, right: with a second row of tiles, a second column. */
static void multiply_tiles(const factors *f, float *c, int64_t c_row, bool below, bool right,
                           bool add)
{
    const size_t stride = (size_t)c_row * WORD;
    float *lower = c + SIDE * c_row;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) {
        _tile_loadd(0, c, stride);
        if (right)
            _tile_loadd(1, c + SIDE, stride);
        if (below)
            _tile_loadd(2, lower, stride);
        if (below && right)
            _tile_loadd(3, lower + SIDE, stride);
    }
    for (int i = 0; i < f->count; i++) {
        _tile_loadd(4, f->left[0][i].at, (size_t)f->left[0][i].stride);
        _tile_loadd(6, f->right[i], PANEL_ROW);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, f->right[i] + SIDE, PANEL_ROW);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (below) {
            _tile_loadd(5, f->left[1][i].at, (size_t)f->left[1][i].stride);
            _tile_dpbf16ps(2, 5, 6);
            if (right)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, stride);
    if (right)
        _tile_stored(1, c + SIDE, stride);
    if (below)
        _tile_stored(2, lower, stride);
    if (below && right)
        _tile_stored(3, lower + SIDE, stride);
}

/* Computes columns c .. c+31 of a group of rows. A row of tiles that is not whole is computed in a copy. */
static void multiply_columns(const lt_attention_product *p, const factors *f, int64_t r, int64_t c,
                             int64_t cols, bool add)
{
    const int64_t rows = lt_cpu_min(p->rows - r, GROUP);
    const bool below = rows > SIDE, right = cols > SIDE;
    float *to = p->c + r * p->c_row + c;
    if (rows % SIDE == 0) {
        multiply_tiles(f, to, p->c_row, below, right, add);
        return;
    }
    float copy[GROUP * GROUP] = {0};
    const size_t bytes = (size_t)lt_cpu_min(cols, GROUP) * WORD;
    for (int64_t i = 0; i < (add ? rows : 0); i++)
        memcpy(copy + i * GROUP, to + i * p->c_row, bytes);
    lt_amx_publish(copy);
    multiply_tiles(f, copy, GROUP, below, right, add);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * p->c_row, copy + i * GROUP, bytes);
}

/* Computes the panel's columns of rows r .. r+31. */
static void multiply_group(const lt_attention_product *p, panel *b, int64_t r, int64_t c)
{
    _Alignas(64) float copy[2][MOST][SIDE * SIDE];
    factors f = {.count = 0};
    const lt_attention_part upper = tile_row_part(p, r),
                            lower = r + SIDE < p->rows ? tile_row_part(p, r + SIDE) : upper;
    const int64_t begin = lt_attention_clamp(b->first, upper.begin / SIDE * SIDE, b->last),
                  end = lt_cpu_min(lower.end, b->last);
    const int64_t cols = lt_cpu_min(b->cols, lower.cols - c);
    const bool add = p->add || b->first > 0;
    if (add && begin >= end)
        return;
    for (int64_t k = begin; k < end; k += SIDE, f.count++) {
        const int n = f.count;
        f.left[0][n] = left_operand(p, r, k, &upper, copy[0][n]);
        if (r + SIDE < p->rows)
            f.left[1][n] = left_operand(p, r + SIDE, k, &lower, copy[1][n]);
        f.right[n] = right_tile(b, k, end);
    }
    lt_amx_publish(copy);
    lt_amx_publish(b->tail);
    for (int64_t i = 0; i < cols; i += GROUP) {
        multiply_columns(p, &f, r, c + i, cols - i, add);
        for (int n = 0; n < f.count; n++)
            f.right[n] += GROUP;
    }
}

/* Computes the columns of a panel over the words k .. k+127. */
static void multiply_panel(const lt_attention_product *p, int64_t k, int64_t c)
{
    _Alignas(64) float tail[SIDE * LT_ATTENTION_PANEL];
    panel b = {.b = p->b + c / LT_ATTENTION_PANEL * p->b_panel + k * LT_ATTENTION_PANEL,
               .first = k,
               .last = lt_cpu_min(k + (int64_t)MOST * SIDE, (p->depth + 1) / 2),
               .cols = lt_cpu_min(p->cols - c, LT_ATTENTION_PANEL),
               .tail = tail};
    for (int64_t r = 0; r < p->rows; r += GROUP)
        multiply_group(p, &b, r, c);
}

void lt_attention_product_amx(const lt_attention_product *p)
{
    lt_amx_configure();
    for (int64_t k = 0; k < (p->depth + 1) / 2; k += (int64_t)MOST * SIDE)
        for (int64_t c = 0; c < p->cols; c += LT_ATTENTION_PANEL)
            multiply_panel(p, k, c);
    lt_amx_release();
}
