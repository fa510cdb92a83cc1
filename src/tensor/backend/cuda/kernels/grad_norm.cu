/* The global norm of a list of gradients, in double and in a fixed order, and the scalars that depend on it: whether
 * the step is applied, and the factor of the gradients. */

#include "optim.cuh"

namespace
{

static_assert(sizeof(lt_list) + 64 <= MAX_PARAMETERS, "a list fits into a kernel's parameters");

__global__ void __launch_bounds__(THREADS)
    gradient_squares(const __grid_constant__ lt_list list, double *partial)
{
    const lt_list_item &item = item_of_block(list);
    const int64_t begin = (int64_t)(blockIdx.x - item.first_block) * LT_LIST_BLOCK;
    const int64_t end = min(begin + LT_LIST_BLOCK, item.count);
    const int64_t fours = is_aligned(item.grad) ? begin + (end - begin) / 4 * 4 : begin;
    double sum = 0;
    for (int64_t i = begin + threadIdx.x * 4; i < fours; i += THREADS * 4) {
        float g[4];
        load_four_gradients(item, i, g);
        sum += (double)g[0] * (double)g[0] + (double)g[1] * (double)g[1];
        sum += (double)g[2] * (double)g[2] + (double)g[3] * (double)g[3];
    }
    for (int64_t i = fours + threadIdx.x; i < end; i += THREADS) {
        const double g = (double)gradient_at(item, i);
        sum += g * g;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* Adds up in one block and updates the scalars by the norm. x: sums of squares or, if `norms`, norms. */
__global__ void finish_grad_norm(const double *x, int64_t count, bool norms, lt_scalars *scalars)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        sum += norms ? x[i] * x[i] : x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        lt_update_norm_scalars(scalars, sum);
}

/* Returns an item that has only the gradient. */
lt_optim_item gradient_only(const lt_optim_item *item)
{
    lt_optim_item only = {};
    only.grad = item->grad;
    return only;
}

int64_t count_blocks(const lt_optim_item *item, size_t count)
{
    int64_t blocks = 0;
    for (size_t i = 0; i < count; i++)
        blocks += (lt_shape_count(item[i].grad.shape) + LT_LIST_BLOCK - 1) / LT_LIST_BLOCK;
    return blocks;
}

lt_status grad_norm(void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    lt_list list;
    lt_optim_item only[LT_LIST_ITEMS];
    void *memory;
    LT_TRY(lt_cuda_begin(c, "grad_norm"));
    if (count == 1 && item->grad.dtype == LT_F64) {
        finish_grad_norm<<<1, THREADS, 0, main_stream(c)>>>(
            (const double *)item->grad.data, lt_shape_count(item->grad.shape), true, scalars);
        return lt_cuda_end(c);
    }
    const int64_t all = count_blocks(item, count);
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)(all + 1) * sizeof(double), &memory));
    double *partial = (double *)memory;
    for (size_t i = 0, taken = 0; i < count; i += taken) {
        const size_t left = count - i < LT_LIST_ITEMS ? count - i : (size_t)LT_LIST_ITEMS;
        for (size_t j = 0; j < left; j++)
            only[j] = gradient_only(&item[i + j]);
        LT_TRY(lt_list_fill(&list, only, NULL, left, &taken));
        gradient_squares<<<(unsigned)list.blocks, THREADS, 0, main_stream(c)>>>(list, partial);
        partial += list.blocks;
    }
    finish_grad_norm<<<1, THREADS, 0, main_stream(c)>>>((const double *)memory, all, false,
                                                        scalars);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_grad_norm(lt_backend *be)
{
    be->grad_norm = grad_norm;
}
