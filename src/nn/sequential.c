/* A chain of layers: y = last(...second(first(x))).
 *
 * Each output is read by the next layer only, so it is dropped after that: a pass that does not record then
 * needs memory for two layers, not for all. */

#include "base/alloc.h"
#include "nn/conv2d.h"
#include "nn/fold.h"

#include "lather/ext/module.h"
#include "lather/layers.h"

typedef struct sequential {
    lt_module base;
    lt_module **child; /* owned */
    size_t count;
} sequential;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    const sequential *s = (sequential *)self;
    lt_tensor *in = x;
    for (size_t i = 0; i < s->count; i++) {
        lt_tensor *y = lt_module_forward(s->child[i], tape, in);
        if (in != x && in != y) /* x is the caller's; a layer may return its input */
            lt_tape_drop(tape, in);
        in = y;
    }
    return in;
}

static lt_status params(lt_module *self, lt_params *list)
{
    const sequential *s = (sequential *)self;
    for (size_t i = 0; i < s->count; i++)
        LT_TRY(lt_module_params(s->child[i], list));
    return LT_OK;
}

static lt_status fold(lt_module *self)
{
    const sequential *s = (sequential *)self;
    for (size_t i = 0; i < s->count; i++) {
        LT_TRY(lt_module_fold(s->child[i]));
        if (i && lt_is_conv2d(s->child[i - 1]) && lt_is_batchnorm2d(s->child[i]))
            LT_TRY(lt_batchnorm2d_fold(s->child[i], s->child[i - 1]));
    }
    return LT_OK;
}

static void destroy(lt_module *self)
{
    sequential *s = (sequential *)self;
    for (size_t i = 0; i < s->count; i++)
        lt_module_free(&s->child[i]);
    lt_free(s->child);
}

static const lt_module_ops ops = {
    .kind = "sequential",
    .bytes = sizeof(sequential),
    .forward = forward,
    .params = params,
    .fold = fold,
    .destroy = destroy,
};

lt_status lt_layer_sequential(lt_module **out)
{
    return lt_module_new(out, &ops);
}

lt_status lt_sequential_add(lt_module *module, lt_module **child)
{
    LT_ASSERT(module->ops == &ops);
    sequential *s = (sequential *)module;
    if ((s->count & (s->count - 1)) == 0) /* full at every power of two */
        LT_TRY(LT_RESIZE(&s->child, s->count ? 2 * s->count : 1));
    s->child[s->count++] = *child;
    *child = NULL;
    return LT_OK;
}
