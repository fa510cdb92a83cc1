/* What a partial mean consists of: partial.c begins and ends it, partial_exchange.c moves it. */
#ifndef LT_DIST_PARTIAL_EXCHANGE_H
#define LT_DIST_PARTIAL_EXCHANGE_H

#include "dist/collectives/partial.h"

#include <stdatomic.h>

enum { LT_PARTIAL_IN_FLIGHT = 4, LT_PARTIAL_END = -1 };

/* What comes next on the data channel; a report. */
typedef struct lt_partial_header {
    int64_t update;
    int32_t bucket;   /* LT_PARTIAL_END: none */
    int32_t complete; /* all buckets were sent */
} lt_partial_header;

/* Messages of one kind, to or from one other rank. */
typedef struct lt_partial_channel {
    int peer, tag;
    bool sends;
    int oldest, in_flight; /* a ring in handle */
    uint64_t handle[LT_PARTIAL_IN_FLIGHT];
} lt_partial_channel;

/* Where the next piece of data begins. */
typedef struct lt_partial_cursor {
    size_t bucket, at;
} lt_partial_cursor;

/* Everything between this rank and one other in an update. */
typedef struct lt_partial_pair {
    lt_partial_channel data_out, data_in, control_out, control_in, mean_out, mean_in;
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

struct lt_partial {
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
};

/* Of a bucket, in bytes: where the chunk of a rank begins; how large it is. */
size_t lt_partial_chunk_at(const lt_partial *partial, const lt_partial_bucket *bucket, int rank);
size_t lt_partial_chunk_bytes(const lt_partial *partial, const lt_partial_bucket *bucket, int rank);

#endif
