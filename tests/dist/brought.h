/* Data-parallel updates of given gradients, on ranks that are threads. */
#ifndef LT_TESTS_DIST_BROUGHT_H
#define LT_TESTS_DIST_BROUGHT_H

#include "base/rng.h"
#include "dist/topology.h"
#include "doubles.h"
#include "ranks.h"

#include "lather/data_parallel.h"
#include "lather/detail/topology.h"

enum { RANKS = 4, MOST_WORLDS = 8, PARAMS = 5, MOST = 512, UPDATES = 40, TEXT = 256 };
enum { MATRIX, FILTER, VECTOR, SMALL, TALL };

static const char *const names[PARAMS] = {"matrix", "filter", "vector", "small", "tall"};
static const lt_shape shapes[PARAMS] = {
    {2, {12, 10}}, {4, {6, 4, 3, 3}}, {1, {7}}, {2, {2, 2}}, {2, {31, 5}}};
enum { COMPRESSED = 3 };
static const int compressed[COMPRESSED] = {MATRIX, FILTER, TALL};

/* --- Ranks --- */

typedef struct world {
    test_rank at;
    const struct scene *scene;
    lt_tape *tape;
    lt_param param[PARAMS];
    lt_params params;
    lt_nodes nodes;
    lt_data_parallel *dp;
    double mean[PARAMS][MOST]; /* result of the last update */
    bool has_grad[PARAMS];     /* false: its gradient is absent */
    double trace[UPDATES];     /* results that a scene's play() records */
    double state[2 * COMPRESSED][MOST * 2];
    lt_reducer_bytes sent;
} world;

typedef lt_status play_fn(world *w);

typedef struct scene {
    const char *name;
    play_fn *play;
    const char *compress;
    bool f64;
    lt_dtype dtype;
    size_t bucket_bytes;
    double scale;        /* loss scale; 0: 1 */
    int ranks_per_node;  /* 0: nodes are unknown */
    const char *of_node; /* node of each rank, a character each; NULL: ranks_per_node */
    const char *allreduce;
    int needed;      /* participating ranks; 0: all */
    double deadline; /* seconds for a collective; 0: the default */
    int64_t micro_batches;
    bool sync_bn;
} scene;

static int64_t count_of(int k)
{
    return lt_shape_count(shapes[k]);
}

/* Returns the element offset of a parameter in the concatenation of all. */
static inline int64_t start_of(int param)
{
    int64_t at = 0;
    for (int k = 0; k < param; k++)
        at += count_of(k);
    return at;
}

static inline double number(const char *name, int64_t i)
{
    lt_rng rng = {.key = lt_rng_name_key((uint64_t)i, LT_STREAM_INIT, name)};
    return lt_rng_uniform(&rng) - 0.5;
}

/* Returns an element of gradient k: a multiple of 1/64, exact in bf16, as are means of 4 of them. */
static inline double random_gradient(int rank, int t, int k, int64_t i)
{
    return floor(64 * number(names[k], ((int64_t)rank * 1000 + t) * MOST + i)) / 64;
}

/* Sets gradient k; values NULL: this rank has no gradient. */
static inline lt_status bring(world *w, int k, const double *values)
{
    w->param[k].has_grad = values != NULL;
    return values ? write_doubles(w->param[k].grad, values) : LT_OK;
}

static inline lt_status bring_random(world *w, int t)
{
    double g[MOST];
    for (int k = 0; k < PARAMS; k++) {
        for (int64_t i = 0; i < count_of(k); i++)
            g[i] = random_gradient(w->at.rank, t, k, i);
        LT_TRY(bring(w, k, g));
    }
    return LT_OK;
}

/* Makes an update. */
static inline lt_status average(world *w, bool applied)
{
    lt_data_parallel_begin(w->dp, true);
    LT_TRY(lt_data_parallel_finish(w->dp));
    for (int k = 0; k < PARAMS; k++) {
        w->has_grad[k] = w->param[k].has_grad;
        if (w->has_grad[k])
            LT_TRY(read_doubles(w->param[k].grad, w->mean[k]));
    }
    return lt_data_parallel_commit(w->dp, applied);
}

