/* Reads the network of a weight file from its names and shapes. */

#include "resnet.h"

#include "lather/checkpoint.h"
#include "lather/ext/fail.h"
#include "lather/safetensors.h"

#include <stdio.h>

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

/* Rejects relatives, which have the names of residual networks but other convolutions: Xie et al., "Aggregated
 * residual transformations for deep neural networks", CVPR 2017; Zagoruyko & Komodakis, "Wide residual networks",
 * BMVC 2016. */
static lt_status reject_resnext_and_wide(const lt_safetensors *file, const char *path, int width)
{
    const lt_safetensors_entry *inner = find_entry(file, "layer1.0.conv2.weight", 4);
    if (!inner || !lt_safetensors_find(file, "layer1.0.conv3.weight"))
        return LT_OK;
    int64_t out = inner->shape.dim[0], in = inner->shape.dim[1];
    if (in > 0 && in < out)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: a ResNeXt (3x3 convolutions in %lld groups), which is not supported; "
                       "resnet10 to resnet152 are",
                       path, (long long)(out / in));
    if (out != width)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: a wide ResNet (3x3 convolutions of %lld channels, want %d), which is "
                       "not supported; resnet10 to resnet152 are",
                       path, (long long)out, width);
    return LT_OK;
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
    const lt_safetensors_entry *stem = find_entry(file, "conv1.weight", 4);
    const lt_safetensors_entry *head = find_entry(file, "fc.weight", 2);
    if (!stem)
        return fail_missing_tensor(path, "conv1.weight");
    shape->arch = NULL;
    shape->width = (int)stem->shape.dim[0];
    shape->channels = (int)stem->shape.dim[1];
    shape->small_stem = stem->shape.dim[2] == 3;
    shape->classes = head ? (int)head->shape.dim[0] : 0;
    shape->bottleneck = lt_safetensors_find(file, "layer1.0.conv3.weight") != NULL;
    for (int i = 0; i < LT_RESNET_STAGES; i++)
        shape->depths[i] = count_blocks(file, i);
    LT_TRY(reject_resnext_and_wide(file, path, shape->width));
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
