/* Matrix products in the terms of BLAS. */

#include "product.h"

enum { BATCH, ROWS, COLUMNS };

/* Finds the leading dimension: row-major (transposed for BLAS) if possible, else column-major. */
static bool find_leading_dim(const lt_view *v, bool *by_rows, int64_t *leading)
{
    const int64_t rows = v->shape.dim[ROWS], columns = v->shape.dim[COLUMNS];
    *by_rows = true;
    *leading = rows == 1 ? columns : v->stride[ROWS];
    if ((columns == 1 || v->stride[COLUMNS] == 1) && *leading >= columns)
        return true;
    *by_rows = false;
    *leading = columns == 1 ? rows : v->stride[COLUMNS];
    return (rows == 1 || v->stride[ROWS] == 1) && *leading >= rows;
}

bool lt_blas_can_read(const lt_view *view)
{
    bool by_rows;
    int64_t leading;
    return find_leading_dim(view, &by_rows, &leading)
           && (view->shape.dim[BATCH] == 1 || view->stride[BATCH] >= 0);
}

/* Describes the memory as a column-major matrix. */
static lt_blas_matrix describe_matrix(const lt_view *v, bool *by_rows)
{
    lt_blas_matrix m;
    find_leading_dim(v, by_rows, &m.leading);
    m.rows = v->shape.dim[*by_rows ? COLUMNS : ROWS];
    m.columns = v->shape.dim[*by_rows ? ROWS : COLUMNS];
    m.batch_stride = v->shape.dim[BATCH] == 1 ? 0 : v->stride[BATCH];
    return m;
}

lt_blas_product lt_blas_describe(const lt_view *a, const lt_view *b, const lt_view *y)
{
    lt_blas_product p = {.batches = y->shape.dim[BATCH]};
    bool a_by_rows, b_by_rows;
    const lt_blas_matrix ma = describe_matrix(a, &a_by_rows), mb = describe_matrix(b, &b_by_rows);
    p.d = describe_matrix(y, &p.swapped);
    /* A row-major result is its transpose, column-major: y' = b' a', in which row-major factors are transposed
     * already. */
    p.a = p.swapped ? mb : ma;
    p.b = p.swapped ? ma : mb;
    p.transpose_a = p.swapped ? !b_by_rows : a_by_rows;
    p.transpose_b = p.swapped ? !a_by_rows : b_by_rows;
    return p;
}
