/* Self-attention with packed projections: y = out(attention(qkv(x))). Vaswani et al., "Attention is all you
 * need", NeurIPS 2017, section 3.2. */

#include "nn/attention.h"

#include "nn/kv_cache.h"
#include "nn/layer.h"
#include "nn/linear.h"

#include "lather/ext/op.h"
#include "lather/ops.h"

typedef struct attention {
    lt_module base;
    /* Config of this rank's heads. Its names are NULL, as the caller owns them. */
    lt_attention_layer config;
    lt_parallel_linear packed; /* projection of q, k and v, for all ranks */
    lt_attention_layer whole;  /* with heads and kv_heads of all ranks */
    lt_param weight, bias;     /* q, k and v packed; bias.value is NULL if absent */
    lt_module *out;            /* owned */
} attention;

static int kv_width(const lt_attention_layer *c)
{
    return c->kv_heads * (c->width / c->heads);
}

/* Returns true if each rank keeps the whole parameter and slices its heads: in one dimension, fewer heads of k
 * and v than of q do not form one rectangular shard. */
static bool must_slice_heads(const attention *a)
{
    const lt_tensor_parallel *p = a->whole.parallel;
    return p && p->row->size > 1 && a->whole.kv_heads != a->whole.heads;
}

static lt_tensor *slice_own_heads(const attention *a, lt_tape *tape, lt_tensor *w, int dim)
{
    const lt_attention_layer *all = &a->whole, *own = &a->config;
    const int64_t d = all->width / all->heads, rank = all->parallel->row->rank;
    const int64_t q = (int64_t)own->heads * d, k = (int64_t)own->kv_heads * d;
    const int64_t before = lt_tape_op_counter(tape);
    w = lt_group_copy(tape, w, all->parallel->row);
    lt_tensor *part[] = {lt_slice(tape, w, dim, rank * q, q),
                         lt_slice(tape, w, dim, all->width + rank * k, k),
                         lt_slice(tape, w, dim, all->width + kv_width(all) + rank * k, k)};
    w = lt_concat(tape, part, 3, dim);
    lt_tape_set_op_counter(tape, before); /* not counted: a single rank runs none of these */
    return w;
}

static lt_tensor *project_qkv(attention *a, lt_tape *tape, lt_tensor *x, lt_token_rows rows)
{
    lt_tensor *w = lt_tape_param(tape, &a->weight);
    lt_tensor *b = a->bias.value ? lt_tape_param(tape, &a->bias) : NULL;
    if (must_slice_heads(a)) {
        w = slice_own_heads(a, tape, w, a->packed.in_out);
        b = b ? slice_own_heads(a, tape, b, 0) : NULL;
    }
    lt_parallel_linear config = a->packed;
    config.rows = rows.sequences * rows.tokens;
    return lt_parallel_linear_run(tape, x, w, b, config);
}

/* Reshapes a matrix of rows to sequences, or back; if rows are not sharded, x has the sequences already. */
static lt_tensor *reshape_rows(const attention *a, lt_tape *tape, lt_tensor *x, lt_shape shape)
{
    if (!lt_parallel_shards_rows(a->whole.parallel))
        return x;
    const int64_t before = lt_tape_op_counter(tape);
    lt_tensor *y = lt_reshape(tape, x, shape);
    lt_tape_drop(tape, x);
    lt_tape_set_op_counter(tape, before);
    return y;
}

/* Slices heads out of the packed features and rotates them by their positions, from `first` on. */
static lt_tensor *slice_heads(const attention *a, lt_tape *tape, lt_tensor *qkv, int start,
                              int heads, int64_t first)
{
    const lt_attention_layer *c = &a->config;
    lt_tensor *x = lt_slice(tape, qkv, -1, start, (int64_t)heads * (c->width / c->heads));
    if (!(c->rotary > 0))
        return x;
    lt_tensor *y =
        lt_rotary(tape, x, (lt_rotary_config){.heads = heads, .base = c->rotary, .first = first});
    lt_tape_drop(tape, x);
    return y;
}

static lt_tensor *append_to_cache(lt_tape *tape, lt_tensor *x, const lt_attention_run *run,
                                  lt_kv kind)
{
    return run->cache ? lt_kv_cache_append(run->cache, run->layer, kind, tape, x) : x;
}

