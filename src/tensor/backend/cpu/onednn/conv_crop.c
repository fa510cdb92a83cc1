/* On an image of one pixel eight taps of a 3x3 filter with padding 1 only see padding: their products and gradients are
 * zeros. This happens in late stages of networks on small images. Cropping such taps at the edges leaves a smaller
 * filter with less padding. */

#include "conv_crop.h"

/* Taps first .. first + count - 1 of one dimension. */
typedef struct span {
    int64_t first, count;
} span;

/* Returns the taps to keep: all if none is used; some unused ones if padding would become negative. */
static span used_taps(const lt_conv_form *f, int dim)
{
    const lt_conv_axis a = lt_conv_get_axis(f, dim);
    int64_t first = 0, end = a.taps;
    while (first < a.taps && lt_conv_tap_sees_only_padding(&a, first))
        first++;
    if (first == a.taps)
        return (span){0, a.taps};
    while (lt_conv_tap_sees_only_padding(&a, end - 1))
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
