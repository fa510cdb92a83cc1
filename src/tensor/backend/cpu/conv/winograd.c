/* Winograd convolution: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, with other
 * interpolation points: kernels/winograd.h.
 *
 *     y = A' [ sum over channels of (B' x B) * (G w G') ] A        (x: 6x6, y: 4x4, * element by element)
 *
 * A tile of x is transformed to 36 points per channel; each point is then a matrix product over tiles and channels.
 * Transposed, the same maps give the gradient of w:
 *
 *     dw = G' [ sum over tiles of (A dy A') * (B' x B) ] G
 *
 * Work is split by sizes only, and groups of tiles are added in order. */

#include "winograd.h"

#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    POINTS = 36, /* points per tile */
    SIDE = 4,    /* side of a tile of outputs */
    TAPS = 9,
    LANES = 16,
    PAD_BYTES = 64, /* between points: power-of-two strides would map to the same cache sets */
    PAD = PAD_BYTES / sizeof(float),
    STEP = 24,      /* tiles come in multiples of it: whole micro-kernel tiles of 6 and of 8 rows */
    SUB = 3 * STEP, /* tiles per task */
    READS = 6,      /* side of a tile of inputs */
    L2_BYTES = 864 << 10, /* points that a task reads and writes */
    L3_BYTES = 6 << 20,   /* points of a group shared by all tasks */
    DEEP = 128,           /* tiles of a group: with fewer, reading and writing dw dominates */
};

/* Tiles of all images, row by row. */
typedef struct grid {
    int64_t rows, cols, count; /* tiles per column and row of an image; tiles of all images */
    int64_t pad_h, pad_w;
} grid;

typedef struct job {
    const lt_direct_conv *c;
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    grid tiles;
    int64_t depth, cols;          /* channels read and written */
    int64_t begin;                /* first tile of the group */
    int64_t count;                /* tiles of the group */
    int64_t sub;                  /* tiles of a task */
    int64_t chunk;                /* tiles of a chunk of sums */
    bool one_task_per_group;      /* false: all tasks share a group */
    int64_t width;                /* channels that a task writes */
    float *v, *u, *m, *w, *zeros; /* points of x, filters, products; transposed filters; a pixel */
    int64_t v_step, u_step, m_step, m_size, w_size; /* floats between points; floats per thread */
} job;

static grid make_grid(const lt_view *to, int64_t pad_h, int64_t pad_w)
{
    grid g = {.rows = lt_cpu_ceil_div(to->shape.dim[2], SIDE),
              .cols = lt_cpu_ceil_div(to->shape.dim[3], SIDE),
              .pad_h = pad_h,
              .pad_w = pad_w};
    g.count = to->shape.dim[0] * g.rows * g.cols;
    return g;
}

/* Iterates over tiles of an image, of which channels from `first` on are read or written. */
typedef struct tile_iterator {
    const grid *tiles;
    const lt_view *of;
    int side;
    int64_t first; /* channel */
    void *outside; /* used for pixels outside the image */
    void *next[POINTS];
} tile_iterator;

/* Writes the addresses of a tile's pixels to w->next. */
static void find_tile_pixels(tile_iterator *w, int64_t tile)
{
    const grid *g = w->tiles;
    const int64_t *d = w->of->shape.dim, n = tile / (g->rows * g->cols);
    const bool read = w->side != SIDE;
    const int64_t top = tile / g->cols % g->rows * SIDE - (read ? g->pad_h : 0);
    const int64_t left = tile % g->cols * SIDE - (read ? g->pad_w : 0);
    const int64_t size = (int64_t)lt_dtype_size(w->of->dtype), step = d[1] * size;
    void **pixel = w->next;
    for (int64_t y = top; y < top + w->side; y++) {
        const bool in = y >= 0 && y < d[2];
        char *row = (char *)w->of->data + (n * d[2] + y) * d[3] * step + w->first * size;
        for (int64_t x = left; x < left + w->side; x++)
            *pixel++ = in && x >= 0 && x < d[3] ? row + x * step : w->outside;
    }
}

