/* LARS: You, Gitman & Ginsburg, "Large batch training of convolutional networks", 2017 (arXiv 1708.03888),
 * algorithm 1; lr multiplies the momentum buffer instead of the update, as in sgd.c. trust_clip: LARC, in which a
 * layer's learning rate does not exceed lr. */

#include "optim/slots.h"
#include "trust.h"

#include "lather/layerwise.h"

#include <math.h>

typedef struct lars {
    lt_trust base;
    double momentum, dampening;
    bool nesterov;
} lars;

/* --- Batched kernels --- */

static bool copy_scaled_gradient(const lt_trust *t, size_t i, lt_vec_job *job)
{
    lt_trust_scale_by_ratio(t, i, job);
    return lt_trust_copy_gradient(t, i, job);
}

static bool add_scaled_decay(const lt_trust *t, size_t i, lt_vec_job *job)
{
    lt_trust_scale_by_ratio(t, i, job);
    return lt_trust_add_decay(t, i, job);
}

/* A parameter's first update initializes its momentum. */
static bool update_momentum(const lt_trust *t, size_t i, lt_vec_job *job)
{
    const lars *l = (const lars *)t;
    const bool first = t->due[i]->updates == 0;
    job->alpha = first ? 1 : 1 - l->dampening;
    job->beta = first ? 0 : l->momentum;
    job->a = lt_trust_update_view(t, i);
    job->y = lt_tensor_view(t->due[i]->state[0]);
    return true;
}

static bool add_nesterov_momentum(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = ((const lars *)t)->momentum;
    job->beta = 1;
    job->a = lt_tensor_view(t->due[i]->state[0]);
    job->y = lt_trust_update_view(t, i);
    return true;
}

static bool apply_update(const lt_trust *t, size_t i, lt_vec_job *job)
{
    const lars *l = (const lars *)t;
    const lt_slot *slot = t->due[i];
    const bool by_momentum = l->momentum > 0 && !l->nesterov;
    job->alpha = -slot->lr_scale;
    job->beta = 1;
    job->factor.lr = true;
    job->a = by_momentum ? lt_tensor_view(slot->state[0]) : lt_trust_update_view(t, i);
    job->y = lt_tensor_view(slot->param->value);
    return true;
}

static lt_status update_batch(lt_trust *t, lt_trust_batch batch)
{
    const lars *l = (const lars *)t;
    lt_trust_rule *rules[LT_TRUST_RULES] = {copy_scaled_gradient, add_scaled_decay};
    size_t count = 2;
    if (l->momentum > 0) /* cppcheck 2.10 takes the declaration of `rules` for a product */
        rules[count++] = update_momentum; /* cppcheck-suppress legacyUninitvar */
    if (l->momentum > 0 && l->nesterov)
        rules[count++] = add_nesterov_momentum;
    rules[count++] = apply_update;
    LT_TRY(lt_trust_compute_ratios(t, batch, true));
    return lt_trust_run_rules(t, batch, rules, count);
}

/* --- Operations --- */

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    return lt_trust_step_in_batches((lt_trust *)self, update_batch);
}

/* Returns false in a step that initializes a parameter's momentum. */
static bool is_capturable(const lt_optim *self)
{
    return lt_trust_has_workspace(self)
           && !(((const lars *)self)->momentum > 0 && lt_optim_has_first_update(self));
}

#define OPS(state)                                                                       \
    {                                                                                    \
        .name = "lars", .bytes = sizeof(lars), .slot_state = {state}, .step = step,      \
        .by_entries = true, .is_capturable = is_capturable, .destroy = lt_trust_destroy, \
        .by_slots = true, .stat_name = {"trust_ratio"}, .stats = lt_trust_measure_ratio, \
    }
static const lt_optim_ops plain = OPS(NULL), with_momentum = OPS("momentum");

lt_status lt_optim_lars(lt_optim **out, const lt_params *params, const lt_lars_config *config)
{
    const lt_lars_config c = config ? *config : LT_LARS_DEFAULTS;
    lt_optim *o = NULL;
    LT_TRY(lt_optim_check(&lt_optim_family_lars, &c));
    LT_TRY(lt_trust_new(&o, c.momentum > 0 ? &with_momentum : &plain, params, c.weight_decay,
                        c.decay_scope));
    lars *l = (lars *)o;
    l->base.always_adapt = c.always_adapt;
    l->base.kernel = (lt_trust_kernel){
        .coefficient = c.trust_coefficient,
        .eps = c.eps,
        .of_gradients = true,
        .limit = c.trust_clip ? LT_TRUST_LIMIT_LR : LT_TRUST_NO_LIMIT,
    };
    l->momentum = c.momentum;
    l->dampening = c.dampening;
    l->nesterov = c.nesterov;
    *out = o;
    return LT_OK;
}

/* --- Row of the registry --- */

LT_OPTIM_CONDITION(has_momentum, lt_lars_config, c->momentum > 0)

#define AT(field) .offset = offsetof(lt_lars_config, field)
/* clang-format off */
static const lt_optim_field fields[] = {
{"momentum", LT_FIELD_REAL, AT(momentum), .high = 1, .below = true, .common = true, .in_state = true},
{"dampening", LT_FIELD_REAL, AT(dampening), .high = 1, .rare = true, .in_state = true},
{"nesterov", LT_FIELD_FLAG, AT(nesterov), .is_read = has_momentum, .needs = "--momentum above 0"},
{"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
{"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
{"trust_coefficient", LT_FIELD_REAL, AT(trust_coefficient), .low = 1e-12, .high = HUGE_VAL, .rare = true, .help = "ratio of the norms of a layer's update and weight at learning rate 1"},
{"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
{"trust_clip", LT_FIELD_FLAG, AT(trust_clip), .rare = true, .help = "limit a layer's learning rate to --lr (LARC), its trust ratio to 1 (LAMB)"},
{"always_adapt", LT_FIELD_FLAG, AT(always_adapt), .rare = true, .help = "apply trust ratios to parameters without weight decay, too"},
};
/* clang-format on */
#undef AT

LT_OPTIM_MAKE(lt_optim_lars)

static const lt_optim_preset usual = {NULL, 1, &LT_LARS_DEFAULTS};
/* Without momentum and decay, as the defaults of other frameworks. */
static const lt_lars_config published = {.trust_coefficient = 0.001, .eps = 1e-8};

const lt_optim_family lt_optim_family_lars = {
    LT_OPTIM_ROW("lars", lt_lars_config, usual),
    .published = &published,
};
