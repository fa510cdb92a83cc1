/* Vision transformers and language models with known values, on one rank or tensor-parallel. */

#include "parallel_net.h"

#include "gpt.h"
#include "near.h"
#include "vit.h"

#include "lather/ops.h"

#include <stdlib.h>

static const char *const family_name[] = {"vit", "vit, mean", "gpt2", "llama", "llama, few keys"};

bool is_vit(family f)
{
    return f == VIT_TOKEN || f == VIT_MEAN;
}

/* --- Construction --- */

static lt_status make_model(net *n)
{
    const family f = n->plan->family;
    if (is_vit(f)) {
        const lt_vit_config c = {.patch = PATCH,
                                 .width = WIDTH,
                                 .depth = LAYERS,
                                 .heads = HEADS,
                                 .hidden = HIDDEN,
                                 .size = SIDE,
                                 .channels = 3,
                                 .classes = CLASSES,
                                 .mean_pool = f == VIT_MEAN,
                                 .dropout = n->plan->noise ? 0.2 : 0,
                                 .drop_path = n->plan->noise ? 0.4 : 0,
                                 .parallel = n->parallel};
        return lt_vit_new(&n->model, n->r->at.device, &c);
    }
    const lt_gpt_config c = {.width = WIDTH,
                             .layers = LAYERS,
                             .heads = HEADS,
                             .kv_heads = f == LLAMA_FEW_KEYS ? HEADS / 2 : HEADS,
                             .hidden = HIDDEN,
                             .positions = TOKENS + 2,
                             .vocabulary = CLASSES,
                             .rms = f != GPT2,
                             .rotary = f != GPT2,
                             .mlp = f == GPT2 ? LT_MLP_GELU_TANH : LT_MLP_SWIGLU,
                             .dropout = n->plan->noise ? 0.2 : 0,
                             .parallel = n->parallel};
    return lt_gpt_new(&n->model, n->r->at.device, &c);
}

/* Fills all parameters, so that no initial value, such as a bias of 0, hides an error. */
static lt_status fill(net *n)
{
    for (size_t p = 0; p < n->params.count; p++) {
        lt_param *param = n->params.item[p];
        const lt_shard_spec spec = lt_param_shard_spec(param);
        const int64_t count = lt_tensor_count(param->value);
        double *values = malloc((size_t)count * sizeof *values);
        for (int64_t i = 0; i < count; i++)
            values[i] = 0.3 * fraction((int)p, 0, lt_shard_spec_index(&spec, i))
                        + (param->role == LT_PARAM_NORM && strstr(param->name, "weight") ? 1 : 0);
        lt_status st = write_doubles(param->value, values);
        free(values);
        LT_TRY(st);
    }
    return LT_OK;
}

static lt_status make_images(net *n)
{
    enum { PIXELS = 3 * SIDE * SIDE };
    const lt_dtype dtype = n->plan->f32 ? LT_F32 : LT_F64;
    double x[MOST_SAMPLES * PIXELS];
    int32_t label[MOST_SAMPLES];
    const int samples = n->plan->samples;
    for (int i = 0; i < samples * PIXELS; i++)
        x[i] = fraction(97, i / PIXELS, i % PIXELS);
    for (int i = 0; i < samples; i++)
        label[i] = i * 7 % CLASSES;
    LT_TRY(lt_tensor_new(&n->inputs, n->r->at.device, dtype, LT_SHAPE(samples, 3, SIDE, SIDE)));
    LT_TRY(write_doubles(n->inputs, x));
    LT_TRY(lt_tensor_new(&n->labels, n->r->at.device, LT_I32, LT_SHAPE(samples)));
    return lt_tensor_write(n->labels, label, (size_t)samples * sizeof *label);
}

static lt_status make_tokens(net *n)
{
    int32_t id[MOST_SAMPLES * TOKENS], label[MOST_SAMPLES * TOKENS];
    const int samples = n->plan->samples, count = samples * TOKENS;
    for (int i = 0; i < count; i++) {
        id[i] = (i * 5 + i / 3) % CLASSES;
        label[i] = i % 9 == 2 ? LT_IGNORED_LABEL : (i * 11 + 3) % CLASSES;
    }
    LT_TRY(lt_tensor_new(&n->inputs, n->r->at.device, LT_I32, LT_SHAPE(samples, TOKENS)));
    LT_TRY(lt_tensor_new(&n->labels, n->r->at.device, LT_I32, LT_SHAPE(samples, TOKENS)));
    LT_TRY(lt_tensor_write(n->inputs, id, (size_t)count * sizeof *id));
    return lt_tensor_write(n->labels, label, (size_t)count * sizeof *label);
}

