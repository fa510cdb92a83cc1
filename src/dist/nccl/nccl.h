/* Functions of NCCL and CUDA that the communicator "nccl" uses, as a table, which tests replace. liblather-cuda.so
 * exports the real one as lt_nccl_cuda. */
#ifndef LT_DIST_NCCL_H
#define LT_DIST_NCCL_H

#include "lather/ext/comm.h"

enum { LT_NCCL_ID = 128, LT_NCCL_GPU_NAME = 64 };

/* One rank's ncclComm_t with a separate stream on the device; and an event. */
typedef struct lt_nccl_group lt_nccl_group;
typedef struct lt_nccl_event lt_nccl_event;

/* Hooks around each launch of a captured step; if before rejects the launch, after is not called. */
typedef struct lt_nccl_launch_hooks {
    void *context;
    lt_status (*before)(void *context);
    void (*after)(void *context);
} lt_nccl_launch_hooks;

typedef struct lt_nccl_api {
    const char *version; /* LT_VERSION of the plugin */
    lt_status (*check)(
        void); /* fails if the loaded NCCL does not match the one the plugin was built with */
    lt_status (*set_device)(void *device); /* makes it this thread's current device */
    /* Writes a text that identifies the GPU within a machine. */
    lt_status (*gpu_name)(void *device, char text[LT_NCCL_GPU_NAME]);
    lt_status (*unique_id)(char id[LT_NCCL_ID]);
    /* Opens a group. Collective over the ranks with this id. */
    lt_status (*init_rank)(lt_nccl_group **out, void *device, const char id[LT_NCCL_ID], int rank,
                           int size);
    lt_status (*split)(lt_nccl_group *group, int color, int key, lt_nccl_group **out, int *rank,
                       int *size);
    void (*destroy)(lt_nccl_group *group);
    /* Replaces destroy: ends running calls without waiting. finish_abort then frees the group, once no captured step
     * contains its calls. */
    void (*abort)(lt_nccl_group *group);
    void (*finish_abort)(lt_nccl_group *group);
    lt_status (*async_error)(lt_nccl_group *group); /* returns an asynchronous error of NCCL */

    /* Begins a group of calls. Calls between group_start and group_end start together at group_end,
     * after the work that the device's main stream had at group_start. Counts are in elements. */
    lt_status (*group_start)(lt_nccl_group *group);
    lt_status (*group_end)(lt_nccl_group *group);
    lt_status (*allreduce)(lt_nccl_group *group, const lt_comm_call *call);
    /* Reduce-scatter. count: elements per rank. */
    lt_status (*reduce_scatter)(lt_nccl_group *group, const lt_comm_call *call, int64_t count);
    lt_status (*allgather)(lt_nccl_group *group, const lt_comm_call *call, int64_t count);
    /* Reduce: `out` on the root only. Broadcast: `in` on the root only. */
    lt_status (*reduce)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*broadcast)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*send)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*recv)(lt_nccl_group *group, const lt_comm_call *call);
    lt_status (*barrier)(lt_nccl_group *group);

    bool (*is_capturing)(lt_nccl_group *group); /* true while the device captures a step */
    /* Sets the hooks that every launch of a captured step calls; NULL removes them. */
    void (*set_launch_hooks)(void *device, const lt_nccl_launch_hooks *hooks);
    lt_status (*record_main)(void *device,
                             lt_nccl_event **out); /* records an event in the main stream */
    lt_status (*record)(lt_nccl_group *group,
                        lt_nccl_event **out); /* records an event in the group's stream */
    lt_status (*event_query)(lt_nccl_event *event, bool *done);
    lt_status (*main_wait)(lt_nccl_event *event); /* makes the main stream wait for the event */
    void (*event_destroy)(lt_nccl_event *event);
} lt_nccl_api;

extern const lt_comm_ops lt_comm_nccl;

/* This process' rank, and the connections to the other ranks, NULL for a single one. */
typedef struct lt_nccl_start {
    int rank, size;
    struct lt_rendezvous *rendezvous; /* lt_nccl_open_with() takes ownership, also on failure */
} lt_nccl_start;

/* Opens comm, which has lt_comm_nccl.bytes bytes and its device set. Errors: LT_E_ARG on every rank if two ranks have the
 * same GPU. */
LT_MUST_CHECK lt_status lt_nccl_open_with(lt_comm *comm, const lt_nccl_api *api, void *device,
                                          const lt_nccl_start *start);

/* Type of lt_comm_open(). */
typedef lt_status lt_comm_opener(lt_comm **out, const char *name, lt_device *device);
/* Finds the ranks by MPI, which `open` opens, or by torchrun's environment variables. */
LT_MUST_CHECK lt_status lt_nccl_find_ranks(lt_nccl_start *start, lt_comm_opener *open);

#endif
