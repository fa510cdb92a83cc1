/* Implicit-GEMM convolution without im2col: see direct_conv.h. One thread computes a block of output pixels: for each
 * panel of packed weights all tiles of pixels, which keeps the panel in the L1 cache and the block's input in L2. In a
 * gradient with stride above 1, pixels of one phase (position modulo stride) use the same taps and share tiles. */

#include "direct_conv.h"

#include "base/parallel.h"
#include "conv_call.h"
#include "row_taps.h"
#include "tensor/backend/cpu/gemm/gemm.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    MAX_PIXELS = 448, /* pixels of a block */
    MIN_PIXELS = 64,
    BLOCK_BYTES = 1 << 18, /* input of a block, unless that is below MIN_PIXELS */
    MAX_TILE_ROWS = 16,    /* for all instruction sets */
};

enum { MAX_TAPS = 1024 };

typedef struct job {
    const lt_direct_conv *c;
    const lt_cpu_kernels *kernels;
    const lt_gemm_microkernel *packer; /* packs pairs of bf16; NULL in f32 */
    lt_cpu_store store;
    const int64_t *in, *out; /* dimensions of from and to */
    const char *from, *w;    /* the group's first channels and filters */
    char *to;
    bool last_group;
    int64_t depth, cols;        /* channels that the group reads and writes */
    int64_t from_step, to_step; /* elements between pixels */
    int64_t taps_h, taps_w, taps, block, size;
    int64_t stride_h, stride_w, panels, panel_bytes;
    int32_t *input_row, *input_col; /* [out][taps]: row and column that a tap reads; -1: padding */
    char *packed;                   /* [taps][panels] */
    char *scratch;                  /* [threads][scratch_bytes] */
    int64_t scratch_bytes, range_bytes;
} job;

/* A thread's workspace, and the block that it computes. */
typedef struct workspace {
    int32_t *at;     /* [tiles][taps of the phase][tile_rows] */
    int64_t *to;     /* [tiles * tile_rows] */
    int64_t *tap;    /* [taps]: byte offset of its first panel */
    int64_t *number; /* [taps]: index of the tap in the filter */
    char *zeros;     /* one pixel */
    char *range;     /* normalised input of the block, if input_norm */
    int64_t taps;    /* taps of the phase */
    int64_t pixels;  /* pixels of the phase */
    int64_t lo, hi;  /* pixels [lo, hi) that the block reads */
    const void *x;   /* pixel lo */
} workspace;

static int64_t count_pixels(const lt_view *v)
{
    return v->shape.dim[0] * v->shape.dim[2] * v->shape.dim[3];
}

static int64_t round_up_to_cache_line(int64_t bytes)
{
    return lt_cpu_round_up(bytes, 64);
}

int64_t lt_direct_conv_block_pixels(const lt_direct_conv *c)
{
    const int64_t pixel = c->from->shape.dim[1] * (int64_t)lt_dtype_size(c->from->dtype);
    const int64_t area = (int64_t)c->config->stride_h * c->config->stride_w;
    const int64_t reads = c->backward ? lt_cpu_max(pixel / area, 1) : pixel * area;
    return lt_cpu_max(MIN_PIXELS, lt_cpu_min(MAX_PIXELS, BLOCK_BYTES / reads / 8 * 8));
}

/* --- Weights --- */

/* Returns a tap's weights from channel `first` on. Rows of w are output channels, [taps][C] each; backward swaps lanes
 * and steps. */
static lt_gemm_operand tap_weights(const job *j, int64_t tap, int64_t first)
{
    const lt_view *w = j->c->w;
    const int64_t channels = w->shape.dim[1], row = j->taps * channels;
    const int64_t lane = j->c->backward ? 1 : row, step = j->c->backward ? row : 1;
    return (lt_gemm_operand){
        j->w + (tap * channels + first * lane) * (int64_t)lt_dtype_size(w->dtype), w->dtype, lane,
        step};
}

/* Packs f32 weights: the panels of a matrix product, a few steps at a time, interleaved to rows of tile_cols. */
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
    for (int64_t k = 0, depth; k < j->depth; k += depth) {
        depth = lt_cpu_min(STEPS, j->depth - k);
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
        const int lanes = (int)lt_cpu_min(width, j->cols - first);
        const lt_gemm_operand x = tap_weights(j, i / j->panels, first);
        char *to = j->packed + i * j->panel_bytes;
        if (j->store == LT_STORE_BF16)
            j->packer->pack(&x, lanes, j->depth, width, to);
        else
            pack_f32(j, &x, lanes, (float *)(void *)to);
    }
}

/* --- Input positions --- */

