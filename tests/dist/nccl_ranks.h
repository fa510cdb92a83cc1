/* Runs ranks of the communicator "nccl" on threads, over a fake NCCL in host memory. */
#ifndef LT_TESTS_DIST_NCCL_RANKS_H
#define LT_TESTS_DIST_NCCL_RANKS_H

#include "case_ranks.h"
#include "dist/comm/comm.h"
#include "dist/rendezvous/rendezvous.h"
#include "fake_nccl.h"

#include <stdlib.h>
#include <string.h>

static const double patience = 20;

/* One rank's thread. */
typedef struct player {
    played base;
    int size, port;
    lt_rendezvous *rendezvous; /* listening, on rank 0; NULL on the others until they join */
    fake_gpu gpu;
} player;

static inline lt_status open_rank(player *p, lt_comm **out)
{
    lt_rendezvous_config c = {.rank = p->base.at.rank,
                              .size = p->size,
                              .address = "127.0.0.1",
                              .port = p->port,
                              .timeout = patience};
    if (p->size > 1)
        LT_TRY(lt_rendezvous_join(&p->rendezvous, &c));
    const lt_nccl_start start = {p->base.at.rank, p->size, p->rendezvous};
    LT_TRY(lt_comm_allocate(out, &lt_comm_nccl, p->base.c.device));
    lt_status st = lt_nccl_open_with(*out, &fake_nccl, &p->gpu, &start);
    if (st) {
        free(*out);
        *out = NULL;
    }
    return st;
}

/* Runs the case and sets base.good. Fails if the communicator does not open. */
static inline lt_status play_one(void *context)
{
    player *p = context;
    rank_case *c = &p->base.c;
    LT_TRY(open_rank(p, &c->comm));
    p->base.good = p->base.run(c);
    lt_comm_close(&c->comm);
    return LT_OK;
}

static player players[MOST_RANKS];

/* Prepares ranks on different GPUs; a test may change that before play_all(). */
static inline void prepare(int size, case_fn *fn)
{
    lt_rendezvous_config c = {.size = size, .address = "127.0.0.1", .timeout = patience};
    int port = 0;
    memset(players, 0, sizeof players);
    if (size > 1)
        assert_ok(lt_rendezvous_listen(&players[0].rendezvous, &c, &port));
    for (int r = 0; r < size; r++) {
        player *p = &players[r];
        p->size = size;
        p->port = port;
        p->base.run = fn;
        snprintf(p->gpu.name, sizeof p->gpu.name, "GPU %d", r);
    }
    open_ranks(&(rank_group){RANKS_OF(players, size), .without_comm = true});
    for (int r = 0; r < size; r++)
        players[r].base.c.device = players[r].base.at.device;
}

/* Runs the ranks; returns the number of failed ones, and the first one's reason. */
static inline int play_all(int size, char *why, size_t bytes)
{
    const rank_group g = {RANKS_OF(players, size), .run = play_one};
    int bad = 0;
    run_ranks(&g);
    close_ranks(&g);
    for (int r = 0; r < size; r++) {
        const played *p = &players[r].base;
        if ((p->at.status || !p->good) && bad++ == 0)
            snprintf(why, bytes, "%.*s", (int)bytes - 1, p->at.status ? p->at.message : p->c.why);
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

/* Makes empty calls, which involve no other rank, until one fails; returns its status. */
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
