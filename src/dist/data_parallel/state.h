/* Inside of data-parallel training. */
#ifndef LT_DIST_DATA_PARALLEL_STATE_H
#define LT_DIST_DATA_PARALLEL_STATE_H

#include "dist/comm/flat.h"
#include "dist/reducer/reducer.h"
#include "tensor/tensor.h"

#include "lather/data_parallel.h"
#include "lather/detail/backend.h"
#include "lather/detail/gradient_parts.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"

/* A trained parameter and its slice of a bucket. */
typedef struct lt_dp_member {
    lt_param *param;
    int64_t offset;  /* in the bucket's elements */
    size_t bucket;   /* its index */
    bool is_ordered; /* the first backward has finished it */
    bool is_packed;  /* in this update */
} lt_dp_member;

/* Gradients that are reduced together: of the reducer's bucket of the same index. */
typedef struct lt_dp_bucket {
    size_t first, count; /* of order */
    size_t waiting;      /* gradients that this update has not finished */
} lt_dp_bucket;

typedef struct lt_dp_divided lt_dp_divided;
typedef struct lt_dp_backup lt_dp_backup;

struct lt_data_parallel {
    lt_comm *comm;
    lt_tape *tape;
    lt_device *device;
    const lt_params *params;
    lt_data_parallel_config config;
    lt_dtype dtype; /* communication dtype */

    lt_dp_member *member; /* of every trained parameter, in the order of params */
    size_t members;
    size_t *order; /* indices into member, as rank 0's first backward finished them */
    size_t ordered;
    lt_dp_bucket *bucket; /* NULL until the first update */
    size_t buckets;
    size_t next, done; /* buckets of this update that the reducer has begun, finished */
    lt_reducer *reducer;
    uint64_t on_comm;   /* bytes of the reducer's that comm counts too */
    bool reduced;       /* an update was finished and is not committed */
    lt_tensor *present; /* f64, of each member in order: the share of ranks that had a gradient */
    double *present_host;
    lt_tensor
        *expected; /* f64: -present of the last eager update, which a captured update assumes */
    lt_tensor
        *deviation;  /* f64: of each member, sum of (present - assumed)^2 over captured updates */
    bool captured;   /* there is a captured update */
    lt_vec_job *job; /* a copy of each gradient, where one kernel makes them all; else NULL */

    lt_dp_divided *divided; /* the reducer; NULL: every rank gets all gradients */

    lt_dp_backup *backup; /* the reducer; NULL: all ranks are needed */

    int64_t computed, all_computed; /* micro-batches, of this rank and of all */
    lt_tensor *mean_computed;       /* f64 [1]: their mean over ranks; NULL: not counted */

    lt_tensor *norm; /* f64, of each member: of this rank's gradient; NULL: not measured */

    bool last;        /* the running backward is the update's last */
    bool begun;       /* a gradient of this update is packed or in flight */
    lt_status status; /* of the hook on final gradients */
    char message[256];
    double exposed; /* seconds that finish waited */

    lt_comm *
        norm_comm; /* of synchronised batch norm, whose collectives interleave with the buckets' in another order */
    double norm_share; /* this rank's share of the values of a channel */
    double *norm_part; /* of each rank: its share among the ranks up to it; NULL: not known yet */
    lt_tensor *statistics; /* all running statistics one after the other */
};

static inline lt_status lt_dp_cast(const lt_data_parallel *dp, lt_view from, lt_view to)
{
    return dp->device->backend->cast(dp->device->ctx, &from, &to);
}

static inline lt_status lt_dp_fill(const lt_data_parallel *dp, double value, lt_view to)
{
    return dp->device->backend->fill(dp->device->ctx, value, &to);
}

/* Lists a copy in dp->job; converts and copies the first count of them in one batched kernel. */
static inline void lt_dp_list_copy(const lt_data_parallel *dp, size_t *count, lt_view from,
                                   lt_view to)
{
    dp->job[(*count)++] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = from, .y = to};
}