/* Fills the tables input_row and input_col: the input row and column that each output reads at each filter tap. */
static void find_input_positions(const job *j)
{
    const lt_conv2d_config *c = j->c->config;
    for (int64_t i = 0; i < j->out[2] * j->taps_h; i++)
        j->input_row[i] = (int32_t)lt_conv_input_index(j->c->backward, i / j->taps_h,
                                                       i % j->taps_h * c->dilation_h, c->stride_h,
                                                       c->pad_h, j->in[2]);
    for (int64_t i = 0; i < j->out[3] * j->taps_w; i++)
        j->input_col[i] = (int32_t)lt_conv_input_index(j->c->backward, i / j->taps_w,
                                                       i % j->taps_w * c->dilation_w, c->stride_w,
                                                       c->pad_w, j->in[3]);
}

/* Returns true if pixels of a phase use the tap. */
static bool phase_has_tap(const job *j, int64_t phase, int64_t tap)
{
    const lt_conv2d_config *c = j->c->config;
    const int64_t h = phase / j->stride_w, w = phase % j->stride_w;
    return !j->c->backward
           || ((h + c->pad_h - tap / j->taps_w * c->dilation_h) % j->stride_h == 0
               && (w + c->pad_w - tap % j->taps_w * c->dilation_w) % j->stride_w == 0);
}

/* Lists the input pixels that tap t of the phase reads for output pixels q, q + stride, .. last-1 of row p of image n;
 * place: {n, p, q, index of the first pixel}. */