static inline lt_status find_nodes(world *w)
{
    const scene *s = w->scene;
    const char host[2] = {s->of_node ? s->of_node[w->at.rank] : 0};
    if (w->nodes.of)
        return LT_OK;
    if (s->of_node)
        return lt_comm_nodes_on_host(&w->nodes, w->at.comm, "", host);
    return s->ranks_per_node ? lt_comm_nodes(&w->nodes, w->at.comm, s->ranks_per_node) : LT_OK;
}

static inline lt_status open_dp(world *w)
{
    const scene *s = w->scene;
    LT_TRY(find_nodes(w));
    if (s->deadline > 0)
        lt_comm_set_deadline(w->at.comm, s->deadline);
    const lt_data_parallel_config c = {.nodes = w->nodes.of ? &w->nodes : NULL,
                                       .allreduce = s->allreduce,
                                       .bucket_bytes = s->bucket_bytes,
                                       .dtype = s->dtype,
                                       .compress = s->compress,
                                       .needed = s->needed,
                                       .micro_batches = s->micro_batches,
                                       .sync_bn = s->sync_bn};
    return lt_data_parallel_new(&w->dp, w->at.comm, &w->params, w->tape, &c);
}

static inline lt_status run(void *context)
{
    world *w = context;
    for (int k = 0; k < PARAMS; k++) {
        LT_TRY(shapes[k].ndim == 4
                   ? lt_param_init_filter(&w->param[k], w->at.device, "", names[k], shapes[k])
                   : lt_param_init(&w->param[k], w->at.device, "", names[k], shapes[k], 0));
        LT_TRY(lt_params_add(&w->params, &w->param[k]));
    }
    LT_TRY(lt_tape_new(&w->tape, w->at.device));
    LT_TRY(open_dp(w));
    LT_TRY(w->scene->play(w));
    lt_data_parallel_bytes_sent(w->dp, &w->sent);
    return LT_OK;
}

static inline void finish(void *context)
{
    world *w = context;
    lt_data_parallel_free(&w->dp);
    lt_nodes_clear(&w->nodes);
    lt_tape_free(&w->tape);
    lt_params_clear(&w->params);
    for (int k = 0; k < PARAMS; k++)
        lt_param_clear(&w->param[k]);
}

/* Plays the scene; the returned worlds of the ranks are valid until the next call. */
static inline world *play(const scene *s, int ranks)
{
    static world w[MOST_WORLDS];
    memset(w, 0, sizeof w);
    for (int r = 0; r < ranks; r++)
        w[r].scene = s;
    play_ranks(&(rank_group){RANKS_OF(w, ranks), .device = s->f64 ? "ref" : "cpu", .f64 = s->f64,
                             .same_refusal = true, .run = run, .end = finish});
    return w;
}

static inline world *play_well(const scene *s, int ranks)
{
    world *w = play(s, ranks);
    expect_ranks(&(rank_group){RANKS_OF(w, ranks)});
    return w;
}

/* --- State --- */

typedef struct shown {
    world *w;
    bool load, without_q, without_residual;
    int entries;
} shown;

/* Returns the buffer of a state entry: error feedback, then Q, of the compressed parameters. */
static inline double *place_of(world *w, const lt_state_entry *e)
{
    for (int i = 0; i < COMPRESSED; i++)
        if (!strcmp(e->param, names[compressed[i]]))
            return w->state[i + (e->name[0] == 'p' ? COMPRESSED : 0)];
    return NULL;
}

static inline lt_status see(void *context, const lt_state_entry *e)
{
    shown *s = context;
    double *place = place_of(s->w, e);
    s->entries++;
    if (!place || e->block != -1)
        return lt_fail(LT_E_ARG, "%s of %s", e->name, e->param);
    if (!e->tensor)
        return LT_OK;
    if (!s->load)
        return read_doubles(e->tensor, place);
    if (e->name[0] == 'p' ? s->without_q : s->without_residual)
        return LT_OK;
    return write_doubles(e->tensor, place);
}

static inline lt_status visit(world *w, shown *s)
{
    s->w = w;
    lt_state_visitor v = {.entry = see, .context = s};
    return lt_data_parallel_visit(w->dp, &v);
}

/* Returns the sum over ranks of the error feedback of compressed parameter i. */
static inline double residual_sum(const world *w, int ranks, int i, int64_t element)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += w[r].state[i][element];
    return sum;
}

#endif