/* Sets t's pixels to the current tile's, and finds those of the next one unless it is the last. */
static void next_tile(tile_iterator *w, int64_t tile, bool is_last, lt_winograd_tile *t)
{
    memcpy(t->pixel, w->next, sizeof t->pixel);
    t->next = is_last ? NULL : w->next;
    if (!is_last)
        find_tile_pixels(w, tile + 1);
}

/* --- Forward, and the gradient of x --- */

/* Transforms filters to points: tile_cols written channels times LANES read ones per item. */
static void transform_filters(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t width = j->kernels->tile_cols, groups = j->depth / LANES;
    float *data = j->c->w->data;
    float *transposed = j->w + lt_parallel_index() * j->w_size;
    lt_winograd_tile t = {
        .map = LT_WINOGRAD_W, .channels = width, .step = j->u_step, .group = LANES};
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i / groups * width, depth = i % groups * LANES;
        for (int64_t tap = 0; tap < TAPS && !j->c->backward; tap++)
            j->kernels->transpose_block(data + (first * TAPS + tap) * j->depth + depth,
                                        TAPS * j->depth, width, LANES,
                                        transposed + tap * LANES * width, width);
        for (int64_t d = 0; d < LANES; d++) {
            for (int64_t tap = 0; tap < TAPS; tap++) /* backward: rotated by 180 degrees */
                t.pixel[tap] = j->c->backward
                                   ? data + ((depth + d) * TAPS + TAPS - 1 - tap) * j->cols + first
                                   : transposed + (tap * LANES + d) * width;
            t.point = j->u + first * j->depth + (depth + d) * width;
            j->kernels->of[LT_STORE_F32].winograd(&t);
        }
    }
}

static void transform_inputs(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    lt_winograd_tile t = {.map = LT_WINOGRAD_X,
                          .channels = j->depth,
                          .step = j->v_step,
                          .group = LANES,
                          .zeros = j->zeros,
                          .input_norm = j->c->input_norm};
    tile_iterator x = {.tiles = &j->tiles, .of = j->c->from, .side = READS, .outside = j->zeros};
    find_tile_pixels(&x, j->begin + begin);
    for (int64_t i = begin; i < end; i++) {
        next_tile(&x, j->begin + i, i + 1 == end, &t);
        t.point = j->v + i * j->depth;
        j->kernels->of[j->store].winograd(&t);
    }
}

/* Returns the panel of filters used after channel c's: the next channels' or the next point's; NULL past the last. */
static const float *next_filter_panel(const job *j, int64_t point, int64_t first, int64_t c,
                                      int64_t width)
{
    const int64_t next = c + j->kernels->tile_cols;
    if (next < width)
        return j->u + point * j->u_step + (first + next) * j->depth;
    return point + 1 < POINTS ? j->u + (point + 1) * j->u_step + first * j->depth : NULL;
}

