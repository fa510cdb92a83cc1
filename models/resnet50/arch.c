/* The table of architectures and the geometry of their blocks. He et al., CVPR 2016, table 1. */

#include "arch.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

enum { EXPANSION = 4 }; /* ratio of a bottleneck's output to its inner width */
enum { DEFAULT_WIDTH = 64, DEFAULT_CHANNELS = 3 };
enum { MAX_DEPTH = 1000, MAX_WIDTH = 4096, MAX_CLASSES = 1000000 };

typedef struct arch {
    const char *name;
    int depths[LT_RESNET_STAGES];
    bool bottleneck;
    int groups, width_per_group;
    bool deep;
} arch;

/* clang-format off */
static const arch table[] = {
    {"resnet10", {1, 1, 1, 1}, false, 1, 64, false}, {"resnet14", {1, 1, 1, 1}, true, 1, 64, false},
    {"resnet18", {2, 2, 2, 2}, false, 1, 64, false}, {"resnet34", {3, 4, 6, 3}, false, 1, 64, false},
    {"resnet50", {3, 4, 6, 3}, true, 1, 64, false}, {"resnet101", {3, 4, 23, 3}, true, 1, 64, false},
    {"resnet152", {3, 8, 36, 3}, true, 1, 64, false},
    {"resnet18d", {2, 2, 2, 2}, false, 1, 64, true}, {"resnet26d", {2, 2, 2, 2}, true, 1, 64, true},
    {"resnet34d", {3, 4, 6, 3}, false, 1, 64, true}, {"resnet50d", {3, 4, 6, 3}, true, 1, 64, true},
    {"resnet101d", {3, 4, 23, 3}, true, 1, 64, true}, {"resnet152d", {3, 8, 36, 3}, true, 1, 64, true},
    {"resnext50_32x4d", {3, 4, 6, 3}, true, 32, 4, false}, {"resnext101_32x8d", {3, 4, 23, 3}, true, 32, 8, false},
    {"resnext101_64x4d", {3, 4, 23, 3}, true, 64, 4, false}, {"resnext50d_32x4d", {3, 4, 6, 3}, true, 32, 4, true},
    {"wide_resnet50_2", {3, 4, 6, 3}, true, 1, 128, false}, {"wide_resnet101_2", {3, 4, 23, 3}, true, 1, 128, false},
};
/* clang-format on */
enum { ARCHS = sizeof table / sizeof *table };

/* Finds the arch of a config, or one that differs in its depths at most, or NULL. */
static const arch *find_arch(const lt_resnet_config *c, bool any_depths)
{
    for (const arch *a = table; a < table + ARCHS; a++)
        if (a->bottleneck == c->bottleneck && a->groups == c->groups
            && a->width_per_group == c->width_per_group && a->deep == c->deep
            && (any_depths || !memcmp(a->depths, c->depths, sizeof c->depths)))
            return a;
    return NULL;
}

const char *lt_resnet_name(const lt_resnet_config *c)
{
    const arch *a = find_arch(c, false);
    return a ? a->name : NULL;
}

const char *plan_kind(const lt_resnet_config *c)
{
    const arch *a = find_arch(c, true);
    return a ? a->name : NULL;
}

static lt_status set_fields_from_arch(lt_resnet_config *c)
{
    char names[512] = "";
    for (const arch *a = table; a < table + ARCHS; a++) {
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", a->name);
        if (strcmp(a->name, c->arch) != 0)
            continue;
        c->bottleneck = a->bottleneck;
        c->deep = a->deep;
        if (!c->depths[0])
            memcpy(c->depths, a->depths, sizeof c->depths);
        c->groups = c->groups ? c->groups : a->groups;
        c->width_per_group = c->width_per_group ? c->width_per_group : a->width_per_group;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG, "resnet: no architecture '%s'; there are %s", c->arch, names);
}

static lt_status check_config(const lt_resnet_config *c)
{
    for (int i = 0; i < LT_RESNET_STAGES; i++)
        if (c->depths[i] < 1 || c->depths[i] > MAX_DEPTH)
            return lt_fail(LT_E_ARG, "resnet: stage %d has %d blocks, want 1 to %d", i + 1,
                           c->depths[i], MAX_DEPTH);
    if (c->width < 1 || c->width > MAX_WIDTH)
        return lt_fail(LT_E_ARG, "resnet: width %d, want 1 to %d", c->width, MAX_WIDTH);
    if (c->channels != 1 && c->channels != 3)
        return lt_fail(LT_E_ARG, "resnet: %d channels, want 1 or 3", c->channels);
    if (c->classes < 1 || c->classes > MAX_CLASSES)
        return lt_fail(LT_E_ARG, "resnet: %d classes, want 1 to %d", c->classes, MAX_CLASSES);
    if (!plan_kind(c) || c->width * c->width_per_group < DEFAULT_WIDTH)
        return lt_fail(
            LT_E_ARG,
            "resnet: no network of width %d has %d groups of %d channels in blocks of %d "
            "convolutions",
            c->width, c->groups, c->width_per_group, c->bottleneck ? 3 : 2);
    return LT_OK;
}

lt_status lt_resnet_resolve(lt_resnet_config *c)
{
    if (c->arch)
        LT_TRY(set_fields_from_arch(c));
    c->width = c->width ? c->width : DEFAULT_WIDTH;
    c->channels = c->channels ? c->channels : DEFAULT_CHANNELS;
    c->groups = c->groups ? c->groups : 1;
    c->width_per_group = c->width_per_group ? c->width_per_group : DEFAULT_WIDTH;
    return check_config(c);
}

