/* Reads the network of a weight file from its names and shapes. */

#include "arch.h"

#include "lather/checkpoint.h"
#include "lather/ext/fail.h"
#include "lather/safetensors.h"

#include <stdio.h>

enum { USUAL_WIDTH = 64 };

static const lt_safetensors_entry *find_entry(const lt_safetensors *file, const char *name,
                                              int ndim)
{
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    return e && e->shape.ndim == ndim ? e : NULL;
}

/* Counts the blocks layerN.0, layerN.1, ... of a stage. */
static int count_blocks(const lt_safetensors *file, int stage)
{
    char name[64];
    int blocks = 0;
    do
        snprintf(name, sizeof name, "layer%d.%d.conv1.weight", stage + 1, blocks++);
    while (lt_safetensors_find(file, name));
    return blocks - 1;
}

/* Reads the groups of a bottleneck's 3x3 convolution, and their width, from its shape. */
static lt_status infer_groups(const lt_safetensors *file, const char *path, lt_resnet_config *c)
{
    const lt_safetensors_entry *inner = find_entry(file, "layer1.0.conv2.weight", 4);
    const int64_t out = inner ? inner->shape.dim[0] : 0, in = inner ? inner->shape.dim[1] : 0;
    c->groups = c->bottleneck && in > 0 && in < out ? (int)(out / in) : 1;
    c->width_per_group = USUAL_WIDTH;
    if (c->bottleneck && c->width > 0)
        c->width_per_group = (int)(out / c->groups * USUAL_WIDTH / c->width);
    return plan_kind(c) ? LT_OK
                        : lt_fail(LT_E_UNSUPPORTED,
                                  "%s: 3x3 convolutions of %lld channels in %d groups, which no "
                                  "ResNet, ResNeXt or wide ResNet with a stem of %d has",
                                  path, (long long)out, c->groups, c->width);
}

static lt_status fail_missing_tensor(const char *path, const char *missing)
{
    return lt_fail(LT_E_FORMAT,
                   "%s: no '%s' of 4 dimensions: not the weights of a residual network with "
                   "torchvision's names",
                   path, missing);
}

static lt_status infer_config(const lt_safetensors *file, const char *path, lt_resnet_config *shape)
{
    const lt_safetensors_entry *deep = find_entry(file, "conv1.0.weight", 4),
                               *last =
                                   find_entry(file, deep ? "conv1.6.weight" : "conv1.weight", 4),
                               *stem = deep ? deep : last;
    const lt_safetensors_entry *head = find_entry(file, "fc.weight", 2);
    if (!last)
        return fail_missing_tensor(path, deep ? "conv1.6.weight" : "conv1.weight");
    shape->arch = NULL;
    shape->width = (int)last->shape.dim[0];
    shape->channels = (int)stem->shape.dim[1];
    shape->small_stem = !deep && stem->shape.dim[2] == 3;
    shape->deep = deep || lt_safetensors_find(file, "layer2.0.downsample.2.weight");
    shape->classes = head ? (int)head->shape.dim[0] : 0;
    shape->bottleneck = lt_safetensors_find(file, "layer1.0.conv3.weight") != NULL;
    for (int i = 0; i < LT_RESNET_STAGES; i++)
        shape->depths[i] = count_blocks(file, i);
    LT_TRY(infer_groups(file, path, shape));
    return shape->depths[0] ? LT_OK : fail_missing_tensor(path, "layer1.0.conv1.weight");
}

lt_status lt_resnet_infer_config(const char *path, lt_resnet_config *shape)
{
    lt_safetensors *file = NULL;
    LT_TRY(lt_weights_open(&file, path));
    lt_status st = infer_config(file, path, shape);
    lt_safetensors_close(&file);
    return st;
}

lt_status lt_resnet_load(lt_module **out, lt_device *device, const char *path,
                         lt_resnet_config *config)
{
    lt_resnet_config shape = {0};
    lt_module *model = NULL;
    LT_TRY(lt_resnet_infer_config(path, &shape));
    LT_TRY(lt_resnet_new(&model, device, &shape));
    lt_status st = lt_weights_load_model(path, model);
    if (st) {
        lt_module_free(&model);
        return st;
    }
    if (config)
        *config = shape;
    *out = model;
    return LT_OK;
}
