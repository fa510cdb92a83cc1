/* Sums over some dimensions, in double and in a fixed order: within chunks, then over chunks. */

#include "launch.cuh"
#include "tensor/backend/cuda/strided_iter.h"

namespace
{

__device__ double load_summand(const lt_reduction &plan, const lt_view &x, int64_t first, int64_t i)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&plan.in, i, at);
    return lt_element(x.data, x.dtype, first + at[0]);
}

__device__ int64_t first_element_offset(const lt_reduction &plan, int64_t output)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&plan.out, output, at);
    return at[0];
}

/* A block sums one chunk of one output. partial: [chunk][output]. */
__global__ void sum_rows(lt_reduction plan, lt_view x, double *partial)
{
    const int64_t output = blockIdx.x, begin = blockIdx.y * plan.length;
    const int64_t end = min(begin + plan.length, plan.in.count),
                  first = first_element_offset(plan, output);
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += load_summand(plan, x, first, i);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.y * plan.out.count + output] = sum;
}

/* A block sums a chunk of LT_COLUMNS outputs, which are adjacent in memory. */
__global__ void sum_columns(lt_reduction plan, lt_view x, double *partial)
{
    __shared__ double line[LT_LINES][LT_COLUMNS];
    const int lane = threadIdx.x % LT_COLUMNS, mine = threadIdx.x / LT_COLUMNS;
    const int64_t output = (int64_t)blockIdx.x * LT_COLUMNS + lane;
    const int64_t begin = blockIdx.y * plan.length, end = min(begin + plan.length, plan.in.count);
    double sum = 0;
    if (output < plan.out.count) {
        const int64_t first = first_element_offset(plan, output);
        for (int64_t i = begin + mine; i < end; i += LT_LINES)
            sum += load_summand(plan, x, first, i);
    }
    line[mine][lane] = sum;
    __syncthreads();
    if (mine == 0 && output < plan.out.count) {
        for (int i = 1; i < LT_LINES; i++)
            sum += line[i][lane];
        partial[blockIdx.y * plan.out.count + output] = sum;
    }
}

__global__ void finish_sums(lt_reduction plan, const double *partial, double factor, lt_view y)
{
    const int64_t output = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    double sum = 0;
    if (output >= plan.out.count)
        return;
    for (int64_t k = 0; k < plan.chunks; k++)
        sum += partial[k * plan.out.count + output];
    lt_iter_offsets(&plan.out, output, at);
    lt_set_element(y.data, y.dtype, at[1], factor * sum);
}

lt_status sum(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    lt_reduction plan;
    void *partial;
    LT_TRY(lt_cuda_begin(c, "sum"));
    lt_reduction_plan(&plan, x, y);
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(plan.chunks * plan.out.count) * sizeof(double), &partial));
    if (plan.columns) {
        const dim3 grid(blocks_for(plan.out.count, LT_COLUMNS), (unsigned)plan.chunks);
        sum_columns<<<grid, THREADS, 0, main_stream(c)>>>(plan, *x, (double *)partial);
    } else {
        const dim3 grid((unsigned)plan.out.count, (unsigned)plan.chunks);
        sum_rows<<<grid, THREADS, 0, main_stream(c)>>>(plan, *x, (double *)partial);
    }
    finish_sums<<<blocks_for(plan.out.count, THREADS), THREADS, 0, main_stream(c)>>>(
        plan, (const double *)partial, factor, *y);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_sum(lt_backend *be)
{
    be->sum = sum;
}
