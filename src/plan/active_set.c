/* Lawson & Hanson's exchanges for non-negative least squares ("Solving Least Squares Problems", 1974, chapter 23),
 * which with a sign for each column in the passive set also minimise |a x - b|^2 / 2 + penalty . |x| (Lee, Battle,
 * Raina & Ng, "Efficient sparse coding algorithms", NIPS 2006, section 3).
 *
 * 1. passive lists the columns with x != 0, of which each keeps its sign.
 * 2. Between exchanges x is the minimum over the passive columns with those signs; each exchange lowers
 *    the objective, so that no set comes twice and the end is the exact minimum.
 * 3. A column that would enter and leave at once (its gradient is rounding) is rejected until x has changed. */

#include "plan/active_set.h"

#include "base/alloc.h"
#include "plan/dense.h"

#include "lather/ext/fail.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t place(const lt_active_set *s, int row, int column)
{
    return (size_t)row * (size_t)(s->columns + 1) + (size_t)column;
}

/* The mean of a column whose step is given, and nothing where the matrix is not centred. */
static double mean(const double *x, int count, int step, bool centred)
{
    double sum = 0;
    for (int i = 0; centred && i < count; i++)
        sum += x[(size_t)i * (size_t)step];
    return sum / count;
}

/* Less its mean, norm 1. A column that is constant but for rounding becomes zeros. */
static void scale_column(lt_active_set *s, double *m, int rows, int j, double shift)
{
    const size_t n = (size_t)s->columns + 1;
    const double whole = lt_dense_norm(m + j, (size_t)rows, n);
    for (int i = 0; i < rows; i++)
        m[(size_t)i * n + (size_t)j] -= shift;
    const double norm = lt_dense_norm(m + j, (size_t)rows, n);
    s->scale[j] = norm > 8 * DBL_EPSILON * whole ? norm : 0;
    for (int i = 0; i < rows; i++)
        m[(size_t)i * n + (size_t)j] *= s->scale[j] > 0 ? 1 / norm : 0;
}

/* The triangle of [a b]: all that the minimum depends on. */
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
    lt_dense_triangle(m, rows, s->columns + 1);
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

/* gradient = a^T (b - a x); returns how much of it is rounding. */
static double slope(lt_active_set *s)
{
    double size = 0;
    memset(s->gradient, 0, (size_t)s->columns * sizeof *s->gradient);
    for (int i = 0; i < s->rows; i++) {
        const double *row = s->triangle + place(s, i, 0);
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

/* The column outside the passive set with the steepest descent, or -1. */
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

/* trial = the minimum over the passive columns; sign is that of the column which is entering, else x's.
 * False: they depend on one another. */
static bool minimum(lt_active_set *s, int entering, double sign)
{
    const int k = s->passives, n = k + 1;
    if (k > s->rows)
        return false;
    for (int i = 0; i < s->rows; i++) {
        for (int j = 0; j < k; j++)
            s->work[(size_t)i * (size_t)n + (size_t)j] = s->triangle[place(s, i, s->passive[j])];
        s->work[(size_t)i * (size_t)n + (size_t)k] = s->triangle[place(s, i, s->columns)];
    }
    lt_dense_triangle(s->work, s->rows, n);
    for (int j = 0; j < k; j++) {
        const int column = s->passive[j];
        const double pull = column == entering ? sign : copysign(1, s->x[column]);
        s->trial[j] = pull * s->penalty[column];
        if (!(fabs(s->work[(size_t)j * (size_t)n + (size_t)j]) > 32 * n * DBL_EPSILON))
            return false;
    }
    lt_dense_solve_transposed(s->work, n, k, s->trial);
    for (int j = 0; j < k; j++)
        s->trial[j] = s->work[(size_t)j * (size_t)n + (size_t)k] - s->trial[j];
    return lt_dense_solve(s->work, n, k, s->trial);
}

static void leave(lt_active_set *s, int k)
{
    s->x[s->passive[k]] = 0;
    s->passives--;
    memmove(s->passive + k, s->passive + k + 1, (size_t)(s->passives - k) * sizeof *s->passive);
}

/* The share of the way to trial at which the first column reaches 0, and which (at >= 0). 1, -1: none does. */
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

/* Moves x to trial, or to where the first column reaches 0, which leaves. True: it is at trial. */
static bool go(lt_active_set *s)
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

/* Lets a column in, or, if entering < 0, only finds the minimum over the passive ones. */
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
        if (go(s))
            return;
    }
    while (s->passives) {
        if (!minimum(s, -1, 1))
            leave(s, s->passives - 1);
        else if (go(s))
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
    return lt_fail(LT_E_ARG, "fit: no minimum over %d columns after %d exchanges", s->columns,
                   most);
}
