/** What measurements say about runs that were not made: least squares with conditions, models of a step's seconds
 *  and of a run's loss on m ranks. Small problems in host memory. */
#ifndef LATHER_DETAIL_FIT_H
#define LATHER_DETAIL_FIT_H

/* Not a stable interface: may change in any release. */

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

/**
 * The Lasso, with scikit-learn's objective: x and an intercept c that minimise
 *
 *     |b - a x - c|^2 / (2 rows) + penalty (|x[0]| + ... + |x[columns-1]|)
 *
 * exactly, but for rounding. A column that is constant has x = 0.
 * Errors  LT_E_ARG (no rows or columns, not finite, penalty < 0), LT_E_NOMEM; x is then as it was
 * Source  Tibshirani, "Regression shrinkage and selection via the lasso", 1996
 */
LT_API LT_MUST_CHECK lt_status lt_lasso(double *x, double *intercept, const double *a, int rows,
                                        int columns, const double *b, double penalty);

/**
 * The penalty of the Lasso with the smallest error on rows that it was not fitted to: fold [rows], any numbers;
 * the rows of each one are left out in turn. Tried are 0 and five penalties per decade of the six below the
 * smallest one with which x is 0. error: the root of the folds' mean of their mean squares, or NULL.
 * Errors  as lt_lasso(); LT_E_ARG (fewer than two folds)
 */
LT_API LT_MUST_CHECK lt_status lt_lasso_choose(double *penalty, double *error, const double *a,
                                               int rows, int columns, const double *b,
                                               const int *fold);

/* --- Seconds of a step --- */

enum { LT_TIME_TERMS = 4 };

/** A measured step: its ranks m, the share s of the data (1: all) and its seconds. */
typedef struct lt_time_point {
    double ranks, scale, seconds;
} lt_time_point;

/** t(m, s) = x[0] + x[1] s / m + x[2] log m + x[3] m: the part that is not divided, the part that is, a tree of
 *  messages, and messages to all. */
typedef struct lt_time_model {
    double x[LT_TIME_TERMS]; /**< seconds, >= 0 */
    double least, most;      /**< ranks that were measured */
    double error;            /**< root of the mean square of (t - measured) / measured */
    double held_out;         /**< the same, each of fits to the other numbers of ranks */
} lt_time_model;

/**
 * Fits by non-negative least squares; each row is divided by its seconds, so that what counts is the relative error.
 * Errors  LT_E_ARG (a number that is not above 0 and finite; fewer than 4 pairs of ranks and scale, or than 3
 *         numbers of ranks), LT_E_NOMEM
 * Source  Venkataraman, Yang, Franklin, Recht & Stoica, "Ernest: efficient performance prediction for large-scale
 *         advanced analytics", NSDI 2016, section 3
 */
LT_API LT_MUST_CHECK lt_status lt_time_fit(lt_time_model *out, const lt_time_point *point,
                                           size_t count);
/** Seconds of a step, in the unit of the points. */
LT_API double lt_time_predict(const lt_time_model *model, double ranks, double scale);

/* --- Loss after so many steps --- */

enum {
    LT_LOSS_TERMS = 11,
    LT_LOSS_RANKS = 3 /**< different numbers of ranks, of 1, log m and 1/m beside i */
};

/** A measured loss, the mean over some samples or validation's. */
typedef struct lt_loss_point {
    double ranks, step, loss; /**< step: from 1 on */
} lt_loss_point;

/** log10(loss - floor) = intercept + x . terms after i steps on m ranks, of the terms i, sqrt i, i/m, i/m^2, log i,
 *  log i / m, log i log m, 1/i, log m, 1/m, m. The last one is not used with three numbers of ranks. */
typedef struct lt_loss_model {
    double floor, intercept, x[LT_LOSS_TERMS];
    double penalty;     /**< of the Lasso, of terms with deviation 1 */
    double least, most; /**< ranks that were measured */
    double last;        /**< the largest step */
    double error;       /**< root of the mean square in log10(loss - floor) */
    double held_out;    /**< the same, each of fits to the other numbers of ranks */
} lt_loss_model;

/**
 * Fits the Lasso, its penalty by leaving out each number of ranks in turn, and the floor: that of the largest profile
 * likelihood of log10(loss - floor), with the errors of what was left out; not below 0 unless a loss is.
 * Errors  LT_E_ARG (ranks or step below 1; a loss that is not finite; all losses equal; fewer than LT_LOSS_RANKS
 *         numbers of ranks), LT_E_NOMEM
 * Source  Pan, Venkataraman, Tai & Gonzalez, "Hemingway: modeling distributed optimization algorithms", 2017,
 *         arXiv 1702.05865; the likelihood is that of Box & Cox, "An analysis of transformations", 1964
 */
LT_API LT_MUST_CHECK lt_status lt_loss_fit(lt_loss_model *out, const lt_loss_point *point,
                                           size_t count);
/** The same with a floor that is known. Errors: LT_E_ARG (a loss that is not above it) as well. */
LT_API LT_MUST_CHECK lt_status lt_loss_fit_above(lt_loss_model *out, const lt_loss_point *point,
                                                 size_t count, double floor);
/** The loss after so many steps. */
LT_API double lt_loss_predict(const lt_loss_model *model, double ranks, double step);
/** The first step with this loss. Errors: LT_E_ARG (goal not above the floor; not reached in a hundred times
 *  the steps that were measured: both numbers). */
LT_API LT_MUST_CHECK lt_status lt_loss_steps(double *steps, const lt_loss_model *model,
                                             double ranks, double goal);

#endif
