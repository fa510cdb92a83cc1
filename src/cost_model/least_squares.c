/* Non-negative least squares, the Lasso, and its penalty by cross-validation, by one solver: the active-set method of
 * Lawson & Hanson ("Solving Least Squares Problems", 1974, chapter 23). With a sign for each passive column it also
 * minimises |a x - b|^2 / 2 + penalty . |x| (Lee, Battle, Raina & Ng, "Efficient sparse coding algorithms", NIPS 2006,
 * section 3).
 *
 * 1. passive lists the columns with x != 0; each keeps its sign.
 * 2. Between exchanges x is the minimum over the passive columns with those signs. Each exchange lowers the objective,
 *    so that no set repeats and the result is the exact minimum.
 * 3. A column that would enter and leave at once (its gradient is rounding) is rejected until x has changed. */

#include "base/alloc.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- Householder QR: Golub & Van Loan, "Matrix Computations", 4th edition, algorithms 5.1.1 and 5.2.1 --- */

static double norm_of(const double *x, size_t count, size_t stride)
{
    double most = 0, sum = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(x[i * stride]));
    if (!(most > 0))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const double part = x[i * stride] / most;
        sum += part * part;
    }
    return most * sqrt(sum);
}

/* Eliminates column `at` below its diagonal and updates the later columns. */
static void apply_householder(double *a, int rows, int columns, int at)
{
    const size_t n = (size_t)columns, below = (size_t)(rows - at), right = n - (size_t)at;
    double *v = a + (size_t)at * n + (size_t)at;
    const double norm = norm_of(v, below, n);
    if (!(norm > 0))
        return;
    /* H = I - w w^T / (1 + |v0|), w = v + sign(v0) e1, of v with norm 1, so that nothing overflows. */
    for (size_t i = 0; i < below; i++)
        v[i * n] /= norm;
    const double scale = 1 / (1 + fabs(v[0])), alpha = v[0] > 0 ? -norm : norm;
    v[0] += v[0] > 0 ? 1 : -1;
    for (size_t j = 1; j < right; j++) {
        double dot = 0;
        for (size_t i = 0; i < below; i++)
            dot += v[i * n] * v[i * n + j];
        for (size_t i = 0; i < below; i++)
            v[i * n + j] -= scale * dot * v[i * n];
    }
    v[0] = alpha;
    for (size_t i = 1; i < below; i++)
        v[i * n] = 0;
}

/* Replaces a [rows,columns] by its upper triangular R = Q^T a. */
static void make_triangle(double *a, int rows, int columns)
{
    for (int at = 0; at < columns && at < rows - 1; at++)
        apply_householder(a, rows, columns, at);
}

/* Solves r x = y in place, for the leading order x order triangle of r [*,stride]. false: r is numerically singular. */
static bool solve_triangle(const double *r, int stride, int order, double *y)
{
    double most = 0;
    for (int i = 0; i < order; i++)
        most = fmax(most, fabs(r[(size_t)i * (size_t)stride + (size_t)i]));
    for (int i = order - 1; i >= 0; i--) {
        const double *row = r + (size_t)i * (size_t)stride;
        if (!(fabs(row[i]) > 8 * order * DBL_EPSILON * most))
            return false;
        for (int j = i + 1; j < order; j++)
            y[i] -= row[j] * y[j];
        y[i] /= row[i];
    }
    return true;
}

/* Solves r^T x = y in place. */
static void solve_transposed(const double *r, int stride, int order, double *y)
{
    for (int i = 0; i < order; i++) {
        for (int j = 0; j < i; j++)
            y[i] -= r[(size_t)j * (size_t)stride + (size_t)i] * y[j];
        y[i] /= r[(size_t)i * (size_t)stride + (size_t)i];
    }
}

/* --- The active set --- */

/* The caller's problem, or the rows of it that are fitted. */
typedef struct problem {
    const double *a, *b; /* [rows,columns], [rows] */
    int rows, columns;
    bool centred; /* subtract the means of a and b */
} problem;

/* min |a x - b|^2 / 2 + penalty . |x|, with a reduced to a triangle whose columns have norm 1. x is kept between calls,
 * so that a solve with the next penalty starts from the last solution. */
