/* State shared by the communicators "nccl" of a process. */
#ifndef LT_DIST_NCCL_WORLD_H
#define LT_DIST_NCCL_WORLD_H

#include "dist/nccl/nccl.h"

#include <pthread.h>

typedef struct lt_nccl_comm lt_nccl_comm;

/* State shared by all communicators of a process that were split from one. */
typedef struct lt_nccl_world {
    const lt_nccl_api *api;
    void *device;
    struct lt_rendezvous *rendezvous; /* other processes; NULL for a single rank */
    pthread_mutex_t mutex;            /* held during every call of `api` on a group */
    pthread_cond_t wake;
    pthread_t watcher;
    bool stop, aborted;
    char why[LT_LINK_TEXT];
    int open;
    int rank, size; /* this process and the number of all processes */
    lt_nccl_comm *first;
    bool captured;           /* a captured step contains collectives */
    double deadline;         /* deadline of these collectives in seconds; 0: none */
    lt_nccl_event *launched; /* event recorded after the last launch; NULL once it has completed */
    double expires;          /* time by which that launch must have completed */
} lt_nccl_world;

typedef struct lt_nccl_request {
    lt_request base;
    lt_comm_call call;
    lt_nccl_event *event; /* completion of the call; NULL until started */
    bool captured;
    double expires; /* time of the deadline; 0: never */
    struct lt_nccl_request *next;
} lt_nccl_request;

struct lt_nccl_comm {
    lt_comm base;
    lt_nccl_world *world;
    lt_nccl_group *group;         /* NCCL's communicator; NULL after an abort */
    lt_nccl_group *aborted_group; /* the group, after an abort */
    lt_nccl_comm *next;
    lt_nccl_request *requests; /* pending requests in order of issue */
};

/* The caller of these four holds the mutex. */
/* Aborts all groups; no-op after the first abort. tell: notify the other ranks. */
void lt_nccl_abort_all(lt_nccl_world *world, const char *why, bool tell);
/* Returns LT_E_COMM with the reason after an abort. */
lt_status lt_nccl_abort_error(const lt_nccl_world *world);
/* Records that a captured step contains a collective of comm. */
void lt_nccl_note_captured(lt_nccl_world *world, const lt_comm *comm);
void lt_nccl_add_comm(lt_nccl_world *world, lt_nccl_comm *comm, lt_nccl_group *group);
/* Frees the world after the last communicator has been closed. */
void lt_nccl_stop_world(lt_nccl_world *world);

#endif
