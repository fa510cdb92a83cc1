/* Eigendecomposition of a tridiagonal matrix by divide and conquer: T = [T1 0; 0 T2] + rho u u^T, so that with the
 * decompositions of T1 and T2 it becomes D + rho z z^T, whose eigenvalues are the roots of a secular function. Cuppen,
 * "A divide and conquer method for the symmetric tridiagonal eigenproblem", Numer. Math. 36, 1981. Eigenvectors are
 * orthogonal to f32's precision as the roots are found in f64: Sorensen & Tang, "On the orthogonality of eigenvectors
 * computed by divide-and-conquer techniques", SIAM J. Numer. Anal. 28, 1991. */

#include "symmetric_f64.h"
#include "tensor/backend/cpu/gemm/product.h"
#include "tridiagonal.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LEAF = 32, MAX_STEPS = 50 }; /* about 4 steps per root are used */

/* Perturbation of T below which an eigenpair is not changed by a merge, relative to its norm: as LAPACK's slaed2. */
static const double negligible = 4 * (double)FLT_EPSILON;
/* Relative step after which a root is accepted: convergence is quadratic. */
static const double accurate = 1e-8;

/* --- Roots of the secular function 1 + sum of weight_i / (pole_i - x) --- */

/* Root j is above pole j and below pole j + 1. It is found as a distance from the nearer one, the origin, as its
 * difference from either may be far below its rounding. */
typedef struct secular {
    const double *pole, *weight; /* [count], ascending and positive */
    double *distance;            /* [count] poles minus the origin */
    int64_t count, j;
} secular;

typedef struct sums {
    double f, below,
        above; /* function; its derivative's sums over the poles below and above the root */
} sums;

typedef double lanes __attribute__((vector_size(32)));
typedef double loose_lanes __attribute__((vector_size(32), aligned(8), may_alias));

/* Adds terms begin to end at x to f; returns the sum of their derivatives. */
static double add_terms(const secular *s, int64_t begin, int64_t end, double x, double *f)
{
    lanes value = {0}, slope = {0};
    int64_t i = begin;
    for (; i + 4 <= end; i += 4) {
        const lanes r = 1.0 / (*(const loose_lanes *)(s->distance + i) - x);
        const lanes term = *(const loose_lanes *)(s->weight + i) * r;
        value += term;
        slope += term * r;
    }
    for (; i < end; i++) {
        const double r = 1 / (s->distance[i] - x), term = s->weight[i] * r;
        value[i % 4] += term;
        slope[i % 4] += term * r;
    }
    *f += (value[0] + value[2]) + (value[1] + value[3]);
    return (slope[0] + slope[2]) + (slope[1] + slope[3]);
}

static sums evaluate(const secular *s, double x)
{
    sums v = {.f = 1};
    v.below = add_terms(s, 0, s->j + 1, x, &v.f);
    v.above = add_terms(s, s->j + 1, s->count, x, &v.f);
    return v;
}

static void set_origin(const secular *s, int64_t pole)
{
    for (int64_t i = 0; i < s->count; i++)
        s->distance[i] = s->pole[i] - s->pole[pole];
}

/* Returns the step from x to the root of c + p / (pole_j - x) + q / (pole_(j+1) - x) with the sums' values at x: "The
 * middle way" of Li, "Solving secular equations stably and efficiently", LAPACK working note 89, 1993. */
static double interpolate(const secular *s, double x, const sums *v)
{
    const double left = s->distance[s->j] - x;
    if (s->j + 1 == s->count)
        return left + left * left * v->below / (v->f - left * v->below);
    const double right = s->distance[s->j + 1] - x;
    const double c = v->f - left * v->below - right * v->above;
    const double a = (left + right) * v->f - left * right * (v->below + v->above);
    const double b = left * right * v->f;
    const double root = sqrt(fmax(a * a - 4 * b * c, 0));
    return a > 0 ? 2 * b / (a + root) : (a - root) / (2 * c);
}

/* Returns root j minus its origin, and sets distance; total: sum of weights. */
static double find_root(secular *s, int64_t j, double total)
{
    const bool last = j + 1 == s->count;
    const double width = last ? total : s->pole[j + 1] - s->pole[j];
    double low = 0, high = width, x = width / 2;
    s->j = j;
    set_origin(s, j);
    sums v = evaluate(s, x);
    if (v.f < 0 && !last) {
        set_origin(s, j + 1);
        low = -width;
        high = 0;
        x = -x;
    }
    for (int i = 0; i < MAX_STEPS; i++) {
        *(v.f < 0 ? &low : &high) = x;
        double next = x + interpolate(s, x, &v);
        if (!(next > low && next < high))
            next = (low + high) / 2;
        const bool done = fabs(next - x) <= accurate * fabs(next);
        x = next;
        if (done)
            break;
        v = evaluate(s, x);
    }
    return x;
}

/* --- Merge of two adjacent parts --- */

