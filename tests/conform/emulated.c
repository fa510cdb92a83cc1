/* The cuda backend's kernels compiled for the host, with the fake device's memory: tests arithmetic, tiling
 * and barriers without the hardware. Kernels of libraries are replaced by ref's. */

#include "base/alloc.h"
#include "conform.h"
#include "fake.h"
#include "tensor/backend/cuda/kernels.h"
#include "tensor/backend/cuda/kernels/attention.h"
#include "tensor/backend/cuda/kernels/space_to_depth.h"
#include "tensor/backend/cuda/matrix/matrices.h"
#include "tensor/backend/cuda/norm_sums.h"

#include <string.h>

static lt_status open_emulated(void **ctx, int ordinal, const lt_device_config *config)
{
    fake_reset((size_t)1 << 40);
    return lt_cuda_open_with(&fake_api, ctx, ordinal, config);
}

/* Does cuDNN's part in single precision, and the backend's own part after it. */
static lt_status conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums)
{
    const size_t channels = (size_t)y->shape.dim[1];
    float *sum = lt_alloc(2 * channels, sizeof *sum), *squares = sum + channels;
    void *parts = lt_alloc(channels, LT_SUMS_BYTES);
    lt_view wide = *y;
    wide.dtype = LT_F32;
    wide.data = lt_alloc((size_t)lt_shape_count(y->shape), sizeof(float));
    LT_ASSERT(sum && parts && wide.data && !sums);
    lt_status st = lt_backend_ref()->conv2d(NULL, config, x, w, NULL, y);
    if (!st)
        st = lt_backend_ref()->cast(NULL, y, &wide);
    for (size_t i = 0; i < (size_t)lt_shape_count(y->shape); i++) { /* channels-last */
        const float v = ((const float *)wide.data)[i];
        sum[i % channels] += v;
        squares[i % channels] += v * v;
    }
    if (!st)
        st = lt_cuda_begin(ctx, "conv2d_stats");
    if (!st)
        st = lt_cuda_moments_from_sums(ctx, y, sum, squares, parts, stats);
    lt_free(sum);
    lt_free(parts);
    lt_free(wide.data);
    return st ? st : lt_cuda_end(ctx);
}

/* The first convolution on blocks of pixels, with ref's convolution in place of cuDNN's. The bytes after the
 * blocks must be unchanged. */
typedef struct stem {
    lt_view blocks, filters;
} stem;

enum { GUARD_BYTES = 4096, GUARD = 0x5a };

static unsigned char *guard_of(const lt_view *blocks)
{
    return (unsigned char *)blocks->data
           + (size_t)lt_shape_count(blocks->shape) * lt_dtype_size(blocks->dtype);
}

static stem stem_new(const lt_view *x, const lt_view *w, const lt_view *y)
{
    stem s = {lt_space_to_depth_blocks(x, y), lt_space_to_depth_filters(w, y)};
    lt_view *const all[] = {&s.blocks, &s.filters};
    for (int i = 0; i < 2; i++) {
        all[i]->data = lt_alloc((size_t)lt_shape_count(all[i]->shape) + GUARD_BYTES, sizeof(float));
        LT_ASSERT(all[i]->data);
    }
    memset(guard_of(&s.blocks), GUARD, GUARD_BYTES);
    return s;
}

/* Returns true if the guard is unchanged. */
static bool stem_free(stem *s)
{
    const unsigned char *guard = guard_of(&s->blocks);
    bool is_whole = true;
    for (int i = 0; i < GUARD_BYTES; i++)
        is_whole = is_whole && guard[i] == GUARD;
    lt_free(s->blocks.data);
    lt_free(s->filters.data);
    return is_whole;
}

static lt_status stem_end(lt_cuda *c, stem *s, lt_status st)
{
    if (!stem_free(s) && !st)
        st = lt_fail(LT_E_DEVICE, "%s: wrote past the end of the blocks", c->operation);
    return st ? st : lt_cuda_end(c);
}

static lt_status conv2d(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    const lt_conv2d_config folded = lt_space_to_depth_config();
    if (!lt_space_to_depth_fits(config, x, w, y))
        return lt_backend_ref()->conv2d(ctx, config, x, w, b, y);
    LT_TRY(lt_cuda_begin(ctx, "conv2d"));
    stem s = stem_new(x, w, y);
    lt_status st = lt_space_to_depth_x(ctx, x, &s.blocks);
    if (!st)
        st = lt_space_to_depth_w(ctx, w, &s.filters);
    if (!st)
        st = lt_backend_ref()->conv2d(NULL, &folded, &s.blocks, &s.filters, b, y);
    return stem_end(ctx, &s, st);
}

