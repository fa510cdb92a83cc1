/* The gradient of a convolution's weight: cutting the work, gathering pixels, adding up. See
 * wgrad.h.
 *
 * A task makes some rows of dw from a range of pixels. It packs a block of dy once, and a panel of x
 * for each filter tap and each 32 channels; strides, padding and dilation are where a pixel is
 * looked up. Ranges of pixels have partial sums of their own, added in their order: the same bits
 * for any number of threads. */

#include "wgrad.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    TASKS = 32,          /* wanted at least, if there is enough to do in one */
    TASK_PIXELS = 1024,  /* at least, where the range of pixels is cut */
    PARTIALS = 32 << 20, /* by bytes of a packed element: bytes of partial sums at most */
    MOST_ROWS = 32,      /* of any unit */
    LINE = 64,           /* bytes of memory that come at once */
};

static bool has_bf16(lt_cpu_isa isa)
{
    return isa >= LT_ISA_AVX512_BF16;
}

lt_wgrad_unit lt_wgrad_unit_of(const lt_cpu *cpu, lt_dtype dtype)
{
    const lt_cpu_kernels *k = cpu->kernels;
    const lt_cpu_store s = lt_cpu_store_of(dtype);
#if defined(__x86_64__)
    if (dtype == LT_BF16 && has_bf16(cpu->isa))
        return cpu->isa == LT_ISA_AMX ? lt_wgrad_amx : lt_wgrad_avx512;
#endif
    return (lt_wgrad_unit){.rows = k->tile_rows,
                           .columns = k->tile_cols,
                           .pixels = 1,
                           .size = sizeof(float),
                           .dy = k->of[s].wgrad_dy,
                           .x = k->of[s].wgrad_x,
                           .product = k->wgrad_product};
}

typedef struct job {
    const lt_wgrad_unit *unit;
    const lt_conv2d_config *config;
    const char *x, *dy;
    int64_t size;                                 /* bytes of an element of x and dy */
    int64_t batch, height, width, channels;       /* of x */
    int64_t out_height, out_width, rows, columns; /* rows: dy's channels; columns of dw in all */
    int64_t taps_h, taps_w;
    int64_t ranges, row_tasks;
    float *dw, *partial; /* of the first range, of the others */
    char *scratch;       /* of each thread */
} job;

/* Lines of memory that are read soon: `lines` of each pixel, `share` of them fetched at a time. */
typedef struct stream {
    const char *base;
    const int64_t *at; /* elements from base to each pixel, negative: padding */
    int64_t size;      /* bytes of an element */
    int64_t lines, share, next, all;
} stream;

/* A thread's block of pixels, packed. */
typedef struct work {
    _Alignas(64) char dy[(LT_WGRAD_ROWS + MOST_ROWS) * LT_WGRAD_BLOCK * sizeof(float)];
    char x[LT_WGRAD_COLUMNS * LT_WGRAD_BLOCK * sizeof(float)];
    float edge[MOST_ROWS * LT_WGRAD_COLUMNS];
    int64_t dy_at[LT_WGRAD_BLOCK], places[2][LT_WGRAD_BLOCK];
    int64_t *at, *next_at;        /* places in x of a tap's pixels, of the next tap's or block's */
    int64_t first, count, pixels; /* pixels: count rounded up to what the unit adds up at once */
    int64_t after;                /* pixels of the next block */
    bool add;                     /* to what dw holds already */
    stream soon[2];               /* what the next block reads of dy, the next panel of x */
} work;

static int64_t round_up(int64_t a, int64_t unit)
{
    return lt_cpu_pieces(a, unit) * unit;
}

/* Where pixels from `first` on lie in dy. */
static void find_dy(const job *j, int64_t first, int64_t count, int64_t *at)
{
    for (int64_t i = 0; i < LT_WGRAD_BLOCK; i++)
        at[i] = i < count ? (first + i) * j->rows : -1;
}

