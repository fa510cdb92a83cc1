/* Plays ranks by threads of the test program. */
#ifndef LT_TESTS_DIST_RANKS_H
#define LT_TESTS_DIST_RANKS_H

#include "cases.h"
#include "near.h"

#include <pthread.h>
#include <stdio.h>

enum { MOST_RANKS = 8 };

typedef struct played {
    rank_case c;
    case_fn *run;
    bool good;
    pthread_t thread;
} played;

static inline void *play(void *context)
{
    played *p = context;
    p->good = p->run(&p->c);
    return NULL;
}

/* Runs fn on every rank; gives how many said that something is wrong, and what the first said. */
static inline int play_ranks(int size, case_fn *fn, bool spoil, char *why, size_t bytes)
{
    static played rank[MOST_RANKS];
    lt_device *device[MOST_RANKS] = {NULL};
    lt_comm *comm[MOST_RANKS];
    int bad = 0;
    for (int r = 0; r < size; r++)
        assert_ok(lt_device_open(&device[r], "ref", NULL));
    assert_ok(lt_comm_open_threads(comm, device, size));
    for (int r = 0; r < size; r++) {
        rank[r] = (played){.c = {.comm = comm[r], .device = device[r], .spoil = spoil}, .run = fn};
        assert_int_equal(pthread_create(&rank[r].thread, NULL, play, &rank[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(rank[r].thread, NULL);
        if (!rank[r].good && bad++ == 0)
            snprintf(why, bytes, "%.*s", (int)bytes - 1, rank[r].c.why);
    }
    for (int r = 0; r < size; r++)
        lt_comm_close(&comm[r]);
    for (int r = 0; r < size; r++)
        lt_device_close(&device[r]);
    return bad;
}

#endif
