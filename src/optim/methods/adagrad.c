/* AdaGrad, diagonal. Duchi, Hazan & Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
 * Optimization", JMLR 2011, figure 1; its delta is our eps. */

#include "optim/registry/registry.h"
#include "optim/slots.h"

#include <math.h>

typedef struct adagrad {
    lt_optim base;
    double eps;
} adagrad;

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(self, &ctx);
    LT_TRY(lt_optim_require_kernel(self, be->adagrad != NULL, "adagrad"));
    size_t count = lt_optim_collect_items(self);
    return be->adagrad(ctx, ((adagrad *)self)->eps, self->item, count, scalars);
}

static const lt_optim_ops ops = {
    .name = "adagrad",
    .bytes = sizeof(adagrad),
    .slot_state = {"sum"},
    .step = step,
    .by_entries = true,
    .reads_rounded = true,
    .by_slots = true,
    .positive_state = 1U << 0,
    .elementwise = true,
    .is_capturable = lt_optim_always_capturable,
    .update_size = lt_optim_normalized_size,
};

lt_status lt_optim_adagrad(lt_optim **out, const lt_params *params, const lt_adagrad_config *config)
{
    lt_adagrad_config c = config ? *config : LT_ADAGRAD_DEFAULTS;
    LT_TRY(lt_optim_check(&lt_optim_family_adagrad, &c));
    LT_TRY(lt_optim_new(out, &ops, params, c.weight_decay, c.decay_scope));
    ((adagrad *)*out)->eps = c.eps;
    return LT_OK;
}

/* --- Row of the registry --- */

#define AT(field) .offset = offsetof(lt_adagrad_config, field)
static const lt_optim_field fields[] = {
    {"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
    {"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
    {"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
};
#undef AT

static lt_status make(lt_optim **out, const lt_params *params, const void *config, double lr)
{
    (void)lr;
    return lt_optim_adagrad(out, params, config);
}

static const lt_optim_preset usual = {NULL, 0.01, &LT_ADAGRAD_DEFAULTS};
const lt_optim_family lt_optim_family_adagrad = {
    .name = "adagrad",
    .config_bytes = sizeof(lt_adagrad_config),
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .preset = &usual,
    .presets = 1,
    .make = make,
};
