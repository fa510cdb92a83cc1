/* Running statistics of batch norms over a step. On host memory, where the host reads the optimizer's
 * scalars, it copies saved values back. On other devices the same kernels run after every step's graph,
 * without a host wait:
 *
 *     save     saved = value
 *     settle   saved = value, unless scalars->finite is 0;   value = saved */

#include "tensor/statistics.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"

#include <math.h>

struct lt_statistics {
    lt_device *device;
    lt_tensor **value, **saved; /* running statistics (borrowed), and their saved copies */
    lt_vec_job *job;            /* scratch */
    size_t count;
};

static lt_status collect_running_statistics(lt_statistics *s, const lt_params *params)
{
    LT_TRY(LT_ALLOC(&s->value, params->count));
    LT_TRY(LT_ALLOC(&s->saved, params->count));
    LT_TRY(LT_ALLOC(&s->job, params->count));
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (p->role != LT_PARAM_STAT && p->role != LT_PARAM_COUNT)
            continue;
        s->device = lt_tensor_device(p->value);
        s->value[s->count] = p->value;
        LT_TRY(lt_tensor_new_like(&s->saved[s->count++], p->value, lt_tensor_dtype(p->value)));
    }
    return LT_OK;
}

lt_status lt_statistics_new(lt_statistics **out, const lt_params *params)
{
    lt_statistics *s = NULL;
    LT_TRY(LT_ALLOC(&s, 1));
    lt_status st = collect_running_statistics(s, params);
    if (st || !s->count)
        lt_statistics_free(&s);
    *out = s;
    return st;
}

void lt_statistics_free(lt_statistics **statistics)
{
    lt_statistics *s = *statistics;
    *statistics = NULL;
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        lt_tensor_free(&s->saved[i]);
    lt_free(s->job);
    lt_free(s->saved);
    lt_free(s->value);
    lt_free(s);
}

/* vec kernels have no integers: the bits of a count are passed as an f64, which a multiplication by 1 leaves
 * unchanged. */
static lt_view as_float_view(const lt_tensor *t)
{
    lt_view v = lt_tensor_view(t);
    v.dtype = v.dtype == LT_I64 ? LT_F64 : v.dtype;
    v.version = 0;
    return v;
}

static lt_status copy_statistics(const lt_statistics *s, lt_tensor *const *from,
                                 lt_tensor *const *to, const lt_scalars *scalars)
{
    const lt_backend *be = s->device->backend;
    for (size_t i = 0; i < s->count; i++) {
        if (be->host_memory)
            LT_TRY(lt_tensor_copy(to[i], from[i]));
        else
            s->job[i] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                     .alpha = 1,
                                     .a = as_float_view(from[i]),
                                     .y = as_float_view(to[i])};
    }
    return be->host_memory ? LT_OK : be->vec(s->device->ctx, s->job, s->count, scalars);
}

lt_status lt_statistics_save(const lt_statistics *s)
{
    return s ? copy_statistics(s, s->value, s->saved, NULL) : LT_OK;
}

lt_status lt_statistics_restore(const lt_statistics *s)
{
    return s ? copy_statistics(s, s->saved, s->value, NULL) : LT_OK;
}

lt_status lt_statistics_undo_if_skipped(const lt_statistics *s, const lt_scalars *scalars,
                                        bool skipped)
{
    if (s && s->device->backend->host_memory)
        return skipped ? lt_statistics_restore(s) : LT_OK;
    if (s)
        LT_TRY(copy_statistics(s, s->value, s->saved, scalars));
    return lt_statistics_restore(s);
}

/* Returns the first element of an f32 or f64 tensor that is not finite, with its index; else 0. */
static lt_status find_non_finite(const lt_tensor *t, double *bad, int64_t *index)
{
    const size_t bytes = lt_tensor_bytes(t);
    const int64_t count = lt_tensor_count(t);
    void *raw = lt_alloc(1, bytes);
    lt_status st = raw ? lt_tensor_read(t, raw, bytes) : LT_E_NOMEM;
    *bad = 0;
    for (int64_t i = 0; i < count && !st && isfinite(*bad); i++) {
        *bad = lt_tensor_dtype(t) == LT_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
        *index = i;
    }
    lt_free(raw);
    return st;
}

lt_status lt_statistics_check(const lt_params *params, const char *where)
{
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        double value = 0;
        int64_t channel = 0;
        if (p->role == LT_PARAM_STAT)
            LT_TRY(find_non_finite(p->value, &value, &channel));
        if (!isfinite(value))
            return lt_fail(LT_E_ARG,
                           "%s: %s is not finite (%g in channel %lld) and cannot recover: batch "
                           "norm's input overflowed; resume from an earlier checkpoint with a "
                           "lower --lr, or with --amp bf16 in place of f16",
                           where, p->name, value, (long long)channel);
    }
    return LT_OK;
}
