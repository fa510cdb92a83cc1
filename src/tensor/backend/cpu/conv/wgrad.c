/* Gradient of a convolution's weight: splits the work, gathers pixels, reduces partial sums. See wgrad.h.
 *
 * A task computes some rows of dw from a range of pixels. It packs a block of dy once, and a panel of x for each
 * filter tap and each 32 channels; stride, padding and dilation only affect where a pixel is looked up. Each range
 * has separate partial sums, added in range order: results do not depend on the number of threads. */

#include "wgrad.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    TASKS = 32,         /* minimum, unless tasks get smaller than TASK_PIXELS */
    TASK_PIXELS = 1024, /* minimum of a range of pixels */
    PARTIALS =
        32 << 20, /* maximum bytes of partial sums, divided by the bytes of a packed element */
    MAX_TILE_ROWS = 32, /* for all micro-kernels */
    LINE = 64,          /* bytes of a cache line */
};

static bool has_bf16_instructions(lt_cpu_isa isa)
{
    return isa >= LT_ISA_AVX512_BF16;
}

lt_wgrad_microkernel lt_wgrad_microkernel_for(const lt_cpu *cpu, lt_dtype dtype)
{
    const lt_cpu_kernels *k = cpu->kernels;
    const lt_cpu_store s = lt_cpu_store_from_dtype(dtype);
#if defined(__x86_64__)
    if (dtype == LT_BF16 && has_bf16_instructions(cpu->isa))
        return cpu->isa == LT_ISA_AMX ? lt_wgrad_amx : lt_wgrad_avx512;
#endif
    return (lt_wgrad_microkernel){.rows = k->tile_rows,
                                  .columns = k->tile_cols,
                                  .pixels = 1,
                                  .size = sizeof(float),
                                  .dy = k->of[s].wgrad_dy,
                                  .x = k->of[s].wgrad_x,
                                  .product = k->wgrad_product};
}

typedef struct job {
    const lt_wgrad_microkernel *kernel;
    const lt_conv2d_config *config;
    const char *x, *dy;
    int64_t size;                                 /* bytes of an element of x and dy */
    int64_t batch, height, width, channels;       /* x of a group */
    int64_t out_height, out_width, rows, columns; /* dw of a group is [rows][columns] */
    int64_t x_step, dy_step;                      /* elements between pixels */
    int64_t taps_h, taps_w;
    int64_t ranges, row_tasks;
    float *dw,
        *partial;  /* dw: also the sums of the first range of pixels; partial: of the others */
    char *scratch; /* [threads] workspaces */
} job;

/* Cache lines to prefetch: `lines` of each pixel, `share` of them per call of prefetch_next(). */
typedef struct prefetch {
    const char *base;
    const int64_t *at; /* element offset of each pixel; negative: padding */
    int64_t size;      /* bytes of an element */
    int64_t lines, share, next, all;
} prefetch;

/* A thread's packed block of pixels. */
typedef struct workspace {
    _Alignas(64) char dy[sizeof(float) * (LT_WGRAD_ROWS + MAX_TILE_ROWS) * LT_WGRAD_BLOCK];
    char x[sizeof(float) * LT_WGRAD_COLUMNS * LT_WGRAD_BLOCK];
    float edge[MAX_TILE_ROWS * LT_WGRAD_COLUMNS];
    int64_t dy_at[LT_WGRAD_BLOCK], positions[2][LT_WGRAD_BLOCK];
    int64_t *at, *next_at; /* element offsets in x of this and the next tap's (or block's) pixels */
    int64_t first, count, pixels; /* pixels: count rounded up to the micro-kernel's step */
    int64_t after;                /* pixels of the next block */
    bool add;                     /* accumulates into dw */
    prefetch prefetches[2];       /* dy of the next block; the next panel of x */
} workspace;

/* Fills at with the element offsets in dy of count pixels from `first` on; -1 past the end. */
static void find_dy_positions(const job *j, int64_t first, int64_t count, int64_t *at)
{
    for (int64_t i = 0; i < LT_WGRAD_BLOCK; i++)
        at[i] = i < count ? (first + i) * j->dy_step : -1;
}

/* Fills at with the element offsets in x that filter column s reads for count outputs of a row from ow on; `row` is the
 * first pixel of the row of x; -1: padding. */