typedef struct active_set {
    int columns, rows; /* shape of the triangle; rows <= columns + 1 */
    double *
        triangle; /* owns, with the arrays of doubles below: [rows,columns+1]; the last column is b */
    double *work; /* like triangle */
    double *
        scale; /* [columns] norms of the caller's columns; 0 marks a constant column, whose x is 0 */
    double *x; /* solution for columns with norm 1 */
    double *penalty, *trial, *gradient;
    bool positive;          /* constrains x >= 0 */
    int *passive, passives; /* owned: columns with x != 0, in order of entering */
    int *rejected;          /* by column: 1 if rejected since x changed; in passive's memory */
} active_set;

static size_t triangle_index(const active_set *s, int row, int column)
{
    return (size_t)row * (size_t)(s->columns + 1) + (size_t)column;
}

/* Returns the mean of count values `step` apart; 0 unless centred. */
static double mean_if_centred(const double *x, int count, int step, bool centred)
{
    double sum = 0;
    for (int i = 0; centred && i < count; i++)
        sum += x[(size_t)i * (size_t)step];
    return sum / count;
}

/* Subtracts the mean and scales to norm 1; a constant column becomes zeros. */
static void standardize_column(active_set *s, double *m, int rows, int j, double shift)
{
    const size_t n = (size_t)s->columns + 1;
    const double whole = norm_of(m + j, (size_t)rows, n);
    for (int i = 0; i < rows; i++)
        m[(size_t)i * n + (size_t)j] -= shift;
    const double norm = norm_of(m + j, (size_t)rows, n);
    s->scale[j] = norm > 8 * DBL_EPSILON * whole ? norm : 0;
    for (int i = 0; i < rows; i++)
        m[(size_t)i * n + (size_t)j] *= s->scale[j] > 0 ? 1 / norm : 0;
}

/* Reduces [a b] to its triangle, which has the same minimum. */
static lt_status reduce_problem_by_qr(active_set *s, const problem *p)
{
    const size_t n = (size_t)s->columns + 1, rows = (size_t)p->rows;
    double *m = NULL;
    LT_TRY(LT_ALLOC(&m, rows * n));
    const double middle = mean_if_centred(p->b, p->rows, 1, p->centred);
    for (size_t i = 0; i < rows; i++) {
        memcpy(m + i * n, p->a + i * (n - 1), (n - 1) * sizeof *m);
        m[i * n + n - 1] = p->b[i] - middle;
    }
    for (int j = 0; j < s->columns; j++)
        standardize_column(s, m, p->rows, j,
                           mean_if_centred(p->a + j, p->rows, s->columns, p->centred));
    make_triangle(m, p->rows, s->columns + 1);
    memcpy(s->triangle, m, (size_t)s->rows * n * sizeof *m);
    lt_free(m);
    return LT_OK;
}

static void free_active_set(active_set *s)
{
    lt_free(s->triangle);
    lt_free(s->passive);
}

/* free_active_set() must follow, also on failure. */
static lt_status init_active_set(active_set *s, const problem *p)
{
    const size_t n = (size_t)p->columns;
    *s = (active_set){.columns = p->columns,
                      .rows = p->rows < p->columns + 1 ? p->rows : p->columns + 1};
    const size_t cells = (size_t)s->rows * (n + 1);
    LT_TRY(LT_ALLOC(&s->triangle, 2 * cells + 5 * n));
    LT_TRY(LT_ALLOC(&s->passive, 2 * n));
    s->work = s->triangle + cells;
    s->scale = s->work + cells;
    s->x = s->scale + n;
    s->penalty = s->x + n;
    s->trial = s->penalty + n;
    s->gradient = s->trial + n;
    s->rejected = s->passive + n;
    return reduce_problem_by_qr(s, p);
}

/* Computes gradient = a^T (b - a x); returns a bound of its rounding error. */
static double compute_gradient(active_set *s)
{
    double size = 0;
    memset(s->gradient, 0, (size_t)s->columns * sizeof *s->gradient);
    for (int i = 0; i < s->rows; i++) {
        const double *row = s->triangle + triangle_index(s, i, 0);
        double left = row[s->columns];
        size += fabs(left);
        for (int k = 0; k < s->passives; k++)
            left -= row[s->passive[k]] * s->x[s->passive[k]];
        for (int j = 0; j < s->columns; j++)
            s->gradient[j] += row[j] * left;
    }
    for (int k = 0; k < s->passives; k++)
        size += fabs(s->x[s->passive[k]]);
    return 16 * DBL_EPSILON * size;
}