/* Where count pixels of a row of the result, from ow on, meet column s of the filter in the row of x that
 * begins at row; -1: outside. */
static void find_row(const job *j, int64_t row, int64_t ow, int64_t count, int64_t s, int64_t *at)
{
    const lt_conv2d_config *c = j->config;
    const int64_t step = c->stride_w, first = ow * step - c->pad_w + s * c->dilation_w;
    int64_t i = 0;
    for (; i < count && first + i * step < 0; i++)
        at[i] = -1;
    for (; i < count && first + i * step < j->width; i++)
        at[i] = (row + first + i * step) * j->channels;
    for (; i < count; i++)
        at[i] = -1;
}

/* Where the pixels of x lie that a tap multiplies with those of dy from `first` on. */
static void find_x(const job *j, int64_t first, int64_t pixels, int64_t tap, int64_t *at)
{
    const lt_conv2d_config *c = j->config;
    const int64_t r = tap / j->taps_w, s = tap % j->taps_w;
    int64_t ow = first % j->out_width, rest = first / j->out_width, i = 0;
    for (int64_t count; i < pixels; i += count, rest++, ow = 0) {
        const int64_t n = rest / j->out_height;
        const int64_t y = rest % j->out_height * c->stride_h - c->pad_h + r * c->dilation_h;
        const int64_t row = (n * j->height + y) * j->width;
        count = lt_cpu_least(j->out_width - ow, pixels - i);
        if (y >= 0 && y < j->height)
            find_row(j, row, ow, count, s, at + i);
        else
            for (int64_t k = 0; k < count; k++)
                at[i + k] = -1;
    }
    for (; i < LT_WGRAD_BLOCK; i++)
        at[i] = -1;
}

/* A product at dw's edge: made whole beside it, then what fits is moved. */
static void product_at_edge(const job *j, work *w, const void *dy, float *dw, int64_t rows,
                            int64_t columns)
{
    const int64_t width = j->unit->columns;
    j->unit->product(dy, w->x, w->pixels, w->edge, width, false);
    for (int64_t k = 0; k < rows; k++)
        for (int64_t c = 0; c < columns; c++) {
            float *to = &dw[k * j->columns + c], sum = w->edge[k * width + c];
            *to = w->add ? *to + sum : sum;
        }
}

/* The next share of it comes to the second cache. */
static void fetch(stream *s)
{
    for (int64_t end = lt_cpu_least(s->next + s->share, s->all); s->next < end; s->next++) {
        const int64_t at = s->at[s->next / s->lines];
        if (at >= 0)
            __builtin_prefetch(s->base + at * s->size + s->next % s->lines * LINE, 0, 2);
    }
}

/* Of `pixels` pixels, as many channels as a panel of `columns` has, in so many calls of fetch(). */
static stream make_stream(const job *j, const char *base, const int64_t *at, int64_t pixels,
                          int64_t columns, int64_t calls)
{
    const int64_t lines = lt_cpu_pieces(columns * j->size, LINE), all = lines * pixels;
    return (stream){base, at, j->size, lines, lt_cpu_pieces(all, calls), 0, all};
}

/* What packing reads next is fetched while this is multiplied: else it waits for memory. Of dy the next block
 * while this one lasts. */
static void plan_dy(const job *j, work *w, int64_t first_row, int64_t rows)
{
    const int64_t panels = j->taps_h * j->taps_w * lt_cpu_pieces(j->channels, j->unit->columns);
    const int64_t calls = panels * lt_cpu_pieces(rows, j->unit->rows);
    find_dy(j, w->first + w->count, w->after, w->dy_at);
    w->soon[0] = make_stream(j, j->dy + first_row * j->size, w->dy_at, w->after, rows, calls);
}

