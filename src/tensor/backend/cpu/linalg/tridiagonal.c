/* Householder reduction of a symmetric matrix to tridiagonal form, and products with its reflectors. A panel of
 * columns is reduced at a time, then the trailing matrix is updated by one product: Dongarra, Sorensen & Hammarling,
 * "Block reduction of matrices to condensed forms for eigenvalue computations", J. Comput. Appl. Math. 27, 1989.
 * Reflectors are applied in blocks I - V T V^T: Schreiber & Van Loan, "A storage-efficient WY representation for
 * products of Householder transformations", SIAM J. Sci. Stat. Comput. 10, 1989.
 *
 * A matrix of rank r is reduced after r columns, as the Krylov space of the first unit vector has no more dimensions:
 * the trailing matrix then differs from a diagonal one by rounding errors, and is treated as diagonal. */

#include "tridiagonal.h"

#include "tensor/backend/cpu/gemm/product.h"

#include <math.h>
#include <string.h>

enum {
    PANEL = LT_CPU_REDUCE_BLOCK,
    BLOCK = 2 * PANEL, /* reflectors applied together */
};

/* Relative to the Frobenius norm: about the rounding errors of a reduction in f32. */
static const double negligible = 0x1p-22;
/* Column norm treated as 0, where the largest element is about 1; its square underflows in f32. */
static const double nothing = 1e-30;

/* Workspace: 3 PANEL rows and a vector for a panel, or 2 BLOCK rows and 3 matrices for reflectors; and for products. */
int64_t lt_tridiagonal_workspace_size(int64_t size)
{
    return (3 * PANEL + 1 + 2 * BLOCK) * (size + 16) + 3 * BLOCK * BLOCK
           + lt_cpu_multiply_workspace();
}

/* --- Reduction --- */

/* A panel: columns [begin, end). rows: V, W and V again, so that A - V W^T - W V^T is one product. */
typedef struct panel {
    lt_tridiagonal *t;
    int64_t begin, end;
    float *rows, *x;
    float *products;
} panel;

static float *panel_v_row(const panel *p, int64_t i)
{
    return p->rows + i * p->t->step;
}

static float *panel_w_row(const panel *p, int64_t i)
{
    return panel_v_row(p, PANEL + i);
}

/* Subtracts the updates of the panel's columns before j from row j of the matrix. */
static void update_row(const panel *p, int64_t j)
{
    const lt_tridiagonal *t = p->t;
    const int64_t i = j - p->begin, from = p->begin;
    float in_v[PANEL], in_w[PANEL], *row = t->a + j * t->step;
    for (int64_t k = 0; k < i; k++) {
        in_v[k] = panel_v_row(p, k)[j];
        in_w[k] = panel_w_row(p, k)[j];
    }
    t->kernels->rows_subtract(panel_w_row(p, 0) + from, t->step, i, t->size - from, in_v,
                              row + from);
    t->kernels->rows_subtract(panel_v_row(p, 0) + from, t->step, i, t->size - from, in_w,
                              row + from);
}

/* Computes the reflector v of row j: v[j + 1] = 1, zeros before. */
static void make_reflector(const panel *p, int64_t j, float *v)
{
    lt_tridiagonal *t = p->t;
    float *row = t->a + j * t->step;
    const int64_t rest = t->size - j - 2;
    const double first = (double)row[j + 1];
    const double square = rest > 0 ? t->kernels->square_sum(row + j + 2, 1, rest) : 0;
    t->diagonal[j] = row[j];
    memset(v, 0, (size_t)t->size * sizeof *v);
    v[j + 1] = 1;
    t->off_diagonal[j] = row[j + 1];
    t->scale[j] = 0;
    if (square > nothing * nothing) {
        const double norm = sqrt(first * first + square), to = first > 0 ? -norm : norm;
        const double factor = 1 / (first - to);
        for (int64_t c = j + 2; c < t->n; c++)
            v[c] = (float)((double)row[c] * factor);
        t->off_diagonal[j] = (float)to;
        t->scale[j] = (float)((to - first) / to);
    }
    memcpy(row + j + 1, v + j + 1, (size_t)(t->size - j - 1) * sizeof *row);
}

