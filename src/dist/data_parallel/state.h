/* Private declarations of data-parallel training. */
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
    int64_t offset;  /* element offset in the bucket */
    size_t bucket;   /* index of the bucket */
    bool is_ordered; /* the member is already in lt_data_parallel.order */
    bool is_packed;  /* copied to its bucket in this update */
} lt_dp_member;

/* Gradients that are reduced together, in the reducer's bucket of the same index. */
typedef struct lt_dp_bucket {
    size_t first, count; /* range of the bucket's members in lt_data_parallel.order */
    size_t pending;      /* gradients not yet final in this update */
} lt_dp_bucket;

typedef struct lt_dp_scatter lt_dp_scatter;
typedef struct lt_dp_backup lt_dp_backup;

struct lt_data_parallel {
    lt_comm *comm;
    lt_tape *tape;
    lt_device *device;
    const lt_params *params;
    lt_data_parallel_config config;
    lt_dtype dtype; /* communication dtype of all buckets */

    lt_dp_member *member; /* [members] trained parameters, in the order of params */
    size_t members;
    size_t *
        order; /* [members] indices into member, in the order in which rank 0's first backward finished them */
    size_t ordered;
    lt_dp_bucket *bucket; /* the buckets; NULL until the first update */
    size_t buckets;
    size_t started, finished; /* number of buckets begun, finished by the reducer in this update */
    lt_reducer *reducer;
    uint64_t bytes_on_comm; /* bytes that the reducer sent through comm, which counts them too */
    bool reduced;           /* an update is finished and not yet committed */
    /* [members] fraction of ranks that had a gradient of the parameter, f64, in `order`; and its host copy. */
    lt_tensor *grad_mask;
    double *grad_mask_host;
    lt_tensor *
        expected; /* f64 [members] negated grad_mask of the last eager update, assumed by captured ones */
    lt_tensor *deviation; /* f64 [members] sum of (grad_mask - assumed)^2 over captured updates */
    bool captured;        /* a captured update exists */
    lt_vec_job *job; /* [members] copies, if one kernel makes all copies of a bucket; else NULL */

    lt_dp_scatter
        *scatter; /* the reducer, if ranks get only the gradients that they own; else NULL */

    lt_dp_backup *backup; /* the reducer, if fewer than all ranks are needed; else NULL */

    int64_t computed, all_computed; /* micro-batches that this rank, and that all ranks computed */
    lt_tensor *mean_computed;       /* f64 [1] mean over ranks of computed; NULL if not counted */

    lt_tensor *norm; /* f64 [members] norms of this rank's gradients; NULL if not measured */

    bool last;        /* the running backward is the update's last */
    bool begun;       /* a gradient of this update is packed or in flight */
    lt_status status; /* error of the callback for final gradients, and its message */
    char message[256];
    double
        exposed; /* seconds of waiting for buckets since lt_data_parallel_wait_seconds() was called */

    lt_comm *
        norm_comm; /* for synchronized batch norm, whose order relative to the buckets' collectives varies by rank */
    double norm_share; /* this rank's fraction of all ranks' values of a channel */
    double *
        norm_part; /* [ranks] a rank's fraction of the values of ranks 0 to its own; NULL until known */
    lt_tensor *statistics; /* concatenation of all running statistics */
};

static inline lt_status lt_dp_cast(const lt_data_parallel *dp, lt_view from, lt_view to)
{
    return dp->device->backend->cast(dp->device->ctx, &from, &to);
}

static inline lt_status lt_dp_fill(const lt_data_parallel *dp, double value, lt_view to)
{
    return dp->device->backend->fill(dp->device->ctx, value, &to);
}

/* Appends a converting copy to dp->job; lt_dp_copy_listed() runs the first count of them in one batched kernel. */
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

/* Returns true if a count of micro-batches is reduced with the gradients (drop_compute.c). */
static inline bool lt_dp_has_micro_batch_count(const lt_data_parallel *dp)
{
    return dp->config.micro_batches > 0;
}

