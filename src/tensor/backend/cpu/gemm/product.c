/* Matrix products in f32 from packed panels, for Shampoo's contractions and the eigendecomposition. Tasks split rows
 * and columns, never a sum: results do not depend on the number of threads. Only the upper half of a symmetric result
 * is computed. Kernels: kernels/gemm.h. */

#include "product.h"

#include "base/parallel.h"

#include <stdlib.h>

/* A task packs 256 KiB of a and 512 KiB of b at a time, for the L2 cache; a panel of b takes half of L1. */
enum { ROWS = 256, COLS = 512, DEPTH = 256, PANEL = 16, LARGEST_TILE = 16 * 64 };
enum { PACKED = (ROWS + COLS) * DEPTH };

/* Tasks per thread, for load balance. A task of more rows reuses packed b more. */
enum { TASKS_PER_THREAD = 4, MAX_TASK_ROWS = 8192 };

typedef struct task {
    size_t product;
    int64_t row, end, col; /* rows from row to end */
    int64_t cost;          /* computed elements of y times steps */
} task;

typedef struct pass {
    const lt_cpu_kernels *kernels;
    const lt_product *product;
    const task *task;
    float *packed; /* [threads][PACKED] */
} pass;

/* Writes the offsets of `count` indices from `begin` on. */
static void fill_offsets(const lt_axis *x, int64_t begin, int64_t count, int64_t *out)
{
    int64_t at[LT_MAX_DIMS] = {0}, offset = 0;
    for (int d = x->dims - 1, i = 0; d >= 0; d--, i++) {
        at[d] = begin % x->count[d];
        offset += at[d] * x->stride[d];
        begin /= x->count[d];
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = offset;
        for (int d = x->dims - 1; d >= 0; d--) {
            offset += x->stride[d];
            if (++at[d] < x->count[d])
                break;
            at[d] = 0;
            offset -= x->count[d] * x->stride[d];
        }
    }
}

/* --- One task --- */

/* The part of a product that a task computes, and the offsets of its rows and columns in y. */
typedef struct part {
    const pass *pass;
    const lt_product *p;
    int64_t row, rows, col, cols;
    int64_t in_row[ROWS], in_col[COLS];
    bool rows_even[ROWS];             /* per tile, at its first row: rows at equal distances */
    bool cols_adjacent[COLS / PANEL]; /* per tile, at its first panel */
} part;

static void pack_operand(const lt_cpu_kernels *k, const lt_operand *x, const int64_t range[2],
                         const int64_t depth[2], float *to)
{
    int64_t lane[COLS], step[DEPTH];
    const lt_panel panel = {.data = x->data,
                            .lane = lane,
                            .step = step,
                            .lanes = (int)(range[1] - range[0]),
                            .depth = depth[1] - depth[0]};
    fill_offsets(&x->lane, range[0], panel.lanes, lane);
    fill_offsets(&x->step, depth[0], panel.depth, step);
    k->gemm_pack(&panel, to);
}

/* Adds a tile to y where its columns are strided or its rows unevenly spaced. */
static void scatter_tile(const part *t, const lt_tile_save *save, const float *tile, int64_t i,
                         int64_t j)
{
    for (int r = 0; r < save->rows; r++)
        for (int c = 0; c < save->cols; c++) {
            float *y = t->p->y + t->in_row[i + r] + t->in_col[j + c];
            const float fresh = save->alpha * tile[r * t->pass->kernels->tile_cols + c];
            *y = save->beta == 0 ? fresh : save->beta * *y + fresh;
        }
}

static bool are_rows_evenly_spaced(const part *t, int64_t i, int64_t rows)
{
    const int64_t *at = t->in_row + i;
    for (int64_t r = 2; r < rows; r++)
        if (at[r] - at[r - 1] != at[1] - at[0])
            return false;
    return true;
}

