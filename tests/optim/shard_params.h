/* A decoder trained by ranks as threads, with sharded parameters or not. */
#ifndef LT_TESTS_OPTIM_SHARD_PARAMS_H
#define LT_TESTS_OPTIM_SHARD_PARAMS_H

#include "makers.h"
#include "ranks.h"
#include "tensor/tensor.h"

#include "lather/data_parallel.h"
#include "lather/detail/shard_params.h"
#include "lather/embedding_layers.h"
#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/ops.h"
#include "lather/transformer.h"

#include <string.h>

enum { RANKS = 4, STEPS = 5, MOST_BLOCKS = 12, MOST_VALUES = 1 << 15, TEXT = 256 };
enum { TOKENS = 6, WORDS = 11 }; /* most tokens of a sample; size of the vocabulary */
#define AVERAGE_DECAY 0.75

typedef struct scenario {
    make_fn *make;
    bool shard_params;
    bool unsharded; /* one rank with whole state and gradients */
    const char *kind;
    int blocks, width; /* 0: 2, 8 */
    int steps, accum;  /* 0: STEPS, 1 */
    size_t bucket_bytes;
    double clip;
    bool f64, half, communicate_params, no_overlap, no_prefetch, recompute, average;
    int bad_step;  /* step in which the last rank has a gradient that is not finite; 0: none */
    int gather_in; /* step before which all values are gathered and released; 0: none */
    bool stay_gathered;
    int tokens;         /* 0: TOKENS */
    bool whole_average; /* the average is not sharded */
    bool untied;        /* the last layer has its own matrix */
    bool swapped_order; /* the last rank reads the blocks in another order from step 4 on */
    bool late;          /* from step 2 on instead */
} scenario;

typedef struct model {
    lt_param table, head, idle; /* no pass reads idle; head: untied */
    lt_module *positions, *block[MOST_BLOCKS], *norm;
    lt_params list;
} model;

typedef struct rank_run {
    test_rank base;
    const scenario *s;
    lt_tape *tape;
    lt_data_parallel *dp;
    lt_optim *optim;
    lt_ema *ema;
    model m;
    float loss[STEPS + 8];
    double norm[STEPS + 8];
    bool applied[STEPS + 8];
    int values;
    float value[MOST_VALUES], average[MOST_VALUES];
    size_t peak;                         /* peak of tensors' memory after step 3 */
    uint64_t step_bytes;                 /* bytes sent in the last step */
    lt_shard_params_stats before, after; /* before and after the last step */
} rank_run;

/* --- The model --- */

static inline int blocks_of(const scenario *s)
{
    return s->blocks ? s->blocks : 2;
}

static inline int width_of(const scenario *s)
{
    return s->width ? s->width : 8;
}

static inline lt_status make_model(model *m, const scenario *s, lt_device *device)
{
    const int width = width_of(s);
    const lt_transformer_config c = {.width = width,
                                     .heads = 2,
                                     .causal = true,
                                     .norm = {.eps = 1e-5},
                                     .bias = true,
                                     .in_out = true,
                                     .names = LT_TRANSFORMER_GPT2};
    const lt_positions_layer positions = {.rows = TOKENS, .width = width};
    char name[TEXT];
    LT_TRY(lt_param_init(&m->idle, device, "", "idle", LT_SHAPE(3, 5), 0.25));
    LT_TRY(lt_params_add(&m->list, &m->idle));
    LT_TRY(lt_param_init(&m->table, device, "", "wte", LT_SHAPE(WORDS, width), 0));
    LT_TRY(lt_init_normal(&m->table, 0.3, 7));
    LT_TRY(lt_params_add(&m->list, &m->table));
    LT_TRY(lt_layer_positions(&m->positions, device, "wpe", positions));
    LT_TRY(lt_init_module(m->positions, 7));
    LT_TRY(lt_module_params(m->positions, &m->list));
    for (int i = 0; i < blocks_of(s); i++) {
        snprintf(name, sizeof name, "h.%d", i);
        LT_TRY(lt_layer_transformer(&m->block[i], device, name, c));
        LT_TRY(lt_init_module(m->block[i], 7));
        LT_TRY(lt_module_params(m->block[i], &m->list));
    }
    LT_TRY(lt_layer_layernorm(&m->norm, device, "ln_f", width, c.norm));
    LT_TRY(lt_module_params(m->norm, &m->list));
    if (!s->untied)
        return LT_OK;
    LT_TRY(lt_param_init(&m->head, device, "", "head", LT_SHAPE(WORDS, width), 0));
    LT_TRY(lt_init_normal(&m->head, 0.3, 7));
    return lt_params_add(&m->list, &m->head);
}

