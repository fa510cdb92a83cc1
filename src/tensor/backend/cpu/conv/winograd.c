/* Convolutions by Winograd's algorithm. Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
 * 2016, with other points: kernels/winograd.h.
 *
 *     y = A' [ sum over channels of (B' x B) * (G w G') ] A        (x: 6x6, y: 4x4, * element by element)
 *
 * Tiles of x become 36 numbers a channel; each of the 36 is then a matrix product over tiles and
 * channels. Transposed, the same maps give the gradient of w:
 *
 *     dw = G' [ sum over tiles of (A dy A') * (B' x B) ] G
 *
 * Work is cut by sizes alone, and sums over groups of tiles are added in their order. */

#include "winograd.h"

#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum {
    POINTS = 36, /* of a tile */
    SIDE = 4,    /* of a tile of outputs */
    TAPS = 9,
    LANES = 16,
    PAD_BYTES = 64, /* between points: powers of two would share sets of a cache */
    PAD = PAD_BYTES / sizeof(float),
    SUB = 64,                 /* tiles that a task multiplies, in whole tiles of the product */
    READS = 6,                /* side of a tile of inputs */
    SECOND_CACHE = 864 << 10, /* bytes of points that a task reads and writes */
    THIRD_CACHE = 6 << 20,
    DEEP = 128, /* tiles: sums over fewer take less time than reading and writing dw */
};

/* Tiles of one image after another, row by row. */
typedef struct grid {
    int64_t rows, cols, count; /* rows and cols of an image; count of all */
    int64_t pad_h, pad_w;
} grid;

typedef struct job {
    const lt_own_conv *c;
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    grid tiles;
    int64_t depth, cols; /* channels that are read and written */
    int64_t begin;       /* first tile of the group */
    int64_t count;       /* tiles of the group */
    int64_t sub;         /* tiles that a task multiplies */
    int64_t chunk;       /* tiles of a chunk of sums */
    bool apart;          /* a group is made by one task */
    int64_t width;       /* channels that a task writes */
    float *v, *u, *m, *w, *zeros;
    int64_t v_step, u_step, m_step, m_size, w_size; /* steps between points; sizes: of a thread */
} job;

static grid make_grid(const lt_view *to, int64_t pad_h, int64_t pad_w)
{
    grid g = {.rows = lt_cpu_pieces(to->shape.dim[2], SIDE),
              .cols = lt_cpu_pieces(to->shape.dim[3], SIDE),
              .pad_h = pad_h,
              .pad_w = pad_w};
    g.count = to->shape.dim[0] * g.rows * g.cols;
    return g;
}

/* Goes through the tiles of an image, of which channels from the first on are read or written. */
typedef struct walk {
    const grid *tiles;
    const lt_view *of;
    int side;
    int64_t first; /* channel */
    void *outside; /* what stands for pixels outside the image */
    void *next[POINTS];
} walk;

/* Where the pixels of a tile are. */
static void find_pixels(walk *w, int64_t tile)
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

/* A tile's pixels to t, and those of the next one, if there is one. */
static void take_pixels(walk *w, int64_t tile, bool is_last, lt_winograd_tile *t)
{
    memcpy(t->pixel, w->next, sizeof t->pixel);
    t->next = is_last ? NULL : w->next;
    if (!is_last)
        find_pixels(w, tile + 1);
}

/* --- Forward, and the gradient of x --- */

/* The filters of a panel of written channels, for LANES read ones, as points. */
static void filter_points(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t width = j->kernels->tile_cols, groups = j->depth / LANES;
    float *data = j->c->w->data;
    float *turned = j->w + lt_parallel_index() * j->w_size;
    lt_winograd_tile t = {
        .map = LT_WINOGRAD_W, .channels = width, .step = j->u_step, .group = LANES};
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i / groups * width, depth = i % groups * LANES;
        for (int64_t tap = 0; tap < TAPS && !j->c->backward; tap++)
            j->kernels->transpose_block(data + (first * TAPS + tap) * j->depth + depth,
                                        TAPS * j->depth, width, LANES, turned + tap * LANES * width,
                                        width);
        for (int64_t d = 0; d < LANES; d++) {
            for (int64_t tap = 0; tap < TAPS; tap++) /* backward: turned by half a circle */
                t.pixel[tap] = j->c->backward
                                   ? data + ((depth + d) * TAPS + TAPS - 1 - tap) * j->cols + first
                                   : turned + (tap * LANES + d) * width;
            t.point = j->u + first * j->depth + (depth + d) * width;
            j->kernels->of[LT_STORE_F32].winograd(&t);
        }
    }
}

