/* Attention's kernels: what they take. A tile is some queries of one head by some of its keys; its
 * products are of words of 32 bits, which are floats, or pairs of bf16 along the contraction where the
 * processor multiplies those.
 *
 * A product's left operand is read word by word, at any strides. Its right operand lies in panels,
 * [depth in words][64 columns] each. Dao et al., "FlashAttention", NeurIPS 2022. */
#ifndef LT_BACKEND_CPU_ATTENTION_H
#define LT_BACKEND_CPU_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LT_ATTENTION_PANEL = 64, /* columns */
    LT_ATTENTION_LANES = 16, /* columns that are made together */
    LT_ATTENTION_ROWS = 12   /* rows that are read beyond the last, at most: less than this */
};

/* Rows of d features, to the layouts that are not NULL. Columns and words that are filled up are 0. */
typedef struct lt_attention_pack {
    const void *x;
    int64_t step; /* elements between rows */
    int64_t rows, d;
    bool pairs;
    float *left;   /* [rows][words of d] */
    float *across; /* panels of columns that are rows, of depth d */
    float *along;  /* panels of columns that are features, of depth rows */
    int64_t along_panel;
} lt_attention_pack;

/* Which part of a tile counts where query r sees the keys 0 .. r + offset. */
typedef enum lt_attention_bound {
    LT_ATTENTION_ALL,
    LT_ATTENTION_COLUMNS, /* rows are queries, columns keys */
    LT_ATTENTION_END,     /* rows are queries, the contraction is over keys */
    LT_ATTENTION_BEGIN    /* rows are keys, the contraction is over queries */
} lt_attention_bound;

/* c = a b, or c += a b. */
typedef struct lt_attention_product {
    const float *a;
    int64_t a_row, a_step; /* words from row to row, and along the contraction */
    const float *b;
    int64_t b_panel; /* words from panel to panel */
    float *c;
    int64_t c_row;
    int64_t rows, cols, depth; /* depth in elements: two to a word with pairs */
    bool pairs, add;
    lt_attention_bound bound;
    int64_t offset;
} lt_attention_product;

/* Scores of a tile become weights: exp(scale * score - top), with the largest so far as top.
 * sum: LT_ATTENTION_LANES partial sums a row; y [rows][d filled up] is what was added up with an earlier
 * top. */
typedef struct lt_attention_weights {
    float *score;     /* the weights too, but with pairs */
    uint16_t *weight; /* with pairs: bf16, rows as far apart as scores */
    int64_t row;      /* elements from row to row */
    int64_t rows, cols;
    float scale;
    float *top, *sum, *y;
    int64_t y_row;
    bool pairs, first, causal;
    int64_t offset;
} lt_attention_weights;

/* Scores s and products p = dy v^T of a tile: s becomes the weights w = exp(scale * s - lse), p the
 * slopes w * (p - mean). With pairs they go to 16-bit copies: slopes by rows, and both by pairs of rows. */
typedef struct lt_attention_slopes {
    float *score, *slope;             /* slope NULL: weights alone */
    uint16_t *slope_rows;             /* rows as far apart as scores */
    float *score_pairs, *slope_pairs; /* [rows/2][row] */
    int64_t row, rows, cols;
    float scale;
    const float *lse, *mean;
    bool pairs, causal;
    int64_t offset;
} lt_attention_slopes;

/* y[r][c] = factor * scale[r] * x[r][c]; scale may be NULL. */
typedef struct lt_attention_save {
    const float *x, *scale;
    int64_t x_row;
    float factor;
    void *y;
    int64_t y_row, rows, d;
} lt_attention_save;

/* A row of d features by the angles of its position: sines have their signs, sign turns them round. */
typedef struct lt_rotary_row {
    const void *x;
    void *y;
    const float *cosine, *sine;
    float sign;
    int64_t d;
    bool interleaved;
} lt_rotary_row;

/* dot[r] = a[r] . b[r]. */
typedef struct lt_attention_dots {
    const void *a, *b;
    int64_t a_step, b_step, rows, d;
    float *dot;
} lt_attention_dots;

/* Rows of features with a vector: score[j] = x . row[j]; or y = sum over j of score[j] * row[j]. */
typedef struct lt_attention_rows {
    const void *row;
    int64_t step, rows, d;
    const float *x;
    float *score, *y;
} lt_attention_rows;

#endif
