/* Ranks as threads that shard an optimizer's state, each with its own device, model and optimizer. */
#ifndef LT_TESTS_OPTIM_STATE_RANKS_H
#define LT_TESTS_OPTIM_STATE_RANKS_H

#include "makers.h"
#include "ranks.h"

#include "lather/detail/topology.h"
#include "lather/ext/fail.h"
#include "lather/shard.h"

enum { PARAMS = 3, MOST = 48, RANKS = 8, STEPS = 6 };

static const char *const names[PARAMS] = {"matrix", "kernel", "bias"};
static const lt_shape shapes[PARAMS] = {
    {2, {5, 7}}, {4, {4, 3, 2, 2}}, {1, {6}}}; /* the second is channels-last */

/* A run, the same on each rank. */
typedef struct scenario {
    make_fn *make;
    lt_shard_config config; /* comm is set per rank */
    int ranks_per_node;     /* gathered in two levels, if it divides the ranks; 0: in one */
    bool f64;
    bool unsharded;
    const char *kind;                           /* name of the backend; NULL: ref */
    lt_status (*before)(fixture *f, int rank);  /* called before step 1; may be NULL */
    lt_status (*spoil)(fixture *f, int rank);   /* called with step 1's gradients; may be NULL */
    lt_status (*between)(fixture *f, int rank); /* called before step 4; may be NULL */
} scenario;

typedef struct rank_run {
    test_rank base;
    const scenario *scenario;
    fixture f;
    double values[PARAMS][MOST];
    lt_shard_load load;
    size_t state_bytes;
    uint64_t bytes; /* bytes sent in the last step */
} rank_run;

static inline void open_model(fixture *f, const scenario *s)
{
    double start[MOST];
    *f = (fixture){0};
    const lt_device_config config = {.f64 = s->f64, .threads = 1};
    assert_ok(lt_device_open(&f->device, s->kind ? s->kind : "ref", &config));
    for (int i = 0; i < MOST; i++)
        start[i] = (i % 2 ? -0.1 : 0.1) * (i + 1);
    for (int k = 0; k < PARAMS; k++)
        put(fixture_add(f, names[k], shapes[k])->value, start);
    assert_ok(s->make(&f->optim, &f->list));
}

/* No gradients in step 3, only the first in step 4, a NaN in step 5. */
static inline void set_gradients(fixture *f, int t)
{
    double g[MOST];
    for (int k = 0; k < PARAMS; k++) {
        for (int i = 0; i < MOST; i++)
            g[i] = sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i);
        g[2] = t == 5 && k == 1 ? (double)NAN : g[2];
        put_grad(&f->param[k], g);
        f->param[k].has_grad = t != 3 && (t != 4 || k == 0);
    }
}

static inline lt_status all_steps(rank_run *p)
{
    const scenario *s = p->scenario;
    for (int t = 1; t <= STEPS; t++) {
        if (t == 1 && s->before)
            LT_TRY(s->before(&p->f, p->base.rank));
        if (t == 4 && s->between)
            LT_TRY(s->between(&p->f, p->base.rank));
        set_gradients(&p->f, t);
        if (t == 1 && s->spoil)
            LT_TRY(s->spoil(&p->f, p->base.rank));
        const lt_step step = {.lr = 0.05, .clip_norm = 5, .attempt = t};
        const uint64_t before = p->base.comm ? lt_comm_bytes(p->base.comm) : 0;
        LT_TRY(lt_optim_step(p->f.optim, &step));
        p->bytes = p->base.comm ? lt_comm_bytes(p->base.comm) - before : 0;
    }
    return LT_OK;
}

static inline lt_status gather_in_two_levels(const rank_run *p)
{
    const int per_node = p->scenario->ranks_per_node;
    lt_nodes nodes;
    LT_TRY(lt_comm_nodes(&nodes, p->base.comm, p->base.ranks % per_node ? 1 : per_node));
    const lt_status st = lt_optim_shard_two_level(p->f.optim, &nodes);
    lt_nodes_clear(&nodes);
    return st;
}

static inline lt_status run(void *rank)
{
    rank_run *p = rank;
    if (!p->scenario->unsharded) {
        lt_shard_config c = p->scenario->config;
        c.comm = p->base.comm;
        LT_TRY(lt_optim_shard(p->f.optim, &c));
        if (p->scenario->ranks_per_node)
            LT_TRY(gather_in_two_levels(p));
        int size = c.group ? c.group : p->base.ranks;
        LT_TRY(lt_optim_shard_load(p->f.optim, p->base.rank % size, &p->load));
    }
    LT_TRY(all_steps(p));
    p->state_bytes = lt_optim_state_bytes(p->f.optim);
    return LT_OK;
}

static inline void end_run(void *rank)
{
    lt_optim_free(&((rank_run *)rank)->f.optim); /* collective if there are groups */
}

/* If not 0: number of the allocation that fails, counted over all ranks once they run. */
static int64_t fail_at;

static inline void run_all(rank_run *p, int ranks, const scenario *s)
{
    const rank_group g = {RANKS_OF(p, ranks), .fail_at = fail_at, .run = run, .end = end_run};
    for (int r = 0; r < ranks; r++) {
        p[r] = (rank_run){.scenario = s};
        open_model(&p[r].f, s);
        p[r].base.device = p[r].f.device;
    }
    open_ranks(&g);
    run_ranks(&g);
    fail_at = 0;
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < PARAMS; k++)
            get(p[r].f.param[k].value, p[r].values[k]);
    close_ranks(&g);
    for (int r = 0; r < ranks; r++)
        fixture_close(&p[r].f);
}

/* The same steps with unsharded state. */
static inline void run_unsharded(rank_run *p, const scenario *s)
{
    scenario alone = *s;
    alone.unsharded = true;
    *p = (rank_run){.scenario = &alone, .base.ranks = 1};
    open_model(&p->f, &alone);
    assert_ok(run(p));
    for (int k = 0; k < PARAMS; k++)
        get(p->f.param[k].value, p->values[k]);
    fixture_close(&p->f);
}

static inline double max_difference(const rank_run *a, const rank_run *b)
{
    double most = 0;
    for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < lt_shape_count(shapes[k]); i++) {
            double d = fabs(a->values[k][i] - b->values[k][i]);
            most = d <= most ? most : d; /* keeps a NaN */
        }
    return most;
}

#endif
