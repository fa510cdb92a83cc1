/* Least squares with conditions on signs: what lt_nnls() and lt_lasso() are made of. */
#ifndef LT_PLAN_LEAST_SQUARES_H
#define LT_PLAN_LEAST_SQUARES_H

#include "lather/status.h"

#include <stdbool.h>

/* min |a x - b|^2 / 2 + penalty . |x|, a triangle whose columns have norm 1. x and what is below stay between
 * calls, so that the next penalty starts from this one's answer. */
typedef struct lt_active_set {
    int columns, rows;      /* of the triangle: rows <= columns + 1 */
    double *triangle;       /* owns: [rows,columns+1]; the last column is b */
    double *scale;          /* norms of the caller's columns; 0: constant, x stays 0 */
    double *x;              /* of columns with norm 1 */
    double *penalty;        /* [columns] */
    bool positive;          /* x >= 0 besides */
    int *passive, passives; /* columns with x != 0, in order of their coming */
    double *work, *trial, *gradient;
    bool *rejected;
} lt_active_set;

/* From a [rows,columns] and b, less their means if centred. */
LT_MUST_CHECK lt_status lt_active_set_new(lt_active_set *out, const double *a, int rows,
                                          int columns, const double *b, bool centred);
/* The minimum. Penalties are the caller's, of columns with norm 1. LT_E_ARG: exchanges do not end. */
LT_MUST_CHECK lt_status lt_active_set_solve(lt_active_set *s);
/* x of the caller's columns. */
void lt_active_set_read(const lt_active_set *s, double *x);
void lt_active_set_free(lt_active_set *s);

/* LT_E_ARG unless a [rows,columns] and b [rows] are there and finite. */
LT_MUST_CHECK lt_status lt_least_squares_check(const char *who, const double *a, int rows,
                                               int columns, const double *b);
/* |a x + intercept - b|. */
double lt_residual(const double *a, int rows, int columns, const double *b, const double *x,
                   double intercept);

#endif
