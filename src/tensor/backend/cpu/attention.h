/* Arguments of the attention kernels. A tile is a block of queries of one head times a block of its keys. Products
 * work on 32-bit words: a float, or a pair of bf16 adjacent along the contraction where the CPU multiplies pairs.
 *
 * The left operand of a product is read word by word, at any strides; the right operand is packed into panels of
 * [depth in words][64 columns]. Dao et al., "FlashAttention", NeurIPS 2022. */
#ifndef LT_BACKEND_CPU_ATTENTION_H
#define LT_BACKEND_CPU_ATTENTION_H

#include "tensor/backend/cpu/work_split.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LT_ATTENTION_PANEL = 64, /* columns of a packed panel */
    LT_ATTENTION_LANES = 16, /* columns of a vector of floats */
    LT_ATTENTION_ROWS = 16   /* kernels read fewer than this many rows past the last */
};

/* Packs rows of d features into every layout that is not NULL. Padding columns and words are 0. */
typedef struct lt_attention_pack {
    const void *x;
    int64_t step; /* elements between rows of x */
    int64_t rows, d;
    bool pairs;
    float *left;           /* x as the left operand: [rows][words of d] */
    float *row_panels;     /* x as panels, in which a column is a row of x; depth d */
    float *feature_panels; /* x as panels, in which a column is a feature; depth rows */
    int64_t feature_panel_step;
} lt_attention_pack;

/* Which dimension of a product the causal mask shortens: query r sees the keys 0 .. r + offset. */
typedef enum lt_attention_bound {
    LT_ATTENTION_ALL,
    LT_ATTENTION_COLUMNS, /* rows are queries, columns keys */
    LT_ATTENTION_END,     /* rows are queries, the contraction is over keys */
    LT_ATTENTION_BEGIN    /* rows are keys, the contraction is over queries */
} lt_attention_bound;

/* Product of packed operands: c = a b, or c += a b. */
typedef struct lt_attention_product {
    const float *a;
    int64_t a_row, a_step; /* strides of a in words: between rows, along the contraction */
    const float *b;
    int64_t b_panel; /* words between panels of b */
    float *c;
    int64_t c_row;
    int64_t rows, cols, depth; /* depth in elements: two to a word with pairs */
    bool pairs, add;
    lt_attention_bound bound;
    int64_t offset;
} lt_attention_product;

/* Part of a product left by the causal mask for some rows: columns, and words of the contraction. */
typedef struct lt_attention_part {
    int64_t cols, begin, end;
} lt_attention_part;

static inline int64_t lt_attention_clamp(int64_t low, int64_t x, int64_t high)
{
    return x < low ? low : lt_cpu_min(x, high);
}

static inline lt_attention_part lt_attention_product_part(const lt_attention_product *p, int64_t r,
                                                          int64_t rows)
{
    const int64_t seen =
        lt_attention_clamp(0, r + rows + p->offset, INT64_MAX); /* keys seen by the last row */
    lt_attention_part part = {p->cols, 0, p->depth};
    if (p->bound == LT_ATTENTION_COLUMNS)
        part.cols = lt_cpu_min(p->cols, lt_cpu_round_up(seen, LT_ATTENTION_LANES));
    else if (p->bound == LT_ATTENTION_END)
        part.end = lt_cpu_min(p->depth, seen);
    else if (p->bound == LT_ATTENTION_BEGIN)
        part.begin = lt_attention_clamp(0, r - p->offset, p->depth);
    if (p->pairs) {
        part.begin /= 2;
        part.end = (part.end + 1) / 2;
    }
    return part;
}

/* The product of pairs on AMX's tiles; the table of kernels has the others. */
void lt_attention_product_amx(const lt_attention_product *p);

/* Turns a tile's scores into weights exp(scale * score - top), where top is the row's running maximum; rescales sum
 * and y when top grows. sum: LT_ATTENTION_LANES partial sums per row; y: [rows][d padded], the output so far. */
typedef struct lt_attention_weights {
    float *score;     /* scores, overwritten by the weights unless pairs */
    uint16_t *weight; /* bf16 weights if pairs, same row stride as scores */
    int64_t row;      /* elements between rows of scores */
    int64_t rows, cols;
    float scale;
    float *top, *sum, *y;
    int64_t y_row;
    bool pairs, first, causal;
    int64_t offset;
} lt_attention_weights;

/* Backward of softmax on a tile. Scores s become the weights w = exp(scale * s - lse), products p = dy v^T the score
 * gradients ("slopes") w * (p - mean). With pairs, bf16 copies are written: slopes by rows, both by pairs of rows. */
typedef struct lt_attention_slopes {
    float *score, *slope;             /* slope NULL: computes weights only */
    uint16_t *slope_rows;             /* bf16 slopes by rows; same row stride as scores */
    float *score_pairs, *slope_pairs; /* [rows/2][row] bf16 weights and slopes by pairs of rows */
    int64_t row, rows, cols;
    float scale;
    const float *lse, *mean;
    bool pairs, causal;
    int64_t offset;
} lt_attention_slopes;

/* Rows to scale and store: y[r][c] = factor * scale[r] * x[r][c]; scale may be NULL. */
typedef struct lt_attention_save {
    const float *x, *scale;
    int64_t x_row;
    float factor;
    void *y;
    int64_t y_row, rows, d;
} lt_attention_save;

/* Rotates one row of d features by the angles of its position. Sines are signed; sign -1 inverts the rotation. */
typedef struct lt_rotary_row {
    const void *x;
    void *y;
    const float *cosine, *sine;
    float sign;
    int64_t d;
    bool interleaved;
} lt_rotary_row;

/* Dot products of rows: dot[r] = a[r] . b[r]. */
typedef struct lt_attention_dots {
    const void *a, *b;
    int64_t a_step, b_step, rows, d;
    float *dot;
} lt_attention_dots;

/* One row against many: either score[j] = x . row[j], or y = sum over j of score[j] * row[j]. */
typedef struct lt_attention_rows {
    const void *row;
    int64_t step, rows, d;
    const float *x;
    float *score, *y;
} lt_attention_rows;

#endif
