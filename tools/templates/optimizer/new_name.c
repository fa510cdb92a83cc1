/* The optimizer new_name, a plugin: momentum with decoupled weight decay, to be replaced by yours.
 *
 *     m = momentum * m + (1 - momentum) * g
 *     p = p - lr * weight_decay * p - lr * m */

#include "lather/ext/optim_family.h"
#include "lather/ext/vec.h"
#include "lather/plugin.h"

#include <math.h>

/* --- The update --- */

enum { M }; /* states, shaped like the parameter */

typedef struct optimizer {
    lt_optim base;
    double momentum;
} optimizer;

static lt_status update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    const optimizer *o = (const optimizer *)self;
    lt_tensor *p = slot->param->value, *m = slot->state[M];
    LT_TRY(lt_vec_lerp(m, slot->grad, 1 - o->momentum, s));
    if (slot->weight_decay > 0)
        LT_TRY(lt_vec_add_lr(p, -slot->lr_scale * slot->weight_decay, p, s));
    return lt_vec_add_lr(p, -slot->lr_scale, m, s);
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, update, s);
}

static const lt_optim_ops ops = {
    .name = "new_name",
    .bytes = sizeof(optimizer),
    .slot_state = {[M] = "m"}, /* saved in checkpoints under this name */
    .step = step,
    .is_capturable = lt_optim_always_capturable, /* the host decides nothing in a step */
    .elementwise = true, /* an element's update reads only its own numbers: false for matrices */
    .by_slots = true,    /* a step may be called for some of the slots: --state-dtype int8 */
};

/* --- Settings: flags of --optim new_name, and keys in JSON --- */

typedef struct config {
    double momentum, weight_decay;
} config;

static const lt_optim_field fields[] = {
    {"momentum", LT_FIELD_REAL, .offset = offsetof(config, momentum), .high = 1, .below = true,
     .help = "decay rate of the mean gradient"},
    {"weight_decay", LT_FIELD_REAL, .offset = offsetof(config, weight_decay), .high = HUGE_VAL,
     .help = "decay of the weights per unit of lr"},
};

static const lt_optim_family family;

static lt_status make(lt_optim **out, const lt_params *params, const void *settings, double lr)
{
    const config *c = settings;
    (void)lr;
    LT_TRY(lt_optim_check(&family, c));
    LT_TRY(lt_optim_new(out, &ops, params, c->weight_decay, LT_DECAY_ALL));
    ((optimizer *)*out)->momentum = c->momentum;
    return LT_OK;
}

/* Defaults: the lr, then the config. */
static const lt_optim_preset usual = {NULL, 0.1, &(config){.momentum = 0.9, .weight_decay = 1e-4}};
static const lt_optim_family family = {
    .name = "new_name",
    .config_bytes = sizeof(config),
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .preset = &usual,
    .presets = 1,
    .make = make,
};

LT_PLUGIN(host)
{
    return lt_optim_register(&family);
}
