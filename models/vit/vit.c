/* Vision transformers: construction, forward pass, initial values.
 * Dosovitskiy et al., ICLR 2021, section 3.1 and figure 1. */

#include "vit.h"

#include "lather/embedding_layers.h"
#include "lather/ext/module.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64 };
static const double norm_eps = 1e-6; /* torchvision's */

typedef struct vit {
    lt_module base;
    lt_module *patches, *token, *positions, **block, *norm, *head; /* owned; token may be NULL */
    int depth, size; /* size of the images, in pixels */
    int width, tokens;
    double dropout;
    const lt_tensor_parallel *parallel;
} vit;

/* Runs one layer and drops its input. */
static lt_tensor *run_and_drop_input(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *y = lt_module_forward(module, tape, x);
    lt_tape_drop(tape, x);
    return y;
}

static lt_tensor *embed(vit *v, lt_tape *tape, lt_tensor *images, lt_token_rows rows)
{
    /* Positions depend on the grid: taking the first ones for another grid would be wrong. */
    const lt_shape s = images ? lt_tensor_shape(images) : LT_SCALAR;
    if (s.ndim == 4 && (s.dim[2] != v->size || s.dim[3] != v->size))
        return lt_tape_fail(tape,
                            lt_fail(LT_E_SHAPE,
                                    "vit: images of %lldx%lld pixels, the positions are for "
                                    "%dx%d",
                                    (long long)s.dim[2], (long long)s.dim[3], v->size, v->size));
    lt_tensor *own = lt_parallel_slice_samples(tape, images, v->parallel, rows, 0);
    lt_tensor *x = lt_module_forward(v->patches, tape, own);
    if (v->token)
        x = run_and_drop_input(v->token, tape, x);
    x = run_and_drop_input(v->positions, tape, x);
    x = lt_parallel_slice_rows(tape, x, v->parallel, rows);
    const lt_parallel_noise where = {v->parallel, rows, v->width, false};
    lt_tensor *y = lt_parallel_dropout(tape, x, v->dropout, where);
    if (y != x)
        lt_tape_drop(tape, x);
    return y;
}

/* Computes the head's input where each rank has some rows of some samples; equal on all ranks. */
static lt_tensor *run_last_block_and_pool_shards(vit *v, lt_tape *tape, lt_tensor *x,
                                                 lt_token_rows rows, int64_t samples)
{
    lt_module *last = v->block[v->depth - 1];
    lt_tensor *y = v->token ? lt_transformer_forward_first_rows(last, tape, x, rows)
                            : lt_transformer_forward_rows(last, tape, x, rows);
    lt_tape_drop(tape, x);
    y = run_and_drop_input(v->norm, tape, y);
    if (v->token) {
        rows.tokens = 1;
    } else {
        lt_tensor *whole = lt_parallel_unslice_rows(tape, y, v->parallel, rows);
        lt_tape_drop(tape, y);
        y = lt_mean(tape, whole, (lt_reduce_config){.dims = 1U << 1});
        lt_tape_drop(tape, whole);
    }
    return lt_parallel_sum_samples(tape, y, v->parallel, rows, samples, v->width);
}

/* Returns the rows of tokens of all ranks. With sequence parallelism and a class token, at least one sample per
 * rank, as the last block's one row per sample is sharded over the ranks, too. */
static lt_token_rows padded_token_rows(const vit *v, int64_t samples)
{
    const lt_tensor_parallel *p = v->parallel;
    const int64_t least = p && p->sequence && v->token ? p->row->size : 1;
    return lt_parallel_rows(p, samples < least ? least : samples, v->tokens);
}

/* Computes the head's input, [N,width]; with a class token the last block computes only that. */
static lt_tensor *run_last_block_and_pool(vit *v, lt_tape *tape, lt_tensor *x)
{
    lt_module *last = v->block[v->depth - 1];
    lt_tensor *y =
        v->token ? lt_transformer_forward_first(last, tape, x) : lt_module_forward(last, tape, x);
    lt_tape_drop(tape, x);
    y = run_and_drop_input(v->norm, tape, y);
    if (v->token)
        return lt_flatten(tape, y);
    return lt_mean(tape, y, (lt_reduce_config){.dims = 1U << 1});
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *images)
{
    vit *v = (vit *)self;
    const int64_t samples = images ? lt_tensor_shape(images).dim[0] : 1;
    const lt_token_rows rows = padded_token_rows(v, samples);
    lt_tensor *x = embed(v, tape, images, rows);
    for (int i = 0; i < v->depth - 1; i++) {
        lt_tensor *y = lt_transformer_forward_rows(v->block[i], tape, x, rows);
        lt_tape_drop(tape, x);
        x = y;
    }
    x = lt_parallel_shards_rows(v->parallel)
            ? run_last_block_and_pool_shards(v, tape, x, rows, samples)
            : run_last_block_and_pool(v, tape, x);
    /* Logits in 16 bits would make the loss inaccurate: the last layer reads f32. */
    x = lt_cast(tape, x, lt_device_master_dtype(lt_tape_device(tape)));
    return lt_module_forward(v->head, tape, x);
}

static lt_status params(lt_module *self, lt_params *list)
{
    vit *v = (vit *)self;
    if (v->token)
        LT_TRY(lt_module_params(v->token, list));
    LT_TRY(lt_module_params(v->patches, list));
    LT_TRY(lt_module_params(v->positions, list));
    for (int i = 0; i < v->depth; i++)
        LT_TRY(lt_module_params(v->block[i], list));
    LT_TRY(lt_module_params(v->norm, list));
    return lt_module_params(v->head, list);
}

