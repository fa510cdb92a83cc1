/* A 3x3 filter with padding 1 has nine taps, and on an image of one pixel eight of them meet padding
 * only: their products are zeros, and so are their gradients. Late stages of networks for large
 * images are like that where the images are small. What is left when those at the edges are cut off is
 * a smaller filter with less padding. */

#include "conv_crop.h"

/* One dimension: taps first .. first + count - 1 remain. */
typedef struct span {
    int64_t first, count;
} span;

/* Padding does not become negative: then some taps stay. All of them do if none is used. */
static span used_taps(const lt_conv_form *f, int dim)
{
    const lt_conv_axis a = lt_conv_along(f, dim);
    int64_t first = 0, end = a.taps;
    while (first < a.taps && lt_conv_is_idle(&a, first))
        first++;
    if (first == a.taps)
        return (span){0, a.taps};
    while (lt_conv_is_idle(&a, end - 1))
        end--;
    if (first * a.dilation > a.pad)
        first = a.pad / a.dilation;
    return (span){first, end - first};
}

bool lt_conv_crop(const lt_conv_form *form, const lt_view *w, lt_conv_cropped *out)
{
    const span h = used_taps(form, LT_CONV_HEIGHT), v = used_taps(form, LT_CONV_WIDTH);
    if (h.count * v.count == form->w.dim[LT_CONV_HEIGHT] * form->w.dim[LT_CONV_WIDTH]
        || !lt_view_is_channels_last(w))
        return false;
    out->config = form->config;
    out->config.pad_h -= (int)h.first * form->config.dilation_h;
    out->config.pad_w -= (int)v.first * form->config.dilation_w;
    out->w = *w;
    out->w.shape.dim[LT_CONV_HEIGHT] = h.count;
    out->w.shape.dim[LT_CONV_WIDTH] = v.count;
    const int64_t skipped =
        h.first * w->stride[LT_CONV_HEIGHT] + v.first * w->stride[LT_CONV_WIDTH];
    out->w.data = (char *)w->data + skipped * (int64_t)lt_dtype_size(w->dtype);
    return true;
}
