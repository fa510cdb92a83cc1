/* A 3x3 filter with padding 1 has nine taps, and on an image of one pixel eight of them meet padding
 * only: their products are zeros, and so are their gradients. Late stages of networks for large
 * images are like that where the images are small. What is left when those at the edges are cut off is
 * a smaller filter with less padding. */

#include "conv_crop.h"

enum { HEIGHT = 2, WIDTH = 3 }; /* dimensions of a shape */

/* One dimension: taps first .. first + count - 1 remain. */
typedef struct span {
    int64_t first, count;
} span;

/* Whether an output multiplies tap with a pixel: out * stride - pad + tap * dilation lies in the image. */
static bool is_used(const lt_conv_form *f, int dim, int64_t tap)
{
    const lt_conv2d_config *c = &f->config;
    const bool h = dim == HEIGHT;
    const int64_t stride = h ? c->stride_h : c->stride_w;
    int64_t at = tap * (h ? c->dilation_h : c->dilation_w) - (h ? c->pad_h : c->pad_w);
    for (int64_t out = 0; out < f->y.dim[dim] && at < f->x.dim[dim]; out++, at += stride)
        if (at >= 0)
            return true;
    return false;
}

/* Padding does not become negative: then some taps stay. All of them do if none is used. */
static span used_taps(const lt_conv_form *f, int dim)
{
    const bool h = dim == HEIGHT;
    const int pad = h ? f->config.pad_h : f->config.pad_w;
    const int dilation = h ? f->config.dilation_h : f->config.dilation_w;
    const int64_t taps = f->w.dim[dim];
    int64_t first = 0, end = taps;
    while (first < taps && !is_used(f, dim, first))
        first++;
    if (first == taps)
        return (span){0, taps};
    while (!is_used(f, dim, end - 1))
        end--;
    if (first * dilation > pad)
        first = pad / dilation;
    return (span){first, end - first};
}

bool lt_conv_crop(const lt_conv_form *form, const lt_view *w, lt_conv_cropped *out)
{
    const span h = used_taps(form, HEIGHT), v = used_taps(form, WIDTH);
    if (h.count * v.count == form->w.dim[HEIGHT] * form->w.dim[WIDTH]
        || !lt_view_is_channels_last(w))
        return false;
    out->config = form->config;
    out->config.pad_h -= (int)h.first * form->config.dilation_h;
    out->config.pad_w -= (int)v.first * form->config.dilation_w;
    out->w = *w;
    out->w.shape.dim[HEIGHT] = h.count;
    out->w.shape.dim[WIDTH] = v.count;
    const int64_t skipped = h.first * w->stride[HEIGHT] + v.first * w->stride[WIDTH];
    out->w.data = (char *)w->data + skipped * (int64_t)lt_dtype_size(w->dtype);
    return true;
}
