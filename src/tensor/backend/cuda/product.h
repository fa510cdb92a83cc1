/* Matrix products as cuBLASLt wants them: which views it can read, and the product in its terms. Needs
 * no header of CUDA. */
#ifndef LT_CUDA_PRODUCT_H
#define LT_CUDA_PRODUCT_H

#include "lather/detail/view.h"

/* A matrix by columns, as BLAS has it: transposed if the view has it by rows. */
typedef struct lt_blas_matrix {
    int64_t rows, columns, leading, batch_stride;
} lt_blas_matrix;

/* d = op(a) op(b), by columns. */
typedef struct lt_blas_product {
    lt_blas_matrix a, b, d;
    bool transpose_a, transpose_b;
    bool swapped; /* a is the second factor: d is the result by rows */
    int64_t batches;
} lt_blas_product;

/* Whether one of the two strides of each 3-D matrix is 1 and the other holds no overlap. */
bool lt_blas_can_read(const lt_view *view);
/* y = a b; all can be read, their shapes fit. */
lt_blas_product lt_blas_describe(const lt_view *a, const lt_view *b, const lt_view *y);

#endif
