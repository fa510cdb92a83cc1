/* Small dense matrices in f64: Householder triangles and what is solved with them. */
#ifndef LT_PLAN_DENSE_H
#define LT_PLAN_DENSE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Q^T a in place, upper triangular: a [rows,columns] with any rows. Below the diagonal: zeros. */
void lt_dense_triangle(double *a, int rows, int columns);
/* r x = y in place of y, for the leading order x order triangle of r [*,stride]. False: r is singular to
 * rounding, and y is spoilt. */
bool lt_dense_solve(const double *r, int stride, int order, double *y);
/* r^T x = y in place of y. The triangle is not singular. */
void lt_dense_solve_transposed(const double *r, int stride, int order, double *y);

/* LT_E_ARG unless a [rows,columns] and b [rows] are there and finite. */
LT_MUST_CHECK lt_status lt_dense_check(const char *who, const double *a, int rows, int columns,
                                       const double *b);
double lt_dense_norm(const double *x, size_t count, size_t stride);
/* |a x + intercept - b|. */
double lt_dense_residual(const double *a, int rows, int columns, const double *b, const double *x,
                         double intercept);

#endif