static int block_out_channels(const lt_resnet_config *c, int stage)
{
    return (c->width << stage) * (c->bottleneck ? EXPANSION : 1);
}

int plan_out_channels(const lt_resnet_config *config)
{
    return block_out_channels(config, LT_RESNET_STAGES - 1);
}

plan_block plan_stem(const lt_resnet_config *c)
{
    const int in = c->channels, out = c->width, half = out / 2;
    const plan_block deep = {.conv = {{"conv1.0", "conv1.1", in, half, 3, 2, 1, 1},
                                      {"conv1.3", "conv1.4", half, half, 3, 1, 1, 1},
                                      {"conv1.6", "bn1", half, out, 3, 1, 1, 1}},
                             .count = 3};
    const plan_block imagenet = {.conv = {{"conv1", "bn1", in, out, 7, 2, 3, 1}}, .count = 1};
    const plan_block small = {.conv = {{"conv1", "bn1", in, out, 3, 1, 1, 1}}, .count = 1};
    return c->small_stem ? small : c->deep ? deep : imagenet;
}

static void plan_bottleneck(plan_block *b, int in, int inner, int out, int stride)
{
    b->conv[0] = (plan_conv){"conv1", "bn1", in, inner, 1, 1, 0, 1};
    b->conv[1] = (plan_conv){"conv2", "bn2", inner, inner, 3, stride, 1, 1};
    b->conv[2] = (plan_conv){"conv3", "bn3", inner, out, 1, 1, 0, 1};
    b->count = 3;
}

static void plan_basic(plan_block *b, int in, int out, int stride)
{
    b->conv[0] = (plan_conv){"conv1", "bn1", in, out, 3, stride, 1, 1};
    b->conv[1] = (plan_conv){"conv2", "bn2", out, out, 3, 1, 1, 1};
    b->count = 2;
}

plan_block plan_residual(const lt_resnet_config *c, int stage, int index)
{
    plan_block b = {0};
    int inner = (c->width << stage) * c->width_per_group / DEFAULT_WIDTH * c->groups;
    int out = block_out_channels(c, stage);
    int first = stage ? block_out_channels(c, stage - 1) : c->width;
    int in = index ? out : first;
    int stride = stage && !index ? 2 : 1;
    if (c->bottleneck)
        plan_bottleneck(&b, in, inner, out, stride);
    else
        plan_basic(&b, in, out, stride);
    b.conv[1].groups = c->groups;
    b.shortcut = stride != 1 || in != out;
    b.pooled = c->deep && stride != 1;
    if (b.shortcut && c->deep)
        b.conv[b.count] = (plan_conv){"downsample.1", "downsample.2", in, out, 1, 1, 0, 1};
    else if (b.shortcut)
        b.conv[b.count] = (plan_conv){"downsample.0", "downsample.1", in, out, 1, stride, 0, 1};
    return b;
}

int64_t plan_output_side(const plan_conv *conv, int64_t side)
{
    return (side + 2 * (int64_t)conv->pad - conv->kernel) / conv->stride + 1;
}

/* --- Counts: parameters, multiply-adds, activations --- */

/* Counts a convolution with its batch norm; returns the side of its output. */
static int64_t add_conv_cost(lt_model_cost *cost, const plan_conv *conv, int64_t side)
{
    int64_t weights = (int64_t)conv->out * (conv->in / conv->groups) * conv->kernel * conv->kernel;
    int64_t out = plan_output_side(conv, side), pixels = out * out;
    cost->params += weights + 2 * (int64_t)conv->out; /* weight and bias per channel */
    cost->multiply_adds += weights * pixels;
    cost->kept += conv->out * pixels;
    cost->recomputable += conv->out * pixels;
    if (cost->largest < conv->out * pixels)
        cost->largest = conv->out * pixels;
    return out;
}

static int64_t add_stem_cost(lt_model_cost *cost, const lt_resnet_config *c, int64_t side)
{
    const plan_block stem = plan_stem(c);
    cost->recomputable += c->channels * side * side; /* the normalized image */
    for (int i = 0; i < stem.count; i++)
        side = add_conv_cost(cost, &stem.conv[i], side);
    if (c->small_stem)
        return side;
    side = (side + 2 - 3) / 2 + 1; /* max pooling: 3x3, stride 2, padding 1 */
    cost->recomputable += c->width * side * side;
    return side;
}

static int64_t add_block_cost(lt_model_cost *cost, const plan_block *block, int64_t side)
{
    int64_t in = side;
    for (int i = 0; i < block->count; i++)
        side = add_conv_cost(cost, &block->conv[i], side);
    if (block->pooled) {
        in = (in + 1) / 2;
        cost->kept += block->conv[block->count].in * in * in;
    }
    if (block->shortcut)
        (void)add_conv_cost(cost, &block->conv[block->count], in);
    return side;
}

lt_status lt_resnet_count_cost(lt_model_cost *out, const lt_resnet_config *config, int size)
{
    lt_resnet_config c = *config;
    LT_TRY(lt_resnet_resolve(&c));
    if (size < 1)
        return lt_fail(LT_E_ARG, "resnet: images of %d pixels, want >= 1", size);
    lt_model_cost cost = {0};
    int64_t side = add_stem_cost(&cost, &c, size);
    for (int stage = 0; stage < LT_RESNET_STAGES; stage++)
        for (int i = 0; i < c.depths[stage]; i++) {
            plan_block block = plan_residual(&c, stage, i);
            side = add_block_cost(&cost, &block, side);
        }
    int64_t features = plan_out_channels(&c);
    cost.params += (features + 1) * c.classes;
    cost.multiply_adds += features * c.classes;
    *out = cost;
    return LT_OK;
}
