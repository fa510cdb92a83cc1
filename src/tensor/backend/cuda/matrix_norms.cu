/* Norms of lists of tensors, in double and in a fixed order: blocks of LT_NORM_BLOCK elements, then the
 * blocks of each tensor. */

#include "launch.cuh"
#include "matrices.h"

namespace
{

__device__ double element_of(const lt_norm &v, int64_t i)
{
    const int64_t at = lt_fold_place(&v.fold, i);
    return v.wide ? ((const double *)v.fold.data)[at] : (double)((const float *)v.fold.data)[at];
}

__global__ void __launch_bounds__(THREADS)
    squares(const lt_norm *norm, int64_t count, double *partial)
{
    const lt_norm v = norm[lt_find_block(&norm->first_block, sizeof *norm, count, blockIdx.x)];
    const int64_t begin = (blockIdx.x - v.first_block) * LT_NORM_BLOCK;
    const int64_t end = min(begin + LT_NORM_BLOCK, v.elements);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const double x = element_of(v, i);
        sum += x * x;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* A block a tensor. */
__global__ void __launch_bounds__(THREADS) finish(const lt_norm *norm, const double *partial)
{
    const lt_norm &v = norm[blockIdx.x];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < v.blocks; i += THREADS)
        sum += partial[v.first_block + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *v.out = sqrt(sum);
}

/* What the tensors become in memory for the kernels: their list, then the blocks' sums. */
lt_status send_norms(lt_cuda *c, const lt_view *x, size_t count, const lt_view *out,
                     void **workspace, int64_t *blocks)
{
    lt_norm *list = new lt_norm[count];
    *blocks = 0;
    for (size_t i = 0; i < count; i++) {
        list[i] = lt_norm_of(&x[i], (double *)out->data + i * (size_t)out->stride[0], *blocks);
        *blocks += list[i].blocks;
    }
    const size_t bytes = count * sizeof *list;
    lt_status st =
        lt_cuda_workspace(c, LT_CUDA_MAIN, bytes + (size_t)*blocks * sizeof(double), workspace);
    if (!st)
        lt_send(main_stream(c), *workspace, list, bytes);
    delete[] list;
    return st;
}

lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    lt_cuda *c = (lt_cuda *)ctx;
    void *workspace = NULL;
    int64_t blocks;
    LT_TRY(lt_cuda_begin(c, "frobenius"));
    if (!count)
        return lt_cuda_end(c);
    for (size_t i = 0; i < count; i++)
        LT_TRY(lt_matrix_dtype(c, x[i].dtype));
    LT_TRY(send_norms(c, x, count, out, &workspace, &blocks));
    const lt_norm *list = (const lt_norm *)workspace;
    double *partial = (double *)(list + count);
    squares<<<(unsigned)blocks, THREADS, 0, main_stream(c)>>>(list, (int64_t)count, partial);
    finish<<<(unsigned)count, THREADS, 0, main_stream(c)>>>(list, partial);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_norms_of_matrices(lt_backend *be)
{
    be->frobenius = frobenius;
}
