/* Householder triangles: Golub & Van Loan, "Matrix Computations", 4th edition, algorithms 5.1.1 and 5.2.1. Columns are
 * few, so that nothing is blocked. */

#include "plan/dense.h"

#include "lather/ext/fail.h"

#include <float.h>
#include <math.h>

double lt_dense_norm(const double *x, size_t count, size_t stride)
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

enum { CHUNK = 4 };

/* (I - scale w w^T) x for columns beside each other, count of CHUNK; w [rows,1] and x [rows,*] have a row's stride. */
static void apply(const double *w, double *x, size_t rows, size_t stride, double scale,
                  size_t count)
{
    double dot[CHUNK] = {0};
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < count; j++)
            dot[j] += w[i * stride] * x[i * stride + j];
    for (size_t j = 0; j < count; j++)
        dot[j] *= scale;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < count; j++)
            x[i * stride + j] -= dot[j] * w[i * stride];
}

/* Column at, from its diagonal on, becomes (alpha, 0, ...), and the columns behind it follow. */
static void reflect(double *a, int rows, int columns, int at)
{
    const size_t n = (size_t)columns, below = (size_t)(rows - at), behind = n - (size_t)at;
    double *v = a + (size_t)at * n + (size_t)at;
    const double norm = lt_dense_norm(v, below, n);
    if (!(norm > 0))
        return;
    /* H = I - w w^T / (1 + |v0|), w = v + sign(v0) e1, of v with norm 1, so that nothing overflows. */
    for (size_t i = 0; i < below; i++)
        v[i * n] /= norm;
    const double scale = 1 / (1 + fabs(v[0])), alpha = v[0] > 0 ? -norm : norm;
    v[0] += v[0] > 0 ? 1 : -1;
    size_t j = 1;
    for (; j + CHUNK <= behind; j += CHUNK)
        apply(v, v + j, below, n, scale, CHUNK);
    if (j < behind)
        apply(v, v + j, below, n, scale, behind - j);
    v[0] = alpha;
    for (size_t i = 1; i < below; i++)
        v[i * n] = 0;
}

void lt_dense_triangle(double *a, int rows, int columns)
{
    for (int at = 0; at < columns && at < rows - 1; at++)
        reflect(a, rows, columns, at);
}

bool lt_dense_solve(const double *r, int stride, int order, double *y)
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

void lt_dense_solve_transposed(const double *r, int stride, int order, double *y)
{
    for (int i = 0; i < order; i++) {
        for (int j = 0; j < i; j++)
            y[i] -= r[(size_t)j * (size_t)stride + (size_t)i] * y[j];
        y[i] /= r[(size_t)i * (size_t)stride + (size_t)i];
    }
}

lt_status lt_dense_check(const char *who, const double *a, int rows, int columns, const double *b)
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

double lt_dense_residual(const double *a, int rows, int columns, const double *b, const double *x,
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
