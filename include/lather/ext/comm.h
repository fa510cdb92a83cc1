/** Interface for new communicators: either whole collectives (start from src/dist/single_rank.c), or a link of point-to-
 *  point messages, from which the library builds collectives (start from src/dist/threads.c). */
#ifndef LATHER_EXT_COMM_H
#define LATHER_EXT_COMM_H

#include "lather/comm.h"
#include "lather/ext/fail.h"

typedef enum lt_comm_call_kind {
    LT_COMM_ALLREDUCE,
    LT_COMM_REDUCESCATTER,
    LT_COMM_ALLGATHER,
    LT_COMM_BROADCAST,
    LT_COMM_BARRIER,
    LT_COMM_CLOSE, /**< internal: end of a communicator */
    LT_COMM_SEND,
    LT_COMM_RECV,
    LT_COMM_ALLTOALL,
    LT_COMM_PARTIAL /**< internal: mean over the first ranks to finish */
} lt_comm_call_kind;

/** A call on one rank, with checked arguments. in and out may be the same and are dense in memory. */
typedef struct lt_comm_call {
    lt_comm_call_kind what;
    lt_reduce op;
    /** a reduction adds in a tree over ranks (lather/comm.h): the device is reproducible; a broadcast, or an
     *  all-gather of unequal shards, goes to each rank in pieces from all ranks */
    bool tree;
    lt_dtype dtype;
    int root;         /**< root of a broadcast; peer of a send or receive */
    int64_t elements; /**< elements of the whole tensor; of an all-to-all, elements sent */
    /** [size] elements per rank of a reduce-scatter, all-gather or all-to-all (sent), else NULL; borrowed for the call */
    const int64_t *count;
    const int64_t *
        received_count; /**< [size] elements received from each rank in an all-to-all, else NULL; borrowed */
    const void *in;
    void *out;
} lt_comm_call;

/** Functions of a communicator. All entries are required. */
typedef struct lt_comm_ops {
    const char *kind; /**< name of the communicator, such as "self" */
    size_t bytes;     /**< size of the communicator's struct */
    lt_status (*open)(lt_comm *self);
    void (*close)(lt_comm *self);
    /** Begins a call; may complete immediately and leave *request NULL. */
    lt_status (*begin)(lt_comm *self, const lt_comm_call *call, lt_request **request);
    lt_status (*wait)(lt_request *request); /**< waits for the request and frees it */
    /** Fills *out, a struct of ops->bytes whose first member is a copy of self's. */
    lt_status (*split)(lt_comm *self, int color, int key, lt_comm *out);
    void (*abort)(lt_comm *self);
} lt_comm_ops;

/** First member of every communicator's struct. */
struct lt_comm {
    const lt_comm_ops *ops;
    lt_device *device;
    int rank, size;
    uint64_t bytes;  /**< payload bytes sent so far */
    double deadline; /**< deadline of a request in seconds; 0: none */
    double latency_us,
        gbit;         /**< latency and bandwidth (Gbit/s) of the modelled link; gbit 0: no model */
    double link_free; /**< time at which the modelled link is free, in seconds of CLOCK_MONOTONIC */
};

/** First member of every request. */
struct lt_request {
    lt_comm *comm;
    lt_tensor *target; /**< tensor that it writes, or NULL */
    double ready;      /**< completion time on the modelled link; 0: no model */
};

/** A message between two ranks, numbered among all started ranks; tag is below lt_link.tags. */
typedef struct lt_message {
    int from, to, tag;
    const void *in; /**< data to send; NULL on the receiver */
    void *out;      /**< buffer to receive into; NULL on the sender */
    size_t bytes;
} lt_message;

typedef struct lt_link lt_link;

/** Point-to-point messages for the library's collectives. All functions are required and called by its progress thread
 *  only. Messages with equal from, to and tag arrive in order. A failure returns false with the reason in link->why
 *  instead of an lt_status: a plugin may use the library's headers only. */
typedef struct lt_link_ops {
    const char *kind;            /**< name of the link, such as "mpi" */
    const char *version;         /**< LT_VERSION, which must equal the library's */
    size_t bytes;                /**< size of the struct whose first member is lt_link */
    bool poll;                   /**< messages complete asynchronously and must be polled for */
    bool (*open)(lt_link *self); /**< opens the link: sets rank, size, tags */
    void (*close)(lt_link *self, bool aborted);
    bool (*send)(lt_link *self, const lt_message *message, uint64_t *handle);
    bool (*recv)(lt_link *self, const lt_message *message, uint64_t *handle);
    /** Tests for completion; frees the handle if *done or on failure. */
    bool (*test)(lt_link *self, uint64_t handle, bool *done);
    /** Cancels a message, whose memory must not be accessed afterwards, and frees the handle. */
    void (*cancel)(lt_link *self, uint64_t handle);
    /** tell_abort notifies the other processes of an abort. was_aborted returns true once if another process aborted, with its
     *  reason in link->why; messages that were sent before still arrive until it is called again. */
    void (*tell_abort)(lt_link *self, const char *why);
    bool (*was_aborted)(lt_link *self);
} lt_link_ops;

/** The plugin of "mpi" has another function: starts the sum of call->in (f32 or f64) over all ranks in MPI's own order; test
 *  completes it. All ranks start the same sums in the same order. cancel waits for it, or ends the process. */
typedef bool lt_link_sum_fn(lt_link *self, const lt_comm_call *call, uint64_t *handle);

enum { LT_LINK_TEXT = 512, LT_LINK_HOST = 64 };

/** First member of every link's struct. */
struct lt_link {
    const lt_link_ops *ops;
    int rank, size;         /**< this rank, -1: all ranks are in this process; number of ranks */
    int tags;               /**< number of tags that messages may have */
    char why[LT_LINK_TEXT]; /**< reason of the last failure or abort */
    /** [size] host names of the ranks, for error messages, set by open; NULL if unknown. */
    const char (*host)[LT_LINK_HOST];
};

/** Registers a communicator under ops->kind for lt_comm_open() and --dist. Borrows ops forever. Call it before other
 *  threads use the library. Errors: LT_E_ARG (the name is taken), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_comm_register(const lt_comm_ops *ops);
/** Registers the library's collectives over a link, whose open must set a rank of 0 or more. */
LT_API LT_MUST_CHECK lt_status lt_comm_register_link(const lt_link_ops *ops);
/** Switches whether MPI adds f32 and f64 sums and means of later calls on comm (of four ranks or more: those above 256 bytes).
 *  Bits then depend on MPI, its version and the placement of ranks. The same on all ranks; not for groups split from comm.
 *  Errors: LT_E_UNSUPPORTED (not "mpi", or a group). */
LT_API LT_MUST_CHECK lt_status lt_comm_use_engine_sums(lt_comm *comm, bool on);
/** Returns the name of registered communicator number index; NULL past the end. */
LT_API const char *lt_comm_registered(size_t index);

#endif
