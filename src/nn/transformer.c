/* A pre-norm transformer block: x = x + attention(norm1(x)), y = x + mlp(norm2(x)). Xiong et al., "On layer
 * normalization in the transformer architecture", ICML 2020, figure 1 (b). */

#include "lather/transformer.h"

#include "nn/attention.h"
#include "nn/layer.h"
#include "nn/mlp.h"

#include "lather/ext/op.h"
#include "lather/ops.h"

enum { MLP_RATIO = 4 }; /* Vaswani et al. 2017, section 3.3 */

typedef struct block {
    lt_module base;
    lt_module *norm1, *attention, *norm2, *mlp; /* owned */
    double dropout, drop_path;
    int width;
    bool causal;
    const lt_tensor_parallel *parallel;
} block;

/* Returns x + branch, with stochastic depth on the branch, which is dropped from memory. */
static lt_tensor *add_branch(const block *b, lt_tape *tape, lt_tensor *x, lt_tensor *branch,
                             lt_token_rows rows)
{
    const lt_parallel_noise where = {b->parallel, rows, b->width, false};
    lt_tensor *kept = lt_parallel_drop_path(tape, branch, b->drop_path, where);
    if (kept != branch)
        lt_tape_drop(tape, branch);
    lt_tensor *y = lt_add(tape, x, kept);
    lt_tape_drop(tape, kept);
    return y;
}

static lt_tensor *run_attention(const block *b, lt_tape *tape, lt_tensor *x, lt_attention_run run)
{
    lt_tensor *h = lt_module_forward(b->norm1, tape, x);
    lt_tensor *a = lt_attention_layer_run(b->attention, tape, h, run);
    lt_tape_drop(tape, h);
    if (run.first)
        run.rows.tokens = 1;
    const lt_parallel_noise where = {b->parallel, run.rows, b->width, false};
    lt_tensor *y = lt_parallel_dropout(tape, a, b->dropout, where);
    if (y != a)
        lt_tape_drop(tape, a);
    return y;
}

/* Returns the first row of each sample, from sequences or from a matrix of this rank's rows. */
static lt_tensor *first_rows(const block *b, lt_tape *tape, lt_tensor *x, lt_token_rows rows)
{
    const int64_t before = lt_tape_op_counter(tape);
    if (!lt_parallel_shards_rows(b->parallel))
        return lt_slice(tape, x, 1, 0, 1);
    lt_tensor *y = lt_parallel_first_rows(tape, x, b->parallel, rows);
    lt_tape_set_op_counter(tape, before + 1);
    return y;
}

static lt_tensor *run_block(const block *b, lt_tape *tape, lt_tensor *x, lt_attention_run run)
{
    lt_tensor *a = run_attention(b, tape, x, run);
    lt_tensor *skip = run.first ? first_rows(b, tape, x, run.rows) : x;
    if (run.first)
        run.rows.tokens = 1;
    lt_tensor *y = add_branch(b, tape, skip, a, run.rows);
    if (skip != x)
        lt_tape_drop(tape, skip);
    lt_tensor *h = lt_module_forward(b->norm2, tape, y);
    lt_tensor *m = lt_mlp_forward_rows(b->mlp, tape, h, run.rows);
    lt_tape_drop(tape, h);
    lt_tensor *z = add_branch(b, tape, y, m, run.rows);
    lt_tape_drop(tape, y);
    return z;
}

static lt_status reject_sharded_rows(const block *b)
{
    return lt_parallel_shards_rows(b->parallel)
               ? lt_fail(LT_E_ARG, "transformer: rows are sharded; call "
                                   "lt_transformer_forward_rows(), which takes their number")
               : LT_OK;
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    const block *b = (block *)self;
    lt_status st = reject_sharded_rows(b);
    return st ? lt_tape_fail(tape, st) : run_block(b, tape, x, (lt_attention_run){0});
}

static lt_status params(lt_module *self, lt_params *list)
{
    const block *b = (block *)self;
    LT_TRY(lt_module_params(b->norm1, list));
    LT_TRY(lt_module_params(b->attention, list));
    LT_TRY(lt_module_params(b->norm2, list));
    return lt_module_params(b->mlp, list);
}

static void destroy(lt_module *self)
{
    block *b = (block *)self;
    lt_module_free(&b->norm1);
    lt_module_free(&b->attention);
    lt_module_free(&b->norm2);
    lt_module_free(&b->mlp);
}

static const lt_module_ops ops = {
    .kind = "transformer",
    .bytes = sizeof(block),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

lt_tensor *lt_transformer_forward_first(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    LT_ASSERT(module->ops == &ops);
    const block *b = (block *)module;
    lt_status st = reject_sharded_rows(b);
    return st ? lt_tape_fail(tape, st) : run_block(b, tape, x, (lt_attention_run){.first = true});
}

lt_tensor *lt_transformer_forward_rows(lt_module *module, lt_tape *tape, lt_tensor *x,
                                       lt_token_rows rows)
{
    LT_ASSERT(module->ops == &ops);
    return run_block((block *)module, tape, x, (lt_attention_run){.rows = rows});
}

lt_tensor *lt_transformer_forward_first_rows(lt_module *module, lt_tape *tape, lt_tensor *x,
                                             lt_token_rows rows)
{
    LT_ASSERT(module->ops == &ops);
    return run_block((block *)module, tape, x, (lt_attention_run){.first = true, .rows = rows});
}

lt_tensor *lt_transformer_forward_cached(lt_module *module, lt_tape *tape, lt_tensor *x,
                                         lt_kv_cache *cache, int layer)
{
    LT_ASSERT(module->ops == &ops);
    const block *b = (block *)module;
    if (!b->causal)
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "transformer: a cache needs a causal block"));
    if (b->parallel)
        return lt_tape_fail(tape, lt_fail(LT_E_UNSUPPORTED, "transformer: a cache does not support "
                                                            "sharded blocks"));
    return run_block(b, tape, x, (lt_attention_run){.cache = cache, .layer = layer});
}

