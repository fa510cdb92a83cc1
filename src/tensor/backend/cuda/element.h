/* Reading and writing single elements of any dtype, with the reference's conversions: round to nearest even; to
 * integers towards zero, saturating, NaN to 0. */
#ifndef LT_CUDA_ELEMENT_H
#define LT_CUDA_ELEMENT_H

#include "host_device.h"

#include "lather/detail/view.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

typedef struct lt_bf16 {
    uint16_t bits;
} lt_bf16;
typedef struct lt_f16 {
    uint16_t bits;
} lt_f16;

LT_HD float lt_bf16_load(lt_bf16 x)
{
    return lt_f32_from_bf16(x.bits);
}

LT_HD float lt_f16_load(lt_f16 x)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(x.bits));
#else
    return lt_f32_from_f16(x.bits);
#endif
}

LT_HD lt_bf16 lt_bf16_round(float x)
{
    lt_bf16 y;
#ifdef __CUDA_ARCH__
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    y.bits = lt_bf16_from_f32(x);
#endif
    return y;
}

LT_HD lt_f16 lt_f16_round(float x)
{
    lt_f16 y;
#ifdef __CUDA_ARCH__
    y.bits = __half_as_ushort(__float2half_rn(x));
#else
    y.bits = lt_f16_from_f32(x);
#endif
    return y;
}

LT_HD double lt_element(const void *data, lt_dtype dtype, int64_t i)
{
    switch (dtype) {
    case LT_F32:
        return (double)((const float *)data)[i];
    case LT_F64:
        return ((const double *)data)[i];
    case LT_F16:
        return (double)lt_f16_load(((const lt_f16 *)data)[i]);
    case LT_BF16:
        return (double)lt_bf16_load(((const lt_bf16 *)data)[i]);
    case LT_I32:
        return (double)((const int32_t *)data)[i];
    case LT_I64:
        return (double)((const int64_t *)data)[i];
    case LT_U8:
        return (double)((const uint8_t *)data)[i];
    }
    return 0;
}

/* Truncates x towards zero and clamps it to low..high, NaN to 0. limit: high + 1, exact in double. */
LT_HD int64_t lt_truncate(double x, int64_t low, int64_t high, double limit)
{
    if (x >= limit)
        return high;
    if (x <= (double)low)
        return low;
    return x == x ? (int64_t)x : 0;
}

LT_HD void lt_set_element(void *data, lt_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case LT_F32:
        ((float *)data)[i] = (float)x;
        break;
    case LT_F64:
        ((double *)data)[i] = x;
        break;
    case LT_F16:
        ((lt_f16 *)data)[i] = lt_f16_round(lt_f32_odd_from_f64(x));
        break;
    case LT_BF16:
        ((lt_bf16 *)data)[i] = lt_bf16_round(lt_f32_odd_from_f64(x));
        break;
    case LT_I32:
        ((int32_t *)data)[i] = (int32_t)lt_truncate(x, INT32_MIN, INT32_MAX, 0x1p31);
        break;
    case LT_I64:
        ((int64_t *)data)[i] = lt_truncate(x, INT64_MIN, INT64_MAX, 0x1p63);
        break;
    case LT_U8:
        ((uint8_t *)data)[i] = (uint8_t)lt_truncate(x, 0, UINT8_MAX, 0x1p8);
        break;
    }
}

/* The same in single precision: f32, bf16 and f16 without double arithmetic. */
LT_HD float lt_element_f32(const void *data, lt_dtype dtype, int64_t i)
{
    if (dtype == LT_BF16)
        return lt_bf16_load(((const lt_bf16 *)data)[i]);
    if (dtype == LT_F16)
        return lt_f16_load(((const lt_f16 *)data)[i]);
    return dtype == LT_F32 ? ((const float *)data)[i] : (float)lt_element(data, dtype, i);
}

LT_HD void lt_set_element_f32(void *data, lt_dtype dtype, int64_t i, float x)
{
    if (dtype == LT_BF16)
        ((lt_bf16 *)data)[i] = lt_bf16_round(x);
    else if (dtype == LT_F16)
        ((lt_f16 *)data)[i] = lt_f16_round(x);
    else if (dtype == LT_F32)
        ((float *)data)[i] = x;
    else
        lt_set_element(data, dtype, i, (double)x);
}

#endif
