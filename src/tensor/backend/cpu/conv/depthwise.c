/* Depthwise convolution: each output pixel is the sum over taps of an input pixel times the tap's weights, channel by
 * channel. Filters are transposed to [taps][channels]. The gradient of w is summed in ranges of rows, which are added
 * in order. */

#include "depthwise.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { N, C, H, W };
enum { MAX_PRODUCTS = 1024 }; /* terms of one sum: taps, or pixels of a row */
enum { RANGES = 64 };         /* most ranges of the gradient of w */

typedef struct job {
    const lt_cpu_kernels *kernels;
    const lt_conv2d_config *config;
    const lt_view *from, *to; /* grad_w: x and dy */
    bool backward;
    int64_t channels, taps_h, taps_w, rows; /* rows: of a range */
    float *w;                               /* [taps][channels]; grad_w: [ranges][taps][channels] */
} job;

static float *pixel(const lt_view *v, int64_t row, int64_t column)
{
    return (float *)v->data + (row * v->shape.dim[W] + column) * v->shape.dim[C];
}

/* Returns the row of all images of `from` that tap row r reads for a row of `to`, or -1. */
static int64_t row_read(const job *j, int64_t row, int64_t r)
{
    const int64_t height = j->to->shape.dim[H], in = j->from->shape.dim[H];
    const int64_t y = lt_conv_input_index(j->backward, row % height, r * j->config->dilation_h,
                                          j->config->stride_h, j->config->pad_h, in);
    return y < 0 ? -1 : row / height * in + y;
}

static int64_t column_read(const job *j, int64_t column, int64_t s)
{
    return lt_conv_input_index(j->backward, column, s * j->config->dilation_w, j->config->stride_w,
                               j->config->pad_w, j->from->shape.dim[W]);
}

static void write_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const float *a[MAX_PRODUCTS], *b[MAX_PRODUCTS];
    for (int64_t i = begin * j->to->shape.dim[W]; i < end * j->to->shape.dim[W]; i++) {
        const int64_t row = i / j->to->shape.dim[W], column = i % j->to->shape.dim[W];
        int64_t count = 0;
        for (int64_t r = 0; r < j->taps_h; r++) {
            const int64_t y = row_read(j, row, r);
            for (int64_t s = 0; s < j->taps_w && y >= 0; s++) {
                const int64_t x = column_read(j, column, s);
                if (x < 0)
                    continue;
                a[count] = pixel(j->from, y, x);
                b[count++] = j->w + (r * j->taps_w + s) * j->channels;
            }
        }
        float *y = pixel(j->to, row, column);
        memset(y, 0, (size_t)j->channels * sizeof *y);
        j->kernels->add_products(a, b, count, j->channels, y);
    }
}

/* Adds a row's products of x and dy to the gradient of one tap. */
static void add_row(const job *j, int64_t row, int64_t r, int64_t s, float *dw)
{
    const float *a[MAX_PRODUCTS], *b[MAX_PRODUCTS];
    const int64_t y = row_read(j, row, r), width = j->to->shape.dim[W];
    int64_t count = 0;
    for (int64_t column = 0; column < width && y >= 0; column++) {
        const int64_t x = column_read(j, column, s);
        if (x >= 0) {
            a[count] = pixel(j->from, y, x);
            b[count++] = pixel(j->to, row, column);
        }
        if (count < MAX_PRODUCTS && column + 1 < width)
            continue;
        j->kernels->add_products(a, b, count, j->channels, dw);
        count = 0;
    }
}

static void sum_ranges(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t taps = j->taps_h * j->taps_w, rows = j->to->shape.dim[N] * j->to->shape.dim[H];
    for (int64_t i = begin; i < end; i++) {
        float *dw = j->w + i * j->channels;
        const int64_t first = i / taps * j->rows, last = lt_cpu_min(first + j->rows, rows);
        memset(dw, 0, (size_t)j->channels * sizeof *dw);
        for (int64_t row = first; row < last; row++)
            add_row(j, row, i % taps / j->taps_w, i % j->taps_w, dw);
    }
}

static lt_status run_grad_w(lt_cpu *cpu, job *j, const lt_view *dw)
{
    const int64_t taps = j->taps_h * j->taps_w, rows = j->to->shape.dim[N] * j->to->shape.dim[H];
    j->rows = lt_cpu_ceil_div(rows, RANGES);
    const int64_t ranges = lt_cpu_ceil_div(rows, j->rows), size = taps * j->channels;
    j->w = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(ranges * size) * sizeof *j->w);
    if (!j->w)
        return LT_E_NOMEM;
    lt_parallel(ranges * taps, 1, sum_ranges, j);
    for (int64_t i = 1; i < ranges; i++)
        cpu->kernels->of[LT_STORE_F32].add(j->w, j->w + i * size, j->w, size);
    cpu->kernels->transpose_block(j->w, j->channels, taps, j->channels, dw->data, taps);
    return LT_OK;
}

bool lt_depthwise_supports(const lt_conv_call *c)
{
    return lt_conv_is_depthwise(c->config, c->w)
           && c->w->shape.dim[H] * c->w->shape.dim[W] <= MAX_PRODUCTS
           && lt_cpu_is_channels_last(c->x, LT_F32) && lt_cpu_is_channels_last(c->w, LT_F32)
           && lt_cpu_is_channels_last(c->y, LT_F32);
}

lt_status lt_depthwise_run(lt_cpu *cpu, const lt_conv_call *c)
{
    const bool backward = c->kind == LT_CONV_GRAD_X;
    job j = {.kernels = cpu->kernels,
             .config = c->config,
             .from = backward ? c->y : c->x,
             .to = backward ? c->x : c->y,
             .backward = backward,
             .channels = c->x->shape.dim[C],
             .taps_h = c->w->shape.dim[H],
             .taps_w = c->w->shape.dim[W]};
    const int64_t taps = j.taps_h * j.taps_w;
    if (c->kind == LT_CONV_GRAD_W)
        return run_grad_w(cpu, &j, c->w);
    j.w = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, (size_t)(taps * j.channels) * sizeof *j.w);
    if (!j.w)
        return LT_E_NOMEM;
    cpu->kernels->transpose_block(c->w->data, taps, j.channels, taps, j.w, j.channels);
    lt_parallel(j.to->shape.dim[N] * j.to->shape.dim[H], 1, write_rows, &j);
    return LT_OK;
}