static lt_status make_norm(lt_module **out, lt_device *device, const char *name, const char *leaf,
                           const lt_transformer_config *c)
{
    char path[LT_LAYER_NAME];
    LT_TRY(lt_layer_join_path(path, name, leaf));
    return lt_layer_norm_parallel(out, device, path, c->width, c->norm, c->parallel);
}

static lt_status make_layers(block *b, lt_device *device, const char *name,
                             const lt_transformer_config *c)
{
    const lt_transformer_names *n = &c->names;
    const lt_attention_layer attention = {.width = c->width,
                                          .heads = c->heads,
                                          .kv_heads = c->kv_heads,
                                          .causal = c->causal,
                                          .bias = c->bias,
                                          .in_out = c->in_out,
                                          .rotary = c->rotary,
                                          .scale = c->attention_scale,
                                          .qkv_weight = n->qkv_weight,
                                          .qkv_bias = n->qkv_bias,
                                          .out = n->out,
                                          .parallel = c->parallel};
    const lt_mlp_layer mlp = {.width = c->width,
                              .hidden = c->hidden,
                              .kind = c->mlp,
                              .bias = c->bias,
                              .in_out = c->in_out,
                              .dropout = c->dropout,
                              .up = n->up,
                              .gate = n->gate,
                              .down = n->down,
                              .parallel = c->parallel};
    LT_TRY(make_norm(&b->norm1, device, name, n->norm1, c));
    LT_TRY(lt_layer_attention(&b->attention, device, name, attention));
    LT_TRY(make_norm(&b->norm2, device, name, n->norm2, c));
    return lt_layer_mlp(&b->mlp, device, name, mlp);
}

static lt_status check_config(const char *name, const lt_transformer_config *c)
{
    if (!(c->drop_path >= 0 && c->drop_path < 1))
        return lt_fail(LT_E_ARG, "transformer %s: drop_path is %g, want a number in [0,1)", name,
                       c->drop_path);
    if (c->width < 1 || c->hidden < 1)
        return lt_fail(LT_E_ARG, "transformer %s: width %d, hidden %d; both must be >= 1", name,
                       c->width, c->hidden);
    return LT_OK;
}

/* Checks that the ranks of a row divide the heads. */
static lt_status check_heads(const char *name, const char *what, int heads, int ranks)
{
    const int below = heads / ranks * ranks;
    if (heads % ranks == 0)
        return LT_OK;
    if (below)
        return lt_fail(LT_E_ARG, "%s: %d %s are not divisible by %d ranks; use %d or %d", name,
                       heads, what, ranks, below, below + ranks);
    return lt_fail(LT_E_ARG, "%s: %d %s are not divisible by %d ranks; use %d", name, heads, what,
                   ranks, ranks);
}

lt_status lt_transformer_check_parallel(const char *name, const lt_transformer_config *c)
{
    const lt_tensor_parallel *p = c->parallel;
    const int hidden = c->hidden ? c->hidden : MLP_RATIO * c->width;
    const int kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    if (!p)
        return LT_OK;
    const int ranks = p->row->size;
    LT_TRY(check_heads(name, "heads", c->heads, ranks));
    LT_TRY(check_heads(name, "heads of k and v", kv_heads, ranks));
    if (hidden < ranks)
        return lt_fail(LT_E_ARG, "%s: %d hidden features of the MLP are fewer than %d ranks", name,
                       hidden, ranks);
    if (p->column && kv_heads != c->heads)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: %d heads with %d of k and v are not supported on grids; use one "
                       "dimension of ranks",
                       name, c->heads, kv_heads);
    return LT_OK;
}

lt_status lt_layer_transformer(lt_module **out, lt_device *device, const char *name,
                               lt_transformer_config config)
{
    static const lt_transformer_names usual = LT_TRANSFORMER_TORCHVISION;
    lt_module *m = NULL;
    if (!config.hidden)
        config.hidden = MLP_RATIO * config.width;
    if (!config.names.norm1)
        config.names = usual;
    LT_TRY(check_config(name, &config));
    LT_TRY(lt_transformer_check_parallel(name, &config));
    LT_TRY(lt_module_new(&m, &ops));
    block *b = (block *)m;
    b->dropout = config.dropout;
    b->drop_path = config.drop_path;
    b->width = config.width;
    b->causal = config.causal;
    b->parallel = config.parallel;
    lt_status st = make_layers(b, device, name, &config);
    return lt_layer_finish_construction(out, m, st);
}
