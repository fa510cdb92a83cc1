/* See direct_conv.h. A block of pixels of the result is made by one thread: for each panel of packed
 * weights all tiles of pixels, so that a panel stays in the first cache while what the block reads stays
 * in the second. Where a gradient's stride is above 1, pixels of one phase (place modulo stride) meet
 * the same taps, and share tiles. */

#include "direct_conv.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/gemm/gemm.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    MOST_PIXELS = 448, /* of a block */
    LEAST_PIXELS = 64,
    BLOCK_BYTES = 1 << 18, /* that a block reads, where that is not below LEAST_PIXELS */
    MOST_ROWS = 16,        /* of any tile */
};

enum { MOST_TAPS = 256 };

typedef struct job {
    const lt_own_conv *c;
    const lt_cpu_kernels *kernels;
    const lt_gemm_unit *unit; /* packs pairs of bf16 */
    lt_cpu_store store;
    const int64_t *in, *out; /* dimensions of from and to */
    int64_t taps_h, taps_w, taps, block, size;
    int64_t stride_h, stride_w, panels, panel_bytes;
    int32_t *place_h, *place_w; /* [out][taps]: which row, which column a tap reads; -1: padding */
    char *packed;               /* [taps][panels] */
    char *scratch;              /* of each thread */
    int64_t scratch_bytes, range_bytes;
} job;

/* A thread's memory, and the block that it makes. */
typedef struct work {
    int32_t *at;     /* [tiles][taps of the phase][tile_rows] */
    int64_t *to;     /* [tiles * tile_rows] */
    int64_t *tap;    /* [taps]: bytes to its first panel */
    int64_t *number; /* [taps] */
    char *zeros;     /* a pixel */
    char *range;     /* what the block reads, if something comes before */
    int64_t taps;    /* of the phase */
    int64_t pixels;  /* of the phase */
    int64_t lo, hi;  /* range of pixels that the block reads */
    const void *x;   /* pixel lo */
} work;

static int64_t count_pixels(const lt_view *v)
{
    return v->shape.dim[0] * v->shape.dim[2] * v->shape.dim[3];
}

static int64_t round_up(int64_t bytes)
{
    return lt_cpu_pieces(bytes, 64) * 64;
}

int64_t lt_own_conv_block(const lt_own_conv *c)
{
    const int64_t pixel = c->from->shape.dim[1] * (int64_t)lt_dtype_size(c->from->dtype);
    const int64_t area = c->config->stride_h * c->config->stride_w;
    const int64_t reads = c->backward ? lt_cpu_most(pixel / area, 1) : pixel * area;
    return lt_cpu_most(LEAST_PIXELS, lt_cpu_least(MOST_PIXELS, BLOCK_BYTES / reads / 8 * 8));
}

/* --- Weights --- */

/* Rows of w are output channels, [taps][C] each. Backward, lanes and steps change places. */
static lt_gemm_operand weights_of(const job *j, int64_t tap, int64_t first)
{
    const lt_view *w = j->c->w;
    const int64_t channels = w->shape.dim[1], row = j->taps * channels;
    const int64_t lane = j->c->backward ? 1 : row, step = j->c->backward ? row : 1;
    const char *data = w->data;
    return (lt_gemm_operand){
        data + (tap * channels + first * lane) * (int64_t)lt_dtype_size(w->dtype), w->dtype, lane,
        step};
}

/* Panels of a matrix product's, a few steps at a time, side by side. */
static void pack_f32(const job *j, const lt_gemm_operand *x, int lanes, float *to)
{
    enum { STEPS = 64, MOST_LANES = 64, PANEL = 16 };
    const int width = j->kernels->tile_cols;
    int64_t lane[MOST_LANES], step[STEPS];
    _Alignas(64) float part[STEPS * MOST_LANES];
    for (int i = 0; i < lanes; i++)
        lane[i] = i * x->lane;
    for (int64_t k = 0; k < STEPS; k++)
        step[k] = k * x->step;
    for (int64_t k = 0, depth; k < j->in[1]; k += depth) {
        depth = lt_cpu_least(STEPS, j->in[1] - k);
        const float *data = (const float *)x->data + k * x->step;
        j->kernels->gemm_pack(&(lt_panel){data, lane, step, lanes, depth}, part);
        for (int64_t i = 0; i < depth; i++, to += width)
            for (int first = 0; first < width; first += PANEL)
                memcpy(to + first, part + first * depth + i * PANEL, PANEL * sizeof *to);
    }
}

