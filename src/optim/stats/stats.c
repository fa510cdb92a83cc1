/* Copies of the weights around a measured step, and the sum of its numbers over ranks. */

#include "stats.h"

#include "measure.h"
#include "optim/sharding/shard.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"

#include <string.h>

static lt_status copy_value(lt_tensor **to, const lt_tensor *value)
{
    if (!*to)
        LT_TRY(lt_tensor_new_like(to, value, lt_tensor_dtype(value)));
    LT_TRY(lt_tensor_allocate_raw(*to));
    const lt_view from = lt_tensor_view(value), copy = lt_tensor_view(*to);
    const lt_device *device = lt_tensor_device(value);
    if (memcmp(from.stride, copy.stride, sizeof from.stride) != 0)
        return lt_tensor_copy(*to, value);
    return device->backend->copy(device->ctx, copy.data, from.data, lt_tensor_bytes(value),
                                 LT_COPY_WITHIN);
}

lt_status lt_optim_stats_before(lt_optim_stats *s, int64_t attempt)
{
    const bool due = lt_optim_stats_is_due(s, attempt);
    const bool next = lt_optim_stats_is_due(s, attempt + 1) && !due;
    for (size_t i = 0; (due || next) && i < s->params; i++) {
        lt_stat_param *p = &s->param[i];
        if (p->slot && p->mine)
            LT_TRY(copy_value(due ? &p->before : &p->last, p->param->value));
    }
    if (due)
        s->optim->keeps_grads = true;
    return LT_OK;
}

static lt_status sum_over_ranks(const lt_optim_stats *s)
{
    const lt_shard *shard = s->optim->shard;
    lt_tensor *all = NULL;
    lt_request *request = NULL;
    if (!shard || shard->ranks < 2)
        return LT_OK;
    LT_TRY(lt_tensor_new(&all, s->optim->device, LT_F64, LT_SHAPE((int64_t)s->numbers)));
    lt_status st = lt_tensor_write(all, s->number, s->numbers * sizeof *s->number);
    if (!st)
        st = lt_comm_allreduce_begin(shard->group, all, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(all, s->number, s->numbers * sizeof *s->number);
    lt_tensor_free(&all);
    return st;
}

/* Frees the memory of the copies; if every step is measured, this one's is the next one's last. */
static void release_copies(lt_optim_stats *s)
{
    for (size_t i = 0; i < s->params; i++) {
        lt_stat_param *p = &s->param[i];
        lt_tensor *before = p->before;
        p->before = p->last;
        p->last = before;
        for (int k = 0; k < 2 && s->every > 1; k++)
            if (k ? p->before : p->last)
                lt_tensor_free_memory(k ? p->before : p->last);
    }
}

lt_status lt_optim_stats_after(lt_optim_stats *s, int64_t attempt)
{
    if (!lt_optim_stats_is_due(s, attempt))
        return LT_OK;
    memset(s->number, 0, s->numbers * sizeof *s->number);
    lt_status st = lt_stats_measure(s, attempt);
    s->optim->keeps_grads = false;
    lt_optim_end_owned_update(s->optim);
    release_copies(s);
    return st ? st : sum_over_ranks(s);
}
