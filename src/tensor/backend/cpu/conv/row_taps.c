/* In channels-last memory the S pixels below a filter row are one run of S*C numbers, and so are the row's weights. With
 * the image padded in memory, each row of taps is one tap of S*C channels. */

#include "row_taps.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { N, C, H, W };

typedef struct job {
    const lt_conv2d_config *config;
    const lt_view *x, *padded;
    int64_t pixel; /* bytes */
} job;

/* Writes rows of the padded image. */
static void pad_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const job *j = context;
    const int64_t *in = j->x->shape.dim, *out = j->padded->shape.dim;
    const int64_t pad = lt_cpu_min(j->config->pad_w, out[W]);
    const int64_t width = lt_cpu_min(in[W], out[W] - pad);
    for (int64_t i = begin; i < end; i++) {
        char *to = (char *)j->padded->data + i * out[W] * j->pixel;
        const int64_t row = i % out[H] - j->config->pad_h;
        memset(to, 0, (size_t)(out[W] * j->pixel));
        if (row >= 0 && row < in[H])
            memcpy(to + pad * j->pixel,
                   (const char *)j->x->data + (i / out[H] * in[H] + row) * in[W] * j->pixel,
                   (size_t)(width * j->pixel));
    }
}

bool lt_row_taps_help(const lt_conv2d_config *config, const lt_view *x, const lt_view *w)
{
    enum { FEW = 8 }; /* channels */
    return config->groups == 1 && config->dilation_w == 1 && x->shape.dim[C] <= FEW
           && w->shape.dim[W] > 1;
}

lt_status lt_row_taps_join(lt_cpu *cpu, const lt_conv2d_config *config, const lt_view *x,
                           const lt_view *w, lt_shape y, lt_row_taps *out)
{
    enum { ROWS = 32 };
    const int64_t *taps = w->shape.dim, channels = taps[C];
    const int64_t height =
        (y.dim[H] - 1) * config->stride_h + (taps[H] - 1) * config->dilation_h + 1;
    const int64_t width = (y.dim[W] - 1) * config->stride_w + taps[W];
    const int64_t pixel = channels * (int64_t)lt_dtype_size(x->dtype);
    void *data =
        lt_cpu_scratch(cpu, LT_CPU_SCRATCHPAD, (size_t)(x->shape.dim[N] * height * width * pixel));
    if (!data)
        return LT_E_NOMEM;
    out->config = *config;
    out->config.pad_h = out->config.pad_w = 0;
    out->x = (lt_view){.data = data,
                       .dtype = x->dtype,
                       .shape = LT_SHAPE(x->shape.dim[N], taps[W] * channels, height, width),
                       .stride = {height * width * channels, 1, width * channels, channels}};
    out->w =
        lt_cpu_dense_view(w->data, w->dtype, LT_SHAPE(taps[N], taps[W] * channels, taps[H], 1));
    job j = {config, x, &out->x, pixel};
    lt_parallel(x->shape.dim[N] * height, ROWS, pad_rows, &j);
    return LT_OK;
}