/* Computes attention with a cache or rotary positions, for which q, k and v are sliced out of qkv. */
static lt_tensor *attend_unpacked(attention *a, lt_tape *tape, lt_tensor *qkv,
                                  lt_attention_config to, const lt_attention_run *run)
{
    const lt_attention_layer *c = &a->config;
    const int64_t first = run->cache ? lt_kv_cache_count(run->cache, run->layer) : 0;
    const int64_t rows = qkv ? lt_tensor_shape(qkv).dim[1] : 0;
    lt_tensor *q = slice_heads(a, tape, qkv, 0, c->heads, first);
    lt_tensor *k = slice_heads(a, tape, qkv, c->width, c->kv_heads, first);
    lt_tensor *v = lt_slice(tape, qkv, -1, c->width + kv_width(c), kv_width(c));
    k = append_to_cache(tape, k, run, LT_KV_KEYS);
    v = append_to_cache(tape, v, run, LT_KV_VALUES);
    lt_tensor *y = lt_attention(tape, q, k, v, to);
    lt_tape_drop(tape, q);
    lt_tape_drop(tape, k);
    lt_tape_drop(tape, v);
    if (y && run->cache)
        lt_kv_cache_advance(run->cache, run->layer, rows);
    return y;
}

lt_tensor *lt_attention_layer_run(lt_module *layer, lt_tape *tape, lt_tensor *x,
                                  lt_attention_run run)
{
    attention *a = (attention *)layer;
    const lt_attention_layer *c = &a->config;
    const lt_attention_config to = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .causal = c->causal,
                                    .lower_right = true,
                                    .scale = c->scale};
    lt_tensor *qkv = project_qkv(a, tape, x, run.rows);
    qkv = reshape_rows(a, tape, qkv, LT_SHAPE(-1, run.rows.tokens, c->width + 2 * kv_width(c)));
    const bool unpack = run.cache || c->rotary > 0;
    lt_tensor *y =
        unpack ? attend_unpacked(a, tape, qkv, to, &run) : lt_attention(tape, qkv, NULL, NULL, to);
    lt_tape_drop(tape, qkv);
    if (run.first) {
        lt_tensor *all = y;
        y = lt_slice(tape, all, 1, 0, 1);
        lt_tape_drop(tape, all);
    }
    if (run.first) /* one row per sample */
        run.rows.tokens = 1;
    y = reshape_rows(a, tape, y, LT_SHAPE(-1, c->width));
    lt_tensor *z = lt_linear_forward_rows(a->out, tape, y, run.rows.sequences * run.rows.tokens);
    lt_tape_drop(tape, y);
    return z;
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_attention_layer_run(self, tape, x, (lt_attention_run){0});
}

static lt_status params(lt_module *self, lt_params *list)
{
    attention *a = (attention *)self;
    LT_TRY(lt_params_add(list, &a->weight));
    if (a->bias.value)
        LT_TRY(lt_params_add(list, &a->bias));
    return lt_module_params(a->out, list);
}

static void destroy(lt_module *self)
{
    attention *a = (attention *)self;
    lt_param_clear(&a->weight);
    lt_param_clear(&a->bias);
    lt_module_free(&a->out);
}