/* Returns the column outside the passive set with the steepest descent, or -1. */
static int find_steepest_column(active_set *s)
{
    const double rounding = compute_gradient(s);
    double most = rounding;
    int found = -1;
    for (int j = 0; j < s->columns; j++) {
        const double g = s->positive ? s->gradient[j] : fabs(s->gradient[j]);
        if (!(s->scale[j] > 0) || s->rejected[j] || fabs(s->x[j]) > 0)
            continue;
        if (g - s->penalty[j] > most) {
            most = g - s->penalty[j];
            found = j;
        }
    }
    return found;
}

/* Sets trial to the minimum over the passive columns, with the sign of x, of the entering column `sign`. false: the
 * columns are linearly dependent. */
static bool solve_passive_columns(active_set *s, int entering, double sign)
{
    const int k = s->passives, n = k + 1;
    if (k > s->rows)
        return false;
    for (int i = 0; i < s->rows; i++) {
        for (int j = 0; j < k; j++)
            s->work[(size_t)i * (size_t)n + (size_t)j] =
                s->triangle[triangle_index(s, i, s->passive[j])];
        s->work[(size_t)i * (size_t)n + (size_t)k] = s->triangle[triangle_index(s, i, s->columns)];
    }
    make_triangle(s->work, s->rows, n);
    for (int j = 0; j < k; j++) {
        const int column = s->passive[j];
        const double pull = column == entering ? sign : copysign(1, s->x[column]);
        s->trial[j] = pull * s->penalty[column];
        if (!(fabs(s->work[(size_t)j * (size_t)n + (size_t)j]) > 32 * n * DBL_EPSILON))
            return false;
    }
    solve_transposed(s->work, n, k, s->trial);
    for (int j = 0; j < k; j++)
        s->trial[j] = s->work[(size_t)j * (size_t)n + (size_t)k] - s->trial[j];
    return solve_triangle(s->work, n, k, s->trial);
}

static void remove_passive_column(active_set *s, int k)
{
    s->x[s->passive[k]] = 0;
    s->passives--;
    memmove(s->passive + k, s->passive + k + 1, (size_t)(s->passives - k) * sizeof *s->passive);
}

/* Returns the share of the way to trial at which column *at reaches 0 first; 1, and *at -1, if none does. */
static double find_first_zero_crossing(const active_set *s, int *at)
{
    double share = 1;
    *at = -1;
    for (int k = 0; k < s->passives; k++) {
        const double x = s->x[s->passive[k]];
        if (x * s->trial[k] > 0 || (x == 0 && s->trial[k] != 0))
            continue;
        const double here = x == s->trial[k] ? 0 : x / (x - s->trial[k]);
        if (*at < 0 || here < share) {
            share = here;
            *at = k;
        }
    }
    return share;
}

/* Moves x towards trial until a column reaches 0, which leaves the set. Returns true at trial. */
static bool move_towards_trial(active_set *s)
{
    int at = -1;
    const double share = find_first_zero_crossing(s, &at);
    for (int k = 0; k < s->passives; k++) {
        double *x = &s->x[s->passive[k]];
        *x = at < 0 ? s->trial[k] : *x + share * (s->trial[k] - *x);
    }
    if (at >= 0)
        remove_passive_column(s, at);
    for (int k = s->passives - 1; at >= 0 && k >= 0; k--)
        if (!(fabs(s->x[s->passive[k]]) > 0))
            remove_passive_column(s, k);
    return at < 0;
}

