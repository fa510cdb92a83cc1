/* Lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023 (arXiv 2302.06675), algorithm 2. Its
 * batches and workspace are those of trust.h, without ratios. */

#include "lather/lion.h"

#include "optim/slots.h"
#include "trust.h"

#include <math.h>

typedef struct lion {
    lt_trust base;
    lt_lion_config config;
} lion;

static const lt_lion_config *config_of(const lt_trust *t)
{
    return &((const lion *)t)->config;
}

/* --- Batched kernels --- */

static bool copy_momentum(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = config_of(t)->beta1;
    job->a = lt_tensor_view(t->due[i]->state[0]);
    job->y = lt_trust_update_view(t, i);
    return true;
}

static bool add_gradient(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = 1 - config_of(t)->beta1;
    job->beta = 1;
    job->factor.grad_scale = true;
    job->a = lt_tensor_view(t->due[i]->param->grad);
    job->y = lt_trust_update_view(t, i);
    return true;
}

static bool take_sign(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->op = LT_VEC_SIGN;
    job->a = job->y = lt_trust_update_view(t, i);
    return true;
}

static bool apply_update(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = -t->due[i]->lr_scale;
    job->beta = 1;
    job->factor.lr = true;
    job->a = lt_trust_update_view(t, i);
    job->y = lt_tensor_view(t->due[i]->param->value);
    return true;
}

static bool update_momentum(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = 1 - config_of(t)->beta2;
    job->beta = config_of(t)->beta2;
    job->factor.grad_scale = true;
    job->a = lt_tensor_view(t->due[i]->param->grad);
    job->y = lt_tensor_view(t->due[i]->state[0]);
    return true;
}

static lt_status update_batch(lt_trust *t, lt_trust_batch batch)
{
    static lt_trust_rule *const rules[] = {copy_momentum,      add_gradient, take_sign,
                                           lt_trust_add_decay, apply_update, update_momentum};
    return lt_trust_run_rules(t, batch, rules, sizeof rules / sizeof *rules);
}

/* --- Operations --- */

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    return lt_trust_step_in_batches((lt_trust *)self, update_batch);
}

static lt_status stats(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                       double out[LT_MAX_STATS])
{
    (void)self, (void)slot, (void)out;
    *rule = LT_RULE_SIGN;
    return LT_OK;
}

static const lt_optim_ops ops = {
    .name = "lion",
    .bytes = sizeof(lion),
    .slot_state = {"m"},
    .step = step,
    .by_entries = true,
    .by_slots = true,
    .elementwise = true,
    .decay_is_apart = true,
    .is_capturable = lt_trust_has_workspace,
    .stats = stats,
    .destroy = lt_trust_destroy,
    .update_size = lt_optim_normalized_size,
};

lt_status lt_optim_lion(lt_optim **out, const lt_params *params, const lt_lion_config *config)
{
    const lt_lion_config c = config ? *config : LT_LION_DEFAULTS;
    LT_TRY(lt_optim_check(&lt_optim_family_lion, &c));
    LT_TRY(lt_trust_new(out, &ops, params, c.weight_decay, c.decay_scope));
    ((lion *)*out)->config = c;
    return LT_OK;
}

/* --- Row of the registry --- */

#define AT(field) .offset = offsetof(lt_lion_config, field)
static const lt_optim_field fields[] = {
    {"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
    {"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
    {"beta1", LT_FIELD_REAL, AT(beta1), .high = 1, .below = true},
    {"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true, .in_state = true},
};
#undef AT

LT_OPTIM_MAKE(lt_optim_lion)

static const lt_optim_preset usual = {NULL, 1e-4, &LT_LION_DEFAULTS};
const lt_optim_family lt_optim_family_lion = {LT_OPTIM_ROW("lion", lt_lion_config, usual)};
