/* Collectives built from point-to-point messages over a link. One progress thread per process moves the messages of
 * all its collectives.
 *
 * In a collective each pair of ranks first exchanges headers, which describe each sender's call, and then the data. A
 * reduction is an all-to-all of chunks followed by a sum in rank order on the chunk's owner; an all-reduce adds an
 * all-gather of the sums; a large broadcast is a scatter of chunks and an all-gather; an all-gather of unequal shards first
 * sends their parts to the ranks that would have them in equal ones. Of small data every rank gets all
 * (small.c). */
#ifndef LT_DIST_COLLECTIVES_H
#define LT_DIST_COLLECTIVES_H

#include "dist/comm/comm.h"

#include <pthread.h>

typedef struct lt_progress lt_progress;
typedef struct lt_endpoint lt_endpoint;

/* Sent before the data of every collective, so that mismatched calls are detected. */
typedef struct lt_header {
    int32_t what, op, dtype, root;
    int64_t elements; /* all-to-all: elements from the sender to the receiver */
    uint64_t number;  /* sequence number of the collective in its group; 0 for send and recv */
    uint64_t counts;  /* hash of the per-rank counts */
} lt_header;

enum { LT_CHANNEL_IN_FLIGHT = 4 };
/* Maximum bytes of a data message: small enough to show progress between two polls and to fit MPI's int counts. */
enum { LT_MESSAGE_BYTES = 1 << 19 };

/* Messages to or from one other rank, in order. */
typedef struct lt_channel {
    int peer, tag; /* rank and tag within the group */
    bool sends;
    int oldest, in_flight; /* ring of the handles in flight */
    uint64_t handle[LT_CHANNEL_IN_FLIGHT];
} lt_channel;

/* Data to or from one other rank. */
typedef struct lt_transfer {
    lt_channel channel;
    bool headed, done;
    lt_header header;
    const char *in;
    char *out;
    size_t bytes, posted; /* bytes of the whole transfer; bytes posted so far */
} lt_transfer;

/* A request other than a collective, driven by the progress thread; its functions are those of lt_collective. */
typedef struct lt_protocol_ops {
    lt_status (*advance)(void *context, bool *moved, bool *finished);
    void (*cancel)(void *context);
    void (*text)(const void *context, char *text, size_t bytes); /* appends the missing ranks */
} lt_protocol_ops;

typedef struct lt_protocol {
    const lt_protocol_ops *ops; /* functions of a protocol's request; NULL for a collective */
    void *context;
} lt_protocol;

/* A collective, a send or a receive on one rank. Only the progress thread accesses the fields after the blank line. */
typedef struct lt_collective {
    lt_request base;
    lt_comm_call call; /* the call; its counts are NULL: offset and received_offset replace them */
    lt_endpoint *endpoint;
    lt_protocol protocol;
    struct lt_collective *next; /* next in the list of submitted or active requests */
    struct lt_collective *before,
        *after;     /* previous and next in the endpoint's list of unfreed ones */
    double expires; /* deadline in lt_clock_seconds(); 0: never */
    bool done;      /* the request is complete; protected by the mutex */

    bool started, finished;
    bool small;          /* small.c */
    lt_link_sum_fn *sum; /* engine.c: adds by MPI; NULL: the library adds */
    uint64_t turn;       /* number of the sum by MPI */
    uint64_t number;
    int phase, pending; /* current phase, of small ones round; number of its unfinished transfers */
    lt_transfer *transfer; /* [2 * (size-1)] transfers to and from the other ranks */
    char *
        workspace; /* [size-1] terms of this rank's chunk from the other ranks, in rank order; small.c: [size] blocks */
    size_t workspace_bytes;
    const void **term; /* [size] addresses of all terms of this rank's chunk */
    int64_t *
        received_offset; /* [size+1] element offset of each rank's data in an all-to-all's output */
    int64_t offset[];    /* [size+1] element offset of each rank's chunk */
} lt_collective;

enum { LT_GROUP_TAGS = 64 }; /* tags reserved for each group */

/* One rank in a group. */
struct lt_endpoint {
    lt_progress *progress;
    int rank, size, context; /* context: number of the group, which selects its tags */
    int *world;              /* [size] number of each rank among all started processes */
    uint64_t issued;         /* collectives issued so far */
    lt_link_sum_fn *sum;     /* lt_comm_use_engine_sums() */
    lt_collective *first, *last;
    /* Accessed by the progress thread only. */
    int running;              /* collectives started and not finished */
    uint64_t next_turn, turn; /* sums by MPI: turn of the next one; turn that MPI takes next */
    bool *busy;   /* [2 * size] for each peer: a receive is in flight; a send is in flight */
    bool blocked; /* an earlier request is unfinished, so later ones must wait */
    char *free_workspace; /* memory kept for the next reduction; NULL if absent */
    size_t free_bytes;
};

/* The progress thread of a process. */
struct lt_progress {
    lt_link *link;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;      /* wakes the progress thread */
    pthread_cond_t cond_done; /* a request is done, the link is open or an abort is complete */
    bool ready, stop;
    bool woken; /* a request submitted earlier can advance: lt_progress_wake() */
    lt_status opened;
    int open;     /* number of open endpoints */
    int *context; /* [link size] next free group number of each rank */
    lt_collective *submitted, **submitted_end;
    bool aborted;
    bool abort_complete; /* other processes are notified and all requests have failed */
    bool is_remote_abort;
    double abort_told; /* seconds at another process's abort, or 0; progress thread only */
    char why[LT_LINK_TEXT];
    lt_collective *active, **active_end; /* active ones, in order of issue; progress thread only */
};

