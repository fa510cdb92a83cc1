/* Folds a batch norm into the preceding convolution. Jacob et al., "Quantization and Training of Neural
 * Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018, section 3.2.
 *
 *     f = gamma / sqrt(var + eps)    w' = f w    b' = f (b - mean) + beta
 *
 * Computed on the host in double, as it is done once. */

#include "nn/fold.h"

#include "base/alloc.h"
#include "nn/conv2d.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

/* Reads an f32 or f64 tensor as newly allocated doubles. */
static lt_status read_doubles(const lt_tensor *t, double **out)
{
    int64_t count = lt_tensor_count(t);
    double *d = NULL;
    LT_TRY(LT_ALLOC(&d, count));
    lt_status st = lt_tensor_read(t, d, lt_tensor_bytes(t));
    if (st) {
        lt_free(d);
        return st;
    }
    for (int64_t i = count; i-- > 0 && lt_tensor_dtype(t) == LT_F32;) { /* widened in place */
        float f;
        memcpy(&f, (const char *)d + (size_t)i * sizeof f, sizeof f);
        d[i] = (double)f;
    }
    *out = d;
    return LT_OK;
}

/* Writes doubles, narrowing them in place if the tensor is f32. */
static lt_status write_doubles(lt_tensor *t, double *d)
{
    int64_t count = lt_tensor_count(t);
    for (int64_t i = 0; i < count && lt_tensor_dtype(t) == LT_F32; i++) {
        float f = (float)d[i];
        memcpy((char *)d + (size_t)i * sizeof f, &f, sizeof f);
    }
    return lt_tensor_write(t, d, lt_tensor_bytes(t));
}

enum { GAMMA, BETA, MEAN, VAR, BIAS, WEIGHT, PARTS };

/* Replaces WEIGHT and BIAS by the folded ones. */
static void fold_norm(double *const part[PARTS], int64_t channels, int64_t each, double eps)
{
    for (int64_t c = 0; c < channels; c++) {
        double factor = part[GAMMA][c] / sqrt(part[VAR][c] + eps);
        for (int64_t i = 0; i < each; i++)
            part[WEIGHT][c * each + i] *= factor;
        part[BIAS][c] = factor * (part[BIAS][c] - part[MEAN][c]) + part[BETA][c];
    }
}

/* Creates the bias of the convolution whose weight is "layer1.0.conv1.weight". */
static lt_status make_bias(lt_param *bias, const lt_param *weight, lt_device *device)
{
    size_t length = strlen(weight->name) - strlen(".weight");
    char *path = lt_format("%.*s", (int)length, weight->name);
    if (!path)
        return LT_E_NOMEM;
    lt_shape shape = LT_SHAPE(lt_tensor_shape(weight->value).dim[0]);
    lt_status st = lt_param_init_kind(bias, device, path, "bias", shape, 0, LT_PARAM_BIAS);
    lt_free(path);
    return st;
}

/* Computes everything in separate memory before it changes the layer. */
static lt_status fold_and_write_params(lt_param *weight, lt_param *bias, const lt_fold_norm *n,
                                       double *part[PARTS])
{
    int64_t channels = lt_tensor_shape(weight->value).dim[0];
    const lt_param *from[PARTS] = {n->gamma, n->beta, n->mean, n->var, bias, weight};
    for (int i = 0; i < PARTS; i++)
        LT_TRY(read_doubles(from[i]->value, &part[i]));
    fold_norm(part, channels, lt_tensor_count(weight->value) / channels, n->eps);
    LT_TRY(write_doubles(weight->value, part[WEIGHT]));
    return write_doubles(bias->value, part[BIAS]);
}

lt_status lt_fold_norm_into_conv(lt_module *conv, const lt_fold_norm *norm)
{
    lt_param *weight = lt_conv2d_weight(conv), *bias = lt_conv2d_bias(conv), fresh = {0};
    lt_param *target = bias->value ? bias : &fresh;
    int64_t channels = lt_tensor_shape(weight->value).dim[0];
    if (lt_tensor_count(norm->gamma->value) != channels)
        return lt_fail(LT_E_SHAPE, "fold: %s has %lld channels, %s has %lld", weight->name,
                       (long long)channels, norm->gamma->name,
                       (long long)lt_tensor_count(norm->gamma->value));
    if (target == &fresh)
        LT_TRY(make_bias(&fresh, weight, lt_tensor_device(weight->value)));
    double *part[PARTS] = {NULL};
    lt_status st = fold_and_write_params(weight, target, norm, part);
    for (int i = 0; i < PARTS; i++)
        lt_free(part[i]);
    if (target != &fresh)
        return st;
    if (st)
        lt_param_clear(&fresh);
    else
        *bias = fresh;
    return st;
}
