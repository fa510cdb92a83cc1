/* AdaGrad, diagonal.
 * Duchi, Hazan & Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
 * Optimization", JMLR 2011, figure 1; its delta is our eps. */

#include "lather/ext/optim.h"

typedef struct adagrad {
    lt_optim base;
    double eps;
} adagrad;

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(self, &ctx);
    LT_TRY(lt_optim_need(self, be->adagrad != NULL, "adagrad"));
    size_t count = lt_optim_items(self);
    return be->adagrad(ctx, ((adagrad *)self)->eps, self->item, count, scalars);
}

static const lt_optim_ops ops = {
    .name = "adagrad",
    .bytes = sizeof(adagrad),
    .slot_state = {"sum"},
    .step = step,
    .by_entries = true,
    .is_steady = lt_optim_always_steady,
};

lt_status lt_optim_adagrad(lt_optim **out, const lt_params *params, const lt_adagrad_config *config)
{
    lt_adagrad_config c = config ? *config : LT_ADAGRAD_DEFAULTS;
    if (!(c.eps >= 0))
        return lt_fail(LT_E_ARG, "adagrad: eps %g is not >= 0", c.eps);
    LT_TRY(lt_optim_new(out, &ops, params, c.weight_decay, c.decay_scope));
    ((adagrad *)*out)->eps = c.eps;
    return LT_OK;
}
