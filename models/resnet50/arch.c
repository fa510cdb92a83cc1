/* The table of architectures and the geometry of their blocks. He et al., CVPR 2016, table 1. */

#include "arch.h"

#include "lather/ext/fail.h"

#include <string.h>

enum { EXPANSION = 4 }; /* ratio of a bottleneck's output to its inner width */
enum { DEFAULT_WIDTH = 64, DEFAULT_CHANNELS = 3 };
enum { MAX_DEPTH = 1000, MAX_WIDTH = 4096, MAX_CLASSES = 1000000 };

typedef struct arch {
    const char *name;
    int depths[LT_RESNET_STAGES];
    bool bottleneck;
} arch;

static const arch table[] = {
    {"resnet10", {1, 1, 1, 1}, false},  {"resnet14", {1, 1, 1, 1}, true},
    {"resnet18", {2, 2, 2, 2}, false},  {"resnet34", {3, 4, 6, 3}, false},
    {"resnet50", {3, 4, 6, 3}, true},   {"resnet101", {3, 4, 23, 3}, true},
    {"resnet152", {3, 8, 36, 3}, true},
};
enum { ARCHS = sizeof table / sizeof *table };

const char *lt_resnet_name(const lt_resnet_config *c)
{
    for (int i = 0; i < ARCHS; i++)
        if (table[i].bottleneck == c->bottleneck
            && !memcmp(table[i].depths, c->depths, sizeof c->depths))
            return table[i].name;
    return NULL;
}

static lt_status set_fields_from_arch(lt_resnet_config *c)
{
    for (int i = 0; i < ARCHS; i++)
        if (!strcmp(table[i].name, c->arch)) {
            c->bottleneck = table[i].bottleneck;
            if (!c->depths[0])
                memcpy(c->depths, table[i].depths, sizeof c->depths);
            return LT_OK;
        }
    return lt_fail(LT_E_ARG,
                   "resnet: no architecture '%s'; there are resnet10, 14, 18, 34, 50, "
                   "101, 152",
                   c->arch);
}

lt_status lt_resnet_resolve(lt_resnet_config *c)
{
    if (c->arch)
        LT_TRY(set_fields_from_arch(c));
    if (!c->width)
        c->width = DEFAULT_WIDTH;
    if (!c->channels)
        c->channels = DEFAULT_CHANNELS;
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
    return LT_OK;
}

static int block_out_channels(const lt_resnet_config *c, int stage)
{
    return (c->width << stage) * (c->bottleneck ? EXPANSION : 1);
}

int plan_out_channels(const lt_resnet_config *config)
{
    return block_out_channels(config, LT_RESNET_STAGES - 1);
}

plan_conv plan_stem(const lt_resnet_config *c)
{
    plan_conv p = {"conv1", "bn1", c->channels, c->width, 7, 2, 3};
    if (c->small_stem) {
        p.kernel = 3;
        p.stride = p.pad = 1;
    }
    return p;
}

static void plan_bottleneck(plan_block *b, int in, int inner, int out, int stride)
{
    b->conv[0] = (plan_conv){"conv1", "bn1", in, inner, 1, 1, 0};
    b->conv[1] = (plan_conv){"conv2", "bn2", inner, inner, 3, stride, 1};
    b->conv[2] = (plan_conv){"conv3", "bn3", inner, out, 1, 1, 0};
    b->count = 3;
}

static void plan_basic(plan_block *b, int in, int out, int stride)
{
    b->conv[0] = (plan_conv){"conv1", "bn1", in, out, 3, stride, 1};
    b->conv[1] = (plan_conv){"conv2", "bn2", out, out, 3, 1, 1};
    b->count = 2;
}

plan_block plan_residual(const lt_resnet_config *c, int stage, int index)
{
    plan_block b = {0};
    int inner = c->width << stage, out = block_out_channels(c, stage);
    int first = stage ? block_out_channels(c, stage - 1) : c->width;
    int in = index ? out : first;
    int stride = stage && !index ? 2 : 1;
    if (c->bottleneck)
        plan_bottleneck(&b, in, inner, out, stride);
    else
        plan_basic(&b, in, out, stride);
    b.shortcut = stride != 1 || in != out;
    if (b.shortcut)
        b.conv[b.count] = (plan_conv){"downsample.0", "downsample.1", in, out, 1, stride, 0};
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
    int64_t weights = (int64_t)conv->out * conv->in * conv->kernel * conv->kernel;
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
    plan_conv stem = plan_stem(c);
    cost->recomputable += c->channels * side * side; /* the normalized image */
    side = add_conv_cost(cost, &stem, side);
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