/* Adds a column to the set unless entering < 0, and minimises over the set. */
static void exchange_column(active_set *s, int entering)
{
    double sign = 1;
    if (entering >= 0) {
        sign = copysign(1, s->gradient[entering]);
        s->passive[s->passives++] = entering;
        const bool independent = solve_passive_columns(s, entering, sign);
        if (!independent || !(s->trial[s->passives - 1] * sign > 0)) {
            s->passives--;
            s->rejected[entering] = 1;
            return;
        }
        memset(s->rejected, 0, (size_t)s->columns * sizeof *s->rejected);
        if (move_towards_trial(s))
            return;
    }
    while (s->passives) {
        if (!solve_passive_columns(s, -1, 1))
            remove_passive_column(s, s->passives - 1);
        else if (move_towards_trial(s))
            return;
    }
}

static lt_status solve_set(active_set *s)
{
    const int most = 100 + 50 * s->columns;
    memset(s->rejected, 0, (size_t)s->columns * sizeof *s->rejected);
    int entering = -1;
    for (int i = 0; i < most; i++) {
        exchange_column(s, entering);
        entering = find_steepest_column(s);
        if (entering < 0)
            return LT_OK;
    }
    return lt_fail(LT_E_ARG, "fit: no convergence over %d columns after %d exchanges", s->columns,
                   most);
}

/* Minimises the Lasso's objective times rows; penalties are scaled to columns of norm 1. */
static lt_status solve_lasso(active_set *s, int rows, double penalty)
{
    for (int j = 0; j < s->columns; j++)
        s->penalty[j] = s->scale[j] > 0 ? rows * penalty / s->scale[j] : 0;
    return solve_set(s);
}

/* Writes the solution for the caller's unscaled columns. */
static void unscale_solution(const active_set *s, double *x)
{
    for (int j = 0; j < s->columns; j++)
        x[j] = s->scale[j] > 0 ? s->x[j] / s->scale[j] : 0;
}

/* Returns the intercept of a fit: the mean of b - a x. */
static double intercept_of(const problem *p, const double *x)
{
    double sum = 0;
    for (int i = 0; i < p->rows; i++) {
        sum += p->b[i];
        for (int j = 0; j < p->columns; j++)
            sum -= p->a[(size_t)i * (size_t)p->columns + (size_t)j] * x[j];
    }
    return sum / p->rows;
}

/* Returns the 2-norm of a x + intercept - b. */
static double residual_norm(const problem *p, const double *x, double intercept)
{
    double sum = 0;
    for (int i = 0; i < p->rows; i++) {
        double apart = intercept - p->b[i];
        for (int j = 0; j < p->columns; j++)
            apart += p->a[(size_t)i * (size_t)p->columns + (size_t)j] * x[j];
        sum += apart * apart;
    }
    return sqrt(sum);
}

static lt_status check_finite(const char *who, const problem *p)
{
    if (p->rows < 1 || p->columns < 1)
        return lt_fail(LT_E_ARG, "%s: %d rows of %d columns, want at least 1 of 1", who, p->rows,
                       p->columns);
    for (int i = 0; i < p->rows; i++) {
        for (int j = 0; j < p->columns; j++) {
            const double value = p->a[(size_t)i * (size_t)p->columns + (size_t)j];
            if (!isfinite(value))
                return lt_fail(LT_E_ARG, "%s: a[%d,%d] is %g", who, i, j, value);
        }
        if (!isfinite(p->b[i]))
            return lt_fail(LT_E_ARG, "%s: b[%d] is %g", who, i, p->b[i]);
    }
    return LT_OK;
}

/* --- Entry points --- */

lt_status lt_nnls(double *x, double *norm, const double *a, int rows, int columns, const double *b)
{
    active_set s;
    const problem p = {a, b, rows, columns, false};
    LT_TRY(check_finite("nnls", &p));
    lt_status st = init_active_set(&s, &p);
    s.positive = true;
    if (!st)
        st = solve_set(&s);
    if (!st)
        unscale_solution(&s, x);
    if (!st && norm)
        *norm = residual_norm(&p, x, 0);
    free_active_set(&s);
    return st;
}

lt_status lt_lasso(double *x, double *intercept, const double *a, int rows, int columns,
                   const double *b, double penalty)
{
    active_set s;
    const problem p = {a, b, rows, columns, true};
    LT_TRY(check_finite("lasso", &p));
    if (!(penalty >= 0) || !isfinite(penalty))
        return lt_fail(LT_E_ARG, "lasso: penalty %g, want at least 0", penalty);
    lt_status st = init_active_set(&s, &p);
    if (!st)
        st = solve_lasso(&s, rows, penalty);
    if (!st) {
        unscale_solution(&s, x);
        *intercept = intercept_of(&p, x);
    }
    free_active_set(&s);
    return st;
}

