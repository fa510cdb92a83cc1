/* Householder reduction of a symmetric matrix to tridiagonal form, and products with its reflectors. A panel of
 * columns is reduced at a time, then the trailing matrix is updated by one product: Dongarra, Sorensen & Hammarling,
 * "Block reduction of matrices to condensed forms for eigenvalue computations", J. Comput. Appl. Math. 27, 1989.
 *
 * A matrix of rank r is reduced after r columns, as the Krylov space of the first unit vector has no more dimensions:
 * the trailing matrix then differs from a diagonal one by rounding errors, and is treated as diagonal. */

#include "tridiagonal.h"

#include "reflectors.h"
#include "tensor/backend/cpu/gemm/product.h"

#include <string.h>

enum {
    PANEL = LT_CPU_REDUCE_BLOCK,
    BLOCK = LT_CPU_REFLECTOR_BLOCK,
};

/* Relative to the Frobenius norm: about the rounding errors of a reduction in f32. */
static const double negligible = 0x1p-22;
/* Workspace: 3 PANEL rows for a panel and memory for products; a block of reflectors takes more. */
int64_t lt_tridiagonal_workspace_size(int64_t size)
{
    return lt_reflectors_workspace_size(size);
}

/* --- Reduction --- */

/* A panel: columns [begin, end). rows: V, W and V again, so that A - V W^T - W V^T is one product. */
typedef struct panel {
    lt_tridiagonal *t;
    int64_t begin, end;
    float *rows;
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
    const lt_tridiagonal *t = p->t;
    float *row = t->a + j * t->step;
    t->diagonal[j] = row[j];
    t->off_diagonal[j] = lt_reflectors_make(t->kernels, row, j + 1, t->n, t->size, v, &t->scale[j]);
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
    const lt_axis lane = lt_axis_1d(rest, 1), step = lt_axis_1d(2 * (int64_t)PANEL, t->step);
    const lt_product all = {.a = {panel_v_row(p, 0) + p->end, lane, step},
                            .b = {panel_w_row(p, 0) + p->end, lane, step},
                            .y = t->a + p->end * (t->step + 1),
                            .row = lt_axis_1d(rest, t->step),
                            .col = lane,
                            .rows = rest,
                            .cols = rest,
                            .depth = 2 * (int64_t)PANEL,
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

void lt_tridiagonal_apply_q(const lt_tridiagonal *t)
{
    const lt_reflectors all = {.kernels = t->kernels,
                               .n = t->n,
                               .size = t->size,
                               .step = t->step,
                               .offset = 1,
                               .a = t->a,
                               .scale = t->scale,
                               .work = t->work};
    for (int64_t end = t->reflectors; end > 0;) {
        const int64_t begin = (end - 1) / BLOCK * BLOCK;
        lt_reflectors_apply(&all, begin, end, true, t->z, t->n);
        end = begin;
    }
}