lt_status net_make(net *n, const plan *p, mesh_rank *r, const lt_tensor_parallel *parallel)
{
    *n = (net){.plan = p, .parallel = parallel, .r = r};
    LT_TRY(make_model(n));
    LT_TRY(lt_module_params(n->model, &n->params));
    LT_TRY(fill(n));
    LT_TRY(lt_tensor_new(&n->found, r->at.device, LT_I64, LT_SHAPE(3)));
    return is_vit(p->family) ? make_images(n) : make_tokens(n);
}

void net_clear(net *n)
{
    lt_tape_reset(n->r->tape, LT_PASS_EVAL);
    for (size_t i = 0; i < n->params.count; i++)
        free(n->gradient[i]);
    lt_params_clear(&n->params);
    lt_tensor_free(&n->inputs);
    lt_tensor_free(&n->labels);
    lt_tensor_free(&n->found);
    lt_module_free(&n->model);
}

/* --- One pass --- */

static lt_status run(net *n, lt_tensor **logits)
{
    lt_tape *tape = n->r->tape;
    lt_pass pass = LT_PASS_TRAIN;
    pass.dtype = n->plan->dtype;
    pass.seed = 5;
    pass.attempt = 3;
    lt_tape_reset(tape, pass);
    lt_params_zero_grad(&n->params);
    *logits = lt_module_forward(n->model, tape, n->inputs);
    lt_tape_keep(tape, *logits);
    const lt_tensor_parallel *of_classes = is_vit(n->plan->family) ? NULL : n->parallel;
    lt_tensor *loss = lt_parallel_softmax_xent(tape, *logits, n->labels, of_classes, CLASSES);
    LT_TRY(lt_tape_status(tape));
    LT_TRY(lt_tensor_fill(n->found, 0));
    LT_TRY(lt_parallel_topk_hits(tape, *logits, n->labels, n->found, of_classes, CLASSES));
    LT_TRY(lt_tensor_read(n->found, n->hits, sizeof n->hits));
    LT_TRY(lt_tape_backward(tape, loss, 1));
    return lt_tensor_item(loss, &n->loss);
}

lt_status net_keep(net *n)
{
    lt_tensor *logits;
    LT_TRY(run(n, &logits));
    n->logit_count = lt_tensor_count(logits);
    if (lt_tensor_dtype(logits) == LT_F64 || lt_tensor_dtype(logits) == LT_F32)
        LT_TRY(read_doubles(logits, n->logits));
    for (size_t i = 0; i < n->params.count; i++) {
        const lt_param *p = n->params.item[i];
        const size_t bytes = (size_t)lt_tensor_count(p->value) * sizeof(double);
        n->gradient[i] = n->gradient[i] ? n->gradient[i] : malloc(bytes);
        if (!p->has_grad)
            return lt_fail(LT_E_ARG, "%s has no gradient", p->name);
        LT_TRY(read_doubles(p->grad, n->gradient[i]));
    }
    return LT_OK;
}

lt_tensor_parallel net_groups(const mesh_rank *r, bool sequence, bool overlap)
{
    const bool grid = lt_mesh_config_of(r->mesh).rows > 1;
    return (lt_tensor_parallel){.row = lt_mesh_group(r->mesh, LT_MESH_ROW),
                                .column = grid ? lt_mesh_group(r->mesh, LT_MESH_COLUMN) : NULL,
                                .depth = grid ? lt_mesh_group(r->mesh, LT_MESH_DEPTH) : NULL,
                                .model = lt_mesh_group(r->mesh, LT_MESH_MODEL),
                                .sequence = sequence,
                                .overlap = overlap};
}

void net_play(plan p, lt_status (*fn)(mesh_rank *r), uint64_t *bytes)
{
    char why[MESH_WHY];
    const lt_mesh_config *m = &p.mesh;
    if (play_mesh(m->depth * m->rows * m->columns, !p.f32,
                  (mesh_rank){.config = m, .context = &p, .fn = fn}, bytes, why))
        fail_msg("%s, depth %d, %d x %d, rows %s, %d samples: %s", family_name[p.family], m->depth,
                 m->rows, m->columns, p.sequence ? "split" : "whole", p.samples, why);
}