/* Starts the thread, which opens the link. Takes ownership of link, also on failure. */
lt_status lt_progress_new(lt_progress **out, lt_link *link);
/* Ends the thread, after the last endpoint has been closed. */
void lt_progress_free(lt_progress *progress);
/* Hands a request to the thread. The caller holds the mutex. */
void lt_progress_submit(lt_progress *progress, lt_collective *collective);
/* Notifies the thread that a submitted request can advance. Callable from any thread. */
void lt_progress_wake(lt_progress *progress);
/* Aborts all requests; no-op after the first abort. The caller holds the mutex. */
void lt_progress_abort(lt_progress *progress, const char *why, bool is_remote);

lt_status lt_collective_new(lt_collective **out, lt_endpoint *endpoint, const lt_comm_call *call);
void lt_collective_free(lt_collective *self);

/* Advances a request as far as possible without waiting, on the progress thread; sets *moved
 * if anything advanced. An error aborts the group, with the thread's message as reason. */
lt_status lt_collective_advance(lt_collective *self, bool *moved);
void lt_collective_cancel(lt_collective *self);
/* Returns true for a send or a receive. */
bool lt_collective_is_message(const lt_collective *self);
/* Returns the time at which a request has taken too long; 0: never. A rank that waits for a rank that waits itself takes
 * longer than that one, which names the cause. */
double lt_collective_expiry(const lt_collective *self);
/* Writes "allreduce (sum) of 10 f32, number 3, on rank 0 of 2 (host); received nothing from rank 1 of 2 (host)". */
void lt_collective_text(const lt_collective *self, char *text, size_t bytes);

/* small.c: true if every rank's data fit into a block: all blocks go to all ranks in rounds. */
bool lt_small_applies(const lt_collective *self);
size_t lt_small_workspace_bytes(const lt_collective *self);
int lt_small_rounds(const lt_collective *self);
/* Writes this rank's block. */
void lt_small_begin(const lt_collective *self);
/* The transfers of a round, without channels: their peers and buffers. */
void lt_small_round(const lt_collective *self, int round, lt_transfer *to, lt_transfer *from);
/* Computes the result of all blocks. */
void lt_small_finish(lt_collective *self);

/* pieces.c: offset and size of a rank's piece of the whole, in bytes. */
size_t lt_piece_byte_offset(const lt_collective *self, int rank);
size_t lt_piece_bytes(const lt_collective *self, int rank);
/* Sets the buffers of an all-gather's first phase: this rank's shard in the peer's piece, the peer's in this rank's. */
void lt_pieces_of_shards(const lt_collective *self, int peer, lt_transfer *to, lt_transfer *from);

/* engine.c: returns the function of a sum that MPI adds, else NULL; divides the sum of a mean. */
lt_link_sum_fn *lt_engine_sum_of(const lt_collective *self);
void lt_engine_finish(const lt_collective *self);

/* channel.c: posts a message from `in` or into `out`, the other one NULL; fewer than LT_CHANNEL_IN_FLIGHT are in
 * flight. */
LT_MUST_CHECK lt_status lt_channel_post(const lt_endpoint *endpoint, lt_channel *channel,
                                        const void *in, void *out, size_t bytes);
/* Sets *done to whether the channel's oldest message in flight has completed; false also if none is in flight. */
LT_MUST_CHECK lt_status lt_channel_test(const lt_endpoint *endpoint, lt_channel *channel,
                                        bool *done);
void lt_channel_cancel(const lt_endpoint *endpoint, lt_channel *channel);
/* Writes "rank 5 of 8 (host)" for rank r of the group, numbered among all started processes. Returns text. */
const char *lt_endpoint_rank_text(const lt_endpoint *endpoint, int r, char *text, size_t bytes);
enum { LT_RANK_TEXT = 96 };

void lt_endpoint_free(lt_endpoint *endpoint);

/* Communicator whose collectives consist of a link's messages. */
extern const lt_comm_ops lt_comm_linked;

/* Returns the endpoint of a communicator over a link, or NULL for any other kind. */
lt_endpoint *lt_linked_get_endpoint(lt_comm *comm);
/* Starts a protocol's request; call describes it in messages. */
lt_status lt_linked_begin_request(lt_comm *self, const lt_comm_call *call, lt_protocol protocol,
                                  lt_request **request);

/* Opens the local endpoints of a link: one, or all of them (link->rank -1). out[i] has lt_comm_linked.bytes bytes, its
 * device and deadline set. link has link->ops->bytes bytes. Takes ownership of link, also on failure. */
lt_status lt_linked_open(lt_comm *const *out, lt_link *link);

/* Reduces by the call's op, dtype and tree: out[i] = term[0][i] + term[1][i] + ..., in this order, or their mean or
 * maximum; with tree the sum of both halves of the terms, recursively while their number is even. Computes 16-bit types
 * in f32 and rounds once. out may be one of the terms. */
void lt_reduce_terms(void *out, const void *const *term, int terms, int64_t count,
                     const lt_comm_call *call);

#endif
