/* Collectives over a link: a progress thread moves the messages of every collective of its process.
 *
 * A collective is, between each two ranks, a header each way, which says what the sender is doing, and
 * then the data. A reduction is an all-to-all of chunks, a sum in rank order on the chunk's rank, and for
 * an all-reduce an all-gather. */
#ifndef LT_DIST_COLLECTIVES_H
#define LT_DIST_COLLECTIVES_H

#include "dist/comm/comm.h"

#include <pthread.h>

typedef struct lt_progress lt_progress;
typedef struct lt_endpoint lt_endpoint;

/* Sent before the data of every collective, so that ranks that do different things find out. */
typedef struct lt_header {
    int32_t what, op, dtype, root;
    int64_t elements; /* of an all-to-all: from the sender to the receiver */
    uint64_t number;  /* of the collective in its group; of sends and receives: 0 */
    uint64_t counts;  /* hash of the per-rank counts */
} lt_header;

enum { LT_CHANNEL_IN_FLIGHT = 4 };
/* Data goes in messages of this size: the thread sees progress before it sleeps, and MPI's count is an int. */
enum { LT_PIECE_BYTES = 1 << 19 };

/* Messages to or from one other rank, in order. */
typedef struct lt_channel {
    int peer, tag; /* in the group */
    bool sends;
    int oldest, in_flight; /* messages in flight: a ring in handle */
    uint64_t handle[LT_CHANNEL_IN_FLIGHT];
} lt_channel;

/* Data to or from one other rank. */
typedef struct lt_transfer {
    lt_channel channel;
    bool headed, done;
    lt_header header;
    const char *in;
    char *out;
    size_t bytes, posted; /* in all; in messages that were posted */
} lt_transfer;

/* A request that is no collective: by the progress thread, with the same meaning as of lt_collective. */
typedef struct lt_protocol_ops {
    lt_status (*advance)(void *context, bool *moved, bool *finished);
    void (*cancel)(void *context);
    void (*text)(const void *context, char *text, size_t bytes); /* appends what is missing */
} lt_protocol_ops;

typedef struct lt_protocol {
    const lt_protocol_ops *ops; /* NULL: a collective */
    void *context;
} lt_protocol;

/* A collective, a send or a receive on one rank. The fields after the blank line belong to the progress
 * thread alone. */
typedef struct lt_collective {
    lt_request base;
    lt_comm_call call; /* counts are NULL: see offset, received */
    lt_endpoint *endpoint;
    lt_protocol protocol;
    struct lt_collective *next;           /* submitted or active */
    struct lt_collective *before, *after; /* of the endpoint, to be freed with it */
    double expires;                       /* 0: never */
    bool done;                            /* under the mutex */

    bool started, finished;
    uint64_t number;
    int phase, left;       /* transfers that are not done */
    lt_transfer *transfer; /* [2 * (size-1)] */
    char *scratch;         /* [size-1] chunks, by rank without this one */
    size_t scratch_bytes;
    const void **term;
    int64_t *received; /* [size+1] of an all-to-all: where what each rank sent goes */
    int64_t offset[];  /* [size+1] where each rank's part begins */
} lt_collective;

enum { LT_GROUP_TAGS = 64 }; /* each group has its own */

/* One rank in a group. */
struct lt_endpoint {
    lt_progress *progress;
    int rank, size, context;
    int *world;      /* [size] ranks among all started */
    uint64_t issued; /* collectives so far */
    lt_collective *first, *last;
    /* The progress thread's. */
    int running; /* collectives started and not finished */
    bool *busy;  /* [2 * size] by rank: a receive from it, a send to it is in flight */
    bool held;   /* an earlier request is not finished */
    char *spare; /* scratch to be used again */
    size_t spare_bytes;
};

/* The progress thread of a process. */
struct lt_progress {
    lt_link *link;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;      /* the progress thread has something to do */
    pthread_cond_t cond_done; /* a request is done, or the link open, or an abort complete */
    bool ready, stop;
    bool woken; /* something is to be done for a request that was submitted before */
    lt_status opened;
    int open;     /* endpoints */
    int *context; /* [size] of world: the next free one */
    lt_collective *submitted, **submitted_end;
    bool aborted,
        abort_complete; /* complete: other processes were told, all requests have failed */
    bool from_outside;
    char why[LT_LINK_TEXT];
    lt_collective *active, **active_end; /* the thread's, in order of issue */
};

/* Starts the thread, which opens the link. Owns the link from now on, also on failure. */
lt_status lt_progress_new(lt_progress **out, lt_link *link);
/* After the last endpoint has been closed: ends the thread. */
void lt_progress_free(lt_progress *progress);
/* With the mutex locked. */
void lt_progress_submit(lt_progress *progress, lt_collective *collective);
/* A request that the thread has can go on. Any thread. */
void lt_progress_wake(lt_progress *progress);
/* The first abort counts; with the mutex locked. */
void lt_progress_abort(lt_progress *progress, const char *why, bool from_outside);

lt_status lt_collective_new(lt_collective **out, lt_endpoint *endpoint, const lt_comm_call *call);
void lt_collective_free(lt_collective *self);

/* By the progress thread: goes on as far as it can; *moved is set if anything moved. Errors: whatever
 * ends the group, with the reason as the thread's message. */
lt_status lt_collective_advance(lt_collective *self, bool *moved);
void lt_collective_cancel(lt_collective *self);
/* A send or a receive. */
bool lt_collective_is_message(const lt_collective *self);
/* "allreduce (sum) of 10 f32, number 3, on rank 0 of 2 (host); nothing came from rank 1 of 2 (host)" */
void lt_collective_text(const lt_collective *self, char *text, size_t bytes);

/* channel.c: posts a message, which one of in and out is of; fewer than LT_CHANNEL_IN_FLIGHT are in flight. */
LT_MUST_CHECK lt_status lt_channel_post(const lt_endpoint *endpoint, lt_channel *channel,
                                        const void *in, void *out, size_t bytes);
/* True if the oldest message in flight is done; false also when none is in flight. */
LT_MUST_CHECK lt_status lt_channel_test(const lt_endpoint *endpoint, lt_channel *channel,
                                        bool *done);
void lt_channel_cancel(const lt_endpoint *endpoint, lt_channel *channel);
/* "rank 5 of 8 (host)" for rank r of the group: its number among all that were started. Returns text. */
const char *lt_endpoint_rank(const lt_endpoint *endpoint, int r, char *text, size_t bytes);
enum { LT_RANK_TEXT = 96 };

void lt_endpoint_free(lt_endpoint *endpoint);

/* The communicator whose collectives are made of a link's messages. */
extern const lt_comm_ops lt_comm_linked;

/* NULL: the communicator has none. */
lt_endpoint *lt_linked_endpoint(lt_comm *comm);
/* Starts a request of a protocol, described by call. */
lt_status lt_linked_begin(lt_comm *self, const lt_comm_call *call, lt_protocol protocol,
                          lt_request **request);

/* Opens the local ends of a link: one, or all of them (link rank -1). out[i]: of lt_comm_linked's
 * bytes, device and deadline set. link is of link_ops->bytes, its size may be set; owned from now
 * on, also on failure. */
lt_status lt_linked_open(lt_comm *const *out, lt_link *link);

/* out[i] = term 0 [i] + term 1 [i] + ..., in this order, or their mean or maximum; in f32 for 16-bit
 * types, rounded once. out may be one of the terms. */
void lt_reduce_terms(void *out, const void *const *term, int terms, int64_t count, lt_dtype dtype,
                     lt_reduce op);

#endif
