/* The shapes of ResNet-50's trained parameters, in torchvision's order: He, Zhang, Ren & Sun, "Deep
 * Residual Learning for Image Recognition", CVPR 2016, table 1, with 1000 classes. */
#ifndef LT_TESTS_OPTIM_RESNET50_SHAPES_H
#define LT_TESTS_OPTIM_RESNET50_SHAPES_H

#include "lather/tensor.h"

#include <stddef.h>

enum { RESNET50_PARAMS = 161 };

static inline size_t resnet50_convolution(lt_shape *out, int64_t to, int64_t from, int64_t side)
{
    out[0] = LT_SHAPE(to, from, side, side);
    out[1] = out[2] = LT_SHAPE(to); /* its batch norm */
    return 3;
}

/* Writes RESNET50_PARAMS shapes; returns their number. */
static inline size_t resnet50_shapes(lt_shape *out)
{
    static const int blocks[] = {3, 4, 6, 3};
    size_t n = resnet50_convolution(out, 64, 3, 7);
    int64_t from = 64, width = 64;
    for (int stage = 0; stage < 4; stage++, width *= 2)
        for (int b = 0; b < blocks[stage]; b++, from = 4 * width) {
            n += resnet50_convolution(out + n, width, from, 1);
            n += resnet50_convolution(out + n, width, width, 3);
            n += resnet50_convolution(out + n, 4 * width, width, 1);
            if (b == 0)
                n += resnet50_convolution(out + n, 4 * width, from, 1);
        }
    out[n++] = LT_SHAPE(1000, 2048);
    out[n++] = LT_SHAPE(1000);
    return n;
}

#endif
