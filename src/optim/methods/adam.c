/* Adam: Kingma & Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1. AdamW: Loshchilov &
 * Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2; its eta_t * alpha is our lr, its lambda
 * is alpha * weight_decay. */

#include "optim/registry/registry.h"
#include "optim/slots.h"

#include <math.h>

typedef struct adam {
    lt_optim base;
    lt_adam_kernel kernel;
} adam;

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(self, &ctx);
    LT_TRY(lt_optim_require_kernel(self, be->adam != NULL, "adam"));
    size_t count = lt_optim_collect_items(self);
    return be->adam(ctx, &((adam *)self)->kernel, self->item, count, scalars);
}

static lt_status measure_moments(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                                 double out[LT_MAX_STATS])
{
    const lt_adam_kernel *k = &((adam *)self)->kernel;
    (void)rule;
    return lt_optim_moment_ratio(self, slot, k->beta1, k->beta2, out);
}

#define OPS(called, apart)                                                                        \
    {                                                                                             \
        .decay_is_apart = (apart), .name = (called), .bytes = sizeof(adam),                       \
        .slot_state = {"m", "v"}, .step = step, .by_entries = true, .reads_rounded = true,        \
        .is_capturable = lt_optim_always_capturable, .by_slots = true, .positive_state = 1U << 1, \
        .elementwise = true, .stat_name = {"m_over_sqrt_v"}, .stats = measure_moments,            \
        .update_size = lt_optim_normalized_size,                                                  \
    }
static const lt_optim_ops coupled = OPS("adam", false), decoupled = OPS("adamw", true);

lt_status lt_optim_adam(lt_optim **out, const lt_params *params, const lt_adam_config *config)
{
    lt_adam_config c = config ? *config : LT_ADAM_DEFAULTS;
    const lt_optim_ops *ops = c.decoupled ? &decoupled : &coupled;
    LT_TRY(lt_optim_check(c.decoupled ? &lt_optim_family_adamw : &lt_optim_family_adam, &c));
    lt_optim *o = NULL;
    LT_TRY(lt_optim_new(&o, ops, params, c.weight_decay, c.decay_scope));
    ((adam *)o)->kernel = (lt_adam_kernel){c.beta1, c.beta2, c.eps, c.decoupled};
    lt_status st = lt_optim_count_per_param(o);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

/* --- Rows of the registry --- */

#define AT(field) .offset = offsetof(lt_adam_config, field)
static const lt_optim_field fields[] = {
    {"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
    {"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
    {"beta1", LT_FIELD_REAL, AT(beta1), .high = 1, .below = true, .in_state = true,
     .help = "decay rate of the first moment"},
    {"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true, .in_state = true},
    {"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
};
#undef AT

LT_OPTIM_MAKE(lt_optim_adam)

#define ADAMW(decay)   \
    ((lt_adam_config){ \
        .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = (decay), .decoupled = true})
static const lt_optim_preset usual = {NULL, 0.001, &LT_ADAM_DEFAULTS},
                             usual_adamw = {NULL, 0.001, &ADAMW(0.01)};
const lt_optim_family lt_optim_family_adam = {
    LT_OPTIM_ROW("adam", lt_adam_config, usual),
};

const lt_optim_family lt_optim_family_adamw = {
    LT_OPTIM_ROW("adamw", lt_adam_config, usual_adamw),
    .published = &ADAMW(0),
};
