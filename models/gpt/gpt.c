/* GPT-2: construction, forward pass, initial values.
 * Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3. */

#include "gpt.h"

#include "lather/embedding_layers.h"
#include "lather/ext/module.h"
#include "lather/init.h"
#include "lather/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 32 };
static const double norm_eps = 1e-5;       /* GPT-2's */
static const double rotary_base = 10000.0; /* Su et al., "RoFormer", 2021, section 3.2.2 */

typedef struct gpt {
    lt_module base;
    lt_param tokens; /* [vocabulary,width]: embeddings, and weights of the last layer */
    lt_module *positions, **block, *norm; /* owned; positions NULL: rotary ones */
    lt_gpt_config config;                 /* resolved */
} gpt;

/* Runs one layer and drops its input. */
static lt_tensor *run_and_drop_input(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *y = lt_module_forward(module, tape, x);
    lt_tape_drop(tape, x);
    return y;
}

/* Adds learned positions. first: the position of the first id. */
static lt_tensor *add_positions(gpt *g, lt_tape *tape, lt_tensor *x, int64_t first,
                                lt_token_rows rows)
{
    if (!g->positions)
        return x;
    lt_tensor *sum = lt_parallel_shards_rows(g->config.parallel)
                         ? lt_positions_forward_rows(g->positions, tape, x, rows)
                         : lt_positions_forward(g->positions, tape, x, first);
    lt_tape_drop(tape, x);
    return sum;
}

static lt_tensor *embed(gpt *g, lt_tape *tape, lt_tensor *ids, lt_tensor *table, int64_t first)
{
    const lt_gpt_config *c = &g->config;
    const lt_shape s = ids ? lt_tensor_shape(ids) : LT_SHAPE(1, 1);
    const lt_token_rows rows = lt_parallel_rows(c->parallel, s.dim[0], s.dim[1]);
    const lt_parallel_embedding embedding = {c->parallel, rows, c->vocabulary, c->width};
    lt_tensor *x = lt_parallel_embedding_run(tape, ids, table, embedding);
    x = add_positions(g, tape, x, first, rows);
    const lt_parallel_noise where = {c->parallel, rows, c->width, false};
    lt_tensor *y = lt_parallel_dropout(tape, x, c->dropout, where);
    if (y != x)
        lt_tape_drop(tape, x);
    return y;
}

/* Computes the logits; the embedding table is also the weight matrix of the last layer. */
static lt_tensor *compute_logits(const gpt *g, lt_tape *tape, lt_tensor *x, lt_tensor *table,
                                 lt_token_rows rows)
{
    const lt_gpt_config *c = &g->config;
    const lt_parallel_linear linear = {.parallel = c->parallel,
                                       .division = LT_COLUMN_PARALLEL,
                                       .in = c->width,
                                       .out = c->vocabulary,
                                       .rows = rows.sequences * rows.tokens};
    lt_tensor *y = lt_parallel_linear_run(tape, x, table, NULL, linear);
    if (!y || !lt_parallel_shards_rows(c->parallel))
        return y;
    return lt_reshape(tape, y, LT_SHAPE(-1, rows.tokens, lt_tensor_shape(y).dim[1]));
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *ids)
{
    gpt *g = (gpt *)self;
    const lt_shape s = ids ? lt_tensor_shape(ids) : LT_SHAPE(1, 1);
    const lt_token_rows rows = lt_parallel_rows(g->config.parallel, s.dim[0], s.dim[1]);
    lt_tensor *table = lt_tape_param(tape, &g->tokens);
    lt_tensor *x = embed(g, tape, ids, table, 0);
    for (int i = 0; i < g->config.layers; i++) {
        lt_tensor *y = lt_transformer_forward_rows(g->block[i], tape, x, rows);
        lt_tape_drop(tape, x);
        x = y;
    }
    x = run_and_drop_input(g->norm, tape, x);
    return compute_logits(g, tape, x, table, rows);
}

/* Returns the last row of each sequence, [N,1,width]. */
static lt_tensor *last_row(lt_tape *tape, lt_tensor *x)
{
    const int64_t rows = x ? lt_tensor_shape(x).dim[1] : 0;
    if (rows == 1)
        return x;
    lt_tensor *y = lt_slice(tape, x, 1, rows - 1, 1);
    lt_tape_drop(tape, x);
    return y;
}

lt_tensor *lt_gpt_forward_cached(lt_module *module, lt_tape *tape, lt_tensor *ids,
                                 lt_kv_cache *cache)
{
    gpt *g = (gpt *)module;
    if (g->config.parallel)
        return lt_tape_fail(
            tape, lt_fail(LT_E_UNSUPPORTED, "gpt: a sharded model does not sample with a cache"));
    lt_tensor *table = lt_tape_param(tape, &g->tokens);
    lt_tensor *x = embed(g, tape, ids, table, lt_kv_cache_count(cache, 0));
    for (int i = 0; i < g->config.layers; i++) {
        lt_tensor *y = lt_transformer_forward_cached(g->block[i], tape, x, cache, i);
        lt_tape_drop(tape, x);
        x = y;
    }
    x = run_and_drop_input(g->norm, tape, last_row(tape, x));
    return lt_linear(tape, x, table, NULL);
}

static lt_status params(lt_module *self, lt_params *list)
{
    gpt *g = (gpt *)self;
    LT_TRY(lt_params_add(list, &g->tokens));
    if (g->positions)
        LT_TRY(lt_module_params(g->positions, list));
    for (int i = 0; i < g->config.layers; i++)
        LT_TRY(lt_module_params(g->block[i], list));
    return lt_module_params(g->norm, list);
}

