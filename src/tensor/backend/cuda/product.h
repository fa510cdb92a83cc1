/* Matrix products in the terms of BLAS: which views it can read, and the column-major operands. Needs no header of
 * CUDA. */
#ifndef LT_CUDA_PRODUCT_H
#define LT_CUDA_PRODUCT_H

#include "lather/detail/view.h"

/* A column-major matrix; the transpose of a view that is row-major. */
typedef struct lt_blas_matrix {
    int64_t rows, columns, leading, batch_stride;
} lt_blas_matrix;

/* d = op(a) op(b), column-major. */
typedef struct lt_blas_product {
    lt_blas_matrix a, b, d;
    bool transpose_a, transpose_b;
    bool swapped; /* a is the second factor: the result is row-major */
    int64_t batches;
} lt_blas_product;

/* Returns whether each matrix of the 3-D view has one stride of 1 and does not overlap itself. */
bool lt_blas_can_read(const lt_view *view);
/* Describes y = a b of views that BLAS can read and whose shapes match. */
lt_blas_product lt_blas_describe(const lt_view *a, const lt_view *b, const lt_view *y);

#endif