/* Computes the tile of y at row i and column j. */
static void multiply_tile(const part *t, int64_t i, int64_t j, const float *a, const float *b,
                          int64_t depth, float beta)
{
    const lt_cpu_kernels *k = t->pass->kernels;
    const int rows = t->rows - i < k->tile_rows ? (int)(t->rows - i) : k->tile_rows;
    const int cols = t->cols - j < k->tile_cols ? (int)(t->cols - j) : k->tile_cols;
    lt_tile_save save = {t->p->alpha, beta, rows, cols, 0, (int)(i % PANEL)};
    if (t->cols_adjacent[j / PANEL] && t->rows_even[i]) {
        save.step = rows > 1 ? t->in_row[i + 1] - t->in_row[i] : 0;
        k->gemm_tile(a, b, depth, &save, t->p->y + t->in_row[i] + t->in_col[j]);
        return;
    }
    float tile[LARGEST_TILE] __attribute__((aligned(64)));
    const lt_tile_save keep = {1, 0, rows, cols, k->tile_cols, save.lane};
    k->gemm_tile(a, b, depth, &keep, tile);
    scatter_tile(t, &save, tile, i, j);
}

/* Computes all tiles. Tiles on the diagonal are computed whole: only this task writes below the diagonal there, as
 * rows and columns of a tile are in one task's range. */
static void multiply_packed(const part *t, const float *a, const float *b, int64_t depth,
                            bool first)
{
    const lt_cpu_kernels *k = t->pass->kernels;
    const float beta = first ? t->p->beta : 1;
    for (int64_t j = 0; j < t->cols; j += k->tile_cols)
        for (int64_t i = 0; i < t->rows; i += k->tile_rows) {
            if (t->p->symmetric && t->col + j + k->tile_cols <= t->row + i)
                continue; /* below the diagonal */
            multiply_tile(t, i, j, a + i / PANEL * PANEL * depth + i % PANEL, b + j * depth, depth,
                          beta);
        }
}

/* Copies the upper half of a symmetric result to its lower half. */
static void mirror_into_lower_half(const part *t)
{
    enum { STRIP = 16 };
    const int64_t n = t->p->rows, end = t->col + t->cols;
    float *y = t->p->y;
    for (int64_t i = t->row; i < t->row + t->rows; i += STRIP) {
        const int64_t high = t->row + t->rows - i < STRIP ? t->row + t->rows - i : STRIP;
        const int64_t from =
            i + high > t->col ? i + high : t->col; /* first column past the strip */
        for (int64_t r = i; r < i + high; r++)
            for (int64_t c = r + 1 > t->col ? r + 1 : t->col; c < from && c < end; c++)
                y[c * n + r] = y[r * n + c];
        if (from < end)
            t->pass->kernels->transpose_block(y + i * n + from, n, high, end - from,
                                              y + from * n + i, n);
    }
}

/* Computes rows [row, row + rows) of a part whose b is packed; reuses packed b for a if they are one operand. */
static void multiply_rows(part *t, const int64_t depth[2], float *a, const float *b)
{
    const int64_t rows[] = {t->row, t->row + t->rows}, steps = depth[1] - depth[0];
    const bool packed = t->p->symmetric && t->p->a.data == t->p->b.data && t->row >= t->col;
    if (!packed)
        pack_operand(t->pass->kernels, &t->p->a, rows, depth, a);
    multiply_packed(t, packed ? b + (t->row - t->col) * steps : a, b, steps, depth[0] == 0);
}

/* Sets the part's rows, at most ROWS from `row` on, and finds their offsets and whether they are evenly spaced. */
static void set_row_range(part *t, int64_t row, int64_t end)
{
    const int step = t->pass->kernels->tile_rows;
    t->row = row;
    t->rows = end - row < ROWS ? end - row : ROWS;
    fill_offsets(&t->p->row, t->row, t->rows, t->in_row);
    for (int64_t i = 0; i < t->rows; i += step)
        t->rows_even[i] = are_rows_evenly_spaced(t, i, t->rows - i < step ? t->rows - i : step);
}

static void find_column_offsets(part *t)
{
    const int step = t->pass->kernels->tile_cols;
    fill_offsets(&t->p->col, t->col, t->cols, t->in_col);
    for (int64_t j = 0; j < t->cols; j += step) {
        bool *adjacent = &t->cols_adjacent[j / PANEL];
        *adjacent = true;
        for (int64_t c = j + 1; c < j + step && c < t->cols; c++)
            *adjacent = *adjacent && t->in_col[c] == t->in_col[c - 1] + 1;
    }
}

