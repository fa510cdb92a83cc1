/* Orthogonal factor of a matrix by one-sided Jacobi rotations: Hestenes, "Inversion of matrices by
 * biorthogonalization and related results", 1958. Rotations make the rows orthogonal, J X = S W with J orthogonal
 * and W of unit rows; then U V^T = J^T W. Small singular values are as accurate as large ones. */

#include "orthogonal_svd.h"

#include "base/alloc.h"

#include <float.h>
#include <math.h>

enum { SWEEPS = 60 };

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void rotate_rows(double *a, double *b, double c, double s, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double x = a[i], y = b[i];
        a[i] = c * x - s * y;
        b[i] = s * x + c * y;
    }
}

/* Rotates rows p and q of x so that they become orthogonal; returns true if they were. */
static bool make_pair_orthogonal(double *x, double *j, int64_t rows, int64_t cols, int64_t p,
                                 int64_t q)
{
    double *a = x + p * cols, *b = x + q * cols;
    const double aa = dot(a, a, cols), bb = dot(b, b, cols), ab = dot(a, b, cols);
    if (fabs(ab) <= DBL_EPSILON * sqrt(aa * bb) || !(fabs(ab) > 0))
        return true;
    const double zeta = (bb - aa) / (2 * ab);
    const double t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double c = 1 / sqrt(1 + t * t);
    rotate_rows(a, b, c, c * t, cols);
    rotate_rows(j + p * rows, j + q * rows, c, c * t, rows);
    return false;
}

static void make_orthogonal(double *x, double *j, int64_t rows, int64_t cols)
{
    bool done = false;
    for (int sweep = 0; sweep < SWEEPS && !done; sweep++) {
        done = true;
        for (int64_t p = 0; p < rows; p++)
            for (int64_t q = p + 1; q < rows; q++)
                done = make_pair_orthogonal(x, j, rows, cols, p, q) && done;
    }
}

/* Normalizes rows; those that are zero up to rounding become 0. */
static void normalize_rows(double *x, int64_t rows, int64_t cols)
{
    double largest = 0;
    for (int64_t p = 0; p < rows; p++)
        largest = fmax(largest, sqrt(dot(x + p * cols, x + p * cols, cols)));
    for (int64_t p = 0; p < rows; p++) {
        const double length = sqrt(dot(x + p * cols, x + p * cols, cols));
        const bool is_zero = !(length > largest * (double)cols * DBL_EPSILON);
        for (int64_t i = 0; i < cols; i++)
            x[p * cols + i] = is_zero ? 0 : x[p * cols + i] / length;
    }
}

lt_status lt_orthogonal_svd(double *matrix, int64_t rows, int64_t cols)
{
    double *j = lt_alloc((size_t)(rows * rows), sizeof *j);
    double *x = lt_alloc((size_t)(rows * cols), sizeof *x);
    lt_status st = j && x ? LT_OK : LT_E_NOMEM;
    for (int64_t i = 0; i < rows * cols && !st; i++)
        x[i] = matrix[i];
    for (int64_t i = 0; i < rows && !st; i++)
        j[i * rows + i] = 1;
    if (!st) {
        make_orthogonal(x, j, rows, cols);
        normalize_rows(x, rows, cols);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                double sum = 0;
                for (int64_t k = 0; k < rows; k++)
                    sum += j[k * rows + r] * x[k * cols + c];
                matrix[r * cols + c] = sum;
            }
    }
    lt_free(x);
    lt_free(j);
    return st;
}
