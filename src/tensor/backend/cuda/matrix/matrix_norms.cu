/* Frobenius norms of lists of tensors, in double and in a fixed order: first over blocks of LT_NORM_BLOCK elements, then
 * over the blocks of each tensor. The same for elementwise expressions, whose values are not written. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels/vec.cuh"

namespace
{

__device__ double load_norm_element(const lt_norm &v, int64_t i)
{
    const int64_t at = lt_unfolding_offset(&v.unfolding, i);
    return v.wide ? ((const double *)v.unfolding.data)[at]
                  : (double)((const float *)v.unfolding.data)[at];
}

__global__ void __launch_bounds__(THREADS)
    tensor_squares(const lt_norm *norm, int64_t count, double *partial)
{
    const lt_norm v =
        norm[lt_find_item_of_block(&norm->first_block, sizeof *norm, count, blockIdx.x)];
    const int64_t begin = (blockIdx.x - v.first_block) * LT_NORM_BLOCK;
    const int64_t end = min(begin + LT_NORM_BLOCK, v.elements);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const double x = load_norm_element(v, i);
        sum += x * x;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__device__ double evaluate_expression(const lt_vec_expression &s, const lt_vec_numbers &n,
                                      int64_t i)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&s.iter, i, at);
    if (s.dtype[0] == LT_F64) {
        const double a = lt_element(s.data[1], s.dtype[1], at[1]);
        const double b = s.data[2] ? lt_element(s.data[2], s.dtype[2], at[2]) : 0;
        return evaluate_operation(s.op, n, a, b, 0.0);
    }
    const float a = lt_element_f32(s.data[1], s.dtype[1], at[1]);
    const float b = s.data[2] ? lt_element_f32(s.data[2], s.dtype[2], at[2]) : 0;
    return (double)evaluate_operation(s.op, vec_numbers_f32(n), a, b, 0.0F);
}

__device__ double squared(float x)
{
    return (double)x * (double)x;
}

/* Returns the sum of squares of elements i to i + 3; i: a multiple of 4. */
__device__ double squares_of_four(const lt_vec_expression &s, const vec_numbers_f32 &n, int64_t i)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&s.iter, i, at);
    const float4 a = *(const float4 *)((const float *)s.data[1] + at[1]),
                 none = make_float4(0, 0, 0, 0);
    const float4 b = s.data[2] ? *(const float4 *)((const float *)s.data[2] + at[2]) : none;
    return squared(evaluate_operation(s.op, n, a.x, b.x, 0.0F))
           + squared(evaluate_operation(s.op, n, a.y, b.y, 0.0F))
           + squared(evaluate_operation(s.op, n, a.z, b.z, 0.0F))
           + squared(evaluate_operation(s.op, n, a.w, b.w, 0.0F));
}

__global__ void __launch_bounds__(THREADS)
    vec_squares(const lt_vec_norm *norm, int64_t count, double *partial, const lt_scalars *scalars)
{
    __shared__ lt_vec_numbers numbers;
    const lt_vec_norm &v =
        norm[lt_find_item_of_block(&norm->first_block, sizeof *norm, count, blockIdx.x)];
    const lt_vec_expression &s = v.expression;
    const int64_t begin = (blockIdx.x - v.first_block) * LT_VEC_NORM_BLOCK;
    const int64_t end = min(begin + LT_VEC_NORM_BLOCK, s.iter.count);
    const int64_t fours = s.fours ? begin + (end - begin) / 4 * 4 : begin;
    if (threadIdx.x == 0)
        numbers = lt_vec_resolve_numbers(&s, scalars);
    __syncthreads();
    const lt_vec_numbers n = numbers;
    const vec_numbers_f32 m(n);
    double sum = 0;
#pragma unroll 2
    for (int64_t i = begin + threadIdx.x * 4; i < fours; i += THREADS * 4)
        sum += squares_of_four(s, m, i);
    for (int64_t i = fours + threadIdx.x; i < end; i += THREADS) {
        const double x = evaluate_expression(s, n, i);
        sum += x * x;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* One block per tensor or expression. */
template <class Norm>
__global__ void __launch_bounds__(THREADS) finish_norms(const Norm *norm, const double *partial)
{
    const Norm &v = norm[blockIdx.x];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < v.blocks; i += THREADS)
        sum += partial[v.first_block + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *v.out = sqrt(sum);
}

lt_norm make_norm(const lt_view &x, double *out, int64_t first_block)
{
    return lt_make_norm_record(&x, out, first_block);
}

lt_vec_norm make_norm(const lt_vec_job &job, double *out, int64_t first_block)
{
    return lt_vec_make_norm(&job, out, first_block);
}

/* The kernels' work memory: the list of tensors or expressions, then the sums of their blocks. */
template <class Norm, class Item>
lt_status send_norms(lt_cuda *c, const Item *x, size_t count, const lt_view *out, void **workspace,
                     int64_t *blocks)
{
    Norm *list = new Norm[count];
    *blocks = 0;
    for (size_t i = 0; i < count; i++) {
        list[i] = make_norm(x[i], (double *)out->data + i * (size_t)out->stride[0], *blocks);
        *blocks += list[i].blocks;
    }
    const size_t bytes = count * sizeof *list;
    lt_status st =
        lt_cuda_workspace(c, LT_CUDA_MAIN, bytes + (size_t)*blocks * sizeof(double), workspace);
    if (!st)
        lt_send_list(main_stream(c), *workspace, list, bytes);
    delete[] list;
    return st;
}

/* A tensor's record is smaller than an expression's, so that fewer launches send the list. */
lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    lt_cuda *c = (lt_cuda *)ctx;
    void *workspace = NULL;
    int64_t blocks;
    LT_TRY(lt_cuda_begin(c, "frobenius"));
    if (!count)
        return lt_cuda_end(c);
    for (size_t i = 0; i < count; i++)
        LT_TRY(lt_check_matrix_dtype(c, x[i].dtype));
    LT_TRY(send_norms<lt_norm>(c, x, count, out, &workspace, &blocks));
    const lt_norm *list = (const lt_norm *)workspace;
    double *partial = (double *)(list + count);
    tensor_squares<<<(unsigned)blocks, THREADS, 0, main_stream(c)>>>(list, (int64_t)count, partial);
    finish_norms<lt_norm><<<(unsigned)count, THREADS, 0, main_stream(c)>>>(list, partial);
    return lt_cuda_end(c);
}

lt_status vec_norms(void *ctx, const lt_vec_job *job, size_t count, const lt_view *out,
                    const lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    void *workspace = NULL;
    int64_t blocks;
    LT_TRY(lt_cuda_begin(c, "vec_norms"));
    if (!count)
        return lt_cuda_end(c);
    for (size_t i = 0; i < count; i++)
        LT_TRY(lt_check_matrix_dtype(c, job[i].y.dtype));
    LT_TRY(send_norms<lt_vec_norm>(c, job, count, out, &workspace, &blocks));
    const lt_vec_norm *list = (const lt_vec_norm *)workspace;
    double *partial = (double *)(list + count);
    vec_squares<<<(unsigned)blocks, THREADS, 0, main_stream(c)>>>(list, (int64_t)count, partial,
                                                                  scalars);
    finish_norms<lt_vec_norm><<<(unsigned)count, THREADS, 0, main_stream(c)>>>(list, partial);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_norms_of_matrices(lt_backend *be)
{
    be->frobenius = frobenius;
    be->vec_norms = vec_norms;
}
