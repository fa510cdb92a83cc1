/* The gradient of a convolution's weight: cutting the work, gathering pixels, adding up. See
 * wgrad.h.
 *
 * A task makes some rows of dw from a range of pixels. It packs a block of dy once, and a panel of x
 * for each filter tap and each 32 channels; strides, padding and dilation are where a pixel is
 * looked up. Ranges of pixels have partial sums of their own, added in their order: the same bits
 * for any number of threads. */

#include "tensor/backend/cpu/wgrad.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/cut.h"

#include <string.h>

enum {
    TASKS = 32,          /* wanted at least, if there is enough to do in one */
    TASK_PIXELS = 1024,  /* at least, where the range of pixels is cut */
    PARTIALS = 16 << 20, /* bytes of partial sums at most */
    MOST_ROWS = 32,      /* of any unit */
};

const lt_wgrad_unit *lt_wgrad_unit_of(lt_cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == LT_ISA_AMX)
        return &lt_wgrad_amx;
    if (isa == LT_ISA_AVX512_BF16)
        return &lt_wgrad_avx512;
#endif
    (void)isa;
    return NULL;
}

typedef struct job {
    const lt_wgrad_unit *unit;
    const lt_conv2d_config *config;
    const uint16_t *x, *dy;
    int64_t batch, height, width, channels;       /* of x */
    int64_t out_height, out_width, rows, columns; /* rows: dy's channels; columns of dw in all */
    int64_t taps_h, taps_w;
    int64_t ranges, row_tasks;
    float *dw, *partial; /* of the first range, of the others */
    char *scratch;       /* of each thread */
} job;

/* Lines of memory that are read soon: `lines` of each row, `share` of them fetched at a time. */
typedef struct stream {
    const uint16_t *at;
    int64_t row; /* elements from one to the next */
    int64_t lines, share, next, all;
} stream;

/* A thread's block of pixels, packed. */
typedef struct work {
    _Alignas(64) uint16_t dy[LT_WGRAD_ROWS * LT_WGRAD_BLOCK];
    uint16_t x[LT_WGRAD_COLUMNS * LT_WGRAD_BLOCK];
    float edge[MOST_ROWS * LT_WGRAD_COLUMNS];
    int64_t at[LT_WGRAD_BLOCK];
    int64_t first, count, pixels; /* pixels: count rounded up to what the unit adds up at once */
    int64_t after;                /* pixels of the next block */
    bool add;                     /* to what dw holds already */
    stream soon[2];               /* what the next block reads of dy, of x */
} work;

static int64_t round_up(int64_t a, int64_t unit)
{
    return lt_cpu_pieces(a, unit) * unit;
}

