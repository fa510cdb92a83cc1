/* Products in the terms of BLAS, against the definition, by a BLAS of three loops. */

#include "near.h"
#include "tensor/backend/cuda/product.h"

enum { SPACE = 4096, BATCH = 2 };

typedef enum layout { BY_ROWS, BY_COLUMNS, WIDE_ROWS, WIDE_COLUMNS } layout;

static lt_view make(double *data, int64_t batches, int64_t rows, int64_t columns, layout how)
{
    const bool wide = how == WIDE_ROWS || how == WIDE_COLUMNS;
    const bool by_rows = how == BY_ROWS || how == WIDE_ROWS;
    const int64_t leading = (by_rows ? columns : rows) + 3 * wide;
    lt_view v = {.data = data, .dtype = LT_F64, .shape = LT_SHAPE(batches, rows, columns)};
    v.stride[0] = leading * (by_rows ? rows : columns) + 5 * wide;
    v.stride[1] = by_rows ? leading : 1;
    v.stride[2] = by_rows ? 1 : leading;
    return v;
}

static double *at(const lt_view *v, int64_t b, int64_t r, int64_t c)
{
    return (double *)v->data + b * v->stride[0] + r * v->stride[1] + c * v->stride[2];
}

static double element(const double *m, const lt_blas_matrix *d, bool transpose, int64_t b,
                      int64_t r, int64_t c)
{
    const int64_t row = transpose ? c : r, column = transpose ? r : c;
    assert_in_range(row, 0, d->rows - 1);
    assert_in_range(column, 0, d->columns - 1);
    return m[b * d->batch_stride + row + column * d->leading];
}

static void multiply(const lt_blas_product *p, const double *a, const double *b, double *d)
{
    const int64_t depth = p->transpose_a ? p->a.rows : p->a.columns;
    assert_int_equal(depth, p->transpose_b ? p->b.columns : p->b.rows);
    assert_true(p->a.leading >= p->a.rows && p->b.leading >= p->b.rows);
    assert_true(p->d.leading >= p->d.rows);
    for (int64_t i = 0; i < p->batches; i++)
        for (int64_t r = 0; r < p->d.rows; r++)
            for (int64_t c = 0; c < p->d.columns; c++) {
                double sum = 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += element(a, &p->a, p->transpose_a, i, r, k)
                           * element(b, &p->b, p->transpose_b, i, k, c);
                d[i * p->d.batch_stride + r + c * p->d.leading] = sum;
            }
}

/* The largest difference from the definition. */
static double error_of(const lt_view *a, const lt_view *b, const lt_view *y, bool wrong)
{
    double worst = 0;
    lt_blas_product p = lt_blas_describe(a, b, y);
    if (wrong)
        p.transpose_a = !p.transpose_a;
    multiply(&p, p.swapped ? b->data : a->data, p.swapped ? a->data : b->data, y->data);
    for (int64_t i = 0; i < y->shape.dim[0]; i++)
        for (int64_t r = 0; r < y->shape.dim[1]; r++)
            for (int64_t c = 0; c < y->shape.dim[2]; c++) {
                double sum = 0;
                for (int64_t k = 0; k < a->shape.dim[2]; k++)
                    sum += *at(a, i, r, k) * *at(b, i, k, c);
                worst = fmax(worst, fabs(sum - *at(y, i, r, c)));
            }
    return worst;
}

static void fill(double *data)
{
    for (int i = 0; i < SPACE; i++)
        data[i] = (double)(i * 37 % 101) - 50;
}

static void every_layout_gives_the_product(void **state)
{
    static const int64_t sizes[][3] = {{3, 4, 5}, {1, 4, 5}, {3, 1, 5}, {3, 4, 1}, {1, 1, 1}};
    static double a[SPACE], b[SPACE], y[SPACE];
    (void)state;
    fill(a);
    fill(b);
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int how = 0; how < 4 * 4 * 4; how++) {
            const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
            lt_view va = make(a, BATCH, m, k, (layout)(how % 4));
            lt_view vb = make(b, BATCH, k, n, (layout)(how / 4 % 4));
            lt_view vy = make(y, BATCH, m, n, (layout)(how / 16));
            assert_true(lt_blas_can_read(&va) && lt_blas_can_read(&vb) && lt_blas_can_read(&vy));
            assert_near(error_of(&va, &vb, &vy, false), 0, 0);
            vb.stride[0] = 0; /* one factor for all batches */
            assert_near(error_of(&va, &vb, &vy, false), 0, 0);
        }
}

static void control_a_wrong_transpose_is_found(void **state)
{
    static double a[SPACE], b[SPACE], y[SPACE];
    (void)state;
    fill(a);
    fill(b);
    const lt_view va = make(a, 1, 4, 4, BY_ROWS), vb = make(b, 1, 4, 4, BY_ROWS);
    const lt_view vy = make(y, 1, 4, 4, BY_ROWS);
    assert_true(error_of(&va, &vb, &vy, true) > 1);
}

static void gaps_in_both_directions_cannot_be_read(void **state)
{
    static double a[SPACE];
    lt_view v = make(a, 1, 3, 4, BY_ROWS);
    (void)state;
    v.stride[2] = 2;
    v.stride[1] = 8;
    assert_false(lt_blas_can_read(&v));
    v.stride[2] = 1;
    v.stride[1] = 3; /* rows that overlap */
    assert_false(lt_blas_can_read(&v));
    v.stride[1] = 0; /* one row, repeated */
    assert_false(lt_blas_can_read(&v));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_gives_the_product),
        cmocka_unit_test(control_a_wrong_transpose_is_found),
        cmocka_unit_test(gaps_in_both_directions_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