static void pack_panels(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int width = j->kernels->tile_cols;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % j->panels * width;
        const int lanes = (int)lt_cpu_least(width, j->out[1] - first);
        const lt_gemm_operand x = weights_of(j, i / j->panels, first);
        char *to = j->packed + i * j->panel_bytes;
        if (j->store == LT_STORE_BF16)
            j->unit->pack(&x, lanes, j->in[1], width, to);
        else
            pack_f32(j, &x, lanes, (float *)(void *)to);
    }
}

/* --- Places --- */

/* Along one dimension: where an output's tap reads, or -1. */
static int64_t reads(bool backward, int64_t out, int64_t tap, int stride, int pad, int64_t in)
{
    const int64_t at = backward ? out + pad - tap : out * stride - pad + tap;
    if (!backward)
        return at >= 0 && at < in ? at : -1;
    return at >= 0 && at % stride == 0 && at / stride < in ? at / stride : -1;
}

/* For all outputs and taps of both dimensions: [out][taps]. */
static void find_places(const job *j)
{
    const lt_conv2d_config *c = j->c->config;
    for (int64_t i = 0; i < j->out[2] * j->taps_h; i++)
        j->place_h[i] = (int32_t)reads(j->c->backward, i / j->taps_h, i % j->taps_h * c->dilation_h,
                                       c->stride_h, c->pad_h, j->in[2]);
    for (int64_t i = 0; i < j->out[3] * j->taps_w; i++)
        j->place_w[i] = (int32_t)reads(j->c->backward, i / j->taps_w, i % j->taps_w * c->dilation_w,
                                       c->stride_w, c->pad_w, j->in[3]);
}

/* Whether pixels of a phase meet a tap at all. */
static bool meets(const job *j, int64_t phase, int64_t tap)
{
    const lt_conv2d_config *c = j->c->config;
    const int64_t h = phase / j->stride_w, w = phase % j->stride_w;
    return !j->c->backward
           || ((h + c->pad_h - tap / j->taps_w * c->dilation_h) % j->stride_h == 0
               && (w + c->pad_w - tap % j->taps_w * c->dilation_w) % j->stride_w == 0);
}

/* What pixels q, q + stride .. last-1 of row p of image n read by the phase's tap t. */
static void place_tap(const job *j, const work *w, int64_t t, const int64_t place[4], int64_t last)
{
    const int64_t rows = j->kernels->tile_rows, n = place[0], p = place[1], tap = w->number[t];
    const int64_t y = j->place_h[p * j->taps_h + tap / j->taps_w];
    const int32_t *x = j->place_w + tap % j->taps_w;
    const int64_t first = (n * j->in[2] + y) * j->in[3] - w->lo;
    int64_t i = place[3] % rows;
    int32_t *at = w->at + (place[3] / rows * w->taps + t) * rows;
    for (int64_t q = place[2]; q < last; q += j->stride_w) {
        const int64_t column = x[q * j->taps_w];
        at[i] = y < 0 || column < 0 ? -1 : (int32_t)(first + column);
        if (++i < rows)
            continue;
        i = 0;
        at += w->taps * rows;
    }
}

/* The phase's pixels among those from begin on that lie in one row of an image. */
static void place_row(const job *j, work *w, int64_t phase, int64_t begin, int64_t count)
{
    const int64_t row = begin / j->out[3], q = begin % j->out[3], last = q + count;
    const int64_t n = row / j->out[2], p = row % j->out[2], ahead = phase % j->stride_w;
    if (p % j->stride_h != phase / j->stride_w)
        return;
    const int64_t first = q + (ahead + j->stride_w - q % j->stride_w) % j->stride_w;
    const int64_t place[4] = {n, p, first, w->pixels};
    for (int64_t t = 0; t < w->taps; t++)
        place_tap(j, w, t, place, last);
    for (int64_t i = first; i < last; i += j->stride_w)
        w->to[w->pixels++] = begin + i - q;
}

/* The phase's taps and pixels of the block. Rows that the last tile lacks read zeros. */
static void place_phase(const job *j, work *w, int64_t phase, int64_t begin, int64_t end)
{
    const int64_t rows = j->kernels->tile_rows;
    w->taps = w->pixels = 0;
    for (int64_t t = 0; t < j->taps; t++)
        if (meets(j, phase, t)) {
            w->tap[w->taps] = t * j->panels * j->panel_bytes;
            w->number[w->taps++] = t;
        }
    for (int64_t i = begin, count; i < end; i += count) {
        count = lt_cpu_least(j->out[3] - i % j->out[3], end - i);
        place_row(j, w, phase, i, count);
    }
    for (int64_t i = w->pixels; i % rows; i++)
        for (int64_t t = 0; t < w->taps; t++)
            w->at[(i / rows * w->taps + t) * rows + i % rows] = -1;
}

