/* Cache of weights cast to the dtype of a pass. A cast is valid while its weight's version does not change; optimizer
 * entries update it together with the weight if both have the same order in memory. */
#ifndef LT_CUDA_CAST_CACHE_H
#define LT_CUDA_CAST_CACHE_H

#include "cuda.h"
#include "element.h"

/* Its address does not change: captured steps use it. */
typedef struct lt_cached_cast {
    struct lt_cached_cast *next;
    lt_view value;   /* the parameter, with the version that was cast */
    lt_view copy;    /* the cast */
    size_t bytes;    /* size of the copy's memory */
    bool same_order; /* both have the same order in memory */
    bool follows;    /* optimizer entries update it */
} lt_cached_cast;

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the cached cast of the weight at `data` to dtype, of at least `bytes`, or NULL. */
lt_cached_cast *lt_cast_find(const lt_cuda *c, const void *data, lt_dtype dtype, size_t bytes);
/* Adds a cast of `bytes`. Errors: LT_E_NOMEM. */
lt_status lt_cast_new(lt_cuda *c, size_t bytes, lt_cached_cast **out);

/* Returns the address, in a cast of dtype *dtype, of the element at p, which an optimizer updates; NULL: no cast has
 * it. */
void *lt_cast_element_address(const lt_cuda *c, const void *p, lt_dtype *dtype);

/* Implements lt_weight_ops.follow(). */
void lt_cast_set_follow(void *ctx, const lt_view *value, bool on);

#ifdef __cplusplus
}
#endif

/* Stores four numbers at elements at to at + 3; at: a multiple of 4. */
LT_HD void lt_store_four_16_bit(void *to, lt_dtype dtype, int64_t at, const float v[4])
{
    uint64_t bits = 0;
    for (int j = 0; j < 4; j++) {
        const uint16_t one = dtype == LT_BF16 ? lt_bf16_round(v[j]).bits : lt_f16_round(v[j]).bits;
        bits |= (uint64_t)one << (16 * j);
    }
    *(uint64_t *)((uint16_t *)to + at) = bits;
}

#endif
