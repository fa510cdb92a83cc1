/* Per-element formulas of batch normalization, shared by forward and backward, so that both have the same relu mask. */
#ifndef LT_CUDA_NORM_H
#define LT_CUDA_NORM_H

#include "tensor/backend/cuda/host_device.h"

#include <math.h>

/* Returns x * scale + shift, rounded once. */
LT_HD float lt_norm_affine(float x, float scale, float shift)
{
    return fmaf(x, scale, shift);
}

/* A NaN is kept. */
LT_HD float lt_norm_relu(float y)
{
    return y < 0 ? 0 : y;
}

/* The gradient of x: scale * (g - xhat * mean_gx), where slope = mean_gx / sqrt(var + eps) and g is without its
 * mean. */
LT_HD float lt_norm_dx(float g, float x, float mean, float scale, float slope)
{
    return scale * (g - (x - mean) * slope);
}

/* Coefficients of one channel, in double as in the reference. */
typedef struct lt_norm_channel {
    double mean, rstd, scale, shift;
} lt_norm_channel;

LT_HD lt_norm_channel lt_norm_coefficients(double mean, double var, double gamma, double beta,
                                           double eps)
{
    lt_norm_channel c;
    c.mean = mean;
    c.rstd = 1 / sqrt(var + eps);
    c.scale = gamma * c.rstd;
    c.shift = beta - mean * c.scale;
    return c;
}

#endif