/* Rows [begin, begin + n) of z, the first of which, `first` in number, are vectors of the upper part. */
typedef struct merge {
    lt_tridiagonal *t;
    int64_t begin, first, n;
    double rho;
    int64_t kept;              /* eigenpairs that change */
    int64_t left, both;        /* how many of them have elements in the left half only, in both */
    double *z, *pole, *weight; /* z by row; the others [kept] */
    double *distance, *unchanged; /* [n] workspaces */
    int64_t *row;                 /* kept rows by rising pole, then the others from the end */
    int64_t *place;               /* [kept] position of a kept row among the packed ones */
    uint8_t *halves; /* by row: 1 if it has elements in the left half, 2: right, 3: both */
    float *products;
} merge;

static float *row_of(const merge *m, int64_t row)
{
    return m->t->z + row * m->t->step + m->begin;
}

/* z: the elements of the vectors next to the cut, of norm 1. */
static void find_update(merge *m)
{
    const int64_t middle = m->begin + m->first, end = m->begin + m->n;
    const double coupling = (double)m->t->off_diagonal[middle - 1];
    const double below = coupling < 0 ? -1 : 1;
    double square = 0;
    for (int64_t i = m->begin; i < end; i++) {
        m->halves[i] = i < middle ? 1 : 2;
        m->z[i] = i < middle ? (double)row_of(m, i)[m->first - 1]
                             : below * (double)row_of(m, i)[m->first];
        square += m->z[i] * m->z[i];
    }
    const double norm = sqrt(square);
    for (int64_t i = m->begin; i < end; i++)
        m->z[i] /= norm;
    m->rho = fabs(coupling) * square;
}

/* Rotates two vectors so that the first one's z is 0, if that changes T by at most `least`. */
static bool rotate_out(const merge *m, int64_t p, int64_t q, double least)
{
    double *value = m->t->value;
    const double size = sqrt(m->z[p] * m->z[p] + m->z[q] * m->z[q]);
    const double c = m->z[q] / size, s = m->z[p] / size, low = value[p], high = value[q];
    float *x = row_of(m, p), *y = row_of(m, q);
    if (fabs((high - low) * c * s) > least)
        return false;
    for (int64_t i = 0; i < m->n; i++) {
        const float a = x[i], b = y[i];
        x[i] = (float)c * a - (float)s * b;
        y[i] = (float)c * b + (float)s * a;
    }
    value[p] = low * c * c + high * s * s;
    value[q] = low * s * s + high * c * c;
    m->z[q] = size;
    m->halves[p] = m->halves[q] = m->halves[p] | m->halves[q];
    return true;
}

/* Finds the kept rows. The others keep their vectors: z is negligible, or becomes so by a rotation. */
static void deflate(merge *m)
{
    const int64_t *order = m->t->order + m->begin;
    int64_t others = m->n;
    double largest = m->rho;
    for (int64_t i = 0; i < m->n; i++)
        largest = fmax(largest, fabs(m->t->value[m->begin + i]));
    const double least = negligible * largest;
    m->kept = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t row = order[i];
        if (m->rho * fabs(m->z[row]) <= least) {
            m->row[--others] = row;
            continue;
        }
        if (m->kept > 0 && rotate_out(m, m->row[m->kept - 1], row, least))
            m->row[--others] = m->row[--m->kept];
        m->row[m->kept++] = row;
    }
}

/* Copies the kept rows' halves that are not 0, in this order: left half only, both, right half only. Then the others,
 * whole. */
static float *pack_rows(merge *m)
{
    int64_t count[4] = {0};
    for (int64_t k = 0; k < m->kept; k++)
        count[m->halves[m->row[k]]]++;
    m->left = count[1];
    m->both = count[3];
    const int64_t first = m->first, rest = m->n - first, rows = m->left + m->both;
    int64_t next[4] = {0, 0, rows, m->left};
    float *right = m->t->packed + rows * first, *other = right + (m->kept - m->left) * rest;
    for (int64_t k = 0; k < m->kept; k++) {
        const int64_t row = m->row[k], at = next[m->halves[row]]++;
        m->place[k] = at;
        if (at < rows)
            memcpy(m->t->packed + at * first, row_of(m, row), (size_t)first * sizeof *right);
        if (at >= m->left)
            memcpy(right + (at - m->left) * rest, row_of(m, row) + first,
                   (size_t)rest * sizeof *right);
    }
    for (int64_t k = 0; k < m->n - m->kept; k++) {
        const int64_t row = m->row[m->n - 1 - k];
        memcpy(other + k * m->n, row_of(m, row), (size_t)m->n * sizeof *other);
        m->unchanged[k] = m->t->value[row];
    }
    return other;
}

/* Computes the roots, and the eigenvectors of D + rho z z^T as rows of t->vectors. */
static void solve_kept(const merge *m)
{
    lt_tridiagonal *t = m->t;
    secular s = {m->pole, m->weight, m->distance, m->kept, 0};
    double total = 0;
    for (int64_t k = 0; k < m->kept; k++) {
        const double z = m->z[m->row[k]];
        m->pole[k] = t->value[m->row[k]];
        m->weight[k] = m->rho * z * z;
        total += m->weight[k];
    }
    for (int64_t j = 0; j < m->kept; j++) {
        const double x = find_root(&s, j, total);
        float *vector = t->vectors + j * t->step;
        double square = 0;
        t->value[m->begin + j] = (m->pole[j] - m->distance[j]) + x;
        for (int64_t i = 0; i < m->kept; i++) {
            m->distance[i] = m->z[m->row[i]] / (m->distance[i] - x);
            square += m->distance[i] * m->distance[i];
        }
        const double norm = 1 / sqrt(square);
        for (int64_t i = 0; i < m->kept; i++)
            vector[m->place[i]] = (float)(m->distance[i] * norm);
    }
}

