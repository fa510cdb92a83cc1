/** Models fitted to measured runs: constrained least squares, the seconds of a step and the loss of a run on m ranks.
 *  For small problems in host memory. */
#ifndef LATHER_DETAIL_FIT_H
#define LATHER_DETAIL_FIT_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Matrices are f64, row-major and contiguous: a [rows,columns], b [rows], x [columns]. A number that is not finite is
 * LT_E_ARG, naming its index. */

/**
 * Non-negative least squares: finds x >= 0 with the smallest |a x - b|; one of several if not unique.
 *
 *     x[j] = 0 and a_j . (b - a x) <= 0,  or  x[j] > 0 and a_j . (b - a x) = 0
 *
 * norm: receives |a x - b|; may be NULL.
 * Errors  LT_E_ARG (no rows or columns, not finite), LT_E_NOMEM; x is then unchanged
 * Source  Lawson & Hanson, "Solving Least Squares Problems", 1974, chapter 23
 */
LT_API LT_MUST_CHECK lt_status lt_nnls(double *x, double *norm, const double *a, int rows,
                                       int columns, const double *b);

/**
 * The Lasso, with scikit-learn's objective: finds x and an intercept c that minimise
 *
 *     |b - a x - c|^2 / (2 rows) + penalty (|x[0]| + ... + |x[columns-1]|)
 *
 * exactly up to rounding. A constant column has x = 0.
 * Errors  LT_E_ARG (no rows or columns, not finite, penalty < 0), LT_E_NOMEM; x is then unchanged
 * Source  Tibshirani, "Regression shrinkage and selection via the lasso", 1996
 */
LT_API LT_MUST_CHECK lt_status lt_lasso(double *x, double *intercept, const double *a, int rows,
                                        int columns, const double *b, double penalty);

/**
 * Chooses the penalty of the Lasso by cross-validation. fold [rows]: 0, 1, ...; the rows of each are left out in
 * turn. Tries 0 and five penalties per decade over six decades below the smallest one with which x is 0. error:
 * receives the root of the mean over folds of their mean squared errors; may be NULL.
 * Errors  as lt_lasso(); LT_E_ARG (fewer than two folds)
 */
LT_API LT_MUST_CHECK lt_status lt_lasso_choose(double *penalty, double *error, const double *a,
                                               int rows, int columns, const double *b,
                                               const int *fold);

/* --- Seconds of a step --- */

enum { LT_TIME_TERMS = 4 };

/** A measured step time. */
typedef struct lt_time_point {
    double ranks, seconds;
} lt_time_point;

/** t(m) = x[0] + x[1] / m + x[2] log m + x[3] m on m ranks: serial work, parallel work, a tree of messages, and messages
 *  to all. */
typedef struct lt_time_model {
    double x[LT_TIME_TERMS]; /**< coefficients in seconds, >= 0 */
} lt_time_model;

/**
 * Fits by non-negative least squares of relative errors: each row is divided by its seconds.
 * Errors  LT_E_ARG (a number that is not positive and finite; fewer than 4 different numbers of ranks), LT_E_NOMEM
 * Source  Venkataraman, Yang, Franklin, Recht & Stoica, "Ernest: efficient performance prediction for large-scale
 *         advanced analytics", NSDI 2016, section 3, without the share of the data
 */
LT_API LT_MUST_CHECK lt_status lt_time_fit(lt_time_model *out, const lt_time_point *point,
                                           size_t count);
/** Returns the seconds of a step, in the unit of the points. */
LT_API double lt_time_predict(const lt_time_model *model, double ranks);

/* --- Loss --- */

enum {
    LT_LOSS_TERMS = 11,
    LT_LOSS_RANKS = 3 /**< number of different rank counts needed, for the terms 1, log m and 1/m */
};

/** A measured loss, of training or validation. */
typedef struct lt_loss_point {
    double ranks, step, loss; /**< a rank count, a step (at least 1), and the loss there */
} lt_loss_point;

/** log10(loss - floor) = intercept + x . terms after i steps on m ranks, with the terms i, sqrt i, i/m, i/m^2, log i,
 *  log i / m, log i log m, 1/i, log m, 1/m, m. The last one is unused with three numbers of ranks. */
typedef struct lt_loss_model {
    double floor, intercept, x[LT_LOSS_TERMS];
    double penalty;     /**< Lasso penalty, for terms with deviation 1 */
    double least, most; /**< smallest and largest ranks measured */
    double last;        /**< largest step measured */
    double held_out;    /**< root mean square error in log10(loss - floor) in cross-validation */
} lt_loss_model;

/**
 *  Fits the Lasso, its penalty by cross-validation over the numbers of ranks, and the floor, which maximises the
 *  profile likelihood of log10(loss - floor) with the cross-validation errors; at least 0 unless a loss is negative.
 * Errors  LT_E_ARG (ranks or step below 1; a loss that is not finite; all losses equal; fewer than LT_LOSS_RANKS
 *         numbers of ranks), LT_E_NOMEM
 * Source  Pan, Venkataraman, Tai & Gonzalez, "Hemingway: modeling distributed optimization algorithms", 2017,
 *         arXiv 1702.05865; the likelihood is that of Box & Cox, "An analysis of transformations", 1964
 */
LT_API LT_MUST_CHECK lt_status lt_loss_fit(lt_loss_model *out, const lt_loss_point *point,
                                           size_t count);
/** Fits with a known floor. Errors: the same, and LT_E_ARG (a loss not above the floor). */
LT_API LT_MUST_CHECK lt_status lt_loss_fit_above(lt_loss_model *out, const lt_loss_point *point,
                                                 size_t count, double floor);
/** Returns the loss after `step` steps. */
LT_API double lt_loss_predict(const lt_loss_model *model, double ranks, double step);
/** Finds the first step at which the loss is at most goal. Errors: LT_E_ARG (a goal not above the floor, or not reached
 *  within 100 times the measured steps). */
LT_API LT_MUST_CHECK lt_status lt_loss_steps(double *steps, const lt_loss_model *model,
                                             double ranks, double goal);

#endif