static void destroy(lt_module *self)
{
    gpt *g = (gpt *)self;
    lt_param_clear(&g->tokens);
    lt_module_free(&g->positions);
    for (int i = 0; g->block && i < g->config.layers; i++)
        lt_module_free(&g->block[i]);
    free(g->block);
    lt_module_free(&g->norm);
}

static const lt_module_ops ops = {
    .kind = "gpt",
    .bytes = sizeof(gpt),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

lt_status lt_gpt_new_cache(lt_kv_cache **out, const lt_module *module, lt_device *device,
                           int64_t batch, int64_t capacity)
{
    const lt_gpt_config *c = &((const gpt *)module)->config;
    if (!c->rotary && capacity > c->positions)
        return lt_fail(LT_E_ARG, "gpt: a cache for %lld tokens; the model has %d positions",
                       (long long)capacity, c->positions);
    const lt_kv_cache_config cache = {.layers = c->layers,
                                      .batch = batch,
                                      .capacity = capacity,
                                      .width = c->width / c->heads * c->kv_heads,
                                      .dtype = lt_device_master_dtype(device)};
    return lt_kv_cache_new(out, device, cache);
}

static lt_transformer_config block_config(const lt_gpt_config *c)
{
    return (lt_transformer_config){.width = c->width,
                                   .heads = c->heads,
                                   .kv_heads = c->kv_heads,
                                   .hidden = c->hidden,
                                   .causal = true,
                                   .norm = {.eps = norm_eps, .rms = c->rms},
                                   .mlp = c->mlp,
                                   .rotary = c->rotary ? rotary_base : 0,
                                   .bias = true,
                                   .in_out = true,
                                   .attention_scale = c->attention_scale,
                                   .dropout = c->dropout,
                                   .names = LT_TRANSFORMER_GPT2,
                                   .parallel = c->parallel};
}

static lt_status make_blocks(gpt *g, lt_device *device)
{
    const lt_gpt_config *c = &g->config;
    const lt_transformer_config block = block_config(c);
    g->block = calloc((size_t)c->layers, sizeof *g->block);
    if (!g->block)
        return lt_fail(LT_E_NOMEM, "gpt: no memory for %d blocks", c->layers);
    for (int i = 0; i < c->layers; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "h.%d", i);
        LT_TRY(lt_layer_transformer(&g->block[i], device, name, block));
    }
    return LT_OK;
}

static lt_status make_embedding_table(gpt *g, lt_device *device)
{
    const lt_gpt_config *c = &g->config;
    const lt_shape shape = LT_SHAPE(c->vocabulary, c->width);
    const lt_shard_spec spec = lt_parallel_shard_spec(c->parallel, shape, shape,
                                                      (lt_parallel_dims){0, 1}, LT_COLUMN_PARALLEL);
    LT_TRY(lt_param_init(&g->tokens, device, "wte", "weight", lt_parallel_shape(&spec), 0));
    if (!lt_shard_spec_is_whole(&spec))
        LT_TRY(lt_param_set_shard_spec(&g->tokens, &spec));
    g->tokens.fan_in = g->tokens.fan_out = 0; /* a table, although it is the last layer, too */
    return LT_OK;
}

static lt_status make_layers(gpt *g, lt_device *device)
{
    const lt_gpt_config *c = &g->config;
    const lt_positions_layer positions = {
        .rows = c->positions, .width = c->width, .parallel = c->parallel};
    const lt_layernorm_config norm = {.eps = norm_eps, .rms = c->rms};
    LT_TRY(make_embedding_table(g, device));
    if (!c->rotary)
        LT_TRY(lt_layer_positions(&g->positions, device, "wpe", positions));
    LT_TRY(make_blocks(g, device));
    return lt_layer_norm_parallel(&g->norm, device, "ln_f", c->width, norm, c->parallel);
}

/* Initializes with normal numbers of deviation 0.02, smaller for layers that end a branch, as many of these are
 * summed. */
static lt_status initialise_param(const gpt *g, lt_param *p)
{
    const double deviation = 0.02;
    const char *end = ".c_proj.weight";
    const size_t length = strlen(p->name), tail = strlen(end);
    if (p->role != LT_PARAM_WEIGHT)
        return LT_OK;
    const bool ends_branch = length > tail && !strcmp(p->name + length - tail, end);
    return lt_init_normal(p, ends_branch ? deviation / sqrt(2.0 * g->config.layers) : deviation,
                          g->config.seed);
}

static lt_status initialise_all(lt_module *module)
{
    lt_params list = {0};
    lt_status st = lt_module_params(module, &list);
    for (size_t i = 0; i < list.count && !st; i++)
        st = initialise_param((gpt *)module, list.item[i]);
    lt_params_clear(&list);
    return st;
}

lt_status lt_gpt_check_parallel(const lt_gpt_config *config, int64_t batch)
{
    lt_gpt_config c = *config;
    LT_TRY(lt_gpt_resolve(&c));
    if (!c.parallel)
        return LT_OK;
    const lt_transformer_config block = block_config(&c);
    LT_TRY(lt_transformer_check_parallel("gpt", &block));
    if (c.vocabulary < c.parallel->row->size)
        return lt_fail(LT_E_ARG, "gpt: a vocabulary of %d is smaller than %d ranks", c.vocabulary,
                       c.parallel->row->size);
    return lt_parallel_check_batch("gpt", c.parallel, batch);
}

lt_status lt_gpt_new(lt_module **out, lt_device *device, const lt_gpt_config *config)
{
    lt_gpt_config c = *config;
    LT_TRY(lt_gpt_resolve(&c));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    ((gpt *)m)->config = c;
    lt_status st = make_layers((gpt *)m, device);
    if (!st && !c.is_loaded)
        st = initialise_all(m);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    *out = m;
    return LT_OK;
}
