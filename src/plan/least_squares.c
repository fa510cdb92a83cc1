/* Active-set method of Lawson & Hanson for non-negative least squares ("Solving Least Squares Problems", 1974, chapter
 * 23). With a sign for each passive column it also minimises |a x - b|^2 / 2 + penalty . |x| (Lee, Battle, Raina & Ng,
 * "Efficient sparse coding algorithms", NIPS 2006, section 3).
 *
 * 1. passive lists the columns with x != 0; each keeps its sign.
 * 2. Between exchanges x is the minimum over the passive columns with those signs. Each exchange lowers the objective,
 *    so that no set repeats and the result is the exact minimum.
 * 3. A column that would enter and leave at once (its gradient is rounding) is rejected until x has changed. */

#include "plan/least_squares.h"

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
static void reflect(double *a, int rows, int columns, int at)
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
        reflect(a, rows, columns, at);
}

/* Solves r x = y in place, for the leading order x order triangle of r [*,stride]. false: r is numerically singular. */
static bool solve(const double *r, int stride, int order, double *y)
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

static size_t index_of(const lt_active_set *s, int row, int column)
{
    return (size_t)row * (size_t)(s->columns + 1) + (size_t)column;
}

/* The mean of count values `step` apart; 0 unless centred. */
static double mean(const double *x, int count, int step, bool centred)
{
    double sum = 0;
    for (int i = 0; centred && i < count; i++)
        sum += x[(size_t)i * (size_t)step];
    return sum / count;
}

/* Subtracts the mean and scales to norm 1; a constant column becomes zeros. */
static void scale_column(lt_active_set *s, double *m, int rows, int j, double shift)
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
static lt_status compress(lt_active_set *s, const double *a, int rows, const double *b,
                          bool centred)
{
    const size_t n = (size_t)s->columns + 1;
    double *m = lt_alloc((size_t)rows * n, sizeof *m);
    if (!m)
        return LT_E_NOMEM;
    const double middle = mean(b, rows, 1, centred);
    for (int i = 0; i < rows; i++) {
        memcpy(m + (size_t)i * n, a + (size_t)i * (n - 1), (n - 1) * sizeof *m);
        m[(size_t)i * n + n - 1] = b[i] - middle;
    }
    for (int j = 0; j < s->columns; j++)
        scale_column(s, m, rows, j, mean(a + j, rows, s->columns, centred));
    make_triangle(m, rows, s->columns + 1);
    memcpy(s->triangle, m, (size_t)s->rows * n * sizeof *m);
    lt_free(m);
    return LT_OK;
}

lt_status lt_active_set_new(lt_active_set *out, const double *a, int rows, int columns,
                            const double *b, bool centred)
{
    const size_t n = (size_t)columns;
    lt_active_set s = {.columns = columns, .rows = rows < columns + 1 ? rows : columns + 1};
    const size_t cells = (size_t)s.rows * (n + 1);
    s.triangle = lt_alloc(cells, sizeof *s.triangle);
    s.work = lt_alloc(cells, sizeof *s.work);
    s.scale = lt_alloc(5 * n, sizeof *s.scale);
    s.passive = lt_alloc(n, sizeof *s.passive);
    s.rejected = lt_alloc(n, sizeof *s.rejected);
    lt_status st = s.triangle && s.work && s.scale && s.passive && s.rejected ? LT_OK : LT_E_NOMEM;
    if (!st) {
        s.x = s.scale + n;
        s.penalty = s.x + n;
        s.trial = s.penalty + n;
        s.gradient = s.trial + n;
        st = compress(&s, a, rows, b, centred);
    }
    if (st)
        lt_active_set_free(&s);
    else
        *out = s;
    return st;
}

void lt_active_set_free(lt_active_set *s)
{
    lt_free(s->triangle);
    lt_free(s->work);
    lt_free(s->scale);
    lt_free(s->passive);
    lt_free(s->rejected);
    *s = (lt_active_set){0};
}

void lt_active_set_read(const lt_active_set *s, double *x)
{
    for (int j = 0; j < s->columns; j++)
        x[j] = s->scale[j] > 0 ? s->x[j] / s->scale[j] : 0;
}