static void run_task(const pass *all, const task *what, float *a)
{
    const lt_product *p = &all->product[what->product];
    part t = {.pass = all, .p = p, .col = what->col};
    t.cols = p->cols - t.col < COLS ? p->cols - t.col : COLS;
    find_column_offsets(&t);

    float *b = a + (size_t)ROWS * DEPTH;
    const int64_t cols[] = {t.col, t.col + t.cols};
    for (int64_t d = 0; d < p->depth; d += DEPTH) {
        const int64_t depth[] = {d, p->depth - d < DEPTH ? p->depth : d + DEPTH};
        pack_operand(all->kernels, &p->b, cols, depth, b);
        for (int64_t row = what->row; row < what->end; row += ROWS) {
            set_row_range(&t, row, what->end);
            multiply_rows(&t, depth, a, b);
        }
    }
    for (int64_t row = what->row; row < what->end && p->symmetric && !p->half; row += ROWS) {
        set_row_range(&t, row, what->end);
        mirror_into_lower_half(&t);
    }
}

static void run_tasks(void *context, int64_t begin, int64_t end)
{
    const pass *all = context;
    for (int64_t i = begin; i < end; i++)
        run_task(all, &all->task[i], all->packed + (size_t)lt_parallel_index() * PACKED);
}

/* --- Lists of products --- */

/* Returns the rows to compute: up to the diagonal's tile if the result is symmetric. */
static int64_t rows_to_compute(const lt_product *p, int64_t col)
{
    return p->symmetric && col + COLS < p->rows ? col + COLS : p->rows;
}

static int64_t task_cost(const lt_product *p, const task *t)
{
    const int64_t cols = p->cols - t->col < COLS ? p->cols - t->col : COLS;
    const int64_t first = t->row > t->col ? t->row : t->col; /* first row on the diagonal */
    int64_t elements = (t->end - t->row) * cols;
    if (p->symmetric && t->end > first)
        elements -= (t->end - first) * (t->end + first - 2 * t->col) / 2;
    return elements * p->depth;
}

/* Splits products into tasks of at most `most` rows; only counts them if out is NULL. */
static int64_t split_tasks(const lt_product *p, size_t count, int64_t most, task *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < count; i++)
        for (int64_t col = 0; col < p[i].cols; col += COLS) {
            const int64_t rows = rows_to_compute(&p[i], col);
            for (int64_t row = 0; row < rows; row += most, n++)
                if (out) {
                    out[n] = (task){i, row, row + most < rows ? row + most : rows, col, 0};
                    out[n].cost = task_cost(&p[i], &out[n]);
                }
        }
    return n;
}

/* Returns the rows of a task. The split may depend on the number of threads, as it changes no sum. */
static int64_t rows_per_task(const lt_product *p, size_t count, size_t threads)
{
    int64_t most = MAX_TASK_ROWS;
    while (most > ROWS && split_tasks(p, count, most, NULL) < (int64_t)(TASKS_PER_THREAD * threads))
        most /= 2;
    return most;
}

/* Orders tasks by falling cost, for load balance at the end. */
static int compare_costs(const void *x, const void *y)
{
    const task *a = x, *b = y;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    if (a->product != b->product)
        return a->product < b->product ? -1 : 1;
    if (a->col != b->col)
        return a->col < b->col ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

lt_status lt_cpu_multiply_list(lt_cpu *cpu, const lt_product *p, size_t count)
{
    const size_t threads = (size_t)lt_parallel_threads();
    const int64_t most = rows_per_task(p, count, threads);
    const int64_t tasks = split_tasks(p, count, most, NULL);
    task *list = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(tasks + 1) * sizeof *list);
    float *packed = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, threads * PACKED * sizeof *packed);
    if (!list || !packed)
        return LT_E_NOMEM;
    split_tasks(p, count, most, list);
    qsort(list, (size_t)tasks, sizeof *list, compare_costs);
    pass all = {cpu->kernels, p, list, packed};
    lt_parallel_range(tasks, 1, run_tasks, &all);
    return LT_OK;
}

int64_t lt_cpu_multiply_workspace(void)
{
    return PACKED;
}

void lt_cpu_multiply_serial(const lt_cpu_kernels *kernels, const lt_product *p, float *work)
{
    const pass all = {.kernels = kernels, .product = p};
    for (int64_t col = 0; col < p->cols; col += COLS)
        run_task(&all, &(task){0, 0, rows_to_compute(p, col), col, 0}, work);
}