/* --- Cross-validation --- */

enum { PER_DECADE = 5, DECADES = 6, PENALTIES = PER_DECADE * DECADES + 2 };

/* Returns the i-th candidate penalty; they descend, and the last one is 0. */
static double penalty_at(double largest, int i)
{
    return i == PENALTIES - 1 ? 0 : largest * pow(10, -(double)i / PER_DECADE);
}

/* Computes the smallest penalty with which all coefficients are 0. */
static lt_status largest_penalty(double *out, const problem *all)
{
    active_set s;
    const lt_status st = init_active_set(&s, all);
    *out = 0;
    if (!st)
        (void)compute_gradient(&s); /* x is 0 */
    for (int j = 0; !st && j < s.columns; j++)
        *out = fmax(*out, fabs(s.gradient[j]) * s.scale[j] / all->rows);
    free_active_set(&s);
    return st;
}

/* Copies all rows to a and b, those of the fold last; returns the others. */
static problem split_off_fold(const problem *all, const int *folds, int fold, double *a, double *b)
{
    const size_t n = (size_t)all->columns;
    int kept = 0, out = all->rows;
    for (int i = 0; i < all->rows; i++) {
        const size_t to = (size_t)(folds[i] == fold ? --out : kept++);
        memcpy(a + to * n, all->a + (size_t)i * n, n * sizeof *a);
        b[to] = all->b[i];
    }
    return (problem){a, b, kept, all->columns, true};
}

/* Fits the kept rows with each penalty and adds the mean squared errors of the `left` rows after them to error
 * [PENALTIES]. */
static lt_status add_fold_errors(double *error, const problem *kept, int left, double largest,
                                 double *x)
{
    active_set s;
    const size_t n = (size_t)kept->rows;
    const problem out = {kept->a + n * (size_t)kept->columns, kept->b + n, left, kept->columns,
                         true};
    lt_status st = init_active_set(&s, kept);
    for (int i = 0; !st && i < PENALTIES; i++) {
        st = solve_lasso(&s, kept->rows, penalty_at(largest, i));
        if (st)
            break;
        unscale_solution(&s, x);
        const double apart = residual_norm(&out, x, intercept_of(kept, x));
        error[i] += apart * apart / left;
    }
    free_active_set(&s);
    return st;
}

/* Adds the errors of all folds to error [PENALTIES]; *folds: their number. */
static lt_status cross_validate(double *error, int *folds, const problem *all, const int *fold,
                                double largest)
{
    const size_t cells = (size_t)all->rows * (size_t)all->columns;
    double *memory = lt_alloc(cells + (size_t)all->rows + (size_t)all->columns, sizeof *memory);
    lt_status st = memory ? LT_OK : LT_E_NOMEM;
    for (*folds = 0; !st; ++*folds) {
        const problem kept = split_off_fold(all, fold, *folds, memory, memory + cells);
        const int left = all->rows - kept.rows;
        if (!left)
            break;
        st = kept.rows ? add_fold_errors(error, &kept, left, largest, memory + cells + all->rows)
                       : lt_fail(LT_E_ARG, "lasso: 1 fold, want at least 2");
    }
    lt_free(memory);
    return st;
}

lt_status lt_lasso_choose(double *penalty, double *error, const double *a, int rows, int columns,
                          const double *b, const int *fold)
{
    const problem all = {a, b, rows, columns, true};
    double sum[PENALTIES] = {0}, largest = 0;
    int folds = 0, best = 0;
    LT_TRY(check_finite("lasso", &all));
    LT_TRY(largest_penalty(&largest, &all));
    LT_TRY(cross_validate(sum, &folds, &all, fold, largest));
    for (int i = 1; i < PENALTIES; i++)
        best = sum[i] < sum[best] ? i : best;
    *penalty = penalty_at(largest, best);
    if (error)
        *error = sqrt(sum[best] / folds);
    return LT_OK;
}
