/* Eigendecomposition in f64: Householder reduction to tridiagonal form, implicit QL, and products with the reflectors.
 * Golub & Van Loan, "Matrix computations", 4th edition, section 8.3; Dubrulle, Martin & Wilkinson, "The implicit QL
 * algorithm", Numer. Math. 12, 1968. Inner loops run along rows, so that vectorising them changes no result. */

#include "symmetric_f64.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_SWEEPS = 60, LANES = 4 }; /* about 2 sweeps per eigenvalue are used */

/* Squares of elements treated as 0, where the largest element is about 1. */
static const double nothing = 1e-280;

static double dot(const double *x, const double *y, int64_t n)
{
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum[i % LANES] += x[i] * y[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static void add_multiple(double factor, const double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* --- QL --- */

static void rotate_rows(double *upper, double *lower, int64_t n, double c, double s)
{
    for (int64_t k = 0; k < n; k++) {
        const double x = upper[k], y = lower[k];
        lower[k] = s * x + c * y;
        upper[k] = c * x - s * y;
    }
}

/* One sweep over the unreduced rows first .. last. */
static void sweep(double *d, double *e, int64_t first, int64_t last, double *z, int64_t n)
{
    double g = (d[first + 1] - d[first]) / (2 * e[first]), s = 1, c = 1, p = 0;
    g = d[last] - d[first] + e[first] / (g + copysign(sqrt(g * g + 1), g));
    for (int64_t i = last - 1; i >= first; i--) {
        const double f = s * e[i], b = c * e[i], r = sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) { /* the matrix splits here */
            d[i + 1] -= p;
            e[last] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double t = (d[i] - g) * s + 2 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        rotate_rows(z + i * n, z + (i + 1) * n, n, c, s);
    }
    d[first] -= p;
    e[first] = g;
    e[last] = 0;
}

/* Returns the last row of the unreduced block that begins at row `first`. */
static int64_t find_block_end(const double *d, const double *e, int64_t first, int64_t n)
{
    int64_t last = first;
    while (last + 1 < n && fabs(e[last]) > DBL_EPSILON * (fabs(d[last]) + fabs(d[last + 1]))
           && e[last] * e[last] > nothing)
        last++;
    return last;
}

bool lt_tridiagonal_ql(double *d, double *e, int64_t n, double *z)
{
    for (int64_t first = 0; first < n; first++) {
        int sweeps = 0;
        for (int64_t last; (last = find_block_end(d, e, first, n)) > first;) {
            if (++sweeps > MAX_SWEEPS)
                return false;
            sweep(d, e, first, last, z, n);
        }
    }
    return true;
}

/* --- Reduction --- */

/* Replaces row x past its diagonal by its reflector v, v[0] = 1. Returns the off-diagonal element of T. */
static double make_reflector(double *x, int64_t count, double *scale)
{
    const double pivot = x[0], square = dot(x + 1, x + 1, count - 1);
    x[0] = 1;
    *scale = 0;
    if (square <= nothing)
        return pivot;
    const double norm = sqrt(pivot * pivot + square), to = pivot > 0 ? -norm : norm;
    for (int64_t i = 1; i < count; i++)
        x[i] /= pivot - to;
    *scale = (to - pivot) / to;
    return to;
}

static void reduce(double *a, int64_t n, double *d, double *e, double *scale, double *w)
{
    for (int64_t j = 0; j + 1 < n; j++) {
        const int64_t first = j + 1, count = n - first;
        double *v = a + j * n + first;
        d[j] = v[-1];
        e[j] = make_reflector(v, count, &scale[j]);
        if (scale[j] == 0)
            continue;
        for (int64_t i = 0; i < count; i++)
            w[i] = scale[j] * dot(a + (first + i) * n + first, v, count);
        add_multiple(-0.5 * scale[j] * dot(w, v, count), v, w, count);
        for (int64_t i = 0; i < count; i++) {
            double *row = a + (first + i) * n + first;
            for (int64_t k = 0; k < count; k++)
                row[k] -= v[i] * w[k] + w[i] * v[k];
        }
    }
    d[n - 1] = a[n * n - 1];
}

bool lt_symmetric_eigh(double *a, int64_t n, double *d, double *z, double *work)
{
    double *e = work, *scale = work + n;
    reduce(a, n, d, e, scale, scale + n);
    memset(z, 0, (size_t)(n * n) * sizeof *z);
    for (int64_t i = 0; i < n; i++)
        z[i * (n + 1)] = 1;
    if (!lt_tridiagonal_ql(d, e, n, z))
        return false;
    for (int64_t j = n - 2; j >= 0; j--)
        for (int64_t i = 0; i < n && scale[j] != 0; i++) {
            const double *v = a + j * n + j + 1;
            double *row = z + i * n + j + 1;
            add_multiple(-scale[j] * dot(row, v, n - j - 1), v, row, n - j - 1);
        }
    return true;
}

void lt_sort_rows(const double *value, int64_t begin, int64_t n, int64_t *order)
{
    for (int64_t i = begin; i < begin + n; i++) {
        int64_t at = i;
        for (; at > begin && value[order[at - 1]] > value[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}
