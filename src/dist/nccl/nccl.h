/* What the communicator "nccl" needs of NCCL and CUDA, as a table, so that tests can put another in
 * its place. liblather-cuda.so exports the real one as lt_nccl_cuda. */
#ifndef LT_DIST_NCCL_H
#define LT_DIST_NCCL_H

#include "lather/ext/comm.h"

enum { LT_NCCL_ID = 128, LT_NCCL_PLACE = 64 };

/* One rank's end of a group of NCCL, with a queue of its own on the device; and a point in that
 * queue. */
typedef struct lt_nccl_group lt_nccl_group;
typedef struct lt_nccl_mark lt_nccl_mark;

/* Called around each launch of a recorded step: before it, and it may refuse; after it, if not. */
typedef struct lt_nccl_gate {
    void *context;
    lt_status (*before)(void *context);
    void (*after)(void *context);
} lt_nccl_gate;

typedef struct lt_nccl_api {
    const char *version;      /* LT_VERSION */
    lt_status (*check)(void); /* whether the library found is what the plugin was built with */
    lt_status (*enter)(void *device); /* for this thread */
    /* Which GPU: the same text for the same one only, within a machine. */
    lt_status (*place)(void *device, char text[LT_NCCL_PLACE]);
    lt_status (*unique_id)(char id[LT_NCCL_ID]);
    /* Collective over the ranks with this id. */
    lt_status (*join)(lt_nccl_group **out, void *device, const char id[LT_NCCL_ID], int rank,
                      int size);
    lt_status (*split)(lt_nccl_group *group, int color, int key, lt_nccl_group **out, int *rank,
                       int *size);
    void (*leave)(lt_nccl_group *group);
    /* Instead of leave: ends what runs, and does not wait; then, when no recorded step has calls of it
     * any more, what is left of the group. */
    void (*abort)(lt_nccl_group *group);
    void (*bury)(lt_nccl_group *group);
    lt_status (*health)(lt_nccl_group *group); /* what failed since, on its own */

    /* Between begin and end calls are only collected; what is begun waits for the device's main
     * queue as it is now. Counts in elements. */
    lt_status (*begin)(lt_nccl_group *group);
    lt_status (*end)(lt_nccl_group *group);
    lt_status (*allreduce)(lt_nccl_group *group, const lt_comm_call *call);
    /* Of count elements, in parts as long as each other. */
    lt_status (*reduce_scatter)(lt_nccl_group *group, const lt_comm_call *call, int64_t count);
    lt_status (*gather)(lt_nccl_group *group, const lt_comm_call *call, int64_t count);
    /* in: on the root (of a reduction: everywhere); out: everywhere (of a reduction: on the root) */
    lt_status (*reduce)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*broadcast)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*send)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*recv)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*barrier)(lt_nccl_group *group);

    bool (*is_captured)(lt_nccl_group *group); /* the device's step is being captured */
    /* From now on every launch of a recorded step goes through it; NULL: not any more. */
    void (*gate)(void *device, const lt_nccl_gate *gate);
    lt_status (*mark_main)(void *device, lt_nccl_mark **out); /* in the device's main queue */
    lt_status (*mark)(lt_nccl_group *group, lt_nccl_mark **out);
    lt_status (*is_done)(lt_nccl_mark *mark, bool *done);
    lt_status (*follow)(lt_nccl_mark *mark); /* the device's main queue goes on behind it */
    void (*drop)(lt_nccl_mark *mark);
} lt_nccl_api;

extern const lt_comm_ops lt_comm_nccl;

/* How this process was started, and the connections for it, NULL if it is alone. */
typedef struct lt_nccl_start {
    int rank, size;
    struct lt_star *star; /* owned from now on, also on failure */
} lt_nccl_start;

/* comm is of lt_comm_nccl's bytes, its device set. The first rank of each GPU is told where two are
 * on one. */
LT_MUST_CHECK lt_status lt_nccl_open_with(lt_comm *comm, const lt_nccl_api *api, void *device,
                                          const lt_nccl_start *start);

/* By MPI or the environment variables of torchrun. */
LT_MUST_CHECK lt_status lt_nccl_find_ranks(lt_nccl_start *start);

#endif
