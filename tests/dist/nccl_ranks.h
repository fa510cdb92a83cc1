/* Plays ranks of the communicator "nccl" by threads, over a NCCL in host memory. */
#ifndef LT_TESTS_DIST_NCCL_RANKS_H
#define LT_TESTS_DIST_NCCL_RANKS_H

#include "dist/comm/comm.h"
#include "dist/rendezvous/rendezvous.h"
#include "fake_nccl.h"
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

static const double patience = 20;

/* One rank's thread. */
typedef struct player {
    played base;
    int rank, size, port;
    lt_rendezvous *rendezvous; /* of rank 0, which listens */
    fake_gpu gpu;
    lt_status opened;
    char why[512];
} player;

static inline lt_status open_rank(player *p, lt_comm **out)
{
    lt_rendezvous_config c = {.rank = p->rank,
                              .size = p->size,
                              .address = "127.0.0.1",
                              .port = p->port,
                              .timeout = patience};
    if (p->size > 1)
        LT_TRY(lt_rendezvous_join(&p->rendezvous, &c));
    const lt_nccl_start start = {p->rank, p->size, p->rendezvous};
    LT_TRY(lt_comm_make(out, &lt_comm_nccl, p->base.c.device));
    lt_status st = lt_nccl_open_with(*out, &fake_nccl, &p->gpu, &start);
    if (st) {
        free(*out);
        *out = NULL;
    }
    return st;
}

static inline void *play_one(void *context)
{
    player *p = context;
    rank_case *c = &p->base.c;
    p->opened = open_rank(p, &c->comm);
    snprintf(p->why, sizeof p->why, "%s", lt_error_message());
    if (!p->opened)
        p->base.good = p->base.run(c);
    lt_comm_close(&c->comm);
    return NULL;
}

static player players[MOST_RANKS];

/* Each on a GPU of its own; a test may change that before play(). */
static inline void prepare(int size, case_fn *fn)
{
    lt_rendezvous_config c = {.size = size, .address = "127.0.0.1", .timeout = patience};
    int port = 0;
    memset(players, 0, sizeof players);
    if (size > 1)
        assert_ok(lt_rendezvous_listen(&players[0].rendezvous, &c, &port));
    for (int r = 0; r < size; r++) {
        player *p = &players[r];
        p->rank = r;
        p->size = size;
        p->port = port;
        p->base.run = fn;
        snprintf(p->gpu.name, sizeof p->gpu.name, "GPU %d", r);
        assert_ok(lt_device_open(&p->base.c.device, "ref", NULL));
    }
}

/* How many said that something is wrong. */
static inline int play_all(int size, char *why, size_t bytes)
{
    int bad = 0;
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&players[r].base.thread, NULL, play_one, &players[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(players[r].base.thread, NULL);
    for (int r = 0; r < size; r++) {
        const player *p = &players[r];
        if ((p->opened || !p->base.good) && bad++ == 0)
            snprintf(why, bytes, "%.*s", (int)bytes - 1, p->opened ? p->why : p->base.c.why);
        lt_device_close(&players[r].base.c.device);
    }
    return bad;
}

static inline void expect_good(int size, case_fn *fn)
{
    char why[512];
    prepare(size, fn);
    if (play_all(size, why, sizeof why))
        fail_msg("%s", why);
}

/* --- What ranks do in more than one test --- */

static inline bool fails_with(rank_case *c, lt_status got, const char *words)
{
    char why[400];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return (got == LT_E_COMM && strstr(why, words))
           || case_fails(c, "rank %d: %s: '%s', want '%s'", lt_comm_rank(c->comm),
                         lt_status_name(got), why, words);
}

static inline lt_status sum(const rank_case *c, lt_tensor *t)
{
    lt_request *request = NULL;
    LT_TRY(lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request));
    return lt_request_wait(&request);
}

static inline lt_status sum_of(const rank_case *c, int count)
{
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(count)));
    lt_status st = sum(c, t);
    lt_tensor_free(&t);
    return st;
}

/* Until the end is heard; asks for nothing of others. */
static inline lt_status idle(const rank_case *c)
{
    const int64_t none[MOST_RANKS] = {0};
    lt_request *request = NULL;
    lt_status st = LT_OK;
    while (!st)
        st = lt_comm_allgather_begin(c->comm, NULL, NULL, none, &request);
    return st;
}

#endif
