/* Active-set solver for least squares with sign constraints and an L1 penalty, shared by lt_nnls() and lt_lasso(). */
#ifndef LT_PLAN_LEAST_SQUARES_H
#define LT_PLAN_LEAST_SQUARES_H

#include "lather/status.h"

#include <stdbool.h>

/* min |a x - b|^2 / 2 + penalty . |x|, with a reduced to a triangle whose columns have norm 1. x is kept between calls,
 * so that a solve with the next penalty starts from the last solution. */
typedef struct lt_active_set {
    int columns, rows; /* shape of the triangle; rows <= columns + 1 */
    double *triangle;  /* owns: [rows,columns+1]; the last column is b */
    double *scale;     /* norms of the caller's columns; 0 marks a constant column, whose x is 0 */
    double *x;         /* solution for columns with norm 1 */
    double *penalty;   /* [columns] */
    bool positive;     /* constrains x >= 0 */
    int *passive, passives; /* columns with x != 0, in order of entering */
    double *work, *trial, *gradient;
    bool *rejected;
} lt_active_set;

/* Takes a [rows,columns] and b [rows], less their means if centred. */
LT_MUST_CHECK lt_status lt_active_set_new(lt_active_set *out, const double *a, int rows,
                                          int columns, const double *b, bool centred);
/* Finds the minimum. The caller sets penalty, for columns of norm 1. Errors: LT_E_ARG (no convergence). */
LT_MUST_CHECK lt_status lt_active_set_solve(lt_active_set *s);
/* Returns x for the caller's columns. */
void lt_active_set_read(const lt_active_set *s, double *x);
void lt_active_set_free(lt_active_set *s);

/* Errors: LT_E_ARG unless a [rows,columns] and b [rows] are finite and not empty. */
LT_MUST_CHECK lt_status lt_least_squares_check(const char *who, const double *a, int rows,
                                               int columns, const double *b);
/* Returns |a x + intercept - b|. */
double lt_residual(const double *a, int rows, int columns, const double *b, const double *x,
                   double intercept);

#endif
