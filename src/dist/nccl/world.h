/* What the communicators "nccl" of one process share. */
#ifndef LT_DIST_NCCL_WORLD_H
#define LT_DIST_NCCL_WORLD_H

#include "dist/nccl/nccl.h"

#include <pthread.h>

typedef struct lt_nccl_comm lt_nccl_comm;

/* Shared by all communicators of a process that were split from one. */
typedef struct lt_nccl_world {
    const lt_nccl_api *api;
    void *device;
    struct lt_rendezvous *rendezvous; /* NULL: alone */
    pthread_mutex_t mutex;            /* held in every call of the table on a group */
    pthread_cond_t wake;
    pthread_t watcher;
    bool stop, aborted;
    char why[LT_LINK_TEXT];
    int open;
    int rank, size; /* in the run */
    lt_nccl_comm *first;
    /* Captured steps with collectives in them. */
    bool captured;
    double deadline;         /* of those collectives, in seconds; 0: none */
    lt_nccl_event *launched; /* after the last launch; NULL: it has completed */
    double expires;          /* when it must have */
} lt_nccl_world;

typedef struct lt_nccl_request {
    lt_request base;
    lt_comm_call call;
    lt_nccl_event *event; /* NULL: not started */
    bool captured;
    double expires; /* 0: never */
    struct lt_nccl_request *next;
} lt_nccl_request;

struct lt_nccl_comm {
    lt_comm base;
    lt_nccl_world *world;
    lt_nccl_group *group;         /* NULL: aborted */
    lt_nccl_group *aborted_group; /* then this one */
    lt_nccl_comm *next;
    lt_nccl_request *requests; /* in order of issue */
};

/* These four are called with the mutex locked. Aborts all groups; the first abort counts. tell: other
 * ranks too. */
void lt_nccl_abort_all(lt_nccl_world *world, const char *why, bool tell);
/* LT_E_COMM with the reason, if there was an abort. */
lt_status lt_nccl_aborted(const lt_nccl_world *world);
/* A collective of comm is part of a captured step. */
void lt_nccl_note_captured(lt_nccl_world *world, const lt_comm *comm);
void lt_nccl_add_comm(lt_nccl_world *world, lt_nccl_comm *comm, lt_nccl_group *group);
/* After the last communicator has been closed. */
void lt_nccl_stop_world(lt_nccl_world *world);

#endif
