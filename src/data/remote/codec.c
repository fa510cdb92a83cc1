/* Encodes and decodes the transform in a request. */

#include "data/remote/codec.h"

#include "data/transform/augment.h"

#include "lather/ext/fail.h"

#include <limits.h>

void lt_encode_transform(lt_data_request *to, const lt_transform *t)
{
    const int64_t integer[LT_REQUEST_INTEGERS] = {t->augment,
                                                  t->size,
                                                  t->resize,
                                                  t->filter,
                                                  t->fast,
                                                  t->exif,
                                                  t->limits.pixels,
                                                  t->trivial_augment,
                                                  t->rand_augment.ops,
                                                  t->rand_augment.magnitude,
                                                  t->erase_fill[0] | t->erase_fill[1] << 8
                                                      | t->erase_fill[2] << 16};
    const double real[LT_REQUEST_REALS] = {t->crop_ratio,      t->flip,
                                           t->min_scale,       t->max_scale,
                                           t->min_ratio,       t->max_ratio,
                                           t->limits.seconds,  t->jitter.brightness,
                                           t->jitter.contrast, t->jitter.saturation,
                                           t->jitter.hue,      t->erase,
                                           t->vflip,           t->rotation,
                                           t->grayscale,       t->blur};
    for (int i = 0; i < LT_REQUEST_INTEGERS; i++)
        to->integer[i] = integer[i];
    for (int i = 0; i < LT_REQUEST_REALS; i++)
        to->real[i] = real[i];
}

lt_status lt_decode_transform(lt_transform *out, const lt_data_request *from)
{
    const int64_t *n = from->integer;
    const double *x = from->real;
    for (int i = 0; i < LT_REQUEST_INTEGERS; i++) /* only limits.pixels may exceed an int */
        if (n[i] < 0 || (i != 6 && n[i] > INT_MAX))
            return lt_fail(LT_E_ARG, "data: request has %lld as integer %d of its transform",
                           (long long)n[i], i);
    if (n[0] > LT_AUGMENT_SMALL || n[3] > LT_FILTER_BICUBIC)
        return lt_fail(
            LT_E_ARG, "data: request has augmentation %lld, filter %lld; want up to %d, %d",
            (long long)n[0], (long long)n[3], (int)LT_AUGMENT_SMALL, (int)LT_FILTER_BICUBIC);
    *out = (lt_transform){
        .augment = (lt_augment)n[0],
        .size = (int)n[1],
        .resize = (int)n[2],
        .filter = (lt_filter)n[3],
        .fast = n[4],
        .exif = n[5],
        .limits = {.pixels = n[6], .seconds = x[6]},
        .trivial_augment = n[7],
        .rand_augment = {.ops = (int)n[8], .magnitude = (int)n[9]},
        .erase_fill = {(uint8_t)n[10], (uint8_t)(n[10] >> 8), (uint8_t)(n[10] >> 16)},
        .crop_ratio = x[0],
        .flip = x[1],
        .min_scale = x[2],
        .max_scale = x[3],
        .min_ratio = x[4],
        .max_ratio = x[5],
        .jitter = {.brightness = x[7], .contrast = x[8], .saturation = x[9], .hue = x[10]},
        .erase = x[11],
        .vflip = x[12],
        .rotation = x[13],
        .grayscale = x[14],
        .blur = x[15]};
    return lt_transform_check(out);
}
