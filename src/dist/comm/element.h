/* Access to elements of any floating dtype in host memory. */
#ifndef LT_DIST_COMM_ELEMENT_H
#define LT_DIST_COMM_ELEMENT_H

#include "tensor/backend/dtype.h"

#include "lather/tensor.h"

/* Returns element i of x, which need not be aligned. */
static inline double lt_element(lt_dtype dtype, const void *x, int64_t i)
{
    double wide;
    float narrow;
    uint16_t half;
    if (dtype == LT_F64) {
        memcpy(&wide, (const char *)x + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    if (dtype == LT_F32) {
        memcpy(&narrow, (const char *)x + (size_t)i * sizeof narrow, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&half, (const char *)x + (size_t)i * sizeof half, sizeof half);
    return (double)(dtype == LT_BF16 ? lt_f32_from_bf16(half) : lt_f32_from_f16(half));
}

static inline void lt_element_set(lt_dtype dtype, void *x, int64_t i, double value)
{
    const float narrow = (float)value;
    if (dtype == LT_F64)
        ((double *)x)[i] = value;
    else if (dtype == LT_F32)
        ((float *)x)[i] = narrow;
    else
        ((uint16_t *)x)[i] = dtype == LT_BF16 ? lt_bf16_from_f32(narrow) : lt_f16_from_f32(narrow);
}

#endif