/* Computes w = scale * (A - V W^T - W V^T) v minus its component along v, with the panel's columns before j. */
static void compute_w(const panel *p, int64_t j, const float *v, float *w)
{
    const lt_tridiagonal *t = p->t;
    const int64_t i = j - p->begin, from = p->begin, count = t->size - from;
    float along_v[PANEL], along_w[PANEL], dot;
    t->kernels->symmetric_product(t->a + from * (t->step + 1), t->step, count, v + from, w + from);
    t->kernels->rows_dot(panel_v_row(p, 0) + from, t->step, i, count, v + from, along_v);
    t->kernels->rows_dot(panel_w_row(p, 0) + from, t->step, i, count, v + from, along_w);
    t->kernels->rows_subtract(panel_v_row(p, 0) + from, t->step, i, count, along_w, w + from);
    t->kernels->rows_subtract(panel_w_row(p, 0) + from, t->step, i, count, along_v, w + from);
    memset(w, 0, (size_t)(j + 1) * sizeof *w);
    t->kernels->rows_dot(v + from, t->step, 1, count, w + from, &dot);
    const float scale = t->scale[j], half = 0.5F * scale * scale * dot;
    for (int64_t c = j + 1; c < t->n; c++)
        w[c] = scale * w[c] - half * v[c];
}

static void reduce_panel(const panel *p)
{
    const lt_tridiagonal *t = p->t;
    for (int64_t j = p->begin; j < p->end; j++) {
        const int64_t i = j - p->begin;
        update_row(p, j);
        if (j + 1 >= t->n) {
            t->diagonal[j] = t->a[j * (t->step + 1)];
            return;
        }
        make_reflector(p, j, panel_v_row(p, i));
        compute_w(p, j, panel_v_row(p, i), panel_w_row(p, i));
    }
}

/* A -= V W^T + W V^T after the panel, in the upper half and in the tiles on the diagonal. */
static void update_trailing(const panel *p)
{
    const lt_tridiagonal *t = p->t;
    const int64_t rest = t->size - p->end;
    memcpy(panel_v_row(p, 2 * (int64_t)PANEL), panel_v_row(p, 0),
           (size_t)(PANEL * t->step) * sizeof *p->rows);
    const lt_axis lane = lt_axis_1d(rest, 1), step = lt_axis_1d(2 * PANEL, t->step);
    const lt_product all = {.a = {panel_v_row(p, 0) + p->end, lane, step},
                            .b = {panel_w_row(p, 0) + p->end, lane, step},
                            .y = t->a + p->end * (t->step + 1),
                            .row = lt_axis_1d(rest, t->step),
                            .col = lane,
                            .rows = rest,
                            .cols = rest,
                            .depth = 2 * PANEL,
                            .alpha = -1,
                            .beta = 1,
                            .symmetric = true,
                            .half = true};
    lt_cpu_multiply_serial(t->kernels, &all, p->products);
}

/* Returns the sum of squares above the diagonal from row i on. */
static double off_diagonal_squares(const lt_tridiagonal *t, int64_t i)
{
    double sum = 0;
    for (; i + 1 < t->n; i++)
        sum += t->kernels->square_sum(t->a + i * (t->step + 1) + 1, 1, t->n - i - 1);
    return sum;
}

static double frobenius_norm_squared(const lt_tridiagonal *t)
{
    double sum = 2 * off_diagonal_squares(t, 0);
    for (int64_t i = 0; i < t->n; i++)
        sum += (double)t->a[i * (t->step + 1)] * (double)t->a[i * (t->step + 1)];
    return sum;
}

void lt_tridiagonal_reduce(lt_tridiagonal *t)
{
    panel p = {.t = t, .rows = t->work};
    p.products = t->work + lt_tridiagonal_workspace_size(t->size) - lt_cpu_multiply_workspace();
    const double least = negligible * negligible * frobenius_norm_squared(t);
    int64_t j = 0;
    while (j < t->n && 2 * off_diagonal_squares(t, j) > least) {
        p.begin = j;
        j = p.end = j + PANEL;
        reduce_panel(&p);
        if (j < t->size)
            update_trailing(&p);
    }
    t->reflectors = j < t->n ? j : t->n;
    t->tridiagonal_rows =
        j < t->n && j > 0 ? j + 1 : t->reflectors; /* off_diagonal[j - 1] couples row j */
    for (; j < t->n; j++)
        t->diagonal[j] = t->a[j * (t->step + 1)];
}

/* --- Products with Q --- */

