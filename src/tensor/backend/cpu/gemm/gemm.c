/* Blocked matrix products from packed panels. Goto & van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008; Van Zee & van de Geijn, "BLIS", 2015.
 *
 * Columns are split into ranges and the contraction into blocks, so that a packed block of b fits the last-level cache.
 * A task computes some rows of a range: it packs its block of a for the L2 cache and multiplies it with b's panels one
 * by one. Splits depend on sizes only, and blocks of the contraction are added in order: results do not depend on the
 * number of threads. */

#include "gemm.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

enum {
    DEPTH = 1536,      /* most steps of a block */
    SUM_DEPTH = 768,   /* the same if y itself accumulates the blocks */
    STEPS = 32,        /* blocks are multiples of it */
    B_BYTES = 4 << 20, /* approximate size of a packed block of b */
    A_ROWS = 128,      /* most rows of a task */
    MIN_ROWS = 32,
    TASK_COLS = 768,
    MIN_COLS = 192,
    TASKS = 16,                /* minimum, if tasks can be that small */
    MAX_UNPACKED_STEPS = 1024, /* longest strided column read without packing */
    DOTS = 64,                 /* columns of a chunk of dot products */
    PANELS = 4,                /* panels of b in a chunk of packing */
};

typedef struct pass {
    const lt_gemm_microkernel *kernel;
    const lt_gemm_product *p;
    int64_t col, cols;    /* the range of columns */
    int64_t first, steps; /* the block of the contraction */
    int64_t task_rows, task_cols, col_tasks;
    char *b, *a; /* packed b; packed a of each thread, a_bytes each */
    size_t a_bytes;
    bool unpacked_a; /* a is read in place */
    float *sum;      /* sums of earlier blocks: [rows, sum_step]; NULL if there is one block */
    int64_t sum_step;
} pass;

const lt_gemm_microkernel *lt_gemm_microkernel_bf16(lt_cpu_isa isa)
{
#if defined(__x86_64__)
    const bool has_kernel = isa == LT_ISA_AVX512_BF16;
#elif defined(__aarch64__)
    const bool has_kernel = isa == LT_ISA_NEON_BF16;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    if (has_kernel)
        return &lt_gemm_bf16;
#endif
    (void)isa;
    return NULL;
}

/* Returns the bytes of a packed panel of this block. */
static int64_t panel_bytes(const pass *all, int width)
{
    const int64_t steps_per_instruction = all->kernel->steps_per_instruction;
    return lt_cpu_ceil_div(all->steps, steps_per_instruction) * steps_per_instruction * width
           * (int64_t)all->kernel->size;
}

/* Returns x starting at a lane and a step. */
static lt_gemm_operand operand_at(const lt_gemm_operand *x, int64_t lane, int64_t step)
{
    lt_gemm_operand from = *x;
    const int64_t offset = lane * x->lane + step * x->step;
    from.data = (const char *)x->data + offset * (int64_t)lt_dtype_size(x->dtype);
    return from;
}

static void pack_b(void *context, int64_t begin, int64_t end)
{
    const pass *all = context;
    const int width = all->kernel->cols;
    const int64_t first = begin * width, count = lt_cpu_min(end * width, all->cols) - first;
    const lt_gemm_operand b = operand_at(&all->p->b, all->col + first, all->first);
    all->kernel->pack(&b, count, all->steps, width, all->b + begin * panel_bytes(all, width));
}

