/** What measurements say about runs that were not made: least squares with conditions, models of a step's seconds
 *  and of a run's loss on m ranks, and which runs to measure. Small problems in host memory. */
#ifndef LATHER_FIT_H
#define LATHER_FIT_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Matrices are f64, row-major and without gaps: a [rows,columns], b [rows], x [columns]. All numbers of the caller
 * are finite, or it is LT_E_ARG, which names the place. */

/**
 * Non-negative least squares: the x >= 0 with the smallest |a x - b|; of several, one.
 *
 *     x[j] = 0 and a_j . (b - a x) <= 0,  or  x[j] > 0 and a_j . (b - a x) = 0
 *
 * norm: |a x - b| of it, or NULL.
 * Errors  LT_E_ARG (no rows or columns, not finite), LT_E_NOMEM; x is then as it was
 * Source  Lawson & Hanson, "Solving Least Squares Problems", 1974, chapter 23
 */
LT_API LT_MUST_CHECK lt_status lt_nnls(double *x, double *norm, const double *a, int rows,
                                       int columns, const double *b);

#endif