static const lt_module_ops ops = {
    .kind = "attention",
    .bytes = sizeof(attention),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static lt_status check_config(const char *name, const lt_attention_layer *c)
{
    if (c->width < 1 || c->heads < 1 || c->width % c->heads)
        return lt_fail(LT_E_ARG, "attention %s: %d heads do not divide the width, %d", name,
                       c->heads, c->width);
    if (c->kv_heads < 1 || c->heads % c->kv_heads)
        return lt_fail(LT_E_ARG, "attention %s: %d heads of k and v do not divide the %d of q",
                       name, c->kv_heads, c->heads);
    if (c->rotary > 0 && c->width / c->heads % 2)
        return lt_fail(LT_E_ARG, "attention %s: rotary positions need heads of even size, got %d",
                       name, c->width / c->heads);
    const int ranks = c->parallel ? c->parallel->row->size : 1;
    if (c->heads % ranks || c->kv_heads % ranks)
        return lt_fail(LT_E_ARG,
                       "attention %s: %d heads and %d kv_heads are not divisible by %d ranks", name,
                       c->heads, c->kv_heads, ranks);
    return LT_OK;
}

static const char *name_or(const char *name, const char *usual)
{
    return name ? name : usual;
}

/* Returns the shard of q, k and v of this rank's heads: rows of three matrices, or their columns. */
static lt_shard_spec qkv_shard(const attention *a, bool of_bias)
{
    const lt_attention_layer *c = &a->whole;
    const int64_t in = c->width, out = c->width + 2 * kv_width(c), heads = c->heads,
                  d = c->width / c->heads;
    if (of_bias)
        return lt_parallel_shard_spec(c->parallel, LT_SHAPE(out), LT_SHAPE(3, heads, d),
                                      (lt_parallel_dims){1, -1}, LT_COLUMN_PARALLEL);
    if (c->in_out)
        return lt_parallel_shard_spec(c->parallel, LT_SHAPE(in, out), LT_SHAPE(in, 3, heads, d),
                                      (lt_parallel_dims){2, 0}, LT_COLUMN_PARALLEL);
    return lt_parallel_shard_spec(c->parallel, LT_SHAPE(out, in), LT_SHAPE(3, heads, d, in),
                                  (lt_parallel_dims){1, 3}, LT_COLUMN_PARALLEL);
}

static lt_status make_packed_qkv_params(attention *a, lt_device *device, const char *name)
{
    const lt_attention_layer *c = &a->whole;
    const int64_t in = c->width, out = c->width + 2 * kv_width(c);
    const bool whole = !c->parallel || c->kv_heads != c->heads;
    const lt_shape shape = c->in_out ? LT_SHAPE(in, out) : LT_SHAPE(out, in);
    const lt_shard_spec weight = whole ? lt_shard_spec_whole(shape) : qkv_shard(a, false);
    const lt_shard_spec bias = whole ? lt_shard_spec_whole(LT_SHAPE(out)) : qkv_shard(a, true);
    LT_TRY(lt_param_init(&a->weight, device, name, name_or(c->qkv_weight, "in_proj_weight"),
                         lt_parallel_shape(&weight), 0));
    if (!whole)
        LT_TRY(lt_param_set_shard_spec(&a->weight, &weight));
    a->weight.fan_in = (int)in;
    a->weight.fan_out = (int)out;
    a->packed =
        (lt_parallel_linear){.parallel = c->parallel, .in = in, .out = out, .in_out = c->in_out};
    if (!c->bias)
        return LT_OK;
    LT_TRY(lt_param_init_kind(&a->bias, device, name, name_or(c->qkv_bias, "in_proj_bias"),
                              lt_parallel_shape(&bias), 0, LT_PARAM_BIAS));
    return whole ? LT_OK : lt_param_set_shard_spec(&a->bias, &bias);
}

static lt_status make_params(attention *a, lt_device *device, const char *name)
{
    const lt_attention_layer *c = &a->whole;
    char path[LT_LAYER_NAME];
    LT_TRY(make_packed_qkv_params(a, device, name));
    LT_TRY(lt_layer_join_path(path, name, name_or(c->out, "out_proj")));
    const lt_linear_layer linear = {.in = c->width,
                                    .features = c->width,
                                    .bias = c->bias,
                                    .in_out = c->in_out,
                                    .parallel = c->parallel,
                                    .division = LT_ROW_PARALLEL};
    return lt_layer_linear_as(&a->out, device, path, linear);
}

lt_status lt_layer_attention(lt_module **out, lt_device *device, const char *name,
                             lt_attention_layer config)
{
    config.kv_heads = config.kv_heads ? config.kv_heads : config.heads;
    LT_TRY(check_config(name, &config));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    attention *a = (attention *)m;
    a->whole = a->config = config;
    const int parts = config.parallel ? config.parallel->row->size : 1;
    a->config.width /= parts;
    a->config.heads /= parts;
    a->config.kv_heads /= parts;
    lt_status st = make_params(a, device, name);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    a->config.qkv_weight = a->config.qkv_bias = a->config.out = NULL;
    a->whole.qkv_weight = a->whole.qkv_bias = a->whole.out = NULL;
    *out = m;
    return LT_OK;
}
