/* Gram and Schmidt's way, each column twice against those before it, which is enough for columns that are
 * orthogonal to rounding: Giraud, Langou & Rozloznik, "The loss of orthogonality in the Gram-Schmidt
 * orthogonalization process", Computers & Mathematics with Applications 50, 2005. */

#include "dist/reducer/lowrank.h"

#include "base/parallel.h"
#include "base/rng.h"

#include <math.h>

enum { TERMS = 16, ROWS = 16, COLUMNS = 1024 }; /* of a sum; of a chunk */

/* --- Products --- */

static float dot(const float *a, const float *b, int64_t count)
{
    float part[TERMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + TERMS <= count; i += TERMS)
        for (int k = 0; k < TERMS; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < TERMS; k++)
        sum += part[k];
    return sum;
}

static void project_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const lt_lowrank *m = context;
    (void)chunk;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < m->rank; k++)
            m->p[i * m->rank + k] = dot(m->x + i * m->cols, m->q + k * m->cols, m->cols);
}

void lt_lowrank_project(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel(m->rows, ROWS, project_rows, &copy);
}

/* to += factor * from. */
static void add(float *restrict to, const float *restrict from, float factor, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        to[j] += factor * from[j];
}

static void back_columns(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const lt_lowrank *m = context;
    (void)chunk;
    for (int64_t k = 0; k < m->rank; k++)
        for (int64_t j = begin; j < end; j++)
            m->q[k * m->cols + j] = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t k = 0; k < m->rank; k++)
            add(m->q + k * m->cols + begin, m->x + i * m->cols + begin, m->p[i * m->rank + k],
                end - begin);
}

void lt_lowrank_back(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel(m->cols, COLUMNS, back_columns, &copy);
}

static void expand_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const lt_lowrank *m = context;
    (void)chunk;
    for (int64_t i = begin; i < end; i++) {
        float *row = m->x + i * m->cols;
        for (int64_t j = 0; j < m->cols; j++)
            row[j] = 0;
        for (int64_t k = 0; k < m->rank; k++)
            add(row, m->q + k * m->cols, m->p[i * m->rank + k], m->cols);
    }
}

void lt_lowrank_expand(const lt_lowrank *m)
{
    lt_lowrank copy = *m;
    lt_parallel(m->rows, ROWS, expand_rows, &copy);
}

/* --- Orthonormal columns --- */

static double product_of(const double *p, int64_t rows, int64_t rank, int64_t a, int64_t b)
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

/* A column in multiples of its largest element, whose squares neither vanish nor overflow. */
static void level(double *p, int64_t rows, int64_t rank, int64_t k)
{
    double most = 0;
    for (int64_t i = 0; i < rows; i++)
        if (!(fabs(p[i * rank + k]) <= most))
            most = fabs(p[i * rank + k]);
    if (most != 0)
        scale_column(p, rows, rank, k, 1 / most);
}

void lt_lowrank_orthonormalise(double *p, int64_t rows, int64_t rank)
{
    const double vanished = 1e-12; /* of a column's length: what is left is rounding */
    for (int64_t k = 0; k < rank; k++) {
        level(p, rows, rank, k);
        const double before = sqrt(product_of(p, rows, rank, k, k));
        for (int round = 0; round < 2; round++)
            for (int64_t j = 0; j < k; j++) {
                const double part = product_of(p, rows, rank, j, k);
                for (int64_t i = 0; i < rows; i++)
                    p[i * rank + k] -= part * p[i * rank + j];
            }
        const double left = sqrt(product_of(p, rows, rank, k, k));
        const bool depends = left <= vanished * before; /* false of a NaN */
        scale_column(p, rows, rank, k, depends ? 0 : 1 / left);
    }
}

/* --- Where an iteration starts --- */

void lt_lowrank_draw(double *q, int64_t cols, const char *name, int64_t k)
{
    lt_rng rng = {.key = lt_rng_name_key((uint64_t)k, LT_STREAM_COMPRESS, name)};
    for (int64_t j = 0; j < cols; j++)
        q[k * cols + j] = lt_rng_normal(&rng);
}

void lt_lowrank_warm(double *q, int64_t rank, int64_t cols, const char *name)
{
    for (int64_t k = 0; k < rank; k++) {
        double *row = q + k * cols, sum = 0;
        level(row, cols, 1, 0);
        sum = product_of(row, cols, 1, 0, 0);
        if (sum == 0) {
            lt_lowrank_draw(q, cols, name, k);
            sum = product_of(row, cols, 1, 0, 0);
        }
        scale_column(row, cols, 1, 0, 1 / sqrt(sum));
    }
}