/* Where the block's pixels lie in dy. */
static void find_dy(const job *j, work *w)
{
    for (int64_t i = 0; i < w->pixels; i++)
        w->at[i] = i < w->count ? (w->first + i) * j->rows : -1;
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

/* Where the pixels of x lie that tap (r, s) multiplies with the block of dy. */
static void find_x(const job *j, work *w, int64_t r, int64_t s)
{
    const lt_conv2d_config *c = j->config;
    int64_t ow = w->first % j->out_width, rest = w->first / j->out_width, i = 0;
    for (int64_t count; i < w->count; i += count, rest++, ow = 0) {
        const int64_t n = rest / j->out_height;
        const int64_t y = rest % j->out_height * c->stride_h - c->pad_h + r * c->dilation_h;
        const int64_t row = (n * j->height + y) * j->width;
        count = lt_cpu_least(j->out_width - ow, w->count - i);
        if (y >= 0 && y < j->height)
            find_row(j, row, ow, count, s, w->at + i);
        else
            for (int64_t k = 0; k < count; k++)
                w->at[i + k] = -1;
    }
    for (; i < w->pixels; i++)
        w->at[i] = -1;
}

/* A product at dw's edge: made whole beside it, then what fits is moved. */
static void product_at_edge(const job *j, work *w, const uint16_t *dy, float *dw, int64_t rows,
                            int64_t columns)
{
    j->unit->product(dy, w->x, w->pixels, w->edge, LT_WGRAD_COLUMNS, false);
    for (int64_t k = 0; k < rows; k++)
        for (int64_t c = 0; c < columns; c++) {
            float *to = &dw[k * j->columns + c], sum = w->edge[k * LT_WGRAD_COLUMNS + c];
            *to = w->add ? *to + sum : sum;
        }
}

enum { LINE = 32 }; /* elements */

static stream make_stream(const uint16_t *at, int64_t row, int64_t channels, int64_t pixels,
                          int64_t times)
{
    const int64_t lines = lt_cpu_pieces(channels, LINE), all = lines * pixels;
    return (stream){at, row, lines, lt_cpu_pieces(all, times), 0, all};
}

/* The next share of it comes to the second cache. */
static void fetch(stream *s)
{
    for (int64_t end = lt_cpu_least(s->next + s->share, s->all); s->next < end; s->next++)
        __builtin_prefetch(s->at + s->next / s->lines * s->row + s->next % s->lines * LINE, 0, 2);
}

/* What the next block reads is fetched while this one is multiplied: else packing waits for memory. A
 * filter that keeps the image's size reads mostly the pixels that have the block's places; of others
 * nothing is fetched, nor where a block of x would fill the cache. */
static void plan_fetch(const job *j, work *w, int64_t first_row, int64_t rows)
{
    enum { MOST_CHANNELS = 1024 };
    const lt_conv2d_config *c = j->config;
    const int64_t next = w->after ? w->first + w->count : w->first;
    const int64_t panels = j->taps_h * j->taps_w * lt_cpu_pieces(j->channels, LT_WGRAD_COLUMNS);
    const int64_t times = panels * lt_cpu_pieces(rows, j->unit->rows);
    const bool kept = c->stride_h == 1 && c->stride_w == 1 && j->height == j->out_height
                      && j->width == j->out_width && j->channels <= MOST_CHANNELS;
    w->soon[0] = make_stream(j->dy + next * j->rows + first_row, j->rows, rows, w->after, times);
    w->soon[1] = make_stream(j->x + next * j->channels, j->channels, j->channels,
                             kept ? w->after : 0, times);
}

/* All rows of a task against one packed panel of x. */
static void multiply(const job *j, work *w, float *dw, int64_t rows, int64_t columns)
{
    const int64_t step = j->unit->rows;
    for (int64_t k = 0; k < rows; k += step) {
        fetch(&w->soon[0]);
        fetch(&w->soon[1]);
        const uint16_t *dy = w->dy + k * w->pixels;
        float *to = dw + k * j->columns;
        if (rows - k >= step && columns == LT_WGRAD_COLUMNS)
            j->unit->product(dy, w->x, w->pixels, to, j->columns, w->add);
        else
            product_at_edge(j, w, dy, to, lt_cpu_least(step, rows - k), columns);
    }
}

/* The block's part of rows first_row.. of dw. */
static void add_block(const job *j, work *w, int64_t first_row, int64_t rows, float *dw)
{
    w->pixels = round_up(w->count, j->unit->pixels);
    find_dy(j, w);
    j->unit->dy(j->dy + first_row, w->at, w->pixels, rows, w->dy);
    plan_fetch(j, w, first_row, rows);
    for (int64_t tap = 0; tap < j->taps_h * j->taps_w; tap++) {
        float *to = dw + first_row * j->columns + tap * j->channels;
        find_x(j, w, tap / j->taps_w, tap % j->taps_w);
        for (int64_t c = 0; c < j->channels; c += LT_WGRAD_COLUMNS) {
            int64_t columns = lt_cpu_least(LT_WGRAD_COLUMNS, j->channels - c);
            j->unit->x(j->x + c, w->at, w->pixels, columns, w->x);
            multiply(j, w, to + c, rows, columns);
        }
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
    ranges = lt_cpu_least(ranges, lt_cpu_least(pixels / TASK_PIXELS, PARTIALS / bytes));
    return ranges > 1 ? ranges : 1;
}

/* Measured: docs/results/cpu-speed.md, and for AMX by the prototype: with few channels of x a panel of
 * it is used too seldom there to pay for its packing. */
const lt_wgrad_unit *lt_wgrad_choose(const lt_cpu *cpu, const lt_conv2d_config *config, lt_shape w)
{
    enum { FEW = 64, MANY = 128 };
    const lt_wgrad_unit *unit = lt_wgrad_unit_of(cpu->isa);
    const int64_t enough = cpu->isa == LT_ISA_AMX && w.dim[2] * w.dim[3] > 1 ? MANY : FEW;
    if (!unit || config->groups != 1 || cpu->choice == LT_KERNELS_ONEDNN)
        return NULL;
    const bool listed = w.dim[0] >= FEW && w.dim[1] >= enough;
    return listed || cpu->choice == LT_KERNELS_OWN ? unit : NULL;
}

lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_unit *unit, const lt_conv2d_config *config,
                       const lt_view *x, const lt_view *dy, lt_shape w, float *dw)
{
    LT_ASSERT(config->groups == 1 && unit->rows <= MOST_ROWS);
    enum { GRAIN = 1 << 14 };
    const int64_t *xs = x->shape.dim, *ys = dy->shape.dim;
    job j = {
        .unit = unit,
        .config = config,
        .x = x->data,
        .dy = dy->data,
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
