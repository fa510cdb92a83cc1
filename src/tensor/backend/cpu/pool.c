/* Pooling on channels-last views. Formulas: lt_maxpool2d(), lt_avgpool2d(). */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/memory_traffic.h"

#include <string.h>

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    size_t size; /* bytes of an element */
    const lt_pool2d_config *config;
    const lt_view *x, *y, *index; /* gradients: dx, dy[0], index */
    const lt_view *second;        /* dy[1], or NULL */
    bool mean;
    float *part;
} job;

static bool has_fast_kernel(const lt_view *x, const lt_view *y)
{
    return lt_cpu_is_fast_dtype(x->dtype) && lt_view_is_channels_last(x)
           && lt_cpu_is_channels_last(y, x->dtype);
}

static bool is_absent_or_u8(const lt_view *index)
{
    return !lt_cpu_has_data(index) || lt_cpu_is_channels_last(index, LT_U8);
}

static job make_job(const lt_cpu *cpu, const lt_pool2d_config *config, const lt_view *x,
                    const lt_view *y)
{
    return (job){.kernels = cpu->kernels,
                 .store = lt_cpu_store_from_dtype(x->dtype),
                 .size = lt_dtype_size(x->dtype),
                 .config = config,
                 .x = x,
                 .y = y};
}

/* Finds the taps [from, to) of a window that are inside the image. */
static void clip_window(int64_t first, int kernel, int64_t extent, int *from, int *to)
{
    *from = first < 0 ? (int)-first : 0;
    *to = first + kernel > extent ? (int)(extent - first) : kernel;
}

/* Returns the address of element i of x, which may be before the image; only taps inside are read. */
static const void *element_address(const job *j, int64_t i)
{
    return (const void *)((uintptr_t)j->x->data + (uintptr_t)(i * (int64_t)j->size));
}

static float mean_factor(const lt_pool2d_config *config)
{
    return 1 / ((float)config->kernel_h * (float)config->kernel_w);
}

/* Computes rows of y: maximum or mean of each window. */
static void pool_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const lt_pool2d_config *g = j->config;
    const int64_t *d = j->x->shape.dim, c = d[1], h = d[2], w = d[3];
    const int64_t p_rows = j->y->shape.dim[2], q_cols = j->y->shape.dim[3];
    lt_max_window in = {.channels = c, .stride = w * c, .s = g->kernel_w};
    for (int64_t row = begin; row < end; row++) {
        const int64_t n = row / p_rows, top = row % p_rows * g->stride_h - g->pad_h;
        clip_window(top, g->kernel_h, h, &in.r0, &in.r1);
        for (int64_t q = 0; q < q_cols; q++) {
            const int64_t left = q * g->stride_w - g->pad_w, out = (row * q_cols + q) * c;
            clip_window(left, g->kernel_w, w, &in.s0, &in.s1);
            in.x = element_address(j, ((n * h + top) * w + left) * c);
            in.y = (char *)j->y->data + (size_t)out * j->size;
            in.index = j->index ? (uint8_t *)j->index->data + out : NULL;
            if (j->mean)
                j->kernels->of[j->store].sum_window(&in, mean_factor(g));
            else
                j->kernels->of[j->store].max_window(&in);
        }
    }
}

lt_status lt_cpu_maxpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y, const lt_view *index)
{
    LT_CPU_COUNT_TRAFFIC(x, y, index);
    if (!has_fast_kernel(x, y) || !is_absent_or_u8(index))
        return lt_backend_ref()->maxpool2d(ctx, config, x, y, index);
    job j = make_job(ctx, config, x, y);
    j.index = lt_cpu_has_data(index) ? index : NULL;
    lt_parallel_range(y->shape.dim[0] * y->shape.dim[2], 1, pool_rows, &j);
    return LT_OK;
}

/* Finds the windows [from, to) along one axis that contain position i. */
static void find_windows_containing(int64_t i, int kernel, int stride, int pad, int64_t count,
                                    int64_t *from, int64_t *to)
{
    const int64_t last = (i + pad) / stride, first = i + pad - kernel + 1;
    *from = first <= 0 ? 0 : (first + stride - 1) / stride;
    *to = last + 1 < count ? last + 1 : count;
}

/* Computes rows of dx: gathers from the windows, so that rows are independent. */
static void max_grad_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const lt_pool2d_config *g = j->config;
    const int64_t c = j->x->shape.dim[1], h = j->x->shape.dim[2], w = j->x->shape.dim[3];
    const int64_t rows = j->y->shape.dim[2], cols = j->y->shape.dim[3];
    lt_max_grad in = {.dy = {j->y->data, j->second ? j->second->data : NULL},
                      .index = j->index->data,
                      .channels = c};
    for (int64_t row = begin; row < end; row++) {
        const int64_t n = row / h, y = row % h;
        int64_t p0, p1, q0, q1;
        find_windows_containing(y, g->kernel_h, g->stride_h, g->pad_h, rows, &p0, &p1);
        for (int64_t x = 0; x < w; x++) {
            find_windows_containing(x, g->kernel_w, g->stride_w, g->pad_w, cols, &q0, &q1);
            in.windows = 0;
            for (int64_t p = p0; p < p1; p++)
                for (int64_t q = q0; q < q1; q++) {
                    const int64_t r = y + g->pad_h - p * g->stride_h;
                    const int64_t s = x + g->pad_w - q * g->stride_w;
                    in.window[in.windows] = ((n * rows + p) * cols + q) * c;
                    in.tap[in.windows++] = (uint8_t)(r * g->kernel_w + s);
                }
            in.dx = (char *)j->x->data + (size_t)((row * w + x) * c) * j->size;
            j->kernels->of[j->store].max_grad(&in);
        }
    }
}