/* Of x the panel behind that of this tap and channel: of the next channels, the next tap, the next block. */
static void plan_x(const job *j, work *w, int64_t tap, int64_t channel, int64_t rows)
{
    const int64_t calls = lt_cpu_pieces(rows, j->unit->rows), next = channel + j->unit->columns;
    const bool more = next < j->channels, ends = !more && tap + 1 == j->taps_h * j->taps_w;
    const int64_t first = ends ? w->first + w->count : w->first;
    const int64_t pixels = ends ? w->after : w->count;
    if (!more)
        find_x(j, first, pixels, ends ? 0 : tap + 1, w->next_at);
    w->soon[1] = make_stream(j, j->x + (more ? next * j->size : 0), more ? w->at : w->next_at,
                             pixels, lt_cpu_least(j->unit->columns, j->channels), calls);
}

/* All rows of a task against one packed panel of x. */
static void multiply(const job *j, work *w, float *dw, int64_t rows, int64_t columns)
{
    const int64_t step = j->unit->rows;
    for (int64_t k = 0; k < rows; k += step) {
        fetch(&w->soon[0]);
        fetch(&w->soon[1]);
        const char *dy = w->dy + k * w->pixels * (int64_t)j->unit->size;
        float *to = dw + k * j->columns;
        if (rows - k >= step && columns == j->unit->columns)
            j->unit->product(dy, w->x, w->pixels, to, j->columns, w->add);
        else
            product_at_edge(j, w, dy, to, lt_cpu_least(step, rows - k), columns);
    }
}

static void swap_places(work *w)
{
    int64_t *at = w->at;
    w->at = w->next_at;
    w->next_at = at;
}

/* The block's part of rows first_row.. of dw. */
static void add_block(const job *j, work *w, int64_t first_row, int64_t rows, float *dw)
{
    w->pixels = round_up(w->count, j->unit->pixels);
    j->unit->dy(j->dy + first_row * j->size, w->dy_at, w->pixels, rows, w->dy);
    plan_dy(j, w, first_row, rows);
    for (int64_t tap = 0; tap < j->taps_h * j->taps_w; tap++) {
        float *to = dw + first_row * j->columns + tap * j->channels;
        for (int64_t c = 0; c < j->channels; c += j->unit->columns) {
            int64_t columns = lt_cpu_least(j->unit->columns, j->channels - c);
            j->unit->x(j->x + c * j->size, w->at, w->pixels, columns, w->x);
            plan_x(j, w, tap, c, rows);
            multiply(j, w, to + c, rows, columns);
        }
        swap_places(w);
    }
}

/* Pixels of a block: equal ones, as the last of unequal ones would have few for all of dw's traffic. */
static int64_t block_of(const job *j, int64_t pixels)
{
    return round_up(lt_cpu_pieces(pixels, lt_cpu_pieces(pixels, LT_WGRAD_BLOCK)), j->unit->pixels);
}

static void run_task(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    work *w = (work *)(j->scratch + (size_t)lt_parallel_index() * sizeof(work));
    const int64_t total = j->batch * j->out_height * j->out_width;
    if (j->unit->begin)
        j->unit->begin();
    for (int64_t task = begin; task < end; task++) {
        int64_t range = task / j->row_tasks, row = task % j->row_tasks * LT_WGRAD_ROWS;
        int64_t from = total * range / j->ranges, to = total * (range + 1) / j->ranges;
        float *dw = range ? j->partial + (range - 1) * j->rows * j->columns : j->dw;
        const int64_t block = block_of(j, to - from);
        w->at = w->places[0];
        w->next_at = w->places[1];
        const int64_t count = lt_cpu_least(block, to - from);
        find_dy(j, from, count, w->dy_at);
        find_x(j, from, count, 0, w->at);
        for (w->first = from; w->first < to; w->first += block) {
            w->count = lt_cpu_least(block, to - w->first);
            w->after = lt_cpu_least(block, to - w->first - w->count);
            w->add = w->first > from;
            add_block(j, w, row, lt_cpu_least(LT_WGRAD_ROWS, j->rows - row), dw);
        }
    }
    if (j->unit->end)
        j->unit->end();
}