/* For each point, m [tiles][width] = v u. */
static void multiply_points(const job *j, int64_t tile, int64_t tiles, int64_t first, int64_t width,
                            float *m)
{
    enum { MAX_TILE_ROWS = 16 };
    const int32_t at[MAX_TILE_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t to[MAX_TILE_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                  tap = 0;
    const int rows = j->kernels->tile_rows, cols = j->kernels->tile_cols;
    lt_conv_tile t = {.pixel = j->depth * (int64_t)sizeof(float),
                      .at = at,
                      .tap = &tap,
                      .taps = 1,
                      .depth = j->depth,
                      .to = to,
                      .channels = width,
                      .cols = cols};
    for (int64_t point = 0; point < POINTS; point++)
        for (int64_t c = 0; c < width; c += cols) {
            const float *next = next_filter_panel(j, point, first, c, width);
            for (int64_t i = 0; i < tiles; i += rows) {
                t.next = next && i < cols ? next + i * j->depth : NULL; /* a share is prefetched */
                t.x = j->v + point * j->v_step + (tile + i) * j->depth;
                t.w = j->u + point * j->u_step + (first + c) * j->depth;
                t.y = m + point * j->m_step + i * width + c;
                t.rows = (int)lt_cpu_min(rows, tiles - i);
                j->kernels->of[LT_STORE_F32].conv_tile(&t);
            }
        }
}

/* Returns a chunk's epilogue sums (moments or gradient sums), cleared for some channels. */
static lt_winograd_sums begin_epilogue_sums(const job *j, int64_t chunk, int64_t first,
                                            int64_t width)
{
    const lt_direct_conv *c = j->c;
    lt_winograd_sums s = {.grad = c->sums ? &c->sums->in : NULL};
    if (c->moments)
        lt_cpu_moments_of_chunk(c->moments, chunk, s.of);
    else if (c->sums)
        lt_cpu_grad_sums_of_chunk(c->sums, chunk, s.of);
    for (int i = 0; i < 2 && s.of[0]; i++)
        memset(s.of[i] + first, 0, (size_t)width * sizeof(float));
    return s;
}

/* Sets the weights that merge a tile's moments (Chan's formula) after `before` pixels. Returns all pixels so far. */
static int64_t set_moment_merge_weights(lt_winograd_sums *s, const lt_winograd_tile *t,
                                        int64_t before)
{
    int64_t n = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        n += t->pixel[i] != NULL;
    const float count = (float)n, all = (float)(before + n);
    s->inverse = 1 / count;
    s->share = count / all;
    s->both = (float)before * s->share;
    return before + n;
}

/* Transforms products to some channels of some tiles of the output, all of one chunk. */
static void transform_outputs(const job *j, int64_t tile, int64_t tiles, int64_t first,
                              int64_t width, float *m)
{
    const int64_t chunk = (j->begin + tile) / j->chunk;
    lt_winograd_sums sums = begin_epilogue_sums(j, chunk, first, width);
    lt_winograd_tile t = {.map = LT_WINOGRAD_Y,
                          .channels = width,
                          .step = j->m_step,
                          .group = LANES,
                          .output_norm = j->c->output_norm,
                          .sums = sums.of[0] ? &sums : NULL,
                          .first = first};
    tile_iterator y = {.tiles = &j->tiles, .of = j->c->to, .side = SIDE, .first = first};
    int64_t pixels = 0;
    find_tile_pixels(&y, j->begin + tile);
    for (int64_t i = 0; i < tiles; i++) {
        next_tile(&y, j->begin + tile + i, i + 1 == tiles, &t);
        if (j->c->moments)
            pixels = set_moment_merge_weights(&sums, &t, pixels);
        t.point = m + i * width;
        j->kernels->of[j->store].winograd(&t);
    }
    if (j->c->moments && first == 0)
        j->c->moments->count[chunk] = (float)pixels;
}

/* Runs tasks, each of which computes some channels of some tiles of the output. */
static void run_output_tasks(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t tasks = lt_cpu_ceil_div(j->cols, j->width);
    float *m = j->m + lt_parallel_index() * j->m_size;
    for (int64_t task = begin; task < end; task++) {
        const int64_t tile = task / tasks * j->sub, tiles = lt_cpu_min(j->sub, j->count - tile);
        const int64_t first = task % tasks * j->width,
                      width = lt_cpu_min(j->width, j->cols - first);
        multiply_points(j, tile, tiles, first, width, m);
        transform_outputs(j, tile, tiles, first, width, m);
    }
}

/* Computes whole groups of tiles, each on one core, whose L2 cache holds the transformed points. */
static void run_groups_per_core(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    job group_job = *(const job *)context;
    const int64_t most = group_job.count, tasks = lt_cpu_ceil_div(group_job.cols, group_job.width);
    group_job.v += lt_parallel_index() * (POINTS * group_job.v_step);
    for (int64_t i = begin; i < end; i++) {
        group_job.begin = i * most;
        group_job.count = lt_cpu_min(most, group_job.tiles.count - group_job.begin);
        transform_inputs(&group_job, 0, group_job.count, 0);
        run_output_tasks(&group_job, 0, tasks, 0);
    }
}

/* Runs all tiles. If filters at all points exceed the caches, all tasks share a group, so that filters are read less
 * often. */
static void run_all_groups(job *j)
{
    if (j->one_task_per_group) {
        lt_parallel(lt_cpu_ceil_div(j->tiles.count, j->count), 1, run_groups_per_core, j);
        return;
    }
    const int64_t group = j->count;
    for (; j->begin < j->tiles.count; j->begin += group) {
        j->count = lt_cpu_min(group, j->tiles.count - j->begin);
        lt_parallel(j->count, LANES, transform_inputs, j);
        lt_parallel(lt_cpu_ceil_div(j->count, j->sub) * lt_cpu_ceil_div(j->cols, j->width), 1,
                    run_output_tasks, j);
    }
}

/* Returns the tiles of a group, a multiple of `some`, of which `channels` channels at all points fit into `bytes`. */
static int64_t tiles_per_group(int64_t tiles, int64_t channels, int64_t bytes, int64_t some)
{
    const int64_t fit = bytes / (POINTS * channels * (int64_t)sizeof(float)) / some * some;
    return lt_cpu_min(tiles, lt_cpu_max(fit, some));
}

/* Splits the work, by sizes only. */
static job make_job(const lt_cpu *cpu, const lt_direct_conv *c)
{
    enum { WIDTH = 64, TWICE = 2, MAX_DEPTH = 256 };
    const lt_conv2d_config *g = c->config;
    job j = {.c = c,
             .kernels = cpu->kernels,
             .store = lt_cpu_store_from_dtype(c->from->dtype),
             .tiles = make_grid(c->to, c->backward ? TWICE - g->pad_h : g->pad_h,
                                c->backward ? TWICE - g->pad_w : g->pad_w),
             .depth = c->from->shape.dim[1],
             .cols = c->to->shape.dim[1],
             .width = WIDTH,
             .sub = SUB};
    j.m_step = j.sub * WIDTH + PAD;
    j.m_size = POINTS * j.m_step;
    j.one_task_per_group = j.depth <= MAX_DEPTH;
    const int64_t fit = j.one_task_per_group
                            ? tiles_per_group(j.sub, j.depth + WIDTH, L2_BYTES, STEP)
                            : tiles_per_group(j.tiles.count, j.depth, L3_BYTES, j.sub);
    j.count = lt_cpu_min(fit, j.tiles.count);
    j.chunk = j.one_task_per_group ? j.count : j.sub;
    return j;
}

int64_t lt_winograd_chunks(const lt_cpu *cpu, const lt_direct_conv *c)
{
    const job j = make_job(cpu, c);
    return lt_cpu_ceil_div(j.tiles.count, j.chunk);
}

lt_status lt_winograd_run(lt_cpu *cpu, const lt_direct_conv *c)
{
    enum { FEW = 16 };
    const int threads = lt_parallel_threads();
    job j = make_job(cpu, c);
    const int64_t copies = j.one_task_per_group ? threads : 1;
    j.v_step =
        (j.count + FEW) * j.depth + PAD; /* the last micro-kernel tile may read past the end */
    j.u_step = j.depth * j.cols + PAD;
    j.w_size = (int64_t)TAPS * LANES * cpu->kernels->tile_cols;
    const int64_t floats =
        POINTS * (copies * j.v_step + j.u_step) + threads * (j.m_size + j.w_size) + j.depth;
    j.v = lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)floats * sizeof *j.v);
    if (!j.v)
        return LT_E_NOMEM;
    j.u = j.v + copies * POINTS * j.v_step;
    j.m = j.u + POINTS * j.u_step;
    j.w = j.m + threads * j.m_size;
    j.zeros = j.w + threads * j.w_size;
    memset(j.zeros, 0, (size_t)j.depth * sizeof *j.zeros);
    lt_parallel(j.cols / cpu->kernels->tile_cols * (j.depth / LANES), 1, transform_filters, &j);
    run_all_groups(&j);
    return LT_OK;
}

