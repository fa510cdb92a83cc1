/* The Lasso, and its penalty by cross-validation. */

#include "base/alloc.h"
#include "plan/least_squares.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

/* The rows of a problem, or a part of them. */
typedef struct rows_of {
    const double *a, *b; /* [rows,columns], [rows] */
    const int *fold;     /* [rows] */
    int rows, columns;
} rows_of;

/* Minimises the objective times rows; penalties are scaled to columns of norm 1. */
static lt_status solve(lt_active_set *s, int rows, double penalty)
{
    for (int j = 0; j < s->columns; j++)
        s->penalty[j] = s->scale[j] > 0 ? rows * penalty / s->scale[j] : 0;
    return lt_active_set_solve(s);
}

/* The intercept: the mean of b - a x. */
static double intercept_of(const rows_of *r, const double *x)
{
    double sum = 0;
    for (int i = 0; i < r->rows; i++) {
        sum += r->b[i];
        for (int j = 0; j < r->columns; j++)
            sum -= r->a[(size_t)i * (size_t)r->columns + (size_t)j] * x[j];
    }
    return sum / r->rows;
}

lt_status lt_lasso(double *x, double *intercept, const double *a, int rows, int columns,
                   const double *b, double penalty)
{
    lt_active_set s;
    LT_TRY(lt_least_squares_check("lasso", a, rows, columns, b));
    if (!(penalty >= 0) || !isfinite(penalty))
        return lt_fail(LT_E_ARG, "lasso: penalty %g, want at least 0", penalty);
    LT_TRY(lt_active_set_new(&s, a, rows, columns, b, true));
    const lt_status st = solve(&s, rows, penalty);
    if (!st) {
        lt_active_set_read(&s, x);
        *intercept = intercept_of(&(rows_of){a, b, NULL, rows, columns}, x);
    }
    lt_active_set_free(&s);
    return st;
}

enum { PER_DECADE = 5, DECADES = 6, PENALTIES = PER_DECADE * DECADES + 2 };

/* Descending; the last is 0. */
static double penalty_at(double largest, int i)
{
    return i == PENALTIES - 1 ? 0 : largest * pow(10, -(double)i / PER_DECADE);
}

/* The smallest penalty with which x is 0. */
static lt_status largest_penalty(double *out, const rows_of *all)
{
    lt_active_set s;
    LT_TRY(lt_active_set_new(&s, all->a, all->rows, all->columns, all->b, true));
    *out = 0;
    for (int j = 0; j < s.columns; j++) {
        double dot = 0;
        for (int i = 0; i < s.rows; i++) {
            const double *row = s.triangle + (size_t)i * ((size_t)s.columns + 1);
            dot += row[j] * row[s.columns];
        }
        *out = fmax(*out, fabs(dot) * s.scale[j] / all->rows);
    }
    lt_active_set_free(&s);
    return LT_OK;
}

/* Copies all rows to a and b, those of the fold last; returns the others. */
static rows_of split(const rows_of *all, int fold, double *a, double *b)
{
    const size_t n = (size_t)all->columns;
    int kept = 0, out = all->rows;
    for (int i = 0; i < all->rows; i++) {
        const size_t to = (size_t)(all->fold[i] == fold ? --out : kept++);
        memcpy(a + to * n, all->a + (size_t)i * n, n * sizeof *a);
        b[to] = all->b[i];
    }
    return (rows_of){.a = a, .b = b, .rows = kept, .columns = all->columns};
}

/* Fits the kept rows with each penalty and adds the mean squared errors of the fold to error [PENALTIES]. */
static lt_status add_errors(double *error, const rows_of *kept, int rows, double largest, double *x)
{
    lt_active_set s;
    const int left = rows - kept->rows;
    LT_TRY(lt_active_set_new(&s, kept->a, kept->rows, kept->columns, kept->b, true));
    lt_status st = LT_OK;
    for (int i = 0; !st && i < PENALTIES; i++) {
        st = solve(&s, kept->rows, penalty_at(largest, i));
        if (st)
            break;
        lt_active_set_read(&s, x);
        const double apart =
            lt_residual(kept->a + (size_t)kept->rows * (size_t)kept->columns, left, kept->columns,
                        kept->b + kept->rows, x, intercept_of(kept, x));
        error[i] += apart * apart / left;
    }
    lt_active_set_free(&s);
    return st;
}

/* Adds the errors of all folds to error [PENALTIES]; *folds: their number. */
static lt_status cross_validate(double *error, int *folds, const rows_of *all, double largest)
{
    const size_t cells = (size_t)all->rows * (size_t)all->columns;
    double *memory = lt_alloc(cells + (size_t)all->rows + (size_t)all->columns, sizeof *memory);
    lt_status st = memory ? LT_OK : LT_E_NOMEM;
    for (*folds = 0; !st; ++*folds) {
        const rows_of kept = split(all, *folds, memory, memory + cells);
        if (kept.rows == all->rows)
            break;
        st = kept.rows ? add_errors(error, &kept, all->rows, largest, memory + cells + all->rows)
                       : lt_fail(LT_E_ARG, "lasso: 1 fold, want at least 2");
    }
    lt_free(memory);
    return st;
}

lt_status lt_lasso_choose(double *penalty, double *error, const double *a, int rows, int columns,
                          const double *b, const int *fold)
{
    const rows_of all = {a, b, fold, rows, columns};
    double sum[PENALTIES] = {0}, largest = 0;
    int folds = 0, best = 0;
    LT_TRY(lt_least_squares_check("lasso", a, rows, columns, b));
    LT_TRY(largest_penalty(&largest, &all));
    LT_TRY(cross_validate(sum, &folds, &all, largest));
    for (int i = 1; i < PENALTIES; i++)
        best = sum[i] < sum[best] ? i : best;
    *penalty = penalty_at(largest, best);
    if (error)
        *error = sqrt(sum[best] / folds);
    return LT_OK;
}