static inline void free_model(model *m)
{
    lt_params_clear(&m->list);
    lt_param_clear(&m->table);
    lt_param_clear(&m->head);
    lt_param_clear(&m->idle);
    lt_module_free(&m->positions);
    for (int i = 0; i < MOST_BLOCKS; i++)
        lt_module_free(&m->block[i]);
    lt_module_free(&m->norm);
}

static inline lt_status ids_of(rank_run *p, int t, int micro, int shift, lt_tensor **out)
{
    int32_t id[TOKENS];
    const int tokens = p->s->tokens ? p->s->tokens : TOKENS;
    for (int i = 0; i < tokens; i++) {
        const int at = 31 * t + 17 * micro + 7 * p->base.rank + 5 * (i + shift) + (i + shift) * t;
        id[i] = at % WORDS;
    }
    LT_TRY(lt_tensor_new(out, p->base.device, LT_I32, LT_SHAPE(1, tokens)));
    return lt_tensor_write(*out, id, (size_t)tokens * sizeof *id);
}

/* Returns block i, with blocks 0 and 1 swapped on request. */
static inline lt_module *block_at(const rank_run *p, int t, int i)
{
    const scenario *s = p->s;
    const bool swaps =
        s->swapped_order && p->base.rank == p->base.ranks - 1 && t >= (s->late ? 2 : 4);
    const int other = i < 2 && swaps ? 1 - i : i;
    return p->m.block[other];
}

static inline lt_tensor *forward(rank_run *p, int t, lt_tensor *ids)
{
    lt_tape *tape = p->tape;
    lt_tensor *table = lt_tape_param(tape, &p->m.table);
    lt_tensor *x = lt_embedding(tape, ids, table);
    x = lt_module_forward(p->m.positions, tape, x);
    for (int i = 0; i < blocks_of(p->s); i++) {
        lt_tensor *y = lt_module_forward(block_at(p, t, i), tape, x);
        lt_tape_drop(tape, x);
        x = y;
    }
    x = lt_module_forward(p->m.norm, tape, x);
    return lt_linear(tape, x, p->s->untied ? lt_tape_param(tape, &p->m.head) : table, NULL);
}

/* --- A run --- */

static inline lt_status pass(rank_run *p, int t, int micro, lt_tensor *ids, lt_tensor *labels)
{
    const scenario *s = p->s;
    const int accum = s->accum ? s->accum : 1;
    lt_pass train = LT_PASS_TRAIN;
    train.recompute = s->recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    lt_tape_reset(p->tape, train);
    lt_tensor *loss = lt_softmax_xent(p->tape, forward(p, t, ids), labels, 0);
    LT_TRY(lt_tape_status(p->tape));
    if (p->dp)
        lt_data_parallel_begin(p->dp, micro + 1 == accum);
    const bool bad = t == s->bad_step && p->base.rank == p->base.ranks - 1;
    LT_TRY(lt_tape_backward_by(p->tape, loss, bad ? (double)NAN : 1.0 / accum,
                               lt_optim_loss_scale(p->optim)));
    double value;
    LT_TRY(lt_tensor_item(loss, &value));
    p->loss[t] = (float)value;
    return LT_OK;
}

static inline lt_status micro_batch(rank_run *p, int t, int micro)
{
    lt_tensor *ids = NULL, *labels = NULL;
    lt_status st = ids_of(p, t, micro, 0, &ids);
    if (!st)
        st = ids_of(p, t, micro, 1, &labels);
    if (!st)
        st = pass(p, t, micro, ids, labels);
    lt_tensor_free(&ids);
    lt_tensor_free(&labels);
    return st;
}

static inline lt_status step(rank_run *p, int t)
{
    const scenario *s = p->s;
    const lt_step numbers = {.lr = 0.02, .clip_norm = s->clip, .attempt = t};
    const uint64_t before = p->base.comm ? lt_comm_bytes(p->base.comm) : 0;
    lt_step_result result;
    lt_params_zero_grad(&p->m.list);
    lt_optim_shard_params_stats(p->optim, &p->before);
    for (int i = 0; i < (s->accum ? s->accum : 1); i++)
        LT_TRY(micro_batch(p, t, i));
    if (p->dp)
        LT_TRY(lt_data_parallel_finish(p->dp));
    LT_TRY(lt_optim_step(p->optim, &numbers));
    if (p->ema)
        LT_TRY(lt_ema_update(p->ema, p->optim));
    LT_TRY(lt_optim_result(p->optim, &result));
    p->norm[t] = result.grad_norm;
    p->applied[t] = result.applied;
    p->step_bytes = (p->base.comm ? lt_comm_bytes(p->base.comm) : 0) - before;
    lt_optim_shard_params_stats(p->optim, &p->after);
    return LT_OK;
}

