/* A strided tensor as the matrix [n, rest] that Shampoo takes it for, rows along one dimension, and where
 * the elements of that are: gathered row by row, or, where that dimension is the innermost in memory,
 * column by column. Then, as mostly, it is a copy from one end to the other. */
#ifndef LT_CUDA_FOLD_H
#define LT_CUDA_FOLD_H

#include "tensor/backend/cuda/host_device.h"

#include "lather/detail/view.h"

/* Dimensions from the outermost in the gathered matrix on. Those that lie without a gap are one, those of
 * extent 1 are left out: each costs a division. */
typedef struct lt_fold {
    void *data;
    int64_t extent[LT_MAX_DIMS], stride[LT_MAX_DIMS];
    int64_t n, rest;
    int64_t by_columns; /* 0 or 1: a list of these is sent in words of 8 bytes */
} lt_fold;

/* Where element number i of the gathered matrix lies. */
LT_HD int64_t lt_fold_place(const lt_fold *f, int64_t i)
{
    const bool is_short = f->n * f->rest < INT32_MAX;
    int64_t at = 0;
    for (int d = LT_MAX_DIMS - 1; d > 0; d--) {
        if (f->extent[d] == 1)
            continue;
        const int64_t above = lt_quotient(i, f->extent[d], is_short);
        at += (i - above * f->extent[d]) * f->stride[d];
        i = above;
    }
    return at + i * f->stride[0];
}

#ifdef __cplusplus
extern "C" {
#endif

/* A view seen along dim, in the order of first's memory: of a shape as view's, and the same for all folds
 * that meet. */
lt_fold lt_fold_of(const lt_view *view, int dim, const lt_view *first);

/* A fold and the matrix that it is gathered to or scattered from; block b has elements [b', b' + 1) * LT_GATHER_BLOCK. */
enum { LT_GATHER_BLOCK = 2048 };
typedef struct lt_gather {
    lt_fold fold;
    void *matrix;
    int64_t elements, first_block;
} lt_gather;

/* Appends an item to a list with a place for it, and its blocks to *blocks. */
void lt_gather_append(lt_gather *list, int *count, int64_t *blocks, const lt_fold *f, void *matrix);

/* A product m x of a square and LT_NARROW vectors [n, LT_NARROW]; block b has rows [b', b' + 1) * LT_NARROW_ROWS. */
enum { LT_NARROW = 4, LT_NARROW_ROWS = 32 };
typedef struct lt_narrow {
    const void *m, *x;
    void *y;
    int64_t n, first_block;
} lt_narrow;

/* A tensor along a dimension of at most LT_SHORT elements: a matrix of few rows, of which a thread takes a column, for its gram
 * matrix or its product with a square. Block b has columns [b', b' + 1) * LT_SHORT_COLUMNS. A window of filters, 3 x 3, is such a
 * dimension: its channels lie together, so that neighbours in a row are neighbours in memory. */
enum {
    LT_SHORT = 9,
    LT_SHORT_PAIRS = LT_SHORT * (LT_SHORT + 1) / 2, /* elements of a triangle */
    LT_SHORT_COLUMNS = 2048
};
typedef struct lt_short {
    lt_fold from, to;           /* g; y, of a product only */
    int64_t from_step, to_step; /* from a row to the next */
    void *matrix;               /* f; m */
    double alpha, beta;
    int64_t transpose, first_block, blocks;
} lt_short;

/* Appends a job to a list with a place for it, first_block and blocks included; false: it is another kind of matrix. */
bool lt_short_take(lt_short *list, size_t *count, const lt_short *job);

/* A gram matrix that was made in tiles, cuts by cuts of them: those above the diagonal become those below it, transposed. Block b does
 * a square of LT_MIRROR_SIDE. */
enum { LT_MIRROR_SIDE = 32 };
typedef struct lt_mirror {
    void *f;
    int64_t n, cuts, first_block;
} lt_mirror;
/* The blocks of one. */
LT_HD int64_t lt_mirror_blocks(const lt_mirror *v)
{
    const int64_t squares = (v->n / v->cuts + LT_MIRROR_SIDE - 1) / LT_MIRROR_SIDE;
    return v->cuts * (v->cuts - 1) / 2 * squares * squares;
}
/* Where the square of block b begins, b counted from 0: its row and column, the row's tile before the column's. */
typedef struct lt_mirror_square {
    int64_t row, column, rows, columns;
} lt_mirror_square;
LT_HD lt_mirror_square lt_mirror_at(const lt_mirror *v, int64_t b)
{
    const int64_t most = LT_MIRROR_SIDE, side = v->n / v->cuts;
    const int64_t squares = (side + most - 1) / most;
    const int64_t down = b % squares * most, right = b / squares % squares * most;
    int64_t row = b / squares / squares, column = 1;
    for (; row >= column; column++)
        row -= column;
    lt_mirror_square s;
    s.row = row * side + down;
    s.column = column * side + right;
    s.rows = side - down < most ? side - down : most;
    s.columns = side - right < most ? side - right : most;
    return s;
}

#ifdef __cplusplus
}
#endif

#endif
