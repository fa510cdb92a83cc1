/* Structures of a partial reduction, shared by partial_reduce.c (the rank's thread) and partial_progress.c (the progress
 * thread). */
#ifndef LT_DIST_PARTIAL_PROGRESS_H
#define LT_DIST_PARTIAL_PROGRESS_H

#include "dist/collectives/collectives.h"

#include <stdatomic.h>

/* Configuration of a partial reduction. All pointers are borrowed, except elements and in, which are copied. */
typedef struct lt_partial_config {
    lt_comm *comm; /* communicator built on messages; used for nothing else */
    int needed;    /* participating ranks, 1 to size */
    lt_dtype dtype;
    size_t buckets;
    const int64_t *elements; /* [buckets] number of elements */
    const void *const *in;   /* [buckets] this rank's gradients, the terms of the mean */
    /* Called by the progress thread when this rank is excluded: its gradients of the update are discarded. May be NULL. */
    void (*late)(void *context);
    void *context;
} lt_partial_config;

/* Counts of one update on this rank. Bytes exclude headers; received = used + dropped. */
typedef struct lt_partial_counts {
    uint64_t sent, received, used, dropped;
} lt_partial_counts;

enum { LT_PARTIAL_END = -1 };

/* Header of the next bucket on the data channel; also a rank's report to rank 0. */
typedef struct lt_partial_header {
    int64_t update;
    int32_t bucket;   /* LT_PARTIAL_END if no bucket follows */
    int32_t complete; /* true: all buckets were sent */
} lt_partial_header;

/* Start of the next data message: bucket, and byte offset in the chunk. */
typedef struct lt_partial_cursor {
    size_t bucket, at;
} lt_partial_cursor;

/* Transfers between this rank and one other in an update. */
typedef struct lt_partial_pair {
    lt_channel data_out, data_in, control_out, control_in, mean_out, mean_in;
    lt_partial_cursor out, in, mean_to, mean_from;
    lt_partial_header received; /* header received last on data_in */
    bool header_sent;           /* data_out: the bucket's header is posted */
    bool reads_header;          /* data_in: a header is in flight */
    bool out_ended, out_complete, in_ended;
    lt_partial_header report; /* received on rank 0, sent on the others */
    bool control_out_done, control_in_done;
} lt_partial_pair;

typedef struct lt_partial_bucket {
    const char *in;
    char *out, *term; /* the mean of the bucket; [size] terms of this rank's chunk */
    int64_t elements;
    atomic_bool ready;
    lt_partial_header header;
} lt_partial_bucket;

typedef struct lt_partial {
    lt_partial_config config;
    lt_endpoint *endpoint;
    lt_request *request;
    int rank, size;
    lt_partial_bucket *bucket;
    lt_partial_pair *pair;    /* [size] transfers with each rank; this rank's entry is unused */
    lt_partial_header end[2]; /* end header of an incomplete, of a complete transfer */
    int64_t update;
    bool started;
    bool *set;               /* [size] participating ranks */
    bool has_set, has_given; /* set is known; the caller gave it */
    int done;                /* rank 0: number of complete reports */
    bool own_sent;           /* all of this rank's data is sent */
    bool summed;
    atomic_bool late;
    lt_partial_counts count;
} lt_partial;

/* Returns the bytes of a rank's chunk of a bucket. */
size_t lt_partial_chunk_bytes(const lt_partial *partial, const lt_partial_bucket *bucket, int rank);

/* Runs on the progress thread; the context is the lt_partial. */
extern const lt_protocol_ops lt_partial_protocol;

#endif