/* Returns the initial sums and the destination of the tile at (row, col) in this block. */
static lt_gemm_save make_tile_save(const pass *all, int64_t row, int64_t col)
{
    const lt_gemm_product *p = all->p;
    const bool begins = all->first == 0, ends = all->first + all->steps == p->depth;
    float *sum = all->sum ? all->sum + row * all->sum_step + col - all->col : NULL;
    lt_gemm_save s = {.rows = (int)lt_cpu_min(all->kernel->rows, p->rows - row),
                      .cols = (int)lt_cpu_min(all->kernel->cols, all->col + all->cols - col),
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
    const lt_gemm_microkernel *u = all->kernel;
    const int64_t rows = lt_cpu_min(all->task_rows, all->p->rows - row);
    const int64_t end = lt_cpu_min(col + all->task_cols, all->col + all->cols);
    const int64_t panel_a = panel_bytes(all, u->rows), panel_b = panel_bytes(all, u->cols);
    const lt_gemm_operand from = operand_at(&all->p->a, row, all->first);
    char *a = all->a + (size_t)lt_parallel_index() * all->a_bytes;
    if (!all->unpacked_a)
        u->pack(&from, rows, all->steps, u->rows, a);
    for (int64_t j = col; j < end; j += u->cols) {
        const char *b = all->b + (j - all->col) / u->cols * panel_b;
        for (int64_t i = 0; i < rows; i += u->rows) {
            const lt_gemm_save save = make_tile_save(all, row + i, j);
            if (all->unpacked_a)
                u->tile_unpacked(operand_at(&from, i, 0).data, from.lane, b, all->steps, &save);
            else
                u->tile(a + i / u->rows * panel_a, b, all->steps, &save);
        }
    }
}

static void run_tasks(void *context, int64_t begin, int64_t end)
{
    const pass *all = context;
    for (int64_t i = begin; i < end; i++)
        run_task(all, i / all->col_tasks * all->task_rows,
                 all->col + i % all->col_tasks * all->task_cols);
}

/* Sets the size of a task, halving it while there are too few tasks. Returns their count. Packed rows of a are packed
 * again by each task that reads them, so then columns are split last. */
static int64_t choose_task_size(pass *all)
{
    const int64_t width = all->kernel->cols;
    const int64_t most = all->unpacked_a ? lt_cpu_min(TASK_COLS, all->cols) : all->cols;
    all->task_rows = A_ROWS;
    all->task_cols = lt_cpu_round_up(most, width);
    for (;;) {
        all->col_tasks = lt_cpu_ceil_div(all->cols, all->task_cols);
        const int64_t tasks = lt_cpu_ceil_div(all->p->rows, all->task_rows) * all->col_tasks;
        const bool low = all->task_rows <= MIN_ROWS, narrow = all->task_cols <= MIN_COLS;
        if (tasks >= TASKS || (low && narrow))
            return tasks;
        if (narrow || (!low && !all->unpacked_a))
            all->task_rows /= 2;
        else
            all->task_cols = lt_cpu_round_up(all->task_cols / 2, width);
    }
}

/* Computes one range of columns: blocks of the contraction in order. */
static void run_column_range(pass *all, int64_t block)
{
    for (all->first = 0; all->first < all->p->depth; all->first += block) {
        all->steps = lt_cpu_min(block, all->p->depth - all->first);
        lt_parallel_range(lt_cpu_ceil_div(all->cols, all->kernel->cols), PANELS, pack_b, all);
        lt_parallel_range(choose_task_size(all), 1, run_tasks, all);
    }
}

/* Allocates packed panels, and sums if y cannot hold them. */
static lt_status allocate_panels(lt_cpu *cpu, pass *all, int64_t block, int64_t range)
{
    const lt_gemm_product *p = all->p;
    const size_t bytes = (size_t)(block + all->kernel->steps_per_instruction) * all->kernel->size;
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

static void run_dot_products(void *context, int64_t begin, int64_t end)
{
    const pass *all = context;
    const lt_gemm_product *p = all->p;
    const lt_gemm_operand b = operand_at(&p->b, begin, 0);
    const lt_gemm_save save = {
        .to = (char *)p->y + begin * (int64_t)lt_dtype_size(p->y_dtype),
        .to_step = p->y_step,
        .dtype = p->y_dtype,
        .bias = p->bias ? p->bias + begin : NULL,
        .rows = (int)p->rows,
        .cols = (int)(end - begin),
    };
    all->kernel->dots(&p->a, &b, p->depth, &save);
}

/* Returns true if dot products without packing are faster: few rows, and b's columns contiguous. Strided columns miss
 * caches, while packing reads whole rows. */
static bool prefers_dot_products(const lt_gemm_microkernel *kernel, const lt_gemm_product *p)
{
    const bool along = p->b.step == 1 || (p->rows == 1 && p->depth <= MAX_UNPACKED_STEPS);
    return p->rows <= kernel->max_dots_rows && along && p->a.step == 1 && p->a.dtype == LT_BF16;
}

lt_status lt_gemm(lt_cpu *cpu, const lt_gemm_microkernel *kernel, const lt_gemm_product *p)
{
    const int64_t blocks = lt_cpu_ceil_div(p->depth, p->y_dtype == LT_F32 ? SUM_DEPTH : DEPTH);
    const int64_t width = kernel->cols;
    const int64_t block = lt_cpu_round_up(lt_cpu_ceil_div(p->depth, blocks), STEPS);
    const int64_t most = B_BYTES / (block * (int64_t)kernel->size);
    const int64_t ranges = lt_cpu_ceil_div(p->cols, most);
    const int64_t range = lt_cpu_round_up(lt_cpu_ceil_div(p->cols, ranges), width);
    pass all = {
        .kernel = kernel, .p = p, .unpacked_a = kernel->can_skip_packing_a(&p->a, p->depth)};
    if (prefers_dot_products(kernel, p)) {
        lt_parallel_range(p->cols, DOTS, run_dot_products, &all);
        return LT_OK;
    }
    LT_TRY(allocate_panels(cpu, &all, block, range));
    for (all.col = 0; all.col < p->cols; all.col += range) {
        all.cols = lt_cpu_min(range, p->cols - all.col);
        if (p->y_dtype == LT_F32) {
            all.sum = (float *)p->y + all.col;
            all.sum_step = p->y_step;
        }
        run_column_range(&all, block);
    }
    return LT_OK;
}
