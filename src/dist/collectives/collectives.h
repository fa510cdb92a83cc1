/* The communication thread, and the collectives it makes of a link's messages.
 *
 * Every collective is, between each two ranks, a header each way, which tells what the sender is
 * doing, and then the data. A reduction is an all-to-all of chunks, a sum in rank order on the
 * chunk's rank, and for an all-reduce an all-gather. */
#ifndef LT_DIST_ENGINE_H
#define LT_DIST_ENGINE_H

#include "dist/comm/comm.h"

#include <pthread.h>

typedef struct lt_engine lt_engine;
typedef struct lt_end lt_end;

/* Goes before the data of every call, so that ranks that do different things find out. */
typedef struct lt_header {
    int32_t what, op, dtype, root;
    int64_t elements;
    uint64_t number; /* of the collective in its group; of messages: 0 */
    uint64_t counts; /* hash of the per-rank counts */
} lt_header;

/* Data on its way to or from one other rank. */
typedef struct lt_transfer {
    int peer; /* rank in the group */
    bool sends, headed, busy, done;
    lt_header header;
    const char *in;
    char *out;
    size_t bytes, moved, piece; /* in all; arrived; under way */
    uint64_t handle;
} lt_transfer;

/* A call on one rank. The fields behind the line belong to the communication thread alone. */
typedef struct lt_work {
    lt_request base;
    lt_comm_call call; /* count is NULL: see offset */
    lt_end *end;
    struct lt_work *next, *before, *after; /* in the inbox or active; all of the end, to be freed */
    double expires;                        /* 0: never */
    bool done;                             /* under the mutex */

    bool started, finished;
    uint64_t number;
    int phase, left;       /* transfers that are not done */
    lt_transfer *transfer; /* [2 * (size-1)] */
    char *scratch;         /* [size-1] chunks, by rank without this one */
    size_t scratch_bytes;
    const void **term;
    int64_t offset[]; /* [size+1] where each rank's part begins */
} lt_work;

enum { LT_GROUP_TAGS = 64 }; /* each group has its own */

/* One rank's end of a group. */
struct lt_end {
    lt_engine *engine;
    int rank, size, context;
    int *world;      /* [size] ranks among all started */
    uint64_t issued; /* collectives so far */
    lt_work *first, *last;
    /* The communication thread's. */
    int running; /* collectives started and not finished */
    bool *busy;  /* [2 * size] by rank: a message from it, to it is under way */
    bool held;   /* an earlier request is not finished */
    char *spare; /* scratch to be used again */
    size_t spare_bytes;
};

struct lt_engine {
    lt_link *link;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, news; /* for the thread; for those who wait for it */
    bool ready, stop;
    lt_status opened;
    int open;     /* ends */
    int *context; /* [size] of world: the next free one */
    lt_work *inbox, **inbox_end;
    bool aborted, told; /* told: the other processes know, all requests have failed */
    bool from_outside;
    char why[LT_LINK_TEXT];
    lt_work *active, **active_end; /* the thread's, in order of issue */
};

/* Starts the thread, which opens the link. Owns the link from now on, also on failure. */
lt_status lt_engine_new(lt_engine **out, lt_link *link);
/* After the last end has been closed: ends the thread. */
void lt_engine_free(lt_engine *engine);
/* Hands work over; with the mutex locked. */
void lt_engine_add(lt_engine *engine, lt_work *work);
/* The first abort counts; with the mutex locked. */
void lt_engine_abort(lt_engine *engine, const char *why, bool from_outside);

lt_status lt_work_new(lt_work **out, lt_end *end, const lt_comm_call *call);
void lt_work_free(lt_work *work);

/* By the communication thread: goes on as far as it can; whether anything moved. false in *ok: why
 * has the reason. */
bool lt_work_advance(lt_work *work, bool *ok, char *why);
void lt_work_cancel(lt_work *work);
int lt_work_transfers(const lt_work *work);

/* A send or a receive, not a collective. */
bool lt_work_is_message(const lt_work *work);
lt_header lt_work_header(const lt_work *work);
/* What the other rank says it is doing must be what we do; false: why names both. */
bool lt_work_check(const lt_work *work, const lt_transfer *transfer, char *why);
/* "allreduce (sum) of 10 f32, number 3, on rank 0 of 2; nothing came from rank 1" */
void lt_work_text(const lt_work *work, char *text, size_t bytes);

void lt_end_free(lt_end *end);

/* The communicator whose collectives are made of a link's messages. */
extern const lt_comm_ops lt_comm_linked;

/* Opens the local ends of a link: one, or all of them (link rank -1). out[i]: of lt_comm_linked's
 * bytes, device and deadline set. link is of link_ops->bytes, its size may be set; owned from now
 * on, also on failure. */
lt_status lt_linked_open(lt_comm *const *out, lt_link *link);

/* out[i] = term 0 [i] + term 1 [i] + ..., in this order, or their mean or maximum; in f32 for 16-bit
 * types, rounded once. out may be one of the terms. */
void lt_reduce_terms(void *out, const void *const *term, int terms, int64_t count, lt_dtype dtype,
                     lt_reduce op);

#endif