/* --- The gradient of w --- */

typedef struct grad_job {
    const lt_winograd_grad *g;
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    grid tiles;
    int64_t begin, count, rows, cols; /* rows: channels of dy; cols: channels of x */
    float *x, *dy, *dw, *zeros;
    int64_t x_step, dy_step, dw_step;
} grad_job;

/* Transforms tiles of x and dy to points, in panels [tiles][LANES] of channels. */
static void transform_x_and_dy(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const grad_job *j = context;
    lt_winograd_tile x = {.map = LT_WINOGRAD_X,
                          .channels = j->cols,
                          .step = j->x_step,
                          .group = j->count * LANES,
                          .zeros = j->zeros,
                          .input_norm = j->g->input_norm};
    lt_winograd_tile dy = {
        .map = LT_WINOGRAD_DY, .channels = j->rows, .step = j->dy_step, .group = j->count * LANES};
    tile_iterator of_x = {.tiles = &j->tiles, .of = j->g->x, .side = READS, .outside = j->zeros};
    tile_iterator of_dy = {.tiles = &j->tiles, .of = j->g->dy, .side = SIDE, .outside = j->zeros};
    find_tile_pixels(&of_x, j->begin + begin);
    find_tile_pixels(&of_dy, j->begin + begin);
    for (int64_t i = begin; i < end; i++) {
        next_tile(&of_x, j->begin + i, i + 1 == end, &x);
        next_tile(&of_dy, j->begin + i, i + 1 == end, &dy);
        x.point = j->x + i * LANES;
        dy.point = j->dy + i * LANES;
        j->kernels->of[j->store].winograd(&x);
        j->kernels->of[j->store].winograd(&dy);
    }
}

