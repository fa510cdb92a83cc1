/* Adam: Kingma & Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1.
 * AdamW: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2;
 * its eta_t * alpha is our lr, its lambda is alpha * weight_decay. */

#include "lather/ext/optim.h"

typedef struct adam {
    lt_optim base;
    lt_adam_kernel kernel;
} adam;

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(self, &ctx);
    LT_TRY(lt_optim_need(self, be->adam != NULL, "adam"));
    size_t count = lt_optim_items(self);
    return be->adam(ctx, &((adam *)self)->kernel, self->item, count, scalars);
}

static const lt_optim_ops coupled = {
    .name = "adam",
    .bytes = sizeof(adam),
    .slot_state = {"m", "v"},
    .step = step,
    .by_entries = true,
    .is_steady = lt_optim_always_steady,
};

static const lt_optim_ops decoupled = {
    .name = "adamw",
    .bytes = sizeof(adam),
    .slot_state = {"m", "v"},
    .step = step,
    .by_entries = true,
    .is_steady = lt_optim_always_steady,
};

lt_status lt_optim_adam(lt_optim **out, const lt_params *params, const lt_adam_config *config)
{
    lt_adam_config c = config ? *config : LT_ADAM_DEFAULTS;
    const lt_optim_ops *ops = c.decoupled ? &decoupled : &coupled;
    if (!(c.beta1 >= 0 && c.beta1 < 1) || !(c.beta2 >= 0 && c.beta2 < 1))
        return lt_fail(LT_E_ARG, "%s: betas %g, %g are not in [0,1)", ops->name, c.beta1, c.beta2);
    if (!(c.eps >= 0))
        return lt_fail(LT_E_ARG, "%s: eps %g is not >= 0", ops->name, c.eps);
    LT_TRY(lt_optim_new(out, ops, params, c.weight_decay, c.decay_scope));
    ((adam *)*out)->kernel = (lt_adam_kernel){c.beta1, c.beta2, c.eps, c.decoupled};
    return LT_OK;
}
