/* Interpolation of channels-last f32 images and its gradient. Other strides and dtypes fall back to the reference
 * backend. Formula: lather/ops/image.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tensor/backend/upsample_taps.h"

#include <string.h>

enum { CHANNELS = 64 }; /* channels of a task of the gradient */

typedef struct job {
    const lt_upsample_config *config;
    const lt_view *x, *y; /* in backward dx and dy */
} job;

/* Strides of sizes of 1 may be anything: the address follows from the sizes. */
static float *pixel(const lt_view *v, int64_t n, int64_t h, int64_t w)
{
    const int64_t *dim = v->shape.dim;
    return (float *)v->data + ((n * dim[2] + h) * dim[3] + w) * dim[1];
}

/* The four pixels of x for pixel (p, q) of y, and their weights. */
typedef struct corners {
    float *pixel[4];
    float weight[4];
} corners;

static corners corners_of(const job *j, int64_t n, int64_t p, int64_t q)
{
    const lt_shape in = j->x->shape, out = j->y->shape;
    const lt_upsample_pair h = lt_upsample_taps(j->config, p, in.dim[2], out.dim[2]);
    const lt_upsample_pair w = lt_upsample_taps(j->config, q, in.dim[3], out.dim[3]);
    corners c;
    for (int i = 0; i < 4; i++) {
        c.pixel[i] = pixel(j->x, n, i / 2 ? h.next : h.first, i % 2 ? w.next : w.first);
        c.weight[i] =
            (float)((i / 2 ? h.weight : 1 - h.weight) * (i % 2 ? w.weight : 1 - w.weight));
    }
    return c;
}

/* Adds the pixels with a weight: one of nearest, up to four else. */
static void upsample_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t channels = j->y->shape.dim[1], rows = j->y->shape.dim[2];
    for (int64_t r = begin; r < end; r++)
        for (int64_t q = 0; q < j->y->shape.dim[3]; q++) {
            const corners c = corners_of(j, r / rows, r % rows, q);
            float *y = pixel(j->y, r / rows, r % rows, q);
            memset(y, 0, (size_t)channels * sizeof *y);
            for (int i = 0; i < 4; i++)
                for (int64_t k = 0; k < channels && c.weight[i] != 0; k++)
                    y[k] += c.weight[i] * c.pixel[i][k];
        }
}

static void grad_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t channels = j->x->shape.dim[1], blocks = lt_cpu_ceil_div(channels, CHANNELS);
    for (int64_t t = begin; t < end; t++) {
        const int64_t n = t / blocks, first = t % blocks * CHANNELS;
        const int64_t last = lt_cpu_min(first + CHANNELS, channels);
        for (int64_t i = 0; i < j->x->shape.dim[2] * j->x->shape.dim[3]; i++)
            memset(pixel(j->x, n, 0, i) + first, 0, (size_t)(last - first) * sizeof(float));
        for (int64_t i = 0; i < j->y->shape.dim[2] * j->y->shape.dim[3]; i++) {
            const corners c = corners_of(j, n, i / j->y->shape.dim[3], i % j->y->shape.dim[3]);
            const float *dy = pixel(j->y, n, 0, i);
            for (int s = 0; s < 4; s++)
                for (int64_t k = first; k < last && c.weight[s] != 0; k++)
                    c.pixel[s][k] += c.weight[s] * dy[k];
        }
    }
}

static bool is_fast(const lt_view *x, const lt_view *y)
{
    return lt_cpu_is_channels_last(x, LT_F32) && lt_cpu_is_channels_last(y, LT_F32);
}

lt_status lt_cpu_upsample(void *ctx, const lt_upsample_config *config, const lt_view *x,
                          const lt_view *y)
{
    job j = {config, x, y};
    if (!is_fast(x, y))
        return lt_backend_ref()->upsample(ctx, config, x, y);
    lt_parallel_range(y->shape.dim[0] * y->shape.dim[2], 1, upsample_chunk, &j);
    return LT_OK;
}

lt_status lt_cpu_upsample_grad(void *ctx, const lt_upsample_config *config, const lt_view *dy,
                               const lt_view *dx)
{
    job j = {config, dx, dy};
    if (!is_fast(dx, dy))
        return lt_backend_ref()->upsample_grad(ctx, config, dy, dx);
    lt_parallel_range(dx->shape.dim[0] * lt_cpu_ceil_div(dx->shape.dim[1], CHANNELS), 1, grad_chunk,
                      &j);
    return LT_OK;
}
