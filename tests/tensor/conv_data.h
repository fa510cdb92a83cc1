/* Images, filters and vectors for the cpu backend's built-in convolutions. */
#ifndef LT_TESTS_CONV_DATA_H
#define LT_TESTS_CONV_DATA_H

#include "near.h"
#include "tensor/tensor.h"

#include "lather/status.h"

#include <stdlib.h>

/* A channels-last image of zeros. */
static inline lt_view new_image(lt_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    void *memory = calloc((size_t)(n * c * h * w), lt_dtype_size(dtype));
    assert_non_null(memory);
    return (lt_view){memory, dtype, LT_SHAPE(n, c, h, w), .stride = {c * h * w, 1, w * c, c}};
}

static inline double get(const lt_view *v, int64_t i)
{
    if (v->dtype == LT_F32)
        return (double)((const float *)v->data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)v->data)[i] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* Fills with numbers from low to high that bf16 represents exactly. */
static inline void fill(const lt_view *v, double low, double high, uint32_t seed)
{
    for (int64_t i = 0; i < lt_shape_count(v->shape); i++) {
        uint32_t bits = ((uint32_t)i + seed) * 2654435761U;
        bits = (bits ^ bits >> 15) * 2246822519U;
        const float f = (float)(low + (high - low) * (double)((bits ^ bits >> 13) % 1000) / 1000);
        memcpy(&bits, &f, sizeof bits);
        bits &= 0xFFFF0000;
        if (v->dtype == LT_BF16)
            ((uint16_t *)v->data)[i] = (uint16_t)(bits >> 16);
        else
            memcpy((float *)v->data + i, &bits, sizeof bits);
    }
}

static inline size_t bytes_of(const lt_view *v)
{
    return (size_t)lt_shape_count(v->shape) * lt_dtype_size(v->dtype);
}

static inline lt_view copy_of(const lt_view *v)
{
    lt_view copy = *v;
    copy.data = malloc(bytes_of(v));
    assert_non_null(copy.data);
    memcpy(copy.data, v->data, bytes_of(v));
    return copy;
}

/* Opens a cpu device that uses built-in convolutions wherever they exist. */
static inline void *open_own(const lt_backend **be, int threads)
{
    void *ctx;
    assert_ok(lt_backend_find("cpu", be));
    assert_int_equal(setenv("LATHER_CPU_KERNELS", "builtin", 1), 0);
    assert_ok((*be)->open(&ctx, 0, &(lt_device_config){.threads = threads}));
    assert_int_equal(unsetenv("LATHER_CPU_KERNELS"), 0);
    return ctx;
}

/* Returns the oneDNN member of a device that has it; never read. */
static inline struct lt_onednn *some_onednn(void)
{
    static int any;
    return (struct lt_onednn *)(void *)&any;
}

#endif
