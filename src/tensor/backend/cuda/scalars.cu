/* The numbers of a step that only the device knows: the loss scale, counts of batches. */

#include "launch.cuh"

namespace
{

/* As ref's: all of it in one thread. */
__global__ void move_scale(lt_loss_scaling config, lt_scalars *s)
{
    s->good_steps = s->finite ? s->good_steps + 1 : 0;
    const bool grows = s->good_steps == config.interval;
    const double scale = s->loss_scale
                         * (!s->finite ? config.backoff
                            : grows    ? config.growth
                                       : 1.0);
    if (isfinite((float)scale))
        s->loss_scale = scale;
    if (grows)
        s->good_steps = 0;
}

__global__ void add_one(int64_t *x, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        x[i]++;
}

lt_status loss_scale(void *ctx, const lt_loss_scaling *config, lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "loss_scale"));
    move_scale<<<1, 1, 0, main_stream(c)>>>(*config, scalars);
    return lt_cuda_end(c);
}

lt_status count_up(void *ctx, const lt_view *x)
{
    lt_cuda *c = (lt_cuda *)ctx;
    int64_t count = 1;
    for (int i = 0; i < x->shape.ndim; i++)
        count *= x->shape.dim[i];
    LT_TRY(lt_cuda_begin(c, "count_up"));
    add_one<<<blocks_for(count, THREADS), THREADS, 0, main_stream(c)>>>((int64_t *)x->data, count);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_scalars(lt_backend *be)
{
    be->loss_scale = loss_scale;
    be->count_up = count_up;
}