static void find_row_positions(const job *j, int64_t row, int64_t ow, int64_t count, int64_t s,
                               int64_t *at)
{
    const lt_conv2d_config *c = j->config;
    const int64_t step = c->stride_w, first = ow * step - c->pad_w + s * c->dilation_w;
    int64_t i = 0;
    for (; i < count && first + i * step < 0; i++)
        at[i] = -1;
    for (; i < count && first + i * step < j->width; i++)
        at[i] = (row + first + i * step) * j->x_step;
    for (; i < count; i++)
        at[i] = -1;
}

/* Fills at with the element offsets of the pixels of x that a tap multiplies with dy's from `first` on. */
static void find_x_positions(const job *j, int64_t first, int64_t pixels, int64_t tap, int64_t *at)
{
    const lt_conv2d_config *c = j->config;
    const int64_t r = tap / j->taps_w, s = tap % j->taps_w;
    int64_t ow = first % j->out_width, rest = first / j->out_width, i = 0;
    for (int64_t count; i < pixels; i += count, rest++, ow = 0) {
        const int64_t n = rest / j->out_height;
        const int64_t y = rest % j->out_height * c->stride_h - c->pad_h + r * c->dilation_h;
        const int64_t row = (n * j->height + y) * j->width;
        count = lt_cpu_min(j->out_width - ow, pixels - i);
        if (y >= 0 && y < j->height)
            find_row_positions(j, row, ow, count, s, at + i);
        else
            for (int64_t k = 0; k < count; k++)
                at[i + k] = -1;
    }
    for (; i < LT_WGRAD_BLOCK; i++)
        at[i] = -1;
}

/* Computes a product at dw's edge in a full-size buffer. Sums continue those of dw, as in whole tiles: which elements are
 * at the edge depends on the tile's size. */
static void multiply_edge_tile(const job *j, workspace *w, const void *dy, float *dw, int64_t rows,
                               int64_t columns)
{
    const int64_t width = j->kernel->columns;
    for (int64_t k = 0; k < rows && w->add; k++)
        memcpy(w->edge + k * width, dw + k * j->columns, (size_t)columns * sizeof *dw);
    j->kernel->product(dy, w->x, w->pixels, w->edge, width, w->add);
    for (int64_t k = 0; k < rows; k++)
        memcpy(dw + k * j->columns, w->edge + k * width, (size_t)columns * sizeof *dw);
}

/* Prefetches the next share of the lines into the L2 cache. */
static void prefetch_next(prefetch *s)
{
    for (int64_t end = lt_cpu_min(s->next + s->share, s->all); s->next < end; s->next++) {
        const int64_t at = s->at[s->next / s->lines];
        if (at >= 0)
            __builtin_prefetch(s->base + at * s->size + s->next % s->lines * LINE, 0, 2);
    }
}

/* Returns the prefetch of `columns` channels of `pixels` pixels, spread over `calls` calls of prefetch_next(). */
static prefetch make_prefetch(const job *j, const char *base, const int64_t *at, int64_t pixels,
                              int64_t columns, int64_t calls)
{
    const int64_t lines = lt_cpu_ceil_div(columns * j->size, LINE), all = lines * pixels;
    return (prefetch){base, at, j->size, lines, lt_cpu_ceil_div(all, calls), 0, all};
}

/* Schedules the prefetch of the next block of dy during the products of this one: otherwise packing waits for
 * memory. */
static void plan_dy_prefetch(const job *j, workspace *w, int64_t first_row, int64_t rows)
{
    const int64_t panels = j->taps_h * j->taps_w * lt_cpu_ceil_div(j->channels, j->kernel->columns);
    const int64_t calls = panels * lt_cpu_ceil_div(rows, j->kernel->rows);
    find_dy_positions(j, w->first + w->count, w->after, w->dy_at);
    w->prefetches[0] =
        make_prefetch(j, j->dy + first_row * j->size, w->dy_at, w->after, rows, calls);
}