static void list_tap_pixels(const job *j, const workspace *w, int64_t t, const int64_t place[4],
                            int64_t last)
{
    const int64_t rows = j->kernels->tile_rows, n = place[0], p = place[1], tap = w->number[t];
    const int64_t y = j->input_row[p * j->taps_h + tap / j->taps_w];
    const int32_t *x = j->input_col + tap % j->taps_w;
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

/* Lists the phase's pixels among the count pixels from `begin` on, which are in one row of an image. */
static void list_row_pixels(const job *j, workspace *w, int64_t phase, int64_t begin, int64_t count)
{
    const int64_t row = begin / j->out[3], q = begin % j->out[3], last = q + count;
    const int64_t n = row / j->out[2], p = row % j->out[2], ahead = phase % j->stride_w;
    if (p % j->stride_h != phase / j->stride_w)
        return;
    const int64_t first = q + (ahead + j->stride_w - q % j->stride_w) % j->stride_w;
    const int64_t place[4] = {n, p, first, w->pixels};
    for (int64_t t = 0; t < w->taps; t++)
        list_tap_pixels(j, w, t, place, last);
    for (int64_t i = first; i < last; i += j->stride_w)
        w->to[w->pixels++] = begin + i - q;
}

/* Lists the phase's taps and pixels of the block. Missing rows of the last tile read zeros. */
static void list_phase_taps_and_pixels(const job *j, workspace *w, int64_t phase, int64_t begin,
                                       int64_t end)
{
    const int64_t rows = j->kernels->tile_rows;
    w->taps = w->pixels = 0;
    for (int64_t t = 0; t < j->taps; t++)
        if (phase_has_tap(j, phase, t)) {
            w->tap[w->taps] = t * j->panels * j->panel_bytes;
            w->number[w->taps++] = t;
        }
    for (int64_t i = begin, count; i < end; i += count) {
        count = lt_cpu_min(j->out[3] - i % j->out[3], end - i);
        list_row_pixels(j, w, phase, i, count);
    }
    for (int64_t i = w->pixels; i % rows; i++)
        for (int64_t t = 0; t < w->taps; t++)
            w->at[(i / rows * w->taps + t) * rows + i % rows] = -1;
}

/* Finds the range of pixels [*lo, *hi) that a block reads. */
static void find_input_range(const job *j, int64_t begin, int64_t end, int64_t *lo, int64_t *hi)
{
    const lt_conv2d_config *c = j->c->config;
    const int64_t image = j->out[2] * j->out[3], last = end - 1;
    const int64_t reach = (j->taps_h - 1) * c->dilation_h;
    const int64_t top = begin % image / j->out[3] * c->stride_h - c->pad_h;
    const int64_t bottom = last % image / j->out[3] * c->stride_h - c->pad_h + reach;
    *lo = (begin / image * j->in[2] + lt_cpu_min(lt_cpu_max(0, top), j->in[2] - 1)) * j->in[3];
    *hi =
        (last / image * j->in[2] + lt_cpu_max(0, lt_cpu_min(j->in[2] - 1, bottom)) + 1) * j->in[3];
}

/* --- Products --- */

/* Returns the address of new input of a later tile, to prefetch, or NULL. */
static const void *pixel_prefetch_address(const job *j, const workspace *w, int64_t i)
{
    enum { TILES = 3 };
    const int64_t rows = j->kernels->tile_rows, next = i + TILES * rows;
    if (next >= w->pixels || !w->taps)
        return NULL;
    const int64_t at = w->at[next * w->taps + (w->taps - 1) * rows];
    return at < 0 ? NULL : (const char *)w->x + at * j->from_step * j->size;
}

/* Returns the share of the next panel of weights that tile i prefetches, or NULL past the last panel and for filters of
 * several taps. */
static const void *weight_prefetch_address(const job *j, const workspace *w, int64_t panel,
                                           int64_t i)
{
    if (w->taps != 1 || panel + 1 >= j->panels || i >= j->kernels->tile_cols)
        return NULL;
    return j->packed + w->tap[0] + (panel + 1) * j->panel_bytes + i * j->depth * j->size;
}

static void multiply_tiles(const job *j, const workspace *w)
{
    const int width = j->kernels->tile_cols, rows = j->kernels->tile_rows;
    lt_conv_tile t = {.x = w->x,
                      .zeros = w->zeros,
                      .pixel = j->from_step * j->size,
                      .tap = w->tap,
                      .taps = w->taps,
                      .depth = j->depth,
                      .channels = j->to_step};
    for (int64_t panel = 0; panel < j->panels; panel++) {
        t.w = j->packed + panel * j->panel_bytes;
        t.cols = (int)lt_cpu_min(width, j->cols - panel * width);
        t.y = j->to + panel * width * j->size;
        for (int64_t i = 0; i < w->pixels; i += rows) {
            t.at = w->at + i * w->taps;
            t.to = w->to + i;
            t.rows = (int)lt_cpu_min(rows, w->pixels - i);
            t.next = panel || w->x == w->range ? weight_prefetch_address(j, w, panel, i)
                                               : pixel_prefetch_address(j, w, i);
            j->kernels->of[j->store].conv_tile(&t);
        }
    }
}

static void apply_input_norm(const job *j, workspace *w)
{
    lt_bn_apply in = *j->c->input_norm;
    in.x = j->from + w->lo * j->depth * j->size;
    in.y = w->range;
    j->kernels->of[j->store].bn_apply(&in, 0, w->hi - w->lo);
    w->x = w->range;
}

static workspace thread_workspace(const job *j)
{
    const int64_t places = lt_cpu_round_up(j->block, MAX_TILE_ROWS) + MAX_TILE_ROWS;
    char *at = j->scratch + lt_parallel_index() * j->scratch_bytes;
    workspace w = {.x = j->from, .zeros = at};
    at += round_up_to_cache_line(j->depth * j->size);
    w.tap = (int64_t *)(void *)at;
    at += round_up_to_cache_line(j->taps * (int64_t)sizeof *w.tap);
    w.number = (int64_t *)(void *)at;
    at += round_up_to_cache_line(j->taps * (int64_t)sizeof *w.number);
    w.to = (int64_t *)(void *)at;
    at += round_up_to_cache_line(places * (int64_t)sizeof *w.to);
    w.at = (int32_t *)(void *)at;
    w.range = at + round_up_to_cache_line(places * j->taps * (int64_t)sizeof *w.at);
    return w;
}

static int64_t workspace_bytes(const job *j)
{
    const int64_t places = lt_cpu_round_up(j->block, MAX_TILE_ROWS) + MAX_TILE_ROWS;
    return round_up_to_cache_line(j->depth * j->size)
           + 2 * round_up_to_cache_line(j->taps * (int64_t)sizeof(int64_t))
           + round_up_to_cache_line(places * (int64_t)sizeof(int64_t))
           + round_up_to_cache_line(places * j->taps * (int64_t)sizeof(int32_t))
           + round_up_to_cache_line(j->range_bytes);
}

static void run_block(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const job *j = context;
    workspace w = thread_workspace(j);
    memset(w.zeros, 0, (size_t)(j->depth * j->size));
    if (j->c->input_norm) {
        find_input_range(j, begin, end, &w.lo, &w.hi);
        apply_input_norm(j, &w);
    }
    for (int64_t phase = 0; phase < j->stride_h * j->stride_w; phase++) {
        list_phase_taps_and_pixels(j, &w, phase, begin, end);
        multiply_tiles(j, &w);
    }
    if (j->c->epilogue && j->last_group)
        j->c->epilogue(j->c->context, begin, end, chunk);
}

/* --- Entry points --- */

bool lt_direct_conv_supports(const lt_cpu *cpu, const lt_direct_conv *c)
{
    const lt_dtype dtype = c->from->dtype, w = c->w->dtype;
    if (c->w->shape.dim[2] * c->w->shape.dim[3] > MAX_TAPS || count_pixels(c->from) >= INT32_MAX
        || count_pixels(c->to) >= INT32_MAX)
        return false;
    if (!lt_cpu_is_channels_last(c->from, dtype) || !lt_cpu_is_channels_last(c->to, dtype)
        || !lt_cpu_is_channels_last(c->w, w))
        return false;
    if (dtype == LT_BF16)
        return lt_gemm_microkernel_bf16(cpu->isa)
               && c->from->shape.dim[1] / c->config->groups % 2 == 0
               && (w == LT_F32 || w == LT_BF16);
    return dtype == LT_F32 && w == LT_F32;
}

static job make_job(const lt_cpu *cpu, const lt_direct_conv *c)
{
    const bool is_bf16 = c->from->dtype == LT_BF16;
    job j = {.c = c,
             .kernels = cpu->kernels,
             .packer = is_bf16 ? lt_gemm_microkernel_bf16(cpu->isa) : NULL,
             .store = lt_cpu_store_from_dtype(c->from->dtype),
             .in = c->from->shape.dim,
             .out = c->to->shape.dim,
             .taps_h = c->w->shape.dim[2],
             .taps_w = c->w->shape.dim[3],
             .size = (int64_t)lt_dtype_size(c->from->dtype),
             .stride_h = c->backward ? c->config->stride_h : 1,
             .stride_w = c->backward ? c->config->stride_w : 1,
             .from = c->from->data,
             .w = c->w->data,
             .to = c->to->data};
    j.depth = j.in[1] / c->config->groups;
    j.cols = j.out[1] / c->config->groups;
    j.from_step = c->from_step ? c->from_step : j.in[1];
    j.to_step = j.out[1];
    j.taps = j.taps_h * j.taps_w;
    j.panels = lt_cpu_ceil_div(j.cols, cpu->kernels->tile_cols);
    j.panel_bytes = cpu->kernels->tile_cols * j.depth * j.size;
    return j;
}

/* Computes the groups one by one. */
static void run_groups(job *j)
{
    enum { PANELS = 4 };
    const lt_view *w = j->c->w;
    const int64_t filters = w->shape.dim[0] / j->c->config->groups;
    const int64_t w_bytes = filters * j->taps * w->shape.dim[1] * (int64_t)lt_dtype_size(w->dtype);
    for (int group = 0; group < j->c->config->groups; group++) {
        j->last_group = group + 1 == j->c->config->groups;
        lt_parallel(j->taps * j->panels, PANELS, pack_panels, j);
        lt_parallel(count_pixels(j->c->to), j->block, run_block, j);
        j->from += j->depth * j->size;
        j->to += j->cols * j->size;
        j->w += w_bytes;
    }
}

/* Runs a convolution in blocks of this many pixels. */
static lt_status run_blocks(lt_cpu *cpu, const lt_direct_conv *c, int64_t block)
{
    job j = make_job(cpu, c);
    const int64_t pixels = count_pixels(c->to);
    j.block = block;
    for (int64_t begin = 0; c->input_norm && begin < pixels; begin += j.block) {
        int64_t lo, hi;
        find_input_range(&j, begin, lt_cpu_min(begin + j.block, pixels), &lo, &hi);
        j.range_bytes = lt_cpu_max(j.range_bytes, (hi - lo) * j.in[1] * j.size);
    }
    j.scratch_bytes = workspace_bytes(&j);
    j.scratch =
        lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)(lt_parallel_threads() * j.scratch_bytes));
    j.packed = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, (size_t)(j.taps * j.panels * j.panel_bytes));
    j.input_row =
        lt_cpu_scratch(cpu, LT_CPU_COEF,
                       (size_t)(j.out[2] * j.taps_h + j.out[3] * j.taps_w) * sizeof *j.input_row);
    if (!j.scratch || !j.packed || !j.input_row)
        return LT_E_NOMEM;
    j.input_col = j.input_row + j.out[2] * j.taps_h;
    find_input_positions(&j);
    run_groups(&j);
    return LT_OK;
}

lt_status lt_direct_conv_run(lt_cpu *cpu, const lt_direct_conv *c)
{
    const int64_t block = lt_direct_conv_block_pixels(c);
    lt_row_taps joined;
    if (c->backward || c->input_norm || !lt_row_taps_help(c->config, c->from, c->w))
        return run_blocks(cpu, c, block);
    LT_TRY(lt_row_taps_join(cpu, c->config, c->from, c->w, c->to->shape, &joined));
    lt_direct_conv of = *c;
    of.config = &joined.config;
    of.from = &joined.x;
    of.from_step = joined.x.stride[3];
    of.w = &joined.w;
    return run_blocks(cpu, &of, block);
}