/* Reflectors [begin, begin + count) as a block I - V T V^T. */
typedef struct block {
    const lt_tridiagonal *t;
    int64_t begin, count;
    float *v, *tv;               /* V^T and T^T V^T: BLOCK rows */
    float *gram, *triangle, *zv; /* V^T V, T, and Z V */
    float *products;
} block;

static void read_reflectors(const block *b)
{
    const lt_tridiagonal *t = b->t;
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t j = b->begin + i;
        float *v = b->v + i * t->step;
        memset(v, 0, (size_t)t->size * sizeof *v);
        if (j + 1 < t->n)
            memcpy(v + j + 1, t->a + j * t->step + j + 1, (size_t)(t->n - j - 1) * sizeof *v);
    }
}

static void multiply_serial(const block *b, lt_product p)
{
    lt_cpu_multiply_serial(b->t->kernels, &p, b->products);
}

/* Computes T: column i is -scale_i T (V^T v_i), with scale_i on the diagonal. */
static void compute_t_factor(const block *b)
{
    const lt_tridiagonal *t = b->t;
    const int64_t n = b->count, from = b->begin, depth = t->size - from;
    const lt_operand rows = {b->v + from, lt_axis_1d(n, t->step), lt_axis_1d(depth, 1)};
    multiply_serial(b, (lt_product){.a = rows,
                                    .b = rows,
                                    .y = b->gram,
                                    .row = lt_axis_1d(n, n),
                                    .col = lt_axis_1d(n, 1),
                                    .rows = n,
                                    .cols = n,
                                    .depth = depth,
                                    .alpha = 1,
                                    .symmetric = true});
    memset(b->triangle, 0, (size_t)(n * n) * sizeof *b->triangle);
    for (int64_t i = 0; i < n; i++) {
        const float scale = from + i + 1 < t->n ? t->scale[from + i] : 0;
        for (int64_t k = 0; k < i; k++) {
            float sum = 0;
            for (int64_t m = k; m < i; m++)
                sum += b->triangle[k * n + m] * b->gram[m * n + i];
            b->triangle[k * n + i] = -scale * sum;
        }
        b->triangle[i * (n + 1)] = scale;
    }
}

/* Z = Z (I - V T^T V^T). */
static void apply_reflector_block(const block *b)
{
    const lt_tridiagonal *t = b->t;
    const int64_t n = b->count, from = b->begin, rest = t->size - from;
    const lt_axis along = lt_axis_1d(rest, 1), blocks = lt_axis_1d(n, t->step);
    multiply_serial(b, (lt_product){.a = {b->triangle, lt_axis_1d(n, 1), lt_axis_1d(n, n)},
                                    .b = {b->v + from, along, blocks},
                                    .y = b->tv + from,
                                    .row = blocks,
                                    .col = along,
                                    .rows = n,
                                    .cols = rest,
                                    .depth = n,
                                    .alpha = 1});
    multiply_serial(b, (lt_product){.a = {t->z + from, lt_axis_1d(t->n, t->step), along},
                                    .b = {b->v + from, blocks, along},
                                    .y = b->zv,
                                    .row = lt_axis_1d(t->n, n),
                                    .col = lt_axis_1d(n, 1),
                                    .rows = t->n,
                                    .cols = n,
                                    .depth = rest,
                                    .alpha = 1});
    multiply_serial(b, (lt_product){.a = {b->zv, lt_axis_1d(t->n, n), lt_axis_1d(n, 1)},
                                    .b = {b->tv + from, along, blocks},
                                    .y = t->z + from,
                                    .row = lt_axis_1d(t->n, t->step),
                                    .col = along,
                                    .rows = t->n,
                                    .cols = rest,
                                    .depth = n,
                                    .alpha = -1,
                                    .beta = 1});
}

void lt_tridiagonal_apply_q(const lt_tridiagonal *t)
{
    block b = {.t = t, .v = t->work};
    b.tv = b.v + BLOCK * t->step;
    b.zv = b.tv + BLOCK * t->step;
    b.gram = b.zv + BLOCK * t->size;
    b.triangle = b.gram + (int64_t)BLOCK * BLOCK;
    b.products = t->work + lt_tridiagonal_workspace_size(t->size) - lt_cpu_multiply_workspace();
    for (int64_t end = t->reflectors; end > 0; end = b.begin) {
        b.begin = (end - 1) / BLOCK * BLOCK;
        b.count = end - b.begin;
        read_reflectors(&b);
        compute_t_factor(&b);
        apply_reflector_block(&b);
    }
}