static inline lt_status lt_dp_copy_listed(const lt_data_parallel *dp, size_t count)
{
    const lt_backend *be = dp->device->backend;
    return count ? be->vec(dp->device->ctx, dp->job, count, NULL) : LT_OK;
}

/* True if a count of micro-batches is reduced with the gradients (drop_compute.c). */
static inline bool lt_dp_counts(const lt_data_parallel *dp)
{
    return dp->config.micro_batches > 0;
}

/* buckets.c: checks that all ranks have the same parameters; sends rank 0's values; lays out the buckets in
 * rank 0's order. */
LT_MUST_CHECK lt_status lt_dp_check_params(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_broadcast_values(lt_comm *comm, const lt_params *params);
LT_MUST_CHECK lt_status lt_dp_make_buckets(lt_data_parallel *dp);

/* present.c: reads present into present_host. A captured update does not read it: it assumes what the last
 * eager update had, and adds up the deviation on the device. */
LT_MUST_CHECK lt_status lt_dp_note_present(lt_data_parallel *dp);
/* Fails if a captured update deviated; synchronizes with the device. */
LT_MUST_CHECK lt_status lt_dp_check_present(const lt_data_parallel *dp);

/* divided.c: what is done instead where each rank gets its parts of gradients. The reducer; memory of a bucket; a final
 * gradient into it; flags and what is missing before it is reduced; its flags afterwards; a gradient's own
 * parts out of it. */
LT_MUST_CHECK lt_status lt_dp_divide(lt_data_parallel *dp, const lt_gradient_parts *parts);
LT_MUST_CHECK lt_status lt_dp_make_divided(lt_data_parallel *dp, const lt_dp_bucket *b);
LT_MUST_CHECK lt_status lt_dp_pack_divided(const lt_data_parallel *dp, const lt_dp_member *m);
LT_MUST_CHECK lt_status lt_dp_fill_divided(const lt_data_parallel *dp, const lt_dp_bucket *b);
/* Whether gradients and buckets have memory only while they are needed. Then each bucket is taken apart when it
 * was received: its own parts go to their gradients. */
bool lt_dp_releases(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_settle_divided(lt_data_parallel *dp, const lt_dp_bucket *b);
lt_view lt_dp_divided_flags(const lt_data_parallel *dp, const lt_dp_bucket *b);
LT_MUST_CHECK lt_status lt_dp_unpack_divided(const lt_data_parallel *dp, const lt_dp_member *m,
                                             size_t *listed);

/* backup.c: a reducer that makes the mean of the first ranks that are done. Behind the last bucket of an update: what
 * this rank did in vain is undone. */
LT_MUST_CHECK lt_status lt_dp_make_backup(lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_end_backup(lt_data_parallel *dp);

/* drop_compute.c: a count of micro-batches goes with the gradients of the last bucket, which are divided by it. */
LT_MUST_CHECK lt_status lt_dp_check_counts(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_fill_count(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_apply_count(lt_data_parallel *dp);

/* norms.c: a gradient that is final; those that a bucket about to be reduced lacks. */
LT_MUST_CHECK lt_status lt_dp_make_norms(lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_note_norm(const lt_data_parallel *dp, const lt_dp_member *m);
LT_MUST_CHECK lt_status lt_dp_zero_norms(const lt_data_parallel *dp, const lt_dp_bucket *b);

/* batchnorm.c: synchronised batch norm. */
LT_MUST_CHECK lt_status lt_dp_open_norm(lt_data_parallel *dp);
void lt_dp_close_norm(lt_data_parallel *dp);
/* Copies all running statistics into flat, one after the other, or back; flat NULL: counts their elements. */
LT_MUST_CHECK lt_status lt_dp_copy_statistics(const lt_params *params, const lt_tensor *flat,
                                              bool back, int64_t *count);
/* All ranks get the mean of flat, or rank 0's. */
LT_MUST_CHECK lt_status lt_dp_merge_statistics(lt_comm *comm, lt_tensor *flat, lt_dist_bn how);

#endif