/* Pixels that a block reads, as one range. */
static void find_range(const job *j, int64_t begin, int64_t end, int64_t *lo, int64_t *hi)
{
    const lt_conv2d_config *c = j->c->config;
    const int64_t image = j->out[2] * j->out[3], last = end - 1;
    const int64_t reach = (j->taps_h - 1) * c->dilation_h;
    const int64_t top = begin % image / j->out[3] * c->stride_h - c->pad_h;
    const int64_t bottom = last % image / j->out[3] * c->stride_h - c->pad_h + reach;
    *lo = (begin / image * j->in[2] + lt_cpu_least(lt_cpu_most(0, top), j->in[2] - 1)) * j->in[3];
    *hi = (last / image * j->in[2] + lt_cpu_most(0, lt_cpu_least(j->in[2] - 1, bottom)) + 1)
          * j->in[3];
}

/* --- Products --- */

/* Where a tile that comes soon begins to read what none before it has read. */
static const void *soon(const job *j, const work *w, int64_t i)
{
    enum { TILES = 3 };
    const int64_t rows = j->kernels->tile_rows, next = i + TILES * rows;
    if (next >= w->pixels || !w->taps)
        return NULL;
    const int64_t at = w->at[next * w->taps + (w->taps - 1) * rows];
    return at < 0 ? NULL : (const char *)w->x + at * j->in[1] * j->size;
}

/* What tile i prefetches of the next panel of weights; NULL behind the last panel, and for filters of several taps. */
static const void *next_weights(const job *j, const work *w, int64_t panel, int64_t i)
{
    if (w->taps != 1 || panel + 1 >= j->panels || i >= j->kernels->tile_cols)
        return NULL;
    return j->packed + w->tap[0] + (panel + 1) * j->panel_bytes + i * j->in[1] * j->size;
}

static void multiply(const job *j, const work *w)
{
    const int width = j->kernels->tile_cols, rows = j->kernels->tile_rows;
    lt_conv_tile t = {.x = w->x,
                      .zeros = w->zeros,
                      .pixel = j->in[1] * j->size,
                      .tap = w->tap,
                      .taps = w->taps,
                      .depth = j->in[1],
                      .channels = j->out[1]};
    for (int64_t panel = 0; panel < j->panels; panel++) {
        t.w = j->packed + panel * j->panel_bytes;
        t.cols = (int)lt_cpu_least(width, j->out[1] - panel * width);
        t.y = (char *)j->c->to->data + panel * width * j->size;
        for (int64_t i = 0; i < w->pixels; i += rows) {
            t.at = w->at + i * w->taps;
            t.to = w->to + i;
            t.rows = (int)lt_cpu_least(rows, w->pixels - i);
            t.next = panel || w->x == w->range ? next_weights(j, w, panel, i) : soon(j, w, i);
            j->kernels->of[j->store].conv_tile(&t);
        }
    }
}

static void apply_before(const job *j, work *w)
{
    lt_bn_apply in = *j->c->before;
    in.x = (const char *)j->c->from->data + w->lo * j->in[1] * j->size;
    in.y = w->range;
    j->kernels->of[j->store].bn_apply(&in, 0, w->hi - w->lo);
    w->x = w->range;
}

static work work_of(const job *j)
{
    const int64_t places = lt_cpu_pieces(j->block, MOST_ROWS) * MOST_ROWS + MOST_ROWS;
    char *at = j->scratch + lt_parallel_index() * j->scratch_bytes;
    work w = {.x = j->c->from->data, .zeros = at};
    at += round_up(j->in[1] * j->size);
    w.tap = (int64_t *)(void *)at;
    at += round_up(j->taps * (int64_t)sizeof *w.tap);
    w.number = (int64_t *)(void *)at;
    at += round_up(j->taps * (int64_t)sizeof *w.number);
    w.to = (int64_t *)(void *)at;
    at += round_up(places * (int64_t)sizeof *w.to);
    w.at = (int32_t *)(void *)at;
    w.range = at + round_up(places * j->taps * (int64_t)sizeof *w.at);
    return w;
}

