/* What the ends of a communicator "nccl" in one process share. */
#ifndef LT_DIST_NCCL_WORLD_H
#define LT_DIST_NCCL_WORLD_H

#include "dist/nccl/nccl.h"

#include <pthread.h>

typedef struct lt_nccl_comm lt_nccl_comm;

/* Shared by all ends of a process that were split from one. */
typedef struct lt_nccl_world {
    const lt_nccl_api *api;
    void *device;
    struct lt_star *star;  /* NULL: alone */
    pthread_mutex_t mutex; /* held in every call of the table on a group */
    pthread_cond_t wake;
    pthread_t watcher;
    bool stop, aborted;
    char why[LT_LINK_TEXT];
    int open;
    int rank, size; /* in the run */
    lt_nccl_comm *first;
    /* Recorded steps with calls in them. */
    bool recorded;
    double deadline;        /* of those calls, in seconds; 0: none */
    lt_nccl_mark *launched; /* behind the last launch; NULL: it is done */
    double expires;         /* when it must be */
} lt_nccl_world;

typedef struct lt_nccl_request {
    lt_request base;
    lt_comm_call call;
    lt_nccl_mark *mark; /* NULL: not begun */
    bool captured;
    double expires; /* 0: never */
    struct lt_nccl_request *next;
} lt_nccl_request;

struct lt_nccl_comm {
    lt_comm base;
    lt_nccl_world *world;
    lt_nccl_group *group; /* NULL: aborted */
    lt_nccl_group *dead;  /* then this one */
    lt_nccl_comm *next;
    lt_nccl_request *requests; /* in order of issue */
};

/* Seconds of a clock that only goes forward. */
double lt_nccl_now(void);

/* With the mutex locked: the first abort counts; whether there was one; that a call of comm is part of
 * a recorded step; adds an end. */
void lt_nccl_end_all(lt_nccl_world *world, const char *why, bool tell);
lt_status lt_nccl_aborted(const lt_nccl_world *world);
void lt_nccl_note_recorded(lt_nccl_world *world, const lt_comm *comm);
void lt_nccl_enlist(lt_nccl_world *world, lt_nccl_comm *comm, lt_nccl_group *group);
/* After the last end has been closed. */
void lt_nccl_stop_world(lt_nccl_world *world);

#endif
