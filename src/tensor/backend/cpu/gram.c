/* Contractions of Shampoo in f32: gram and mode products as matrix products of operands that are
 * read where they lie, whatever their strides. Products are cut into tasks by size alone, and a
 * task's sums have one order: the same bits for any number of threads. Of a gram matrix only the
 * upper half is computed. Formulas: ext/matrix_kernels.h; kernels: kernels/gemm.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include <string.h>

/* A task packs 256 KiB of a and 512 KiB of b at a time, for the second cache; a panel of b then
 * takes half of the first. */
enum { ROWS = 256, COLS = 512, DEPTH = 256, LARGEST_TILE = 16 * 64 };

/* An index that runs through several dimensions, the last one fastest, to an offset. */
typedef struct axis {
    int dims;
    int64_t count[LT_MAX_DIMS], stride[LT_MAX_DIMS];
} axis;

typedef struct operand {
    const float *data;
    axis lane, step; /* step: along the contraction */
} operand;

/* y [rows, cols] = beta * y + alpha * (a b). */
typedef struct product {
    operand a, b;
    float *y;
    axis row, col; /* of y; as a's and b's lanes */
    int64_t rows, cols, depth;
    float alpha, beta;
    bool symmetric; /* b is a, y is its square: compute j >= i */
} product;

typedef struct task {
    size_t product;
    int64_t row, col;
} task;

typedef struct pass {
    const lt_cpu_kernels *kernels;
    const product *product;
    const task *task;
    float *packed; /* workspace for a and b, for each thread */
} pass;

/* Offsets of `count` indices from begin on; true if they rise by 1. */
static bool fill_offsets(const axis *x, int64_t begin, int64_t count, int64_t *out)
{
    int64_t at[LT_MAX_DIMS] = {0}, offset = 0;
    for (int d = x->dims - 1, i = 0; d >= 0; d--, i++) {
        at[d] = begin % x->count[d];
        offset += at[d] * x->stride[d];
        begin /= x->count[d];
    }
    bool adjacent = true;
    for (int64_t i = 0; i < count; i++) {
        out[i] = offset;
        adjacent = adjacent && offset == out[0] + i;
        for (int d = x->dims - 1; d >= 0; d--) {
            offset += x->stride[d];
            if (++at[d] < x->count[d])
                break;
            at[d] = 0;
            offset -= x->count[d] * x->stride[d];
        }
    }
    return adjacent;
}

static axis line(int64_t count, int64_t stride)
{
    return (axis){.dims = 1, .count = {count}, .stride = {stride}};
}

/* All dimensions of y but dim as one axis, in the order of their strides in y, and the same
 * elements of g. Neighbours become one dimension where both strides allow it. */