static void destroy(lt_module *self)
{
    vit *v = (vit *)self;
    lt_module_free(&v->patches);
    lt_module_free(&v->token);
    lt_module_free(&v->positions);
    for (int i = 0; v->block && i < v->depth; i++)
        lt_module_free(&v->block[i]);
    free(v->block);
    lt_module_free(&v->norm);
    lt_module_free(&v->head);
}

static const lt_module_ops ops = {
    .kind = "vit",
    .bytes = sizeof(vit),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static lt_transformer_config block_config(const lt_vit_config *c)
{
    return (lt_transformer_config){.width = c->width,
                                   .heads = c->heads,
                                   .hidden = c->hidden,
                                   .norm = {.eps = norm_eps},
                                   .bias = true,
                                   .attention_scale = c->attention_scale,
                                   .dropout = c->dropout,
                                   .parallel = c->parallel};
}

static lt_status make_blocks(vit *v, lt_device *device, const lt_vit_config *c)
{
    lt_transformer_config block = block_config(c);
    v->block = calloc((size_t)c->depth, sizeof(lt_module *));
    if (!v->block)
        return lt_fail(LT_E_NOMEM, "vit: no memory for %d blocks", c->depth);
    v->depth = c->depth;
    for (int i = 0; i < c->depth; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "encoder.layers.encoder_layer_%d", i);
        block.drop_path = c->depth > 1 ? c->drop_path * i / (c->depth - 1) : c->drop_path;
        LT_TRY(lt_layer_transformer(&v->block[i], device, name, block));
    }
    return LT_OK;
}

static lt_status make_layers(vit *v, lt_device *device, const lt_vit_config *c)
{
    const int side = c->size / c->patch, rows = side * side + !c->mean_pool;
    const lt_patch_embedding_layer patches = {c->channels, c->width, c->patch, c->parallel};
    const lt_positions_layer positions = {.rows = rows,
                                          .width = c->width,
                                          .leaf = "pos_embedding",
                                          .batched = true,
                                          .parallel = c->parallel};
    const lt_layernorm_config norm = {.eps = norm_eps};
    v->dropout = c->dropout;
    v->size = c->size;
    v->width = c->width;
    v->tokens = rows;
    v->parallel = c->parallel;
    if (!c->mean_pool)
        LT_TRY(
            lt_layer_class_token_parallel(&v->token, device, "class_token", c->width, c->parallel));
    LT_TRY(lt_layer_patch_embedding(&v->patches, device, "conv_proj", patches));
    LT_TRY(lt_layer_positions(&v->positions, device, "encoder", positions));
    LT_TRY(make_blocks(v, device, c));
    LT_TRY(lt_layer_norm_parallel(&v->norm, device, "encoder.ln", c->width, norm, c->parallel));
    return lt_layer_linear(&v->head, device, "heads.head", c->width, c->classes, true);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* Glorot & Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010, equation 16. */
static lt_status init_xavier(lt_param *p, uint64_t seed)
{
    return lt_init_uniform(p, sqrt(6.0 / (p->fan_in + p->fan_out)), seed);
}

/* Initializes as torchvision. Its truncation of conv_proj's normal numbers at 2 has no effect: their deviation is
 * below 1/2 for patches of 4 values or more. The head, class token and the attention's biases are 0. */
static lt_status initialise_param(lt_param *p, uint64_t seed)
{
    const double positions = 0.02, mlp_bias = 1e-6;
    if (!strcmp(p->name, "conv_proj.weight"))
        return lt_init_normal(p, 1 / sqrt(p->fan_in), seed);
    if (ends_with(p->name, ".pos_embedding"))
        return lt_init_normal(p, positions, seed);
    if (ends_with(p->name, ".in_proj_weight")
        || (strstr(p->name, ".mlp.") && ends_with(p->name, ".weight")))
        return init_xavier(p, seed);
    if (ends_with(p->name, ".out_proj.weight"))
        return lt_init_uniform(p, 1 / sqrt(p->fan_in), seed);
    if (strstr(p->name, ".mlp."))
        return lt_init_normal(p, mlp_bias, seed);
    return LT_OK;
}

static lt_status initialise_all(lt_module *model, uint64_t seed)
{
    lt_params list = {0};
    lt_status st = lt_module_params(model, &list);
    for (size_t i = 0; i < list.count && !st; i++)
        st = initialise_param(list.item[i], seed);
    lt_params_clear(&list);
    return st;
}

lt_status lt_vit_check_parallel(const lt_vit_config *config, int64_t batch)
{
    lt_vit_config c = *config;
    LT_TRY(lt_vit_resolve(&c));
    if (!c.parallel)
        return LT_OK;
    lt_transformer_config block = block_config(&c);
    block.drop_path = c.drop_path;
    LT_TRY(lt_transformer_check_parallel("vit", &block));
    return lt_parallel_check_batch("vit", c.parallel, batch);
}

lt_status lt_vit_new(lt_module **out, lt_device *device, const lt_vit_config *config)
{
    lt_vit_config c = *config;
    lt_model_cost cost;
    LT_TRY(lt_vit_resolve(&c));
    LT_TRY(lt_vit_count_cost(&cost, &c)); /* checks the size */
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    lt_status st = make_layers((vit *)m, device, &c);
    if (!st && !c.is_loaded)
        st = initialise_all(m, c.seed);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    *out = m;
    return LT_OK;
}