static void read_points(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    lt_winograd_tile t = {.map = LT_WINOGRAD_X,
                          .channels = j->depth,
                          .step = j->v_step,
                          .group = LANES,
                          .zeros = j->zeros,
                          .before = j->c->before};
    walk x = {.tiles = &j->tiles, .of = j->c->from, .side = READS, .outside = j->zeros};
    find_pixels(&x, j->begin + begin);
    for (int64_t i = begin; i < end; i++) {
        take_pixels(&x, j->begin + i, i + 1 == end, &t);
        t.point = j->v + i * j->depth;
        j->kernels->of[j->store].winograd(&t);
    }
}

/* The panel of filters that is multiplied after channel c's: the next channels', or the next point's; NULL: none. */
static const float *next_panel(const job *j, int64_t point, int64_t first, int64_t c, int64_t width)
{
    const int64_t next = c + j->kernels->tile_cols;
    if (next < width)
        return j->u + point * j->u_step + (first + next) * j->depth;
    return point + 1 < POINTS ? j->u + (point + 1) * j->u_step + first * j->depth : NULL;
}

/* m [tiles][width] of each point = v u. */
static void multiply(const job *j, int64_t tile, int64_t tiles, int64_t first, int64_t width,
                     float *m)
{
    enum { MOST_ROWS = 16 };
    const int32_t at[MOST_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t to[MOST_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, tap = 0;
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
            const float *next = next_panel(j, point, first, c, width);
            for (int64_t i = 0; i < tiles; i += rows) {
                t.next = next && i < cols ? next + i * j->depth : NULL; /* a share is prefetched */
                t.x = j->v + point * j->v_step + (tile + i) * j->depth;
                t.w = j->u + point * j->u_step + (first + c) * j->depth;
                t.y = m + point * j->m_step + i * width + c;
                t.rows = (int)lt_cpu_least(rows, tiles - i);
                j->kernels->of[LT_STORE_F32].conv_tile(&t);
            }
        }
}

/* A chunk's sums of some channels, all 0. */
static lt_winograd_sums begin_sums(const job *j, int64_t chunk, int64_t first, int64_t width)
{
    const lt_own_conv *c = j->c;
    lt_winograd_sums s = {.grad = c->sums ? &c->sums->in : NULL};
    if (c->moments)
        lt_cpu_moments_of(c->moments, chunk, s.of);
    else if (c->sums)
        lt_cpu_grad_sums_of(c->sums, chunk, s.of);
    for (int i = 0; i < 2 && s.of[0]; i++)
        memset(s.of[i] + first, 0, (size_t)width * sizeof(float));
    return s;
}

/* What the next tile weighs beside the pixels before it. */
static int64_t weigh(lt_winograd_sums *s, const lt_winograd_tile *t, int64_t before)
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

/* Some channels of some tiles, all of one chunk. */
static void write_tiles(const job *j, int64_t tile, int64_t tiles, int64_t first, int64_t width,
                        float *m)
{
    const int64_t chunk = (j->begin + tile) / j->chunk;
    lt_winograd_sums sums = begin_sums(j, chunk, first, width);
    lt_winograd_tile t = {.map = LT_WINOGRAD_Y,
                          .channels = width,
                          .step = j->m_step,
                          .group = LANES,
                          .after = j->c->normed,
                          .sums = sums.of[0] ? &sums : NULL,
                          .first = first};
    walk y = {.tiles = &j->tiles, .of = j->c->to, .side = SIDE, .first = first};
    int64_t pixels = 0;
    find_pixels(&y, j->begin + tile);
    for (int64_t i = 0; i < tiles; i++) {
        take_pixels(&y, j->begin + tile + i, i + 1 == tiles, &t);
        if (j->c->moments)
            pixels = weigh(&sums, &t, pixels);
        t.point = m + i * width;
        j->kernels->of[j->store].winograd(&t);
    }
    if (j->c->moments && first == 0)
        j->c->moments->count[chunk] = (float)pixels;
}

/* A task: some tiles by some channels of the result. */
static void write_outputs(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t tasks = lt_cpu_pieces(j->cols, j->width);
    float *m = j->m + lt_parallel_index() * j->m_size;
    for (int64_t task = begin; task < end; task++) {
        const int64_t tile = task / tasks * j->sub, tiles = lt_cpu_least(j->sub, j->count - tile);
        const int64_t first = task % tasks * j->width,
                      width = lt_cpu_least(j->width, j->cols - first);
        multiply(j, tile, tiles, first, width, m);
        write_tiles(j, tile, tiles, first, width, m);
    }
}

/* Tiles whose points stay in the second cache of the core that reads and multiplies them. */
static void run_tiles(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    job own = *(const job *)context;
    const int64_t most = own.count, tasks = lt_cpu_pieces(own.cols, own.width);
    own.v += lt_parallel_index() * POINTS * own.v_step;
    for (int64_t i = begin; i < end; i++) {
        own.begin = i * most;
        own.count = lt_cpu_least(most, own.tiles.count - own.begin);
        read_points(&own, 0, own.count, 0);
        write_outputs(&own, 0, tasks, 0);
    }
}

/* All tiles; apart: each group by one task. Else filters at all points are more than the caches hold, and a group is shared
 * by all tasks, so that they are read less often. */
static void run_groups(job *j)
{
    if (j->apart) {
        lt_parallel(lt_cpu_pieces(j->tiles.count, j->count), 1, run_tiles, j);
        return;
    }
    const int64_t group = j->count;
    for (; j->begin < j->tiles.count; j->begin += group) {
        j->count = lt_cpu_least(group, j->tiles.count - j->begin);
        lt_parallel(j->count, LANES, read_points, j);
        lt_parallel(lt_cpu_pieces(j->count, j->sub) * lt_cpu_pieces(j->cols, j->width), 1,
                    write_outputs, j);
    }
}

/* Tiles of a group, of which `channels` channels are held at all points in so many bytes: multiples of some tiles. */
static int64_t group_size(int64_t tiles, int64_t channels, int64_t bytes, int64_t some)
{
    const int64_t fit = bytes / (POINTS * channels * (int64_t)sizeof(float)) / some * some;
    return lt_cpu_least(tiles, lt_cpu_most(fit, some));
}

/* How the work is cut: by sizes alone. */
static job make_job(const lt_cpu *cpu, const lt_own_conv *c)
{
    enum { WIDTH = 64, TWICE = 2, MOST_DEPTH = 256 };
    const int rows = cpu->kernels->tile_rows;
    const lt_conv2d_config *g = c->config;
    job j = {.c = c,
             .kernels = cpu->kernels,
             .store = lt_cpu_store_of(c->from->dtype),
             .tiles = make_grid(c->to, c->backward ? TWICE - g->pad_h : g->pad_h,
                                c->backward ? TWICE - g->pad_w : g->pad_w),
             .depth = c->from->shape.dim[1],
             .cols = c->to->shape.dim[1],
             .width = WIDTH,
             .sub = lt_cpu_pieces(SUB, rows) * rows};
    j.m_step = j.sub * WIDTH + PAD;
    j.m_size = POINTS * j.m_step;
    j.apart = j.depth <= MOST_DEPTH;
    const int64_t fit = j.apart ? group_size(j.sub, j.depth + WIDTH, SECOND_CACHE, rows)
                                : group_size(j.tiles.count, j.depth, THIRD_CACHE, j.sub);
    j.count = lt_cpu_least(fit, j.tiles.count);
    j.chunk = j.apart ? j.count : j.sub;
    return j;
}

int64_t lt_winograd_chunks(const lt_cpu *cpu, const lt_own_conv *c)
{
    const job j = make_job(cpu, c);
    return lt_cpu_pieces(j.tiles.count, j.chunk);
}

lt_status lt_winograd_run(lt_cpu *cpu, const lt_own_conv *c)
{
    enum { FEW = 16 };
    const int threads = lt_parallel_threads();
    job j = make_job(cpu, c);
    const int64_t copies = j.apart ? threads : 1;
    j.v_step = (j.count + FEW) * j.depth + PAD; /* a last tile of a product may read behind */
    j.u_step = j.depth * j.cols + PAD;
    j.w_size = TAPS * LANES * cpu->kernels->tile_cols;
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
    lt_parallel(j.cols / cpu->kernels->tile_cols * (j.depth / LANES), 1, filter_points, &j);
    run_groups(&j);
    return LT_OK;
}

/* --- The gradient of w --- */

typedef struct grad_job {
    const lt_winograd_grad *g;
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    grid tiles;
    int64_t begin, count, rows, cols; /* rows: channels of dy, cols: of x */
    float *x, *dy, *dw, *zeros;
    int64_t x_step, dy_step, dw_step;
} grad_job;

/* Points of x and of dy, in panels [tiles][LANES] of channels. */
static void both_points(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const grad_job *j = context;
    lt_winograd_tile x = {.map = LT_WINOGRAD_X,
                          .channels = j->cols,
                          .step = j->x_step,
                          .group = j->count * LANES,
                          .zeros = j->zeros,
                          .before = j->g->before};
    lt_winograd_tile dy = {
        .map = LT_WINOGRAD_DY, .channels = j->rows, .step = j->dy_step, .group = j->count * LANES};
    walk of_x = {.tiles = &j->tiles, .of = j->g->x, .side = READS, .outside = j->zeros};
    walk of_dy = {.tiles = &j->tiles, .of = j->g->dy, .side = SIDE, .outside = j->zeros};
    find_pixels(&of_x, j->begin + begin);
    find_pixels(&of_dy, j->begin + begin);
    for (int64_t i = begin; i < end; i++) {
        take_pixels(&of_x, j->begin + i, i + 1 == end, &x);
        take_pixels(&of_dy, j->begin + i, i + 1 == end, &dy);
        x.point = j->x + i * LANES;
        dy.point = j->dy + i * LANES;
        j->kernels->of[j->store].winograd(&x);
        j->kernels->of[j->store].winograd(&dy);
    }
}

/* Rows of a task: whole tiles in whole panels, and enough of them that x is not read often. */
static int64_t rows_of_task(const lt_cpu_kernels *k)
{
    return (int64_t)LANES * k->tile_rows;
}

/* Of one point, some rows: dw += dy' x. */
static void add_products(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const grad_job *j = context;
    const int rows = j->kernels->tile_rows, cols = j->kernels->tile_cols;
    lt_tile_save save = {.alpha = 1, .beta = j->begin > 0, .cols = cols, .step = j->cols};
    const int64_t most = rows_of_task(j->kernels), tasks = lt_cpu_pieces(j->rows, most);
    for (int64_t i = begin; i < end; i++) {
        const int64_t point = i / tasks, first = i % tasks * most;
        const int64_t last = lt_cpu_least(first + most, j->rows);
        const float *x = j->x + point * j->x_step, *dy = j->dy + point * j->dy_step;
        float *dw = j->dw + point * j->dw_step;
        for (int64_t c = 0; c < j->cols; c += cols)
            for (int64_t r = first; r < last; r += rows) {
                save.rows = (int)lt_cpu_least(rows, last - r);
                save.lane = (int)(r % LANES);
                j->kernels->gemm_tile(dy + r / LANES * LANES * j->count + save.lane,
                                      x + c * j->count, j->count, &save, dw + r * j->cols + c);
            }
    }
}

static void filter_gradients(void *context, int64_t begin, int64_t end, int64_t chunk)
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
                  .store = lt_cpu_store_of(g->x->dtype),
                  .tiles = make_grid(g->dy, g->config->pad_h, g->config->pad_w),
                  .rows = g->dy->shape.dim[1],
                  .cols = g->x->shape.dim[1]};
    const int64_t group = group_size(j.tiles.count, j.rows + j.cols, THIRD_CACHE / 2, DEEP);
    j.x_step = group * j.cols + PAD;
    j.dy_step = group * j.rows + PAD;
    j.dw_step = j.rows * j.cols + PAD;
    const int64_t zeros = lt_cpu_most(j.rows, j.cols);
    const int64_t floats = POINTS * (j.x_step + j.dy_step + j.dw_step) + zeros;
    j.x = lt_cpu_scratch(cpu, LT_CPU_WGRAD, (size_t)floats * sizeof *j.x);
    if (!j.x)
        return LT_E_NOMEM;
    j.dy = j.x + POINTS * j.x_step;
    j.dw = j.dy + POINTS * j.dy_step;
    j.zeros = j.dw + POINTS * j.dw_step;
    memset(j.zeros, 0, (size_t)zeros * sizeof *j.zeros);
    for (j.begin = 0; j.begin < j.tiles.count; j.begin += group) {
        j.count = lt_cpu_least(group, j.tiles.count - j.begin);
        lt_parallel(j.count, LANES, both_points, &j);
        lt_parallel(POINTS * lt_cpu_pieces(j.rows, rows_of_task(j.kernels)), 1, add_products, &j);
    }
    lt_parallel(j.rows, LANES, filter_gradients, &j);
    return LT_OK;
}

