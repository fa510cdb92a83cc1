/* Matrix products from packed panels: cutting the work. After Goto & van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication", 2008, and Van Zee & van de Geijn, "BLIS", 2015.
 *
 * Columns are cut into ranges and the contraction into blocks, so that a packed block of b fits the last
 * cache. A task makes some rows of a range of columns: it packs its block of a, for the second cache, and
 * multiplies it with b's panels one by one. Everything is cut by size alone, and blocks of the contraction
 * are added in their order: the same bits for any number of threads. */

#include "gemm.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

enum {
    DEPTH = 1536,      /* steps of a block at most */
    SUM_DEPTH = 768,   /* where y itself holds the sums of the blocks before */
    STEPS = 32,        /* blocks are multiples of it */
    B_BYTES = 4 << 20, /* of a packed block of b, about */
    A_ROWS = 128,      /* of a task */
    LEAST_ROWS = 32,
    TASK_COLS = 768,
    LEAST_COLS = 192,
    TASKS = 16,  /* wanted at least */
    WALK = 1024, /* steps at most that are walked down without packing */
    DOTS = 64,   /* columns of a chunk, where there are few rows */
    PANELS = 4,  /* of b, packed by a thread at a time */
};

typedef struct pass {
    const lt_gemm_unit *unit;
    const lt_gemm_product *p;
    int64_t col, cols;    /* the range of columns */
    int64_t first, steps; /* the block of the contraction */
    int64_t task_rows, task_cols, col_tasks;
    char *b, *a; /* packed: b; a of each thread */
    size_t a_bytes;
    bool as_it_lies; /* a is not packed */
    float *sum;      /* of the blocks before: [rows, sum_step], or NULL where there is one block */
    int64_t sum_step;
} pass;

const lt_gemm_unit *lt_gemm_unit_bf16(lt_cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == LT_ISA_AVX512_BF16)
        return &lt_gemm_bf16;
#endif
    (void)isa;
    return NULL;
}

/* Bytes of a packed panel of this block. */
static int64_t panel_bytes(const pass *all, int width)
{
    const int64_t adds = all->unit->adds;
    return lt_cpu_pieces(all->steps, adds) * adds * width * (int64_t)all->unit->size;
}

/* x from a lane and a step on. */
static lt_gemm_operand part(const lt_gemm_operand *x, int64_t lane, int64_t step)
{
    lt_gemm_operand from = *x;
    const int64_t offset = lane * x->lane + step * x->step;
    from.data = (const char *)x->data + offset * (int64_t)lt_dtype_size(x->dtype);
    return from;
}

static void pack_b(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const pass *all = context;
    const int width = all->unit->cols;
    const int64_t first = begin * width, count = lt_cpu_least(end * width, all->cols) - first;
    const lt_gemm_operand b = part(&all->p->b, all->col + first, all->first);
    all->unit->pack(&b, count, all->steps, width, all->b + begin * panel_bytes(all, width));
}

/* Where a tile at row and col of the product comes from and goes to in this block. */
static lt_gemm_save save_of(const pass *all, int64_t row, int64_t col)
{
    const lt_gemm_product *p = all->p;
    const bool begins = all->first == 0, ends = all->first + all->steps == p->depth;
    float *sum = all->sum ? all->sum + row * all->sum_step + col - all->col : NULL;
    lt_gemm_save s = {.rows = (int)lt_cpu_least(all->unit->rows, p->rows - row),
                      .cols = (int)lt_cpu_least(all->unit->cols, all->col + all->cols - col),
                      .from = begins ? NULL : sum,
                      .from_step = all->sum_step,
                      .to = sum,
                      .to_step = all->sum_step,
                      .dtype = LT_F32};
    if (!ends)
        return s;
    s.to = (char *)p->y + (row * p->y_step + col) * (int64_t)lt_dtype_size(p->y_dtype);
    s.to_step = p->y_step;
    s.dtype = p->y_dtype;
    s.bias = p->bias ? p->bias + col : NULL;
    return s;
}

static void run_task(const pass *all, int64_t row, int64_t col)
{
    const lt_gemm_unit *u = all->unit;
    const int64_t rows = lt_cpu_least(all->task_rows, all->p->rows - row);
    const int64_t end = lt_cpu_least(col + all->task_cols, all->col + all->cols);
    const int64_t panel_a = panel_bytes(all, u->rows), panel_b = panel_bytes(all, u->cols);
    const lt_gemm_operand from = part(&all->p->a, row, all->first);
    char *a = all->a + (size_t)lt_parallel_index() * all->a_bytes;
    if (!all->as_it_lies)
        u->pack(&from, rows, all->steps, u->rows, a);
    for (int64_t j = col; j < end; j += u->cols) {
        const char *b = all->b + (j - all->col) / u->cols * panel_b;
        for (int64_t i = 0; i < rows; i += u->rows) {
            const lt_gemm_save save = save_of(all, row + i, j);
            if (all->as_it_lies)
                u->tile_of_rows(part(&from, i, 0).data, from.lane, b, all->steps, &save);
            else
                u->tile(a + i / u->rows * panel_a, b, all->steps, &save);
        }
    }
}