static void other_axes(const lt_view *y, const lt_view *g, int dim, axis *of_y, axis *of_g)
{
    int order[LT_MAX_DIMS], n = 0;
    for (int d = 0; d < y->shape.ndim; d++) {
        if (d == dim || y->shape.dim[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    *of_y = *of_g = line(1, 1);
    for (int i = 0; i < n; i++) {
        const int64_t count = y->shape.dim[order[i]];
        const int64_t in_y = y->stride[order[i]], in_g = g->stride[order[i]];
        int last = of_y->dims - 1;
        const bool joins =
            i == 0 || (of_y->stride[last] == in_y * count && of_g->stride[last] == in_g * count);
        if (!joins)
            last++;
        of_y->dims = of_g->dims = last + 1;
        of_y->count[last] = of_g->count[last] = (joins ? of_y->count[last] : 1) * count;
        of_y->stride[last] = in_y;
        of_g->stride[last] = in_g;
    }
}

static product gram_product(const lt_gram_job *job)
{
    const int64_t n = job->g.shape.dim[job->dim];
    axis rest, same;
    other_axes(&job->g, &job->g, job->dim, &rest, &same);
    const operand g = {job->g.data, line(n, job->g.stride[job->dim]), rest};
    return (product){.a = g,
                     .b = g,
                     .y = job->f.data,
                     .row = line(n, n),
                     .col = line(n, 1),
                     .rows = n,
                     .cols = n,
                     .depth = lt_cpu_count(&job->g) / n,
                     .alpha = (float)job->alpha,
                     .beta = (float)job->beta,
                     .symmetric = true};
}

/* The dimension of y that is dense becomes its columns. */
static product mode_product(const lt_mode_product_job *job)
{
    const int64_t n = job->y.shape.dim[job->dim], rest = lt_cpu_count(&job->y) / n;
    axis in_y, in_g;
    other_axes(&job->y, &job->g, job->dim, &in_y, &in_g);
    const axis along_y = line(n, job->y.stride[job->dim]);
    const axis along_g = line(n, job->g.stride[job->dim]);
    const operand g = {job->g.data, in_g, along_g};
    const operand m = {job->m.data, line(n, job->transpose ? 1 : n),
                       line(n, job->transpose ? n : 1)};
    const bool across = rest == 1 || in_y.stride[in_y.dims - 1] != 1;
    return (product){.a = across ? g : m,
                     .b = across ? m : g,
                     .y = job->y.data,
                     .row = across ? in_y : along_y,
                     .col = across ? along_y : in_y,
                     .rows = across ? rest : n,
                     .cols = across ? n : rest,
                     .depth = n,
                     .alpha = 1};
}

/* --- One task --- */

/* The part of a product that a task does, and where its rows and columns are in y. */
typedef struct part {
    const pass *pass;
    const product *p;
    int64_t row, rows, col, cols;
    int64_t in_row[ROWS], in_col[COLS];
    bool cols_adjacent;
} part;

static void pack_operand(const lt_cpu_kernels *k, const operand *x, const int64_t range[2],
                         const int64_t depth[2], int width, float *to)
{
    int64_t lane[COLS], step[DEPTH];
    lt_panel panel = {.data = x->data,
                      .lane = lane,
                      .step = step,
                      .lanes = (int)(range[1] - range[0]),
                      .width = width,
                      .depth = depth[1] - depth[0]};
    panel.lanes_adjacent = fill_offsets(&x->lane, range[0], panel.lanes, lane);
    panel.steps_adjacent = fill_offsets(&x->step, depth[0], panel.depth, step);
    k->gemm_pack(&panel, to);
}

/* Columns that are apart, or rows at uneven distances. */
static void scatter(const part *t, const lt_tile_save *save, const float *tile, int64_t i,
                    int64_t j)
{
    for (int r = 0; r < save->rows; r++)
        for (int c = 0; c < save->cols; c++) {
            float *y = t->p->y + t->in_row[i + r] + t->in_col[j + c];
            const float fresh = save->alpha * tile[r * t->pass->kernels->tile_cols + c];
            *y = save->beta == 0 ? fresh : save->beta * *y + fresh;
        }
}

static bool rows_are_even(const part *t, int64_t i, int64_t rows)
{
    const int64_t *at = t->in_row + i;
    for (int64_t r = 2; r < rows; r++)
        if (at[r] - at[r - 1] != at[1] - at[0])
            return false;
    return true;
}

static void multiply_tile(const part *t, const float *a, const float *b, int64_t depth,
                          lt_tile_save save)
{
    const lt_cpu_kernels *k = t->pass->kernels;
    const int64_t i = save.rows, j = save.cols; /* in: where the tile begins */
    save.rows = t->rows - i < k->tile_rows ? (int)(t->rows - i) : k->tile_rows;
    save.cols = t->cols - j < k->tile_cols ? (int)(t->cols - j) : k->tile_cols;
    if (t->cols_adjacent && rows_are_even(t, i, save.rows)) {
        save.step = save.rows > 1 ? t->in_row[i + 1] - t->in_row[i] : 0;
        k->gemm_tile(a, b, depth, &save, t->p->y + t->in_row[i] + t->in_col[j]);
        return;
    }
    float tile[LARGEST_TILE] __attribute__((aligned(64)));
    const lt_tile_save keep = {1, 0, save.rows, save.cols, k->tile_cols};
    k->gemm_tile(a, b, depth, &keep, tile);
    scatter(t, &save, tile, i, j);
}

/* Tiles on the diagonal are computed as a whole: below it only this task writes there, because
 * rows and columns of one tile are in one task's range. */
static void multiply_packed(const part *t, const float *a, const float *b, int64_t depth,
                            bool first)
{
    const lt_cpu_kernels *k = t->pass->kernels;
    lt_tile_save save = {.alpha = t->p->alpha, .beta = first ? t->p->beta : 1};
    for (int64_t j = 0; j < t->cols; j += k->tile_cols)
        for (int64_t i = 0; i < t->rows; i += k->tile_rows) {
            if (t->p->symmetric && t->col + j + k->tile_cols <= t->row + i)
                continue; /* below the diagonal */
            save.rows = (int)i;
            save.cols = (int)j;
            multiply_tile(t, a + i * depth, b + j * depth, depth, save);
        }
}

/* The half of a symmetric result that was not computed. */
static void mirror(const part *t)
{
    enum { STRIP = 16 };
    const int64_t n = t->p->rows, end = t->col + t->cols;
    float *y = t->p->y;
    for (int64_t i = t->row; i < t->row + t->rows; i += STRIP) {
        const int64_t high = t->row + t->rows - i < STRIP ? t->row + t->rows - i : STRIP;
        const int64_t from = i + high > t->col ? i + high : t->col; /* the first column behind */
        for (int64_t r = i; r < i + high; r++)
            for (int64_t c = r + 1 > t->col ? r + 1 : t->col; c < from && c < end; c++)
                y[c * n + r] = y[r * n + c];
        if (from < end)
            t->pass->kernels->transpose_block(y + i * n + from, n, high, end - from,
                                              y + from * n + i, n);
    }
}

static void run_task(const pass *all, const task *what)
{
    const lt_cpu_kernels *k = all->kernels;
    const product *p = &all->product[what->product];
    part t = {.pass = all, .p = p, .row = what->row, .col = what->col};
    t.rows = p->rows - t.row < ROWS ? p->rows - t.row : ROWS;
    t.cols = p->cols - t.col < COLS ? p->cols - t.col : COLS;
    fill_offsets(&p->row, t.row, t.rows, t.in_row);
    t.cols_adjacent = fill_offsets(&p->col, t.col, t.cols, t.in_col);

    float *a = all->packed + (size_t)lt_parallel_index() * (ROWS + COLS) * DEPTH;
    float *b = a + (size_t)ROWS * DEPTH;
    const int64_t rows[] = {t.row, t.row + t.rows}, cols[] = {t.col, t.col + t.cols};
    for (int64_t d = 0; d < p->depth; d += DEPTH) {
        const int64_t depth[] = {d, p->depth - d < DEPTH ? p->depth : d + DEPTH};
        pack_operand(k, &p->a, rows, depth, k->tile_rows, a);
        pack_operand(k, &p->b, cols, depth, k->tile_cols, b);
        multiply_packed(&t, a, b, depth[1] - d, d == 0);
    }
    if (p->symmetric)
        mirror(&t);
}

static void run_tasks(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const pass *all = context;
    for (int64_t i = begin; i < end; i++)
        run_task(all, &all->task[i]);
}

/* --- Lists of jobs --- */

/* Cuts products into tasks; with out NULL only counts them. */
static int64_t cut(const product *p, size_t count, task *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < count; i++)
        for (int64_t row = 0; row < p[i].rows; row += ROWS)
            for (int64_t col = 0; col < p[i].cols; col += COLS) {
                if (p[i].symmetric && col + COLS <= row)
                    continue;
                if (out)
                    out[n] = (task){i, row, col};
                n++;
            }
    return n;
}

static lt_status run(lt_cpu *cpu, const product *p, size_t count)
{
    const int64_t tasks = cut(p, count, NULL);
    const size_t threads = (size_t)lt_parallel_threads();
    task *list = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(tasks + 1) * sizeof *list);
    float *packed =
        lt_cpu_scratch(cpu, LT_CPU_PREPACKED, threads * (ROWS + COLS) * DEPTH * sizeof *packed);
    if (!list || !packed)
        return LT_E_NOMEM;
    cut(p, count, list);
    pass all = {cpu->kernels, p, list, packed};
    lt_parallel(tasks, 1, run_tasks, &all);
    return LT_OK;
}

static bool all_f32(const lt_view *x, const lt_view *y, const lt_view *z)
{
    return x->dtype == LT_F32 && y->dtype == LT_F32 && z->dtype == LT_F32;
}

/* Appends job i of a list as a product, or does it at once if its dtypes are not ours. */
typedef lt_status add_fn(void *ctx, const void *jobs, size_t i, product *list, size_t *fast);

static lt_status add_gram(void *ctx, const void *jobs, size_t i, product *list, size_t *fast)
{
    const lt_gram_job *job = (const lt_gram_job *)jobs + i;
    if (!all_f32(&job->g, &job->f, &job->f))
        return lt_backend_ref()->gram(ctx, job, 1, NULL);
    list[(*fast)++] = gram_product(job);
    return LT_OK;
}

static lt_status add_product(void *ctx, const void *jobs, size_t i, product *list, size_t *fast)
{
    const lt_mode_product_job *job = (const lt_mode_product_job *)jobs + i;
    if (!all_f32(&job->g, &job->y, &job->m))
        return lt_backend_ref()->mode_product(ctx, job, 1, NULL);
    list[(*fast)++] = mode_product(job);
    return LT_OK;
}

static lt_status run_jobs(void *ctx, const void *jobs, size_t count, add_fn *add)
{
    product *list = lt_alloc(count, sizeof *list);
    lt_status st = list ? LT_OK : LT_E_NOMEM;
    size_t fast = 0;
    for (size_t i = 0; i < count && !st; i++)
        st = add(ctx, jobs, i, list, &fast);
    if (!st)
        st = run(ctx, list, fast);
    lt_free(list);
    return st;
}

lt_status lt_cpu_gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    return scalars && !scalars->finite ? LT_OK : run_jobs(ctx, job, count, add_gram);
}

lt_status lt_cpu_mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    return scalars && !scalars->finite ? LT_OK : run_jobs(ctx, job, count, add_product);
}