/* Writes rows `from` on of the packed half to columns [col, col + cols) of z, multiplied by the vectors. */
static void multiply_half(const merge *m, const float *half, int64_t from, int64_t rows,
                          int64_t col, int64_t cols)
{
    const lt_tridiagonal *t = m->t;
    const lt_axis lane = lt_axis_1d(m->kept, t->step), along = lt_axis_1d(cols, 1);
    const lt_product p = {.a = {t->vectors + from, lane, lt_axis_1d(rows, 1)},
                          .b = {half, along, lt_axis_1d(rows, cols)},
                          .y = row_of(m, m->begin) + col,
                          .row = lane,
                          .col = along,
                          .rows = m->kept,
                          .cols = cols,
                          .depth = rows,
                          .alpha = 1};
    if (rows > 0)
        lt_cpu_multiply_serial(t->kernels, &p, m->products);
    for (int64_t i = 0; i < m->kept && !rows; i++)
        memset(p.y + i * t->step, 0, (size_t)cols * sizeof *p.y);
}

static void merge_parts(merge *m)
{
    lt_tridiagonal *t = m->t;
    lt_sort_rows(t->value, m->begin, m->n, t->order);
    find_update(m);
    deflate(m);
    const float *other = pack_rows(m);
    solve_kept(m);
    const int64_t rows = m->left + m->both;
    multiply_half(m, t->packed, 0, rows, 0, m->first);
    multiply_half(m, t->packed + rows * m->first, m->left, m->kept - m->left, m->first,
                  m->n - m->first);
    for (int64_t k = 0; k < m->n - m->kept; k++) {
        const int64_t row = m->begin + m->kept + k;
        memcpy(row_of(m, row), other + k * m->n, (size_t)m->n * sizeof *other);
        t->value[row] = m->unchanged[k];
    }
}

/* --- The tree of parts --- */

/* Subtracts the rank-one updates at a part's ends and solves it by QL. */
static bool solve_leaf(lt_tridiagonal *t, int64_t begin, int64_t end)
{
    const int64_t n = end - begin, rows = t->tridiagonal_rows;
    double e[LEAF], z[LEAF * LEAF] = {0}, *d = t->value + begin;
    for (int64_t i = 0; i < n; i++) {
        d[i] = (double)t->diagonal[begin + i];
        e[i] = begin + i + 1 < rows ? (double)t->off_diagonal[begin + i] : 0;
        z[i * (n + 1)] = 1;
    }
    if (begin > 0)
        d[0] -= fabs((double)t->off_diagonal[begin - 1]);
    if (end < rows)
        d[n - 1] -= fabs((double)t->off_diagonal[end - 1]);
    if (!lt_tridiagonal_ql(d, e, n, z))
        return false;
    for (int64_t i = 0; i < n * n; i++)
        t->z[(begin + i / n) * t->step + begin + i % n] = (float)z[i];
    return true;
}

/* Divides t->work: memory for products, then less than a block of reflectors takes. */
static merge open_merge(lt_tridiagonal *t)
{
    merge m = {.t = t, .products = t->work};
    m.z = (double *)(void *)(t->work + lt_cpu_multiply_workspace());
    m.pole = m.z + t->size;
    m.weight = m.pole + t->size;
    m.distance = m.weight + t->size;
    m.unchanged = m.distance + t->size;
    m.row = (int64_t *)(void *)(m.unchanged + t->size);
    m.place = m.row + t->size;
    m.halves = (uint8_t *)(m.place + t->size);
    return m;
}

bool lt_tridiagonal_solve(lt_tridiagonal *t)
{
    const int64_t n = t->tridiagonal_rows;
    int64_t leaves = 1;
    merge m = open_merge(t);
    memset(t->z, 0, (size_t)(t->size * t->step) * sizeof *t->z);
    while (leaves * LEAF < n)
        leaves *= 2;
    for (int64_t i = 0; i < leaves; i++)
        if (!solve_leaf(t, n * i / leaves, n * (i + 1) / leaves))
            return false;
    for (int64_t wide = 1; wide < leaves; wide *= 2)
        for (int64_t i = 0; i < leaves; i += 2 * wide) {
            m.begin = n * i / leaves;
            m.first = n * (i + wide) / leaves - m.begin;
            m.n = n * (i + 2 * wide) / leaves - m.begin;
            merge_parts(&m);
        }
    for (int64_t i = n; i < t->n; i++) {
        t->value[i] = (double)t->diagonal[i];
        t->z[i * (t->step + 1)] = 1;
    }
    lt_sort_rows(t->value, 0, t->n, t->order);
    return true;
}
