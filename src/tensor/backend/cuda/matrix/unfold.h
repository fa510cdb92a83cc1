/* Mode-n unfolding of a strided tensor, Shampoo's matrix [n, rest] with rows along one dimension, and lists of such
 * matrices as parameters of kernels. Its elements are numbered row by row, or, if that dimension is the innermost in
 * memory, column by column: in most cases this is the order of memory. Kolda & Bader, "Tensor decompositions and
 * applications", SIAM Review 51, 2009, section 2.4. */
#ifndef LT_CUDA_UNFOLD_H
#define LT_CUDA_UNFOLD_H

#include "tensor/backend/cuda/host_device.h"

#include "lather/detail/view.h"

/* Sizes and strides from the outermost dimension of the numbering. Contiguous dimensions are merged, those of size 1
 * dropped: each costs a division. */
typedef struct lt_unfolding {
    void *data;
    int64_t size[LT_MAX_DIMS], stride[LT_MAX_DIMS];
    int64_t n, rest;
    int64_t by_columns; /* 0 or 1; int64_t because lists are sent in words of 8 bytes */
} lt_unfolding;

/* Returns the offset of element i. */
LT_HD int64_t lt_unfolding_offset(const lt_unfolding *f, int64_t i)
{
    const bool is_short = f->n * f->rest < INT32_MAX;
    int64_t at = 0;
    for (int d = LT_MAX_DIMS - 1; d > 0; d--) {
        if (f->size[d] == 1)
            continue;
        const int64_t above = lt_quotient(i, f->size[d], is_short);
        at += (i - above * f->size[d]) * f->stride[d];
        i = above;
    }
    return at + i * f->stride[0];
}

#ifdef __cplusplus
extern "C" {
#endif

/* Unfolds a view along dim, numbered in the memory order of `first`, a view of the same shape: unfoldings that are
 * used together have the same. */
lt_unfolding lt_unfold(const lt_view *view, int dim, const lt_view *first);

/* A tensor whose Frobenius norm is computed, in blocks; block b of all tensors has elements
 * [b', b' + 1) * LT_NORM_BLOCK of it, b' = b - first_block. */
enum { LT_NORM_BLOCK = 8192 };
typedef struct lt_norm {
    lt_unfolding unfolding;
    int64_t elements, first_block, blocks;
    double *out;
    int64_t wide; /* 1: elements are doubles */
} lt_norm;

/* Returns the norm of x, to be written to *out; its first block is number first_block. */
lt_norm lt_make_norm_record(const lt_view *x, double *out, int64_t first_block);

/* An unfolding and the contiguous matrix that it is gathered to or scattered from; block b has elements
 * [b', b' + 1) * LT_GATHER_BLOCK, b' = b - first_block. */
enum { LT_GATHER_BLOCK = 2048 };
typedef struct lt_gather {
    lt_unfolding unfolding;
    void *matrix;
    int64_t elements, first_block;
} lt_gather;

/* Appends an item to a list that has space for it, and adds its blocks to *blocks. */
void lt_gather_append(lt_gather *list, int *count, int64_t *blocks, const lt_unfolding *f,
                      void *matrix);

/* A product m x of a square matrix and LT_NARROW vectors [n, LT_NARROW]; block b has rows [b', b' + 1) *
 * LT_NARROW_ROWS. */
enum { LT_NARROW = 4, LT_NARROW_ROWS = 32 };
typedef struct lt_narrow {
    const void *m, *x;
    void *y;
    int64_t n, first_block;
} lt_narrow;

/* An unfolding of at most LT_SHORT rows, as along the 3 x 3 window of filters, for its gram matrix or its product
 * with a square matrix: a thread processes columns. Block b has columns [b', b' + 1) * LT_SHORT_COLUMNS. Channels are
 * the innermost dimension, so that adjacent columns are adjacent in memory. */
enum {
    LT_SHORT = 9,
    LT_SHORT_PAIRS = LT_SHORT * (LT_SHORT + 1) / 2, /* elements of a triangle */
    LT_SHORT_COLUMNS = 2048
};
typedef struct lt_short {
    lt_unfolding from, to;      /* g; y, of a product only */
    int64_t from_step, to_step; /* strides of rows */
    void *matrix;               /* f; m */
    double alpha, beta;
    int64_t transpose, first_block, blocks;
} lt_short;

/* Appends a job to a list that has space for it, and sets its blocks. Returns false if its unfolding is not of this
 * kind. */
bool lt_short_try_append(lt_short *list, size_t *count, const lt_short *job);

/* A gram matrix that was computed in cuts * cuts tiles: those above the diagonal are transposed to those below it.
 * Block b copies a square of LT_MIRROR_SIDE. */
enum { LT_MIRROR_SIDE = 32 };
typedef struct lt_mirror {
    void *f;
    int64_t n, cuts, first_block;
} lt_mirror;
/* Returns its number of blocks. */
LT_HD int64_t lt_mirror_blocks(const lt_mirror *v)
{
    const int64_t squares = (v->n / v->cuts + LT_MIRROR_SIDE - 1) / LT_MIRROR_SIDE;
    return v->cuts * (v->cuts - 1) / 2 * squares * squares;
}
/* The square of block b: its first row and column, in a tile above the diagonal, and its size. */
typedef struct lt_mirror_square {
    int64_t row, column, rows, columns;
} lt_mirror_square;
LT_HD lt_mirror_square lt_mirror_square_at(const lt_mirror *v, int64_t b)
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