static lt_status conv2d_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    const lt_conv2d_config folded = lt_space_to_depth_config();
    if (!lt_space_to_depth_fits(config, x, dw, dy))
        return lt_backend_ref()->conv2d_grad_w(ctx, config, dy, x, dw);
    LT_TRY(lt_cuda_begin(ctx, "conv2d_grad_w"));
    stem s = stem_new(x, dw, dy);
    s.filters.dtype = LT_F32; /* cuDNN's rounding does not matter here */
    lt_status st = lt_space_to_depth_x(ctx, x, &s.blocks);
    if (!st)
        st = lt_backend_ref()->conv2d_grad_w(NULL, &folded, dy, &s.blocks, &s.filters);
    if (!st)
        st = lt_depth_to_space_w(ctx, &s.filters, dw);
    return stem_end(ctx, &s, st);
}

/* The same for pixels whose blocks are kept. */
static lt_status conv2d_pixels_stats(void *ctx, const lt_conv2d_config *config,
                                     const lt_conv_pixels *pixels, const lt_view *w,
                                     const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    const lt_conv2d_config folded = lt_space_to_depth_config();
    const lt_view x = {.dtype = y->dtype, .shape = pixels->x->shape};
    const lt_view blocks = lt_space_to_depth_blocks(&x, y);
    const lt_shape s = blocks.shape;
    if (!pixels->folded->data && lt_space_to_depth_fits(config, &x, w, y))
        pixels->folded->shape = LT_SHAPE(s.dim[0], s.dim[2], s.dim[3], s.dim[1]);
    if (!pixels->folded->data)
        return LT_OK;
    LT_TRY(lt_cuda_begin(ctx, "conv2d_pixels_stats"));
    stem f = stem_new(&x, w, y);
    lt_status st = lt_space_to_depth_pixels(ctx, pixels->x, pixels->config, &f.blocks);
    if (!st)
        st = lt_space_to_depth_w(ctx, w, &f.filters);
    memcpy(pixels->folded->data, f.blocks.data,
           (size_t)(guard_of(&f.blocks) - (unsigned char *)f.blocks.data));
    if (!st)
        st = conv2d_stats(ctx, &folded, &f.blocks, &f.filters, y, stats, NULL);
    how->done = true;
    return stem_end(ctx, &f, st);
}

static lt_status conv2d_pixels_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                      const lt_conv_pixels *pixels, const lt_view *dw, bool *done)
{
    const lt_conv2d_config folded = lt_space_to_depth_config();
    const lt_view x = {.dtype = dy->dtype, .shape = pixels->x->shape};
    (void)config;
    LT_TRY(lt_cuda_begin(ctx, "conv2d_pixels_grad_w"));
    stem f = stem_new(&x, dw, dy);
    lt_view blocks = f.blocks;
    blocks.data = pixels->folded->data;
    f.filters.dtype = LT_F32;
    lt_status st = lt_backend_ref()->conv2d_grad_w(NULL, &folded, dy, &blocks, &f.filters);
    if (!st)
        st = lt_depth_to_space_w(ctx, &f.filters, dw);
    *done = true;
    return stem_end(ctx, &f, st);
}

/* Memory for scores, small enough that the rows' sequences are split into items and rows. */
enum { SCORE_BYTES = 2048 };

static lt_status attention(void *ctx, const lt_attention_config *config, const lt_view *q,
                           const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse)
{
    const lt_attention_composed way = {config, SCORE_BYTES};
    LT_TRY(lt_cuda_begin(ctx, "attention"));
    LT_TRY(lt_attention_compose(ctx, &way, q, k, v, y, lse));
    return lt_cuda_end(ctx);
}

static lt_status attention_grad(void *ctx, const lt_attention_config *config,
                                const lt_attention_grad *g)
{
    const lt_attention_composed way = {config, SCORE_BYTES};
    LT_TRY(lt_cuda_begin(ctx, "attention_grad"));
    LT_TRY(lt_attention_compose_grad(ctx, &way, g));
    return lt_cuda_end(ctx);
}

#define INSTALL(name) lt_cuda_install_##name(&table);
const lt_backend *emulated_backend(const char *name)
{
    static lt_backend table;
    if (strcmp(name, "emulated") != 0)
        return NULL;
    table = *lt_backend_ref();
    table.name = "emulated";
    table.open = open_emulated;
    table.close = lt_cuda_close;
    table.alloc = lt_cuda_alloc;
    table.free = lt_cuda_free;
    table.copy = lt_cuda_copy;
    table.sync = lt_cuda_sync;
    table.rounds_grad_w = true;
    LT_CUDA_KERNELS(INSTALL)
    LT_CUDA_MATRIX_PARTS(INSTALL)
    table.attention = attention;
    table.attention_grad = attention_grad;
    table.conv2d = conv2d;
    table.conv2d_grad_w = conv2d_grad_w;
    table.conv2d_stats = conv2d_stats;
    table.conv2d_pixels_stats = conv2d_pixels_stats;
    table.conv2d_pixels_grad_w = conv2d_pixels_grad_w;
    return &table;
}
