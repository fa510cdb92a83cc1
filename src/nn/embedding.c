/* Embedding: rows of a table, selected by index. x holds ids, i32. */

#include "nn/layer.h"

#include "lather/detail/transformer_layers.h"

typedef struct embedding {
    lt_module base;
    lt_param weight; /* [count,width] */
} embedding;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    embedding *e = (embedding *)self;
    return lt_embedding(tape, x, lt_tape_param(tape, &e->weight));
}

static lt_status params(lt_module *self, lt_params *list)
{
    return lt_params_add(list, &((embedding *)self)->weight);
}

static void destroy(lt_module *self)
{
    lt_param_clear(&((embedding *)self)->weight);
}

static const lt_module_ops ops = {
    .kind = "embedding",
    .bytes = sizeof(embedding),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

lt_status lt_layer_embedding(lt_module **out, lt_device *device, const char *name, int count,
                             int width)
{
    if (count < 1 || width < 1)
        return lt_fail(LT_E_ARG, "embedding %s: %d rows of %d; both must be >= 1", name, count,
                       width);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    lt_status st =
        lt_param_init(&((embedding *)m)->weight, device, name, "weight", LT_SHAPE(count, width), 0);
    return lt_layer_finish_construction(out, m, st);
}