/* Computes gradient = a^T (b - a x); returns a bound of its rounding error. */
static double slope(lt_active_set *s)
{
    double size = 0;
    memset(s->gradient, 0, (size_t)s->columns * sizeof *s->gradient);
    for (int i = 0; i < s->rows; i++) {
        const double *row = s->triangle + index_of(s, i, 0);
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
static int steepest(lt_active_set *s)
{
    const double rounding = slope(s);
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
static bool minimum(lt_active_set *s, int entering, double sign)
{
    const int k = s->passives, n = k + 1;
    if (k > s->rows)
        return false;
    for (int i = 0; i < s->rows; i++) {
        for (int j = 0; j < k; j++)
            s->work[(size_t)i * (size_t)n + (size_t)j] = s->triangle[index_of(s, i, s->passive[j])];
        s->work[(size_t)i * (size_t)n + (size_t)k] = s->triangle[index_of(s, i, s->columns)];
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
    return solve(s->work, n, k, s->trial);
}

static void leave(lt_active_set *s, int k)
{
    s->x[s->passive[k]] = 0;
    s->passives--;
    memmove(s->passive + k, s->passive + k + 1, (size_t)(s->passives - k) * sizeof *s->passive);
}

/* Returns the share of the way to trial at which column *at reaches 0 first; 1, and *at -1, if none does. */
static double first_zero(const lt_active_set *s, int *at)
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
static bool move_x(lt_active_set *s)
{
    int at = -1;
    const double share = first_zero(s, &at);
    for (int k = 0; k < s->passives; k++) {
        double *x = &s->x[s->passive[k]];
        *x = at < 0 ? s->trial[k] : *x + share * (s->trial[k] - *x);
    }
    if (at >= 0)
        leave(s, at);
    for (int k = s->passives - 1; at >= 0 && k >= 0; k--)
        if (!(fabs(s->x[s->passive[k]]) > 0))
            leave(s, k);
    return at < 0;
}

/* Adds a column to the set unless entering < 0, and minimises over the set. */
static void exchange(lt_active_set *s, int entering)
{
    double sign = 1;
    if (entering >= 0) {
        sign = copysign(1, s->gradient[entering]);
        s->passive[s->passives++] = entering;
        const bool independent = minimum(s, entering, sign);
        if (!independent || !(s->trial[s->passives - 1] * sign > 0)) {
            s->passives--;
            s->rejected[entering] = true;
            return;
        }
        memset(s->rejected, 0, (size_t)s->columns * sizeof *s->rejected);
        if (move_x(s))
            return;
    }
    while (s->passives) {
        if (!minimum(s, -1, 1))
            leave(s, s->passives - 1);
        else if (move_x(s))
            return;
    }
}

lt_status lt_active_set_solve(lt_active_set *s)
{
    const int most = 100 + 50 * s->columns;
    memset(s->rejected, 0, (size_t)s->columns * sizeof *s->rejected);
    int entering = -1;
    for (int i = 0; i < most; i++) {
        exchange(s, entering);
        entering = steepest(s);
        if (entering < 0)
            return LT_OK;
    }
    return lt_fail(LT_E_ARG, "fit: no convergence over %d columns after %d exchanges", s->columns,
                   most);
}

/* --- Entry points --- */

lt_status lt_least_squares_check(const char *who, const double *a, int rows, int columns,
                                 const double *b)
{
    if (rows < 1 || columns < 1)
        return lt_fail(LT_E_ARG, "%s: %d rows of %d columns, want at least 1 of 1", who, rows,
                       columns);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            const double value = a[(size_t)i * (size_t)columns + (size_t)j];
            if (!isfinite(value))
                return lt_fail(LT_E_ARG, "%s: a[%d,%d] is %g", who, i, j, value);
        }
        if (!isfinite(b[i]))
            return lt_fail(LT_E_ARG, "%s: b[%d] is %g", who, i, b[i]);
    }
    return LT_OK;
}

double lt_residual(const double *a, int rows, int columns, const double *b, const double *x,
                   double intercept)
{
    double sum = 0;
    for (int i = 0; i < rows; i++) {
        double apart = intercept - b[i];
        for (int j = 0; j < columns; j++)
            apart += a[(size_t)i * (size_t)columns + (size_t)j] * x[j];
        sum += apart * apart;
    }
    return sqrt(sum);
}

lt_status lt_nnls(double *x, double *norm, const double *a, int rows, int columns, const double *b)
{
    lt_active_set s;
    LT_TRY(lt_least_squares_check("nnls", a, rows, columns, b));
    LT_TRY(lt_active_set_new(&s, a, rows, columns, b, false));
    s.positive = true;
    const lt_status st = lt_active_set_solve(&s);
    if (!st)
        lt_active_set_read(&s, x);
    if (!st && norm)
        *norm = lt_residual(a, rows, columns, b, x, 0);
    lt_active_set_free(&s);
    return st;
}