/* --- Which --- */

static bool is_stored(const lt_view *v, lt_dtype dtype)
{
    return v->dtype == dtype && lt_view_is_channels_last(v);
}

/* Stride 1 without gaps and groups. */
static bool is_plain(const lt_conv2d_config *g)
{
    enum { MOST_PAD = 2 };
    return g->stride_h == 1 && g->stride_w == 1 && g->dilation_h == 1 && g->dilation_w == 1
           && g->groups == 1 && g->pad_h <= MOST_PAD && g->pad_w <= MOST_PAD;
}

/* Filters [K][C] of 3x3, and images on either side. */
static bool can(const lt_cpu *cpu, const lt_conv2d_config *g, const lt_view *w, const lt_view *a,
                const lt_view *b)
{
    enum { THREE = 3, CHANNELS = 32 };
    const int64_t *d = w->shape.dim;
    return d[2] == THREE && d[3] == THREE && is_plain(g) && d[0] % CHANNELS == 0
           && d[1] % CHANNELS == 0 && is_stored(w, LT_F32) && lt_cpu_is_fast_dtype(a->dtype)
           && is_stored(a, a->dtype) && is_stored(b, a->dtype) && cpu->isa >= LT_ISA_AVX2;
}

/* Where it takes less time than direct convolutions: docs/adr/0068. AMX multiplies bf16 faster than this does f32. */
static bool is_listed(const lt_cpu *cpu, const lt_view *a)
{
    enum { LEAST_SIDE = 4, LEAST_TILES = 64 };
    const int64_t *d = a->shape.dim;
    return cpu->isa >= LT_ISA_AVX2 && (a->dtype == LT_F32 || cpu->isa < LT_ISA_AMX)
           && lt_cpu_least(d[2], d[3]) >= LEAST_SIDE
           && d[0] * lt_cpu_pieces(d[2], SIDE) * lt_cpu_pieces(d[3], SIDE) >= LEAST_TILES;
}

static bool is_wanted(const lt_cpu *cpu, const lt_view *a)
{
    return cpu->choice == LT_KERNELS_OWN || (cpu->choice == LT_KERNELS_AUTO && is_listed(cpu, a));
}

bool lt_winograd_wanted(const lt_cpu *cpu, const lt_own_conv *c)
{
    return can(cpu, c->config, c->w, c->from, c->to) && is_wanted(cpu, c->to);
}

bool lt_winograd_wanted_w(const lt_cpu *cpu, const lt_winograd_grad *g)
{
    return can(cpu, g->config, g->dw, g->x, g->dy) && is_wanted(cpu, g->dy);
}
