/* Counts of a residual network: parameters, multiply-adds, activations. */

#include "plan.h"

#include "lather/ext/fail.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Counts a convolution with its batch norm; returns the side of its output. */
static int64_t add_conv(lt_model_cost *cost, const plan_conv *conv, int64_t side)
{
    int64_t weights = (int64_t)conv->out * conv->in * conv->kernel * conv->kernel;
    int64_t out = plan_side(conv, side), pixels = out * out;
    cost->params += weights + 2 * (int64_t)conv->out; /* and a gain and a shift per channel */
    cost->multiply_adds += weights * pixels;
    cost->kept += conv->out * pixels;
    cost->recomputable += conv->out * pixels;
    cost->largest = max64(cost->largest, conv->out * pixels);
    return out;
}

static int64_t add_stem(lt_model_cost *cost, const lt_resnet_config *c, int64_t side)
{
    plan_conv stem = plan_stem(c);
    cost->recomputable += c->channels * side * side; /* the normalised image */
    side = add_conv(cost, &stem, side);
    if (c->small_stem)
        return side;
    side = (side + 2 - 3) / 2 + 1; /* max pooling: 3x3, stride 2, padding 1 */
    cost->recomputable += c->width * side * side;
    return side;
}

static int64_t add_block(lt_model_cost *cost, const plan_block *block, int64_t side)
{
    int64_t in = side;
    for (int i = 0; i < block->count; i++)
        side = add_conv(cost, &block->conv[i], side);
    if (block->shortcut)
        (void)add_conv(cost, &block->conv[block->count], in);
    return side;
}

lt_status lt_resnet_count(lt_model_cost *out, const lt_resnet_config *config, int size)
{
    lt_resnet_config c = *config;
    LT_TRY(lt_resnet_resolve(&c));
    if (size < 1)
        return lt_fail(LT_E_ARG, "resnet: images of %d pixels, want >= 1", size);
    lt_model_cost cost = {0};
    int64_t side = add_stem(&cost, &c, size);
    for (int stage = 0; stage < LT_RESNET_STAGES; stage++)
        for (int i = 0; i < c.depths[stage]; i++) {
            plan_block block = plan_residual(&c, stage, i);
            side = add_block(&cost, &block, side);
        }
    int64_t features = plan_features(&c);
    cost.params += (features + 1) * c.classes;
    cost.multiply_adds += features * c.classes;
    *out = cost;
    return LT_OK;
}