lt_status lt_cpu_maxpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                                const lt_view *index, const lt_view *dx)
{
    LT_CPU_COUNT_TRAFFIC(&dy[0], &dy[1], index, dx);
    /* Most windows that contain one position, along each axis. */
    const int deep = (config->kernel_h + config->stride_h - 1) / config->stride_h;
    const int wide = (config->kernel_w + config->stride_w - 1) / config->stride_w;
    const bool second = lt_cpu_has_data(&dy[1]);
    if (!has_fast_kernel(dx, &dy[0]) || (second && !has_fast_kernel(dx, &dy[1]))
        || !is_absent_or_u8(index) || deep > 4 || wide > 4)
        return lt_backend_ref()->maxpool2d_grad(ctx, config, dy, index, dx);
    job j = make_job(ctx, config, dx, &dy[0]);
    j.index = index;
    j.second = second ? &dy[1] : NULL;
    lt_parallel_range(dx->shape.dim[0] * dx->shape.dim[2], 1, max_grad_rows, &j);
    return LT_OK;
}

static bool is_global_pool(const lt_pool2d_config *config, const lt_view *image)
{
    return config->kernel_h == image->shape.dim[2] && config->kernel_w == image->shape.dim[3]
           && !config->pad_h && !config->pad_w;
}

/* Computes global average pooling: each image's mean per channel. */
static void run_global_average_pool(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t c = j->x->shape.dim[1], pixels = j->x->shape.dim[2] * j->x->shape.dim[3];
    const float factor = 1 / (float)pixels;
    for (int64_t n = begin; n < end; n++) {
        float *sum = j->part + n * c;
        memset(sum, 0, (size_t)c * sizeof *sum);
        j->kernels->of[j->store].add_rows(
            (const char *)j->x->data + (size_t)(n * pixels * c) * j->size, pixels, c, sum);
        char *y = (char *)j->y->data + (size_t)(n * c) * j->size;
        j->kernels->of[LT_STORE_F32].scale(factor, sum, sum, c);
        if (j->store == LT_STORE_BF16)
            j->kernels->narrow_all(sum, (uint16_t *)(void *)y, c);
        else
            memcpy(y, sum, (size_t)c * sizeof *sum);
    }
}

lt_status lt_cpu_avgpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y)
{
    LT_CPU_COUNT_TRAFFIC(x, y);
    if (!has_fast_kernel(x, y))
        return lt_backend_ref()->avgpool2d(ctx, config, x, y);
    job j = make_job(ctx, config, x, y);
    if (!is_global_pool(config, x)) {
        j.mean = true;
        lt_parallel_range(y->shape.dim[0] * y->shape.dim[2], 1, pool_rows, &j);
        return LT_OK;
    }
    size_t bytes = (size_t)lt_cpu_element_count(y) * sizeof(float);
    j.part = lt_cpu_scratch(ctx, LT_CPU_PARTIAL, bytes);
    if (!j.part)
        return LT_E_NOMEM;
    lt_parallel_range(x->shape.dim[0], 1, run_global_average_pool, &j);
    return LT_OK;
}

static void spread_mean_grad(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t c = j->x->shape.dim[1], pixels = j->x->shape.dim[2] * j->x->shape.dim[3];
    for (int64_t n = begin; n < end; n++)
        j->kernels->of[j->store].repeat_row(
            1 / (float)pixels, (const char *)j->y->data + (size_t)(n * c) * j->size, pixels, c,
            (char *)j->x->data + (size_t)(n * pixels * c) * j->size);
}

/* Computes rows of dx: a pixel's gradient is the sum over the windows that contain it, a window of dy. */
static void mean_grad_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const lt_pool2d_config *g = j->config;
    const int64_t c = j->x->shape.dim[1], h = j->x->shape.dim[2], w = j->x->shape.dim[3];
    const int64_t rows = j->y->shape.dim[2], cols = j->y->shape.dim[3];
    lt_max_window in = {.channels = c, .stride = cols * c};
    for (int64_t row = begin; row < end; row++) {
        int64_t p0, p1, q0, q1;
        find_windows_containing(row % h, g->kernel_h, g->stride_h, g->pad_h, rows, &p0, &p1);
        for (int64_t x = 0; x < w; x++) {
            find_windows_containing(x, g->kernel_w, g->stride_w, g->pad_w, cols, &q0, &q1);
            in.x = (const char *)j->y->data
                   + (size_t)(((row / h * rows + p0) * cols + q0) * c) * j->size;
            in.r1 = (int)(p1 - p0);
            in.s1 = (int)(q1 - q0);
            in.y = (char *)j->x->data + (size_t)((row * w + x) * c) * j->size;
            j->kernels->of[j->store].sum_window(&in, mean_factor(g));
        }
    }
}

lt_status lt_cpu_avgpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view *dy,
                                const lt_view *dx)
{
    LT_CPU_COUNT_TRAFFIC(dy, dx);
    if (!has_fast_kernel(dx, dy))
        return lt_backend_ref()->avgpool2d_grad(ctx, config, dy, dx);
    job j = make_job(ctx, config, dx, dy);
    if (is_global_pool(config, dx))
        lt_parallel_range(dx->shape.dim[0], 1, spread_mean_grad, &j);
    else
        lt_parallel_range(dx->shape.dim[0] * dx->shape.dim[2], 1, mean_grad_rows, &j);
    return LT_OK;
}
