/* Ritz values by bisection: one block per matrix divides the interval into one part per thread, each of which tests
 * one number. Parts are selected as bisection would, so that the result is bitwise that of bisection. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels/launch.cuh"
#include "tensor/backend/ritz.h"

namespace
{

enum { RITZ_SIZE = LT_RITZ_COLUMNS * LT_RITZ_COLUMNS, RITZ_ROUNDS = 3 };
static_assert(1 << LT_RITZ_BITS == THREADS * THREADS * THREADS,
              "a round has as many parts as threads");

struct ritz_problem {
    const double *part, *bound;
    int64_t parts;
    double *value;
};

/* Sums the parts in order. */
__device__ void add_ritz_parts(const ritz_problem &p, double *sum)
{
    for (int i = threadIdx.x; i < RITZ_SIZE; i += THREADS) {
        double all = p.part[i];
        for (int64_t k = 1; k < p.parts; k++)
            all += p.part[k * RITZ_SIZE + i];
        sum[i] = all;
    }
    __syncthreads();
}

/* Returns the part in which bisection ends; above[t]: test of the number before part t. */
__device__ int bisect_part(const bool *above)
{
    int low = 0, high = THREADS;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const bool is_above = above[middle];
        high = is_above ? middle : high;
        low = is_above ? low : middle;
    }
    return low;
}

__global__ void __launch_bounds__(THREADS) find_ritz(const ritz_problem *list)
{
    __shared__ double sum[RITZ_SIZE];
    __shared__ bool above[THREADS];
    const ritz_problem p = list[blockIdx.x];
    double low = 0, width = 1;
    add_ritz_parts(p, sum);
    for (int round = 0; round < RITZ_ROUNDS; round++) {
        width /= THREADS;
        above[threadIdx.x] = lt_ritz_is_above(low + threadIdx.x * width, sum);
        __syncthreads();
        low += bisect_part(above) * width;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *p.value = (low + width) * (p.bound ? *p.bound : 1);
}

lt_status ritz(void *ctx, const lt_ritz_job *job, size_t count)
{
    lt_cuda *c = (lt_cuda *)ctx;
    void *memory = NULL;
    LT_TRY(lt_cuda_begin(c, "ritz"));
    if (!count)
        return lt_cuda_end(c);
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, count * sizeof(ritz_problem), &memory));
    ritz_problem *list = new ritz_problem[count];
    for (size_t i = 0; i < count; i++)
        list[i] = {(const double *)job[i].product.data, job[i].bound, job[i].product.shape.dim[0],
                   job[i].value};
    lt_send_list(main_stream(c), memory, list, count * sizeof *list);
    delete[] list;
    find_ritz<<<(unsigned)count, THREADS, 0, main_stream(c)>>>((const ritz_problem *)memory);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_ritz(lt_backend *be)
{
    be->ritz = ritz;
}