/* Schedules the prefetch of the next panel of x: of the next channels, the next tap or the next block. */
static void plan_x_prefetch(const job *j, workspace *w, int64_t tap, int64_t channel, int64_t rows)
{
    const int64_t calls = lt_cpu_ceil_div(rows, j->kernel->rows),
                  next = channel + j->kernel->columns;
    const bool more = next < j->channels, ends = !more && tap + 1 == j->taps_h * j->taps_w;
    const int64_t first = ends ? w->first + w->count : w->first;
    const int64_t pixels = ends ? w->after : w->count;
    if (!more)
        find_x_positions(j, first, pixels, ends ? 0 : tap + 1, w->next_at);
    w->prefetches[1] =
        make_prefetch(j, j->x + (more ? next * j->size : 0), more ? w->at : w->next_at, pixels,
                      lt_cpu_min(j->kernel->columns, j->channels), calls);
}

/* Multiplies all rows of a task with one packed panel of x. */
static void multiply_panel(const job *j, workspace *w, float *dw, int64_t rows, int64_t columns)
{
    const int64_t step = j->kernel->rows;
    for (int64_t k = 0; k < rows; k += step) {
        prefetch_next(&w->prefetches[0]);
        prefetch_next(&w->prefetches[1]);
        const char *dy = w->dy + k * w->pixels * (int64_t)j->kernel->size;
        float *to = dw + k * j->columns;
        if (rows - k >= step && columns == j->kernel->columns)
            j->kernel->product(dy, w->x, w->pixels, to, j->columns, w->add);
        else
            multiply_edge_tile(j, w, dy, to, lt_cpu_min(step, rows - k), columns);
    }
}

static void swap_positions(workspace *w)
{
    int64_t *at = w->at;
    w->at = w->next_at;
    w->next_at = at;
}

/* Adds the block's contribution to `rows` rows of dw. */
static void add_block(const job *j, workspace *w, int64_t first_row, int64_t rows, float *dw)
{
    w->pixels = lt_cpu_round_up(w->count, j->kernel->pixels);
    j->kernel->dy(j->dy + first_row * j->size, w->dy_at, w->pixels, rows, w->dy);
    plan_dy_prefetch(j, w, first_row, rows);
    for (int64_t tap = 0; tap < j->taps_h * j->taps_w; tap++) {
        float *to = dw + first_row * j->columns + tap * j->channels;
        for (int64_t c = 0; c < j->channels; c += j->kernel->columns) {
            int64_t columns = lt_cpu_min(j->kernel->columns, j->channels - c);
            j->kernel->x(j->x + c * j->size, w->at, w->pixels, columns, w->x);
            plan_x_prefetch(j, w, tap, c, rows);
            multiply_panel(j, w, to + c, rows, columns);
        }
        swap_positions(w);
    }
}

/* Returns the pixels of a block. Blocks are equal: a small last block would cost as much traffic of dw. */
static int64_t block_pixels(const job *j, int64_t pixels)
{
    return lt_cpu_round_up(lt_cpu_ceil_div(pixels, lt_cpu_ceil_div(pixels, LT_WGRAD_BLOCK)),
                           j->kernel->pixels);
}

static void run_task(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    workspace *w = (workspace *)(j->scratch + (size_t)lt_parallel_index() * sizeof(workspace));
    const int64_t total = j->batch * j->out_height * j->out_width;
    if (j->kernel->begin)
        j->kernel->begin();
    for (int64_t task = begin; task < end; task++) {
        int64_t range = task / j->row_tasks, row = task % j->row_tasks * LT_WGRAD_ROWS;
        int64_t from = total * range / j->ranges, to = total * (range + 1) / j->ranges;
        float *dw = range ? j->partial + (range - 1) * j->rows * j->columns : j->dw;
        const int64_t block = block_pixels(j, to - from);
        w->at = w->positions[0];
        w->next_at = w->positions[1];
        const int64_t count = lt_cpu_min(block, to - from);
        find_dy_positions(j, from, count, w->dy_at);
        find_x_positions(j, from, count, 0, w->at);
        for (w->first = from; w->first < to; w->first += block) {
            w->count = lt_cpu_min(block, to - w->first);
            w->after = lt_cpu_min(block, to - w->first - w->count);
            w->add = w->first > from;
            add_block(j, w, row, lt_cpu_min(LT_WGRAD_ROWS, j->rows - row), dw);
        }
    }
    if (j->kernel->end)
        j->kernel->end();
}