static int64_t work_bytes(const job *j)
{
    const int64_t places = lt_cpu_pieces(j->block, MOST_ROWS) * MOST_ROWS + MOST_ROWS;
    return round_up(j->in[1] * j->size) + 2 * round_up(j->taps * (int64_t)sizeof(int64_t))
           + round_up(places * (int64_t)sizeof(int64_t))
           + round_up(places * j->taps * (int64_t)sizeof(int32_t)) + round_up(j->range_bytes);
}

static void run_block(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const job *j = context;
    work w = work_of(j);
    memset(w.zeros, 0, (size_t)(j->in[1] * j->size));
    if (j->c->before) {
        find_range(j, begin, end, &w.lo, &w.hi);
        apply_before(j, &w);
    }
    for (int64_t phase = 0; phase < j->stride_h * j->stride_w; phase++) {
        place_phase(j, &w, phase, begin, end);
        multiply(j, &w);
    }
    if (j->c->after)
        j->c->after(j->c->context, begin, end, chunk);
}

/* --- The whole --- */

static bool is_stored(const lt_view *v, lt_dtype dtype)
{
    return v->dtype == dtype && lt_view_is_channels_last(v);
}

bool lt_own_conv_can(const lt_cpu *cpu, const lt_own_conv *c)
{
    const lt_dtype dtype = c->from->dtype, w = c->w->dtype;
    if (c->config->groups != 1 || c->w->shape.dim[2] * c->w->shape.dim[3] > MOST_TAPS
        || count_pixels(c->from) >= INT32_MAX || count_pixels(c->to) >= INT32_MAX)
        return false;
    if (!is_stored(c->from, dtype) || !is_stored(c->to, dtype) || !is_stored(c->w, w))
        return false;
    if (dtype == LT_BF16)
        return lt_gemm_unit_bf16(cpu->isa) && c->from->shape.dim[1] % 2 == 0
               && (w == LT_F32 || w == LT_BF16);
    return dtype == LT_F32 && w == LT_F32 && cpu->isa >= LT_ISA_AVX2;
}

static job make_job(const lt_cpu *cpu, const lt_own_conv *c)
{
    const bool is_bf16 = c->from->dtype == LT_BF16;
    job j = {.c = c,
             .kernels = cpu->kernels,
             .unit = is_bf16 ? lt_gemm_unit_bf16(cpu->isa) : NULL,
             .store = lt_cpu_store_of(c->from->dtype),
             .in = c->from->shape.dim,
             .out = c->to->shape.dim,
             .taps_h = c->w->shape.dim[2],
             .taps_w = c->w->shape.dim[3],
             .block = lt_own_conv_block(c),
             .size = (int64_t)lt_dtype_size(c->from->dtype),
             .stride_h = c->backward ? c->config->stride_h : 1,
             .stride_w = c->backward ? c->config->stride_w : 1};
    j.taps = j.taps_h * j.taps_w;
    j.panels = lt_cpu_pieces(j.out[1], cpu->kernels->tile_cols);
    j.panel_bytes = cpu->kernels->tile_cols * j.in[1] * j.size;
    return j;
}

lt_status lt_own_conv_run(lt_cpu *cpu, const lt_own_conv *c)
{
    enum { PANELS = 4 };
    job j = make_job(cpu, c);
    const int64_t pixels = count_pixels(c->to);
    for (int64_t begin = 0; c->before && begin < pixels; begin += j.block) {
        int64_t lo, hi;
        find_range(&j, begin, lt_cpu_least(begin + j.block, pixels), &lo, &hi);
        j.range_bytes = lt_cpu_most(j.range_bytes, (hi - lo) * j.in[1] * j.size);
    }
    j.scratch_bytes = work_bytes(&j);
    j.scratch =
        lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)(lt_parallel_threads() * j.scratch_bytes));
    j.packed = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, (size_t)(j.taps * j.panels * j.panel_bytes));
    j.place_h = lt_cpu_scratch(
        cpu, LT_CPU_COEF, (size_t)(j.out[2] * j.taps_h + j.out[3] * j.taps_w) * sizeof *j.place_h);
    if (!j.scratch || !j.packed || !j.place_h)
        return LT_E_NOMEM;
    j.place_w = j.place_h + j.out[2] * j.taps_h;
    find_places(&j);
    lt_parallel(j.taps * j.panels, PANELS, pack_panels, &j);
    lt_parallel(pixels, j.block, run_block, &j);
    return LT_OK;
}
