/* Private declarations of the fake NCCL: groups and their queues. */
#ifndef LT_TESTS_DIST_FAKE_QUEUE_H
#define LT_TESTS_DIST_FAKE_QUEUE_H

#include "fake_nccl.h"

#include <pthread.h>

enum { RANKS = 16, BATCH = 64, QUEUE = 4096 };

typedef struct fake_op {
    lt_comm_call call;
    bool reduce; /* a reduction to a root */
} fake_op;

typedef struct fake_batch {
    fake_op op[BATCH];
    int count;
} fake_batch;

/* The ranks with one id. */
typedef struct fake_world {
    char id[LT_NCCL_ID];
    int size, gone, arrived, split_arrived;
    uint64_t round, split_round;
    const fake_op *posted[RANKS];
    const lt_comm_call *message[RANKS][RANKS];  /* [from][to] message in flight */
    int color[RANKS], key[RANKS], place[RANKS]; /* place: rank in the split group */
    struct fake_world *child[RANKS], *next;
} fake_world;

struct lt_nccl_group {
    fake_world *world;
    fake_gpu *gpu;
    int rank, size;
    pthread_t thread;
    fake_batch *batch[QUEUE], *open;
    int issued, done;
    bool stop, aborted;
};

struct lt_nccl_event {
    lt_nccl_group *group; /* NULL for the main stream */
    fake_gpu *gpu;
    int at;
};

/* Global lock. */
extern pthread_mutex_t fake_mutex;
extern pthread_cond_t fake_news;

/* Thread of a group. */
void *fake_work(void *group);

#endif
