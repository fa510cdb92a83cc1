/* What a partial mean consists of: partial.c begins and ends it, partial_exchange.c moves it. */
#ifndef LT_DIST_PARTIAL_PROGRESS_H
#define LT_DIST_PARTIAL_PROGRESS_H

#include "dist/collectives/collectives.h"

#include <stdatomic.h>

/* Borrowed, but for elements and in, which are copied. */
typedef struct lt_partial_config {
    lt_comm *comm; /* of messages, on which nothing else is asked for */
    int needed;    /* ranks of a set: 1 .. size */
    lt_dtype dtype;
    size_t buckets;
    const int64_t *elements; /* [buckets] */
    const void *const *in;   /* [buckets] this rank's terms */
    /* Called by the progress thread when this rank is left out: its gradients of this update are dropped. May be NULL. */
    void (*late)(void *context);
    void *context;
} lt_partial_config;

/* Counts of one update on this rank. Bytes exclude headers; received = used + dropped. */
typedef struct lt_partial_counts {
    uint64_t sent, received, used, dropped;
} lt_partial_counts;

enum { LT_PARTIAL_END = -1 };

/* What comes next on the data channel; a report. */
typedef struct lt_partial_header {
    int64_t update;
    int32_t bucket;   /* LT_PARTIAL_END: none */
    int32_t complete; /* all buckets were sent */
} lt_partial_header;

/* Where the next piece of data begins. */
typedef struct lt_partial_cursor {
    size_t bucket, at;
} lt_partial_cursor;

/* Everything between this rank and one other in an update. */
typedef struct lt_partial_pair {
    lt_channel data_out, data_in, control_out, control_in, mean_out, mean_in;
    lt_partial_cursor out, in, mean_to, mean_from;
    lt_partial_header next; /* the last one that came */
    bool headed;            /* of data_out: the header of the bucket was sent */
    bool reads_header;      /* of data_in: a header is in flight */
    bool out_ended, out_complete, in_ended;
    lt_partial_header report; /* on rank 0: that came; on others: that is sent */
    bool reported, told;      /* control_out, control_in are done */
} lt_partial_pair;

typedef struct lt_partial_bucket {
    const char *in;
    char *out, *term; /* the mean; [size] chunks of this rank */
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
    lt_partial_pair *pair;    /* [size], this rank's own unused */
    lt_partial_header end[2]; /* sent: not complete, complete */
    int64_t update;
    bool started;
    bool *set;               /* [size] */
    bool has_set, has_given; /* given: by the caller, not by who is first */
    int done;                /* on rank 0: ranks whose report is in */
    bool own_left;           /* this rank's data has left */
    bool summed;
    atomic_bool late;
    lt_partial_counts count;
} lt_partial;

/* Of a bucket, in bytes: where the chunk of a rank begins; how large it is. */
size_t lt_partial_chunk_at(const lt_partial *partial, const lt_partial_bucket *bucket, int rank);
size_t lt_partial_chunk_bytes(const lt_partial *partial, const lt_partial_bucket *bucket, int rank);

/* How the progress thread moves one; the context is the lt_partial. */
extern const lt_protocol_ops lt_partial_protocol;

#endif
