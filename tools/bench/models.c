/* The models of `bench train`: residual networks and vision transformers on images, GPT-2 on tokens. */

#include "bench.h"
#include "gpt.h"
#include "resnet.h"
#include "vit.h"

#include "lather/ops.h"

#include <string.h>

enum { IMAGENET_CLASSES = 1000, GPT2_IDS = 50257 };

/* --- Images --- */

static lt_status make_resnet(lt_module **out, lt_device *device, const bench_model_config *c)
{
    const lt_resnet_config model = {
        .arch = c->arch, .classes = (int)c->classes, .small_stem = c->stem != 0};
    return lt_resnet_new(out, device, &model);
}

static lt_status make_vit(lt_module **out, lt_device *device, const bench_model_config *c)
{
    const lt_vit_config model = {.arch = c->arch, .size = (int)c->size, .classes = (int)c->classes};
    return lt_vit_new(out, device, &model);
}

static lt_status batch_of_images(lt_batch *out, lt_device *device, const bench_model_config *c)
{
    out->count = (int)c->batch;
    LT_TRY(lt_tensor_new_as(&out->inputs, device, LT_U8, LT_SHAPE(c->batch, 3, c->size, c->size),
                            LT_FORMAT_CHANNELS_LAST));
    LT_TRY(lt_tensor_new(&out->labels, device, LT_I32, LT_SHAPE(c->batch)));
    LT_TRY(bench_fill_random(out->inputs, 256, 1));
    return bench_fill_random(out->labels, (double)c->classes, 2);
}

static void loss_of_images(lt_module *model, lt_tape *tape, const lt_batch *batch,
                           lt_task_output *out)
{
    const lt_normalize_config pixels = LT_NORMALIZE_IMAGENET;
    const double smoothing = 0.1;
    lt_tensor *x = lt_normalize(tape, batch->inputs, &pixels);
    out->output = lt_module_forward(model, tape, x);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, smoothing);
}

/* --- Tokens --- */

static lt_status make_gpt(lt_module **out, lt_device *device, const bench_model_config *c)
{
    const int positions = c->length > 1024 ? (int)c->length : 1024; /* GPT-2's */
    const lt_gpt_config model = {.arch = c->arch,
                                 .positions = positions,
                                 .vocabulary = (int)c->classes,
                                 .mlp = LT_MLP_GELU_TANH};
    return lt_gpt_new(out, device, &model);
}

static lt_status batch_of_tokens(lt_batch *out, lt_device *device, const bench_model_config *c)
{
    const lt_shape shape = LT_SHAPE(c->batch, c->length);
    out->count = (int)c->batch;
    LT_TRY(lt_tensor_new(&out->inputs, device, LT_I32, shape));
    LT_TRY(lt_tensor_new(&out->labels, device, LT_I32, shape));
    LT_TRY(bench_fill_random(out->inputs, (double)c->classes, 1));
    return bench_fill_random(out->labels, (double)c->classes, 2);
}

static void loss_of_tokens(lt_module *model, lt_tape *tape, const lt_batch *batch,
                           lt_task_output *out)
{
    out->output = lt_module_forward(model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
}

static const bench_model models[] = {
    {"vit_", "images", IMAGENET_CLASSES, make_vit, batch_of_images, loss_of_images},
    {"gpt", "sequences", GPT2_IDS, make_gpt, batch_of_tokens, loss_of_tokens},
    {"", "images", IMAGENET_CLASSES, make_resnet, batch_of_images, loss_of_images},
};

lt_status bench_network_open(bench_network *n, lt_device *device, bench_model_config c)
{
    n->kind = models;
    while (strncmp(c.arch, n->kind->prefix, strlen(n->kind->prefix)) != 0)
        n->kind++; /* the last one's empty prefix matches all names */
    c.classes = c.classes ? c.classes : n->kind->usual_classes;
    LT_TRY(n->kind->make(&n->model, device, &c));
    LT_TRY(lt_module_params(n->model, &n->params));
    return c.batch ? n->kind->batch(&n->batch, device, &c) : LT_OK;
}

void bench_network_close(bench_network *n)
{
    lt_params_clear(&n->params);
    lt_module_free(&n->model);
    lt_tensor_free(&n->batch.inputs);
    lt_tensor_free(&n->batch.labels);
}