static void add_partials(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    enum { AT_ONCE = 64 };
    const int64_t count = j->rows * j->columns;
    for (int64_t i = begin; i < end; i += AT_ONCE) {
        const int64_t here = lt_cpu_min(AT_ONCE, end - i);
        float sum[AT_ONCE];
        memcpy(sum, j->dw + i, (size_t)here * sizeof *sum);
        for (int64_t range = 0; range < j->ranges - 1; range++)
            for (int64_t k = 0; k < here; k++)
                sum[k] += j->partial[range * count + i + k];
        memcpy(j->dw + i, sum, (size_t)here * sizeof *sum);
    }
}

/* Returns the number of ranges of pixels, from sizes only. */
static int64_t count_ranges(const job *j)
{
    int64_t pixels = j->batch * j->out_height * j->out_width;
    int64_t bytes = j->rows * j->columns * (int64_t)sizeof(float);
    const int64_t most =
        lt_cpu_min(pixels / TASK_PIXELS, PARTIALS / (int64_t)j->kernel->size / bytes);
    return lt_cpu_max(1, lt_cpu_min(lt_cpu_ceil_div(TASKS, j->row_tasks), most));
}

/* Returns true if measured to be faster than oneDNN: docs/results/cpu-speed.md; AMX: the prototype. With few channels
 * of x a packed panel is not reused enough on AMX. oneDNN's sums for AMX depend on the number of threads for 1x1 filters
 * and for images, whose channels do not fill a tile; 7x7 ones of images take 0.92 of its time here. */
static bool is_measured_faster(lt_cpu_isa isa, lt_dtype dtype, lt_shape w)
{
    enum { IMAGE = 16, FEW = 64, MANY = 128 };
    const bool multi_tap = w.dim[2] * w.dim[3] > 1;
    if (dtype == LT_F32 || !has_bf16_instructions(isa))
        return isa == LT_ISA_AVX2 && w.dim[0] >= FEW && w.dim[1] >= FEW;
    if (isa == LT_ISA_AMX && (!multi_tap || w.dim[1] < IMAGE))
        return true;
    return w.dim[0] >= FEW && w.dim[1] >= (isa == LT_ISA_AMX ? MANY : FEW);
}

bool lt_wgrad_is_chosen(const lt_cpu *cpu, const lt_conv2d_config *config, lt_dtype dtype,
                        lt_shape w)
{
    if (config->groups != 1 || cpu->choice == LT_KERNELS_ONEDNN)
        return false;
    return lt_cpu_prefers_builtin(cpu) || is_measured_faster(cpu->isa, dtype, w);
}

lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_microkernel *kernel,
                       const lt_conv2d_config *config, const lt_view *x, const lt_view *dy,
                       lt_shape w, float *dw)
{
    LT_ASSERT(kernel->rows <= MAX_TILE_ROWS && kernel->columns <= LT_WGRAD_COLUMNS);
    enum { GRAIN = 1 << 14, LAST = 3 };
    const int64_t *xs = x->shape.dim, *ys = dy->shape.dim, rows = ys[1] / config->groups;
    job j = {
        .kernel = kernel,
        .config = config,
        .x = x->data,
        .dy = dy->data,
        .size = (int64_t)lt_dtype_size(x->dtype),
        .batch = xs[0],
        .channels = w.dim[1],
        .height = xs[2],
        .width = xs[3],
        .rows = rows,
        .out_height = ys[2],
        .out_width = ys[3],
        .taps_h = w.dim[2],
        .taps_w = w.dim[3],
        .columns = w.dim[1] * w.dim[2] * w.dim[3],
        .x_step = x->stride[LAST],
        .dy_step = ys[1],
        .row_tasks = lt_cpu_ceil_div(rows, LT_WGRAD_ROWS),
        .dw = dw,
    };
    j.ranges = count_ranges(&j);
    size_t bytes = (size_t)((j.ranges - 1) * j.rows * j.columns) * sizeof(float);
    j.scratch =
        lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)lt_parallel_threads() * sizeof(workspace));
    if (!j.scratch || (j.ranges > 1 && !(j.partial = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, bytes))))
        return LT_E_NOMEM;
    for (int group = 0; group < config->groups; group++) {
        lt_parallel(j.ranges * j.row_tasks, 1, run_task, &j);
        if (j.ranges > 1)
            lt_parallel(j.rows * j.columns, GRAIN, add_partials, &j);
        j.x += j.channels * j.size;
        j.dy += j.rows * j.size;
        j.dw += j.rows * j.columns;
    }
    return LT_OK;
}