/* Returns the rows of a task: whole micro-kernel tiles in whole panels, enough to reuse x. */
static int64_t rows_per_task(const lt_cpu_kernels *k)
{
    return (int64_t)LANES * k->tile_rows;
}

/* Multiplies transformed gradients and inputs: dw += dy' x for some rows of one of the 36 points per item. */
static void add_products(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const grad_job *j = context;
    const int rows = j->kernels->tile_rows, cols = j->kernels->tile_cols;
    lt_tile_save save = {.alpha = 1, .beta = j->begin > 0 ? 1 : 0, .cols = cols, .step = j->cols};
    const int64_t most = rows_per_task(j->kernels), tasks = lt_cpu_ceil_div(j->rows, most);
    for (int64_t i = begin; i < end; i++) {
        const int64_t point = i / tasks, first = i % tasks * most;
        const int64_t last = lt_cpu_min(first + most, j->rows);
        const float *x = j->x + point * j->x_step, *dy = j->dy + point * j->dy_step;
        float *dw = j->dw + point * j->dw_step;
        for (int64_t c = 0; c < j->cols; c += cols)
            for (int64_t r = first; r < last; r += rows) {
                save.rows = (int)lt_cpu_min(rows, last - r);
                save.lane = (int)(r % LANES);
                j->kernels->gemm_tile(dy + r / LANES * LANES * j->count + save.lane,
                                      x + c * j->count, j->count, &save, dw + r * j->cols + c);
            }
    }
}

static void transform_filter_grads(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const grad_job *j = context;
    lt_winograd_tile t = {
        .map = LT_WINOGRAD_DW, .channels = j->cols, .step = j->dw_step, .group = LANES};
    for (int64_t row = begin; row < end; row++) {
        for (int64_t tap = 0; tap < TAPS; tap++)
            t.pixel[tap] = (float *)j->g->dw->data + (row * TAPS + tap) * j->cols;
        t.point = j->dw + row * j->cols;
        j->kernels->of[LT_STORE_F32].winograd(&t);
    }
}

