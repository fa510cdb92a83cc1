/* Inside of data-parallel training. */
#ifndef LT_DIST_DATA_PARALLEL_H
#define LT_DIST_DATA_PARALLEL_H

#include "lather/data_parallel.h"
#include "lather/ext/backend.h"
#include "lather/ext/fail.h"
#include "lather/ext/view.h"

/* A trained parameter and its place in a bucket. */
typedef struct lt_dp_member {
    lt_param *param;
    int64_t offset;  /* in the bucket's elements */
    size_t bucket;   /* its number */
    bool is_ordered; /* the first backward has finished it */
    bool is_packed;  /* in this update */
} lt_dp_member;

/* Gradients that travel together. */
typedef struct lt_dp_bucket {
    lt_tensor *flat;     /* the gradients one after the other, then a 1 for each that is there */
    size_t first, count; /* of order */
    int64_t elements;    /* of the gradients */
    size_t waiting;      /* gradients that this update has not finished */
    lt_request *request;
} lt_dp_bucket;

struct lt_data_parallel {
    lt_comm *comm;
    lt_tape *tape;
    lt_device *device;
    const lt_params *params;
    lt_data_parallel_config config;
    lt_dtype dtype; /* on the way */

    lt_dp_member *member; /* of every trained parameter, in the order of params */
    size_t members;
    size_t *order; /* places in member, as rank 0's first backward finished them */
    size_t ordered;
    lt_dp_bucket *bucket; /* NULL until the first update */
    size_t buckets, next; /* next: to begin */
    lt_tensor *present;   /* f64, of each member in order: how many ranks had it, as a share */
    double *present_host;
    lt_tensor *expected; /* f64: present, negative, as a recorded update counts on it; NULL: none */
    lt_tensor *odd;      /* f64: of each member, how far recorded updates were from that */
    bool recorded;       /* there is a recorded update */
    lt_vec_job *job; /* room for a copy of each gradient, where they are queued as one; else NULL */

    bool last;        /* the running backward is the update's last */
    bool begun;       /* something of this update is on its way */
    lt_status status; /* of what the hook did */
    char message[256];
    double exposed; /* seconds */

    lt_comm *norm_comm;    /* of synchronised batch norm: its order is not that of the buckets */
    double norm_share;     /* this rank's part of the values of a channel */
    double *norm_part;     /* of each rank: among the ranks up to it; NULL: not known yet */
    lt_tensor *statistics; /* all running statistics one after the other */
};

/* The memory of a dense tensor, in storage order. */
lt_view lt_dp_flat(const lt_tensor *tensor);
/* Elements [offset, offset + count) of a flat tensor. */
lt_view lt_dp_slice(const lt_tensor *flat, int64_t offset, int64_t count);
lt_status lt_dp_cast(const lt_data_parallel *dp, lt_view from, lt_view to);
lt_status lt_dp_fill(const lt_data_parallel *dp, double value, lt_view to);

/* data_parallel_plan.c: the same parameters on all ranks; rank 0's values; rank 0's order. */
LT_MUST_CHECK lt_status lt_dp_check_params(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_broadcast_values(const lt_data_parallel *dp);
LT_MUST_CHECK lt_status lt_dp_make_buckets(lt_data_parallel *dp);

/* data_parallel_present.c: present_host is what arrived. Where the device has graphs, a recorded
 * update does not read it, but expects it as it was, and checks that on the device. */
LT_MUST_CHECK lt_status lt_dp_note_present(lt_data_parallel *dp);
/* Whether all recorded updates so far were as expected; waits for the device. */
LT_MUST_CHECK lt_status lt_dp_check_present(const lt_data_parallel *dp);

/* data_parallel_norm.c */
LT_MUST_CHECK lt_status lt_dp_open_norm(lt_data_parallel *dp);
void lt_dp_close_norm(lt_data_parallel *dp);

#endif
