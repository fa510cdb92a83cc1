/* Conversions of 16-bit floats: bfloat16 (the upper half of an f32) and IEEE 754 binary16. Rounding is to
 * nearest, ties to even; subnormals, infinities and NaN are kept. */
#ifndef LT_TENSOR_BACKEND_DTYPE_H
#define LT_TENSOR_BACKEND_DTYPE_H

#include "base/inline.h"

#include <stdint.h>
#include <string.h>

LT_PURE uint32_t lt_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

LT_PURE float lt_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

LT_PURE float lt_f32_from_bf16(uint16_t x)
{
    return lt_f32_from_bits((uint32_t)x << 16);
}

LT_PURE uint16_t lt_bf16_from_f32(float x)
{
    uint32_t bits = lt_f32_bits(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet NaN, so that the payload cannot become 0 */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

LT_PURE float lt_f32_from_f16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1F, fraction = x & 0x3FF;
    if (exponent == 0x1F)
        return lt_f32_from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        float magnitude = (float)fraction * 0x1p-24F;
        return sign ? -magnitude : magnitude;
    }
    return lt_f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13); /* 112 = 127 - 15 */
}

LT_PURE uint16_t lt_f16_from_f32(float x)
{
    uint32_t bits = lt_f32_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000) /* 65520: halfway between the largest f16 and the next */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x38800000) { /* below 2^-14, the smallest normal: multiples of 2^-24 */
        /* The sum's last place is 2^-24, so the addition rounds, to nearest even. */
        float rounded = lt_f32_from_bits(magnitude) + 0.5F;
        return (uint16_t)(sign | (lt_f32_bits(rounded) - 0x3F000000));
    }
    magnitude += 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - (112U << 23)) >> 13);
}

/* Rounds to f32 by "round to odd", so that rounding the result to a shorter type equals one rounding from
 * f64: Boldo & Melquiond, "When double rounding is odd", 2005. */
LT_PURE float lt_f32_odd_from_f64(double x)
{
    float nearest = (float)x;
    uint32_t bits = lt_f32_bits(nearest);
    if (x != x || (double)nearest == x || bits & 1)
        return nearest;
    double a = x < 0 ? -x : x, b = x < 0 ? -(double)nearest : (double)nearest;
    return lt_f32_from_bits(b < a ? bits + 1 : bits - 1);
}

#endif