static inline lt_status shard_state(rank_run *p)
{
    const scenario *s = p->s;
    const lt_shard_config c = {.comm = p->base.comm,
                               .gather_params = s->communicate_params,
                               .shard_params = s->shard_params};
    const lt_shard_params_config units = {.unit_bytes = s->bucket_bytes,
                                          .no_prefetch = s->no_prefetch};
    if (s->unsharded)
        return lt_optim_shard_gradients(p->optim, NULL);
    LT_TRY(lt_optim_shard(p->optim, &c));
    LT_TRY(lt_optim_shard_gradients(p->optim, p->dp));
    if (!s->shard_params)
        return LT_OK;
    LT_TRY(lt_optim_shard_params(p->optim, p->tape, &units));
    if (p->ema && !s->whole_average)
        LT_TRY(lt_optim_shard_ema(p->optim, p->ema));
    lt_optim_release_params(p->optim);
    return LT_OK;
}

static inline lt_status open_run(rank_run *p)
{
    const scenario *s = p->s;
    const lt_data_parallel_config c = {.bucket_bytes = s->bucket_bytes,
                                       .no_overlap = s->no_overlap};
    LT_TRY(make_model(&p->m, s, p->base.device));
    LT_TRY(lt_tape_new(&p->tape, p->base.device));
    if (!s->unsharded)
        LT_TRY(lt_data_parallel_new(&p->dp, p->base.comm, &p->m.list, p->tape, &c));
    LT_TRY(s->make(&p->optim, &p->m.list));
    if (s->average)
        LT_TRY(lt_ema_new(&p->ema, &p->m.list, AVERAGE_DECAY));
    LT_TRY(shard_state(p));
    return s->half ? lt_optim_scale_loss(p->optim, &(lt_loss_scaling){1024, 2, 0.5, 4, 0}) : LT_OK;
}

static inline lt_status read_all(rank_run *p, float *to)
{
    p->values = 0;
    for (size_t i = 0; i < p->m.list.count; i++) {
        double wide[4096];
        const lt_tensor *value = p->m.list.item[i]->value;
        const int64_t count = lt_tensor_count(value);
        assert_true(count <= 4096 && p->values + count <= MOST_VALUES);
        get(value, wide);
        for (int64_t k = 0; k < count; k++)
            to[p->values++] = (float)wide[k];
    }
    return LT_OK;
}

static inline lt_status read_results(rank_run *p)
{
    LT_TRY(lt_optim_gather_params(p->optim));
    LT_TRY(read_all(p, p->value));
    if (!p->ema)
        return LT_OK;
    LT_TRY(lt_ema_swap(p->ema));
    return read_all(p, p->average);
}

static inline lt_status run(void *rank)
{
    rank_run *p = rank;
    const scenario *s = p->s;
    const int settled = 4; /* units are laid out and state is made before it */
    LT_TRY(open_run(p));
    for (int t = 1; t <= (s->steps ? s->steps : STEPS); t++) {
        if (t == s->gather_in) {
            LT_TRY(lt_optim_gather_params(p->optim));
            if (!s->stay_gathered)
                lt_optim_release_params(p->optim);
        }
        if (t == settled)
            lt_device_reset_peak(p->base.device);
        LT_TRY(step(p, t));
    }
    p->peak = lt_device_memory(p->base.device).peak;
    return s->blocks > 2 ? LT_OK : read_results(p);
}

static inline void end_run(void *rank)
{
    rank_run *p = rank;
    lt_ema_free(&p->ema);
    lt_optim_free(&p->optim);
    lt_data_parallel_free(&p->dp);
    lt_tape_free(&p->tape);
    free_model(&p->m);
}

static inline rank_group group_of(rank_run *p, int ranks, const scenario *s)
{
    return (rank_group){RANKS_OF(p, ranks),           .device = s->kind, .f64 = s->f64,
                        .without_comm = s->unsharded, .run = run,        .end = end_run};
}

static inline void run_all(rank_run *p, int ranks, const scenario *s)
{
    const rank_group g = group_of(p, ranks, s);
    memset(p, 0, (size_t)ranks * sizeof *p);
    for (int r = 0; r < ranks; r++)
        p[r].s = s;
    play_ranks(&g);
}

static inline void run_and_expect(rank_run *p, int ranks, const scenario *s)
{
    const rank_group g = group_of(p, ranks, s);
    run_all(p, ranks, s);
    expect_ranks(&g);
}

#endif