static void run_tasks(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const pass *all = context;
    for (int64_t i = begin; i < end; i++)
        run_task(all, i / all->col_tasks * all->task_rows,
                 all->col + i % all->col_tasks * all->task_cols);
}

/* A task's share of the range, smaller where that leaves too few tasks. A block of a that is packed is
 * packed by each task that reads it: there, columns are cut last. */
static int64_t cut(pass *all)
{
    const int64_t width = all->unit->cols;
    const int64_t most = all->as_it_lies ? lt_cpu_least(TASK_COLS, all->cols) : all->cols;
    all->task_rows = A_ROWS;
    all->task_cols = lt_cpu_pieces(most, width) * width;
    for (;;) {
        all->col_tasks = lt_cpu_pieces(all->cols, all->task_cols);
        const int64_t tasks = lt_cpu_pieces(all->p->rows, all->task_rows) * all->col_tasks;
        const bool low = all->task_rows <= LEAST_ROWS, narrow = all->task_cols <= LEAST_COLS;
        if (tasks >= TASKS || (low && narrow))
            return tasks;
        if (narrow || (!low && !all->as_it_lies))
            all->task_rows /= 2;
        else
            all->task_cols = lt_cpu_pieces(all->task_cols / 2, width) * width;
    }
}

/* One range of columns: blocks of the contraction in their order. */
static void run_range(pass *all, int64_t block)
{
    for (all->first = 0; all->first < all->p->depth; all->first += block) {
        all->steps = lt_cpu_least(block, all->p->depth - all->first);
        lt_parallel(lt_cpu_pieces(all->cols, all->unit->cols), PANELS, pack_b, all);
        lt_parallel(cut(all), 1, run_tasks, all);
    }
}

/* Memory for packed panels, and for sums where y cannot hold them. */
static lt_status get_memory(lt_cpu *cpu, pass *all, int64_t block, int64_t range)
{
    const lt_gemm_product *p = all->p;
    const size_t bytes = (size_t)(block + all->unit->adds) * all->unit->size;
    const size_t threads = (size_t)lt_parallel_threads();
    all->a_bytes = A_ROWS * bytes;
    all->a = lt_cpu_scratch(cpu, LT_CPU_WGRAD, threads * all->a_bytes);
    all->b = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, (size_t)range * bytes);
    if (!all->a || !all->b)
        return LT_E_NOMEM;
    if (block >= p->depth || p->y_dtype == LT_F32)
        return LT_OK;
    all->sum = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(p->rows * range) * sizeof(float));
    all->sum_step = range;
    return all->sum ? LT_OK : LT_E_NOMEM;
}

static void run_dots(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const pass *all = context;
    const lt_gemm_product *p = all->p;
    const lt_gemm_operand b = part(&p->b, begin, 0);
    const lt_gemm_save save = {
        .to = (char *)p->y + begin * (int64_t)lt_dtype_size(p->y_dtype),
        .to_step = p->y_step,
        .dtype = p->y_dtype,
        .bias = p->bias ? p->bias + begin : NULL,
        .rows = (int)p->rows,
        .cols = (int)(end - begin),
    };
    all->unit->dots(&p->a, &b, p->depth, &save);
}

/* Where b's columns are neighbours, walking down a few of them misses caches; packing reads whole rows. */
static bool is_few(const lt_gemm_unit *unit, const lt_gemm_product *p)
{
    const bool along = p->b.step == 1 || (p->rows == 1 && p->depth <= WALK);
    return p->rows <= unit->few && along && p->a.step == 1 && p->a.dtype == LT_BF16;
}

lt_status lt_gemm(lt_cpu *cpu, const lt_gemm_unit *unit, const lt_gemm_product *p)
{
    const int64_t blocks = lt_cpu_pieces(p->depth, p->y_dtype == LT_F32 ? SUM_DEPTH : DEPTH);
    const int64_t width = unit->cols;
    const int64_t block = lt_cpu_pieces(lt_cpu_pieces(p->depth, blocks), STEPS) * STEPS;
    const int64_t most = B_BYTES / (block * (int64_t)unit->size);
    const int64_t ranges = lt_cpu_pieces(p->cols, most);
    const int64_t range = lt_cpu_pieces(lt_cpu_pieces(p->cols, ranges), width) * width;
    pass all = {.unit = unit, .p = p, .as_it_lies = unit->reads_rows(&p->a, p->depth)};
    if (is_few(unit, p)) {
        lt_parallel(p->cols, DOTS, run_dots, &all);
        return LT_OK;
    }
    LT_TRY(get_memory(cpu, &all, block, range));
    for (all.col = 0; all.col < p->cols; all.col += range) {
        all.cols = lt_cpu_least(range, p->cols - all.col);
        if (p->y_dtype == LT_F32) {
            all.sum = (float *)p->y + all.col;
            all.sum_step = p->y_step;
        }
        run_range(&all, block);
    }
    return LT_OK;
}
