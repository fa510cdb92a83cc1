/* Access to a list's items and their gradients, f32 or 16 bits. */
#ifndef LT_CUDA_OPTIM_CUH
#define LT_CUDA_OPTIM_CUH

#include "launch.cuh"
#include "optim.h"

/* Loads four elements of bf16 or f16; i: a multiple of 4. */
__device__ inline void load_four_16_bit(const void *from, lt_dtype dtype, int64_t i, float (&v)[4])
{
    const uint64_t bits = *(const uint64_t *)((const uint16_t *)from + i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint16_t one = (uint16_t)(bits >> (16 * j));
        v[j] = dtype == LT_BF16 ? lt_bf16_load({one}) : lt_f16_load({one});
    }
}

__device__ inline void load_four(const float *from, int64_t i, float (&v)[4])
{
    const float4 x = *(const float4 *)(from + i);
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}

/* Returns this block's item. */
__device__ inline const lt_list_item &item_of_block(const lt_list &list)
{
    return list.item[lt_find_item_of_block(&list.item->first_block, sizeof *list.item, list.count,
                                           blockIdx.x)];
}

__device__ inline float gradient_at(const lt_list_item &item, int64_t i)
{
    if (item.grad_dtype == LT_F32)
        return ((const float *)item.grad)[i];
    const uint16_t bits = ((const uint16_t *)item.grad)[i];
    return item.grad_dtype == LT_BF16 ? lt_bf16_load({bits}) : lt_f16_load({bits});
}

/* Loads four gradients; i: a multiple of 4. */
__device__ inline void load_four_gradients(const lt_list_item &item, int64_t i, float (&v)[4])
{
    if (item.grad_dtype == LT_F32)
        return load_four((const float *)item.grad, i, v);
    load_four_16_bit(item.grad, item.grad_dtype, i, v);
}

#endif
