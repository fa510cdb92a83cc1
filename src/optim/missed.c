/* Bias corrections with a step count per parameter, as in PyTorch's Adam: applied steps minus those in which the
 * parameter had no gradient. The latter are counted on the device, which knows if a step is skipped, by the same
 * work in each step, so that it can be captured in a graph. */

#include "base/alloc.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

lt_status lt_optim_count_per_param(lt_optim *o)
{
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->vec != NULL, "vec"));
    LT_TRY(lt_tensor_new(&o->missed, o->device, LT_F64, LT_SHAPE((int64_t)o->count + 1)));
    return lt_optim_convert_counts(o, 0, true);
}

/* Runs one job per run of consecutive parameters without a gradient; usually they are absent. */
lt_status lt_optim_count_missed(lt_optim *o)
{
    for (size_t i = 0, end; o->missed && i < o->count; i = end + 1) {
        lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1};
        for (end = i; end < o->count && !o->slot[end].param->has_grad;)
            end++;
        if (end == i)
            continue;
        job.y = job.a = lt_tensor_view(o->missed);
        job.y.shape = job.a.shape = LT_SHAPE((int64_t)(end - i));
        job.y.data = (double *)job.y.data + i;
        job.a.data = (double *)job.a.data + o->count;
        job.a.stride[0] = 0;
        LT_TRY(lt_optim_run_vec_jobs(o, &job, 1));
    }
    return LT_OK;
}

/* Computes updates = applied - missed on the host, or missed from updates. */
lt_status lt_optim_convert_counts(lt_optim *o, int64_t applied, bool to_missed)
{
    const size_t bytes = (o->count + 1) * sizeof(double);
    if (!o->missed)
        return LT_OK;
    double *missed = lt_alloc(1, bytes);
    lt_status st = missed ? lt_tensor_read(o->missed, missed, bytes) : LT_E_NOMEM;
    for (size_t i = 0; i < o->count && !st; i++) {
        lt_slot *slot = &o->slot[i];
        if (!to_missed)
            slot->updates = applied - (int64_t)missed[i];
        else
            missed[i] = slot->updates < applied ? (double)(applied - slot->updates) : 0;
    }
    if (!st)
        missed[o->count] = 1; /* the addend of lt_optim_count_missed() */
    if (!st && to_missed)
        st = lt_tensor_write(o->missed, missed, bytes);
    lt_free(missed);
    return st;
}
