/* Per-element formulas of dropout and of the normalization of pixels. */
#ifndef LT_CUDA_PIXELS_H
#define LT_CUDA_PIXELS_H

#include "tensor/backend/cuda/host_device.h"

#include "lather/ops/norm.h"

/* Returns whether dropout with probability p keeps the element with that random word. */
LT_HD bool lt_dropout_keeps(uint32_t word, double p)
{
    return (double)word * 0x1p-32 >= p;
}

LT_HD float lt_normalize_pixel(uint8_t pixel, const lt_normalize_config *config, int channel)
{
    return ((float)pixel - config->mean[channel]) / config->deviation[channel];
}

#endif