lt_status lt_winograd_grad_w(lt_cpu *cpu, const lt_winograd_grad *g)
{
    grad_job j = {.g = g,
                  .kernels = cpu->kernels,
                  .store = lt_cpu_store_from_dtype(g->x->dtype),
                  .tiles = make_grid(g->dy, g->config->pad_h, g->config->pad_w),
                  .rows = g->dy->shape.dim[1],
                  .cols = g->x->shape.dim[1]};
    const int64_t group = tiles_per_group(j.tiles.count, j.rows + j.cols, L3_BYTES / 2, DEEP);
    j.x_step = group * j.cols + PAD;
    j.dy_step = group * j.rows + PAD;
    j.dw_step = j.rows * j.cols + PAD;
    const int64_t zeros = lt_cpu_max(j.rows, j.cols);
    const int64_t floats = POINTS * (j.x_step + j.dy_step + j.dw_step) + zeros;
    j.x = lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)floats * sizeof *j.x);
    if (!j.x)
        return LT_E_NOMEM;
    j.dy = j.x + POINTS * j.x_step;
    j.dw = j.dy + POINTS * j.dy_step;
    j.zeros = j.dw + POINTS * j.dw_step;
    memset(j.zeros, 0, (size_t)zeros * sizeof *j.zeros);
    for (j.begin = 0; j.begin < j.tiles.count; j.begin += group) {
        j.count = lt_cpu_min(group, j.tiles.count - j.begin);
        lt_parallel(j.count, LANES, transform_x_and_dy, &j);
        lt_parallel(POINTS * lt_cpu_ceil_div(j.rows, rows_per_task(j.kernels)), 1, add_products,
                    &j);
    }
    lt_parallel(j.rows, LANES, transform_filter_grads, &j);
    return LT_OK;
}

/* --- Selection --- */

/* Returns true for stride 1, dilation 1, one group and at most 2 pixels of padding. */
static bool has_supported_geometry(const lt_conv2d_config *g)
{
    enum { MAX_PAD = 2 };
    return g->stride_h == 1 && g->stride_w == 1 && g->dilation_h == 1 && g->dilation_w == 1
           && g->groups == 1 && g->pad_h <= MAX_PAD && g->pad_w <= MAX_PAD;
}

/* Returns true if Winograd's form supports filters w between images a and b. */
static bool supports_winograd(const lt_conv2d_config *g, const lt_view *w, const lt_view *a,
                              const lt_view *b)
{
    enum { THREE = 3, CHANNELS = 32 };
    const int64_t *d = w->shape.dim;
    return d[2] == THREE && d[3] == THREE && has_supported_geometry(g) && d[0] % CHANNELS == 0
           && d[1] % CHANNELS == 0 && lt_cpu_is_channels_last(w, LT_F32)
           && lt_cpu_is_fast_dtype(a->dtype) && lt_view_is_channels_last(a)
           && lt_cpu_is_channels_last(b, a->dtype);
}

/* Returns true if measured to be faster than direct convolution: docs/adr/0053. With AMX direct bf16 is faster. */
static bool is_measured_faster(const lt_cpu *cpu, const lt_view *a)
{
    enum { MIN_SIDE = 4, MIN_TILES = 64 };
    const int64_t *d = a->shape.dim;
    return (cpu->isa >= LT_ISA_AVX2 || !cpu->onednn)
           && (a->dtype == LT_F32 || cpu->isa < LT_ISA_AMX) && lt_cpu_min(d[2], d[3]) >= MIN_SIDE
           && d[0] * lt_cpu_ceil_div(d[2], SIDE) * lt_cpu_ceil_div(d[3], SIDE) >= MIN_TILES;
}

static bool is_chosen(const lt_cpu *cpu, const lt_view *a)
{
    return cpu->choice == LT_KERNELS_BUILTIN
           || (cpu->choice == LT_KERNELS_AUTO && is_measured_faster(cpu, a));
}

bool lt_winograd_is_chosen(const lt_cpu *cpu, const lt_direct_conv *c)
{
    return supports_winograd(c->config, c->w, c->from, c->to) && is_chosen(cpu, c->to);
}

bool lt_winograd_is_chosen_for_grad_w(const lt_cpu *cpu, const lt_winograd_grad *g)
{
    return supports_winograd(g->config, g->dw, g->x, g->dy) && is_chosen(cpu, g->dy);
}
