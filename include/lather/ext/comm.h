/** For writing a communicator: whole collectives (start from src/dist/single_rank.c), or only messages,
 *  from which the library makes them (start from src/dist/threads.c). */
#ifndef LATHER_EXT_COMM_H
#define LATHER_EXT_COMM_H

#include "lather/comm.h"
#include "lather/ext/fail.h"

typedef enum lt_comm_what {
    LT_COMM_ALLREDUCE,
    LT_COMM_REDUCESCATTER,
    LT_COMM_ALLGATHER,
    LT_COMM_BROADCAST,
    LT_COMM_BARRIER,
    LT_COMM_CLOSE, /**< the library's own, at the end */
    LT_COMM_SEND,
    LT_COMM_RECV,
    LT_COMM_ALLTOALL,
    LT_COMM_PARTIAL /**< the library's own: the mean of the first ranks */
} lt_comm_what;

/** One call on one rank, its arguments checked. in and out may be the same; they lie without gaps. */
typedef struct lt_comm_call {
    lt_comm_what what;
    lt_reduce op;
    lt_dtype dtype;
    int root;         /**< of a broadcast; the other rank of a message */
    int64_t elements; /**< of the whole; of an all-to-all, those sent */
    /** [size] of a reduce-scatter, all-gather, all-to-all (sent), else NULL; lent. */
    const int64_t *count;
    const int64_t *received_count; /**< [size] of an all-to-all, else NULL; lent */
    const void *in;
    void *out;
} lt_comm_call;

/** All entries are required. */
typedef struct lt_comm_ops {
    const char *kind; /**< "self" */
    size_t bytes;     /**< of the communicator's struct */
    lt_status (*open)(lt_comm *self);
    void (*close)(lt_comm *self);
    /** May finish at once and leave *request NULL. */
    lt_status (*begin)(lt_comm *self, const lt_comm_call *call, lt_request **request);
    lt_status (*wait)(lt_request *request); /**< frees the request */
    /** Fills *out, a struct of ops->bytes whose first member is a copy of self's. */
    lt_status (*split)(lt_comm *self, int color, int key, lt_comm *out);
    void (*abort)(lt_comm *self);
} lt_comm_ops;

/** First member of every communicator's struct. */
struct lt_comm {
    const lt_comm_ops *ops;
    lt_device *device;
    int rank, size;
    uint64_t bytes;          /**< payload sent so far */
    double deadline;         /**< seconds; 0: none */
    double latency_us, gbit; /**< of the modelled link; gbit 0: none */
    double link_free;        /**< when the modelled link will be free: seconds of CLOCK_MONOTONIC */
};

/** First member of every request. */
struct lt_request {
    lt_comm *comm;
    lt_tensor *target; /**< written; NULL: nothing */
    double ready;      /**< the modelled link's time of completion; 0: none */
};

/** A message between two ranks of all that were started; tag is below lt_link.tags. */
typedef struct lt_message {
    int from, to, tag;
    const void *in; /**< what to send, or NULL */
    void *out;      /**< where to put it, or NULL */
    size_t bytes;
} lt_message;

typedef struct lt_link lt_link;

/** Messages, for the collectives of the library. All entries are required, and called by its progress
 *  thread only. Messages of equal from, to and tag arrive in order. A failure is false with its reason in
 *  link->why, not an lt_status: a plugin may use the library's headers alone. */
typedef struct lt_link_ops {
    const char *kind;            /**< "mpi" */
    const char *version;         /**< LT_VERSION: a plugin must be of the library's version */
    size_t bytes;                /**< of the struct whose first member is lt_link */
    bool poll;                   /**< messages complete by themselves, and are polled for */
    bool (*open)(lt_link *self); /**< sets rank, size, tags */
    void (*close)(lt_link *self, bool aborted);
    bool (*send)(lt_link *self, const lt_message *message, uint64_t *handle);
    bool (*recv)(lt_link *self, const lt_message *message, uint64_t *handle);
    /** If *done, or failed, the handle is gone. */
    bool (*test)(lt_link *self, uint64_t handle, bool *done);
    /** The memory of the message is not touched after this. */
    void (*cancel)(lt_link *self, uint64_t handle);
    /** Tells the other processes of an abort. was_aborted: whether one of them did, once, with its reason in
     *  link->why. */
    void (*tell_abort)(lt_link *self, const char *why);
    bool (*was_aborted)(lt_link *self);
} lt_link_ops;

enum { LT_LINK_TEXT = 512, LT_LINK_HOST = 64 };

/** First member of every link's struct. */
struct lt_link {
    const lt_link_ops *ops;
    int rank, size; /**< of this process; rank -1: all ranks are in it */
    int tags;
    char why[LT_LINK_TEXT];
    /** [size] names of the ranks' machines, for messages, set by open; NULL: unknown. */
    const char (*host)[LT_LINK_HOST];
};

/** From now on lt_comm_open(), and --dist of this program, know a communicator by its kind. Borrows ops,
 *  for ever. Before other threads use the library. Errors: LT_E_ARG (the name is taken), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_comm_register(const lt_comm_ops *ops);
/** The same of the collectives of the library over a link of messages, whose open sets a rank of 0 or more. */
LT_API LT_MUST_CHECK lt_status lt_comm_register_link(const lt_link_ops *ops);
/** Name number index of those; NULL past the end. */
LT_API const char *lt_comm_registered(size_t index);

#endif
