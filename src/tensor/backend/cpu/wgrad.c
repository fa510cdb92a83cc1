/* The gradient of a convolution's weight: cutting the work, gathering pixels, adding up. See
 * wgrad.h.
 *
 * A task makes some rows of dw from a range of pixels. It packs a block of dy once, and a panel of x
 * for each filter tap and each 32 channels; strides, padding and dilation are where a pixel is
 * looked up. Ranges of pixels have partial sums of their own, added in their order: the same bits
 * for any number of threads. */

#include "tensor/backend/cpu/wgrad.h"

#include "base/parallel.h"

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
    float *dw, *partial; /* partial: ranges of them, or NULL if there is one */
    char *scratch;       /* of each thread */
} job;

/* A thread's block of pixels, packed. */
typedef struct work {
    _Alignas(64) uint16_t dy[LT_WGRAD_ROWS * LT_WGRAD_BLOCK];
    uint16_t x[LT_WGRAD_COLUMNS * LT_WGRAD_BLOCK];
    float edge[MOST_ROWS * LT_WGRAD_COLUMNS];
    int64_t at[LT_WGRAD_BLOCK];
    int64_t first, count, pixels; /* pixels: count rounded up to what the unit adds up at once */
    bool add;                     /* to what dw holds already */
} work;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t a, int64_t unit)
{
    return (a + unit - 1) / unit * unit;
}

/* Where the block's pixels lie in dy. */
static void find_dy(const job *j, work *w)
{
    for (int64_t i = 0; i < w->pixels; i++)
        w->at[i] = i < w->count ? (w->first + i) * j->rows : -1;
}

/* Where the pixels of x lie that tap (r, s) multiplies with the block of dy. */
static void find_x(const job *j, work *w, int64_t r, int64_t s)
{
    const lt_conv2d_config *c = j->config;
    int64_t ow = w->first % j->out_width, rest = w->first / j->out_width;
    int64_t oh = rest % j->out_height, n = rest / j->out_height;
    for (int64_t i = 0; i < w->count; i++) {
        int64_t y = oh * c->stride_h - c->pad_h + r * c->dilation_h;
        int64_t x = ow * c->stride_w - c->pad_w + s * c->dilation_w;
        bool inside = y >= 0 && y < j->height && x >= 0 && x < j->width;
        w->at[i] = inside ? ((n * j->height + y) * j->width + x) * j->channels : -1;
        if (++ow < j->out_width)
            continue;
        ow = 0;
        if (++oh < j->out_height)
            continue;
        oh = 0;
        n++;
    }
    for (int64_t i = w->count; i < w->pixels; i++)
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

/* All rows of a task against one packed panel of x. */
static void multiply(const job *j, work *w, float *dw, int64_t rows, int64_t columns)
{
    const int64_t step = j->unit->rows;
    for (int64_t k = 0; k < rows; k += step) {
        const uint16_t *dy = w->dy + k * w->pixels;
        float *to = dw + k * j->columns;
        if (rows - k >= step && columns == LT_WGRAD_COLUMNS)
            j->unit->product(dy, w->x, w->pixels, to, j->columns, w->add);
        else
            product_at_edge(j, w, dy, to, least(step, rows - k), columns);
    }
}

/* The block's part of rows first_row.. of dw. */
static void add_block(const job *j, work *w, int64_t first_row, int64_t rows, float *dw)
{
    w->pixels = round_up(w->count, j->unit->pixels);
    find_dy(j, w);
    j->unit->dy(j->dy + first_row, w->at, w->pixels, rows, w->dy);
    for (int64_t tap = 0; tap < j->taps_h * j->taps_w; tap++) {
        float *to = dw + first_row * j->columns + tap * j->channels;
        find_x(j, w, tap / j->taps_w, tap % j->taps_w);
        for (int64_t c = 0; c < j->channels; c += LT_WGRAD_COLUMNS) {
            int64_t columns = least(LT_WGRAD_COLUMNS, j->channels - c);
            j->unit->x(j->x + c, w->at, w->pixels, columns, w->x);
            multiply(j, w, to + c, rows, columns);
        }
    }
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
        float *dw = j->partial ? j->partial + range * j->rows * j->columns : j->dw;
        for (w->first = from; w->first < to; w->first += LT_WGRAD_BLOCK) {
            w->count = least(LT_WGRAD_BLOCK, to - w->first);
            w->add = w->first > from;
            add_block(j, w, row, least(LT_WGRAD_ROWS, j->rows - row), dw);
        }
    }
    if (j->unit->end)
        j->unit->end();
}

static void add_partials(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t count = j->rows * j->columns;
    memcpy(j->dw + begin, j->partial + begin, (size_t)(end - begin) * sizeof(float));
    for (int64_t range = 1; range < j->ranges; range++)
        for (int64_t i = begin; i < end; i++)
            j->dw[i] += j->partial[range * count + i];
}

/* How many ranges of pixels: by sizes alone. */
static int64_t count_ranges(const job *j)
{
    int64_t pixels = j->batch * j->out_height * j->out_width;
    int64_t bytes = j->rows * j->columns * (int64_t)sizeof(float);
    int64_t ranges = (TASKS + j->row_tasks - 1) / j->row_tasks;
    ranges = least(ranges, least(pixels / TASK_PIXELS, PARTIALS / bytes));
    return ranges > 1 ? ranges : 1;
}

/* Measured: docs/results/cpu-speed.md. With few channels of x a panel of it is used too seldom to
 * pay for its packing. */
const lt_wgrad_unit *lt_wgrad_choose(lt_cpu_isa isa, const lt_conv2d_config *config, lt_shape w)
{
    enum { FEW = 64, MANY = 128 };
    const lt_wgrad_unit *unit = lt_wgrad_unit_of(isa);
    const bool one_tap = w.dim[2] * w.dim[3] == 1;
    if (!unit || config->groups != 1 || w.dim[0] < FEW)
        return NULL;
    return w.dim[1] >= MANY || (isa == LT_ISA_AMX && one_tap && w.dim[1] >= FEW) ? unit : NULL;
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
    size_t bytes = (size_t)(j.ranges * j.rows * j.columns) * sizeof(float);
    j.scratch = lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)lt_parallel_threads() * sizeof(work));
    if (!j.scratch || (j.ranges > 1 && !(j.partial = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, bytes))))
        return LT_E_NOMEM;
    lt_parallel(j.ranges * j.row_tasks, 1, run_task, &j);
    if (j.ranges > 1)
        lt_parallel(j.rows * j.columns, GRAIN, add_partials, &j);
    return LT_OK;
}
