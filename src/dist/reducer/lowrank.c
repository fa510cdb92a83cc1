/* Kernels of PowerSGD. Gram-Schmidt orthogonalization in two passes per column, which is enough for orthogonality to
 * rounding: Giraud, Langou & Rozloznik, "The loss of orthogonality in the Gram-Schmidt orthogonalization process",
 * Computers & Mathematics with Applications 50, 2005. */

#include "dist/reducer/lowrank.h"

#include "base/parallel.h"
#include "base/rng.h"

#include <math.h>

enum {
    SUMS = 16,
    ROWS = 16,
    COLUMNS = 1024
}; /* partial sums of dot(); rows, columns per parallel task */

/* --- Products --- */

static float dot(const float *a, const float *b, int64_t count)
{
    float part[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < SUMS; k++)
        sum += part[k];
    return sum;
}

static void compute_p_rows(void *context, int64_t begin, int64_t end)
{
    const lt_lowrank *m = context;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < m->rank; k++)
            m->p[i * m->rank + k] = dot(m->x + i * m->cols, m->q + k * m->cols, m->cols);
}

void lt_lowrank_compute_p(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel_range(m->rows, ROWS, compute_p_rows, &copy);
}

/* to += factor * from. */
static void add_scaled(float *restrict to, const float *restrict from, float factor, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        to[j] += factor * from[j];
}

static void compute_q_columns(void *context, int64_t begin, int64_t end)
{
    const lt_lowrank *m = context;
    for (int64_t k = 0; k < m->rank; k++)
        for (int64_t j = begin; j < end; j++)
            m->q[k * m->cols + j] = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t k = 0; k < m->rank; k++)
            add_scaled(m->q + k * m->cols + begin, m->x + i * m->cols + begin,
                       m->p[i * m->rank + k], end - begin);
}

void lt_lowrank_compute_q(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel_range(m->cols, COLUMNS, compute_q_columns, &copy);
}

static void reconstruct_rows(void *context, int64_t begin, int64_t end)
{
    const lt_lowrank *m = context;
    for (int64_t i = begin; i < end; i++) {
        float *row = m->x + i * m->cols;
        for (int64_t j = 0; j < m->cols; j++)
            row[j] = 0;
        for (int64_t k = 0; k < m->rank; k++)
            add_scaled(row, m->q + k * m->cols, m->p[i * m->rank + k], m->cols);
    }
}

void lt_lowrank_reconstruct(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel_range(m->rows, ROWS, reconstruct_rows, &copy);
}

/* --- Orthonormal columns --- */

static double column_dot(const double *p, int64_t rows, int64_t rank, int64_t a, int64_t b)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += p[i * rank + a] * p[i * rank + b];
    return sum;
}

static void scale_column(double *p, int64_t rows, int64_t rank, int64_t k, double factor)
{
    for (int64_t i = 0; i < rows; i++)
        p[i * rank + k] *= factor;
}

/* Scales a column to largest element 1, so that squares neither underflow nor overflow. */
static void normalize_column_by_max(double *p, int64_t rows, int64_t rank, int64_t k)
{
    double most = 0;
    for (int64_t i = 0; i < rows; i++)
        if (!(fabs(p[i * rank + k]) <= most))
            most = fabs(p[i * rank + k]);
    if (most != 0)
        scale_column(p, rows, rank, k, 1 / most);
}

void lt_lowrank_orthonormalize(double *p, int64_t rows, int64_t rank)
{
    const double vanished =
        1e-12; /* remainder relative to the column's length that is rounding error */
    for (int64_t k = 0; k < rank; k++) {
        normalize_column_by_max(p, rows, rank, k);
        const double before = sqrt(column_dot(p, rows, rank, k, k));
        for (int round = 0; round < 2; round++)
            for (int64_t j = 0; j < k; j++) {
                const double part = column_dot(p, rows, rank, j, k);
                for (int64_t i = 0; i < rows; i++)
                    p[i * rank + k] -= part * p[i * rank + j];
            }
        const double left = sqrt(column_dot(p, rows, rank, k, k));
        const bool depends = left <= vanished * before; /* false for NaN */
        scale_column(p, rows, rank, k, depends ? 0 : 1 / left);
    }
}

/* --- Start of the power iteration --- */

/* Fills row k of q [rank,cols] with normal random numbers keyed by the parameter's name and k. */
static void draw_row(double *q, int64_t cols, const char *name, int64_t k)
{
    lt_rng rng = {.key = lt_rng_name_key((uint64_t)k, LT_STREAM_COMPRESS, name)};
    for (int64_t j = 0; j < cols; j++)
        q[k * cols + j] = lt_rng_normal(&rng);
}

void lt_lowrank_warm_start(double *q, int64_t rank, int64_t cols, const char *name)
{
    for (int64_t k = 0; k < rank; k++) {
        double *row = q + k * cols, sum = 0;
        normalize_column_by_max(row, cols, 1, 0);
        sum = column_dot(row, cols, 1, 0, 0);
        if (sum == 0) {
            draw_row(q, cols, name, k);
            sum = column_dot(row, cols, 1, 0, 0);
        }
        scale_column(row, cols, 1, 0, 1 / sqrt(sum));
    }
}
