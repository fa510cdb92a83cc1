/* Weights in the dtype of a pass: copies that are kept while a weight does not change, and that entries
 * of optimizers write along with it. Only a copy in the weight's order in memory is written along. */
#ifndef LT_CUDA_WEIGHTS_H
#define LT_CUDA_WEIGHTS_H

#include "cuda.h"
#include "element.h"

/* It stays where it is, for recorded steps. */
typedef struct lt_weight {
    struct lt_weight *next;
    lt_view value; /* of the parameter; version: of what was copied */
    lt_view copy;  /* its memory has so many bytes: */
    size_t bytes;
    bool same_order; /* element for element in memory */
    bool follows;    /* entries of optimizers write it */
} lt_weight;

#ifdef __cplusplus
extern "C" {
#endif

/* The copy of the weight at that address in that dtype, of at least that many bytes; NULL: there is none. */
lt_weight *lt_weight_find(const lt_cuda *c, const void *data, lt_dtype dtype, size_t bytes);
/* Keeps one more. Errors: LT_E_NOMEM. */
lt_status lt_weight_new(lt_cuda *c, size_t bytes, lt_weight **out);

/* Where what is written to p, in the memory of a weight, must be written in *dtype too; NULL: nowhere. */
void *lt_weight_beside(const lt_cuda *c, const void *p, lt_dtype *dtype);

/* lt_weight_ops.follow(). */
void lt_weight_follow(void *ctx, const lt_view *value, bool on);

#ifdef __cplusplus
}
#endif

/* Four numbers at places at to at + 3, a multiple of 4. */
LT_HD void lt_put_four_16(void *to, lt_dtype dtype, int64_t at, const float v[4])
{
    uint64_t bits = 0;
    for (int j = 0; j < 4; j++) {
        const uint16_t one = dtype == LT_BF16 ? lt_bf16_round(v[j]).bits : lt_f16_round(v[j]).bits;
        bits |= (uint64_t)one << (16 * j);
    }
    *(uint64_t *)((uint16_t *)to + at) = bits;
}

#endif
