/* Max and average pooling as layers. */

#include "lather/ext/module.h"
#include "lather/layers.h"

typedef struct pool {
    lt_module base;
    lt_pool2d_config config;
} pool;

static lt_tensor *forward_max(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_maxpool2d(tape, x, ((pool *)self)->config);
}

static lt_tensor *forward_avg(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_avgpool2d(tape, x, ((pool *)self)->config);
}

static const lt_module_ops max_ops = {
    .kind = "maxpool2d",
    .bytes = sizeof(pool),
    .forward = forward_max,
};

static const lt_module_ops avg_ops = {
    .kind = "avgpool2d",
    .bytes = sizeof(pool),
    .forward = forward_avg,
};

static lt_status make(lt_module **out, const lt_module_ops *ops, lt_pool2d_config config)
{
    LT_TRY(lt_module_new(out, ops));
    ((pool *)*out)->config = config;
    return LT_OK;
}

lt_status lt_layer_maxpool2d(lt_module **out, lt_pool2d_config config)
{
    return make(out, &max_ops, config);
}

lt_status lt_layer_avgpool2d(lt_module **out, lt_pool2d_config config)
{
    return make(out, &avg_ops, config);
}