static void add_partials(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    enum { AT_ONCE = 64 };
    const int64_t count = j->rows * j->columns;
    for (int64_t i = begin; i < end; i += AT_ONCE) {
        const int64_t here = lt_cpu_least(AT_ONCE, end - i);
        float sum[AT_ONCE];
        memcpy(sum, j->dw + i, (size_t)here * sizeof *sum);
        for (int64_t range = 0; range < j->ranges - 1; range++)
            for (int64_t k = 0; k < here; k++)
                sum[k] += j->partial[range * count + i + k];
        memcpy(j->dw + i, sum, (size_t)here * sizeof *sum);
    }
}

/* How many ranges of pixels: by sizes alone. */
static int64_t count_ranges(const job *j)
{
    int64_t pixels = j->batch * j->out_height * j->out_width;
    int64_t bytes = j->rows * j->columns * (int64_t)sizeof(float);
    int64_t ranges = (TASKS + j->row_tasks - 1) / j->row_tasks;
    ranges = lt_cpu_least(
        ranges, lt_cpu_least(pixels / TASK_PIXELS, PARTIALS / (int64_t)j->unit->size / bytes));
    return ranges > 1 ? ranges : 1;
}

/* Measured: docs/results/cpu-speed.md, and for AMX by the prototype: with few channels of x a panel of
 * it is used too seldom there to pay for its packing. */
static bool is_listed(lt_cpu_isa isa, lt_dtype dtype, lt_shape w)
{
    enum { FEW = 64, MANY = 128 };
    if (dtype == LT_F32 || !has_bf16(isa))
        return isa == LT_ISA_AVX2 && w.dim[0] >= FEW && w.dim[1] >= FEW;
    return w.dim[0] >= FEW
           && w.dim[1] >= (isa == LT_ISA_AMX && w.dim[2] * w.dim[3] > 1 ? MANY : FEW);
}

bool lt_wgrad_wanted(const lt_cpu *cpu, const lt_conv2d_config *config, lt_dtype dtype, lt_shape w)
{
    if (config->groups != 1 || cpu->choice == LT_KERNELS_ONEDNN)
        return false;
    return cpu->choice == LT_KERNELS_OWN || is_listed(cpu->isa, dtype, w);
}

lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_unit *unit, const lt_conv2d_config *config,
                       const lt_view *x, const lt_view *dy, lt_shape w, float *dw)
{
    LT_ASSERT(config->groups == 1 && unit->rows <= MOST_ROWS && unit->columns <= LT_WGRAD_COLUMNS);
    enum { GRAIN = 1 << 14 };
    const int64_t *xs = x->shape.dim, *ys = dy->shape.dim;
    job j = {
        .unit = unit,
        .config = config,
        .x = x->data,
        .dy = dy->data,
        .size = (int64_t)lt_dtype_size(x->dtype),
        .batch = xs[0],
        .channels = xs[1],
        .height = xs[2],
        .width = xs[3],
        .rows = ys[1],
        .out_height = ys[2],
        .out_width = ys[3],
        .taps_h = w.dim[2],
        .taps_w = w.dim[3],
        .columns = w.dim[1] * w.dim[2] * w.dim[3],
        .row_tasks = (ys[1] + LT_WGRAD_ROWS - 1) / LT_WGRAD_ROWS,
        .dw = dw,
    };
    j.ranges = count_ranges(&j);
    size_t bytes = (size_t)((j.ranges - 1) * j.rows * j.columns) * sizeof(float);
    j.scratch = lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)lt_parallel_threads() * sizeof(work));
    if (!j.scratch || (j.ranges > 1 && !(j.partial = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, bytes))))
        return LT_E_NOMEM;
    lt_parallel(j.ranges * j.row_tasks, 1, run_task, &j);
    if (j.ranges > 1)
        lt_parallel(j.rows * j.columns, GRAIN, add_partials, &j);
    return LT_OK;
}