/* buckets.c: checks that all ranks have the same parameters; broadcasts rank 0's values; lays out the buckets in rank
 * 0's order. */
LT_MUST_CHECK lt_status lt_dp_check_same_params(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_broadcast_values(lt_comm *comm, const lt_params *params);
LT_MUST_CHECK lt_status lt_dp_make_buckets(lt_data_parallel *dp);

/* grad_mask.c: reads grad_mask into grad_mask_host. A captured update does not read it: it assumes the last eager
 * update's mask and accumulates the deviation on the device. */
LT_MUST_CHECK lt_status lt_dp_read_grad_mask(lt_data_parallel *dp);
/* Fails if a captured update deviated; synchronizes with the device. */
LT_MUST_CHECK lt_status lt_dp_check_grad_mask(const lt_data_parallel *dp);

/* reduce_scatter.c: replaces the reducer by one whose ranks receive only the gradient parts that they own. */
LT_MUST_CHECK lt_status lt_dp_open_scatter(lt_data_parallel *dp, const lt_gradient_parts *parts);
/* Allocates a bucket; packs a final gradient; fills flags and missing gradients before the reduction. */
LT_MUST_CHECK lt_status lt_dp_make_scatter_bucket(lt_data_parallel *dp, const lt_dp_bucket *b);
LT_MUST_CHECK lt_status lt_dp_pack_scatter_gradient(const lt_data_parallel *dp,
                                                    const lt_dp_member *m);
LT_MUST_CHECK lt_status lt_dp_fill_scatter_bucket(const lt_data_parallel *dp,
                                                  const lt_dp_bucket *b);
/* Returns true if gradients and buckets have memory only while needed. Each bucket is then unpacked and freed as soon as
 * it is received. */
bool lt_dp_has_transient_gradients(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_unpack_scatter_bucket(lt_data_parallel *dp, const lt_dp_bucket *b);
/* After the reduction: returns the bucket's mean flags; copies this rank's parts of a gradient out of the bucket. */
lt_view lt_dp_reduced_flags(const lt_data_parallel *dp, const lt_dp_bucket *b);
LT_MUST_CHECK lt_status lt_dp_unpack_scatter_gradient(const lt_data_parallel *dp,
                                                      const lt_dp_member *m, size_t *listed);

/* backup.c: makes the reducer over the first ranks to finish; restores running statistics on an excluded rank after an
 * update. */
LT_MUST_CHECK lt_status lt_dp_make_backup_reducer(lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_end_backup_update(lt_data_parallel *dp);

/* drop_compute.c: the last bucket carries a count of micro-batches, by which gradients are divided. */
LT_MUST_CHECK lt_status lt_dp_check_drop_compute(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_write_micro_batch_count(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_rescale_gradients(lt_data_parallel *dp);

/* norms.c: measures a final gradient; zeroes the norms of gradients that a bucket lacks. */
LT_MUST_CHECK lt_status lt_dp_allocate_norms(lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_measure_norm(const lt_data_parallel *dp, const lt_dp_member *m);
LT_MUST_CHECK lt_status lt_dp_zero_norms(const lt_data_parallel *dp, const lt_dp_bucket *b);

/* batchnorm.c: synchronized batch norm. */
LT_MUST_CHECK lt_status lt_dp_open_norm_comm(lt_data_parallel *dp);
void lt_dp_close_norm_comm(lt_data_parallel *dp);
/* Copies all running statistics into flat, concatenated, or back; flat NULL only counts their elements. */
LT_MUST_CHECK lt_status lt_dp_copy_statistics(const lt_params *params, const lt_tensor *flat,
                                              bool back, int64_t *count);
/* Replaces flat on all ranks by its mean over them, or by rank 0's. */
LT_MUST_CHECK lt_status lt_dp_merge_statistics(lt_comm *comm, lt_tensor *flat, lt_dist_bn how);

#endif
