/* LAMB: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020 (arXiv
 * 1904.00962), algorithm 2 with phi(x) = x. */

#include "trust.h"

#include "lather/layerwise.h"

#include <math.h>

typedef struct lamb {
    lt_trust base;
    lt_lamb_config config;
} lamb;

enum { MEAN, SQUARE };

static const lt_lamb_config *config_of(const lt_trust *t)
{
    return &((const lamb *)t)->config;
}

/* --- Batched kernels --- */

static bool update_first_moment(const lt_trust *t, size_t i, lt_vec_job *job)
{
    const lt_lamb_config *c = config_of(t);
    job->alpha = c->grad_averaging ? 1 - c->beta1 : 1;
    job->beta = c->beta1;
    job->a = lt_trust_update_view(t, i);
    job->y = lt_tensor_view(t->due[i]->state[MEAN]);
    return true;
}

static bool update_second_moment(const lt_trust *t, size_t i, lt_vec_job *job)
{
    const lt_lamb_config *c = config_of(t);
    job->op = LT_VEC_SQUARE;
    job->alpha = 1 - c->beta2;
    job->beta = c->beta2;
    job->a = lt_trust_update_view(t, i);
    job->y = lt_tensor_view(t->due[i]->state[SQUARE]);
    return true;
}

static void add_bias_correction(const lt_lamb_config *c, double beta, lt_vec_job *job)
{
    job->factor.bias = c->bias_correction ? 1 : 0;
    job->factor.base = beta;
}

static bool copy_first_moment(const lt_trust *t, size_t i, lt_vec_job *job)
{
    add_bias_correction(config_of(t), config_of(t)->beta1, job);
    job->a = lt_tensor_view(t->due[i]->state[MEAN]);
    job->y = lt_trust_update_view(t, i);
    return true;
}

static bool divide_by_second_moment(const lt_trust *t, size_t i, lt_vec_job *job)
{
    const lt_lamb_config *c = config_of(t);
    add_bias_correction(c, c->beta2, job);
    job->op = LT_VEC_RSQRT;
    job->beta = 1;
    job->gamma = c->eps;
    job->a = job->y = lt_trust_update_view(t, i);
    job->b = lt_tensor_view(t->due[i]->state[SQUARE]);
    return true;
}

static bool apply_update(const lt_trust *t, size_t i, lt_vec_job *job)
{
    job->alpha = -t->due[i]->lr_scale;
    job->beta = 1;
    job->factor.lr = true;
    lt_trust_scale_by_ratio(t, i, job);
    job->a = lt_trust_update_view(t, i);
    job->y = lt_tensor_view(t->due[i]->param->value);
    return true;
}

static lt_status update_batch(lt_trust *t, lt_trust_batch batch)
{
    static lt_trust_rule *const direction[] = {lt_trust_copy_gradient,  update_first_moment,
                                               update_second_moment,    copy_first_moment,
                                               divide_by_second_moment, lt_trust_add_decay};
    static lt_trust_rule *const last[] = {apply_update};
    LT_TRY(lt_trust_run_rules(t, batch, direction, sizeof direction / sizeof *direction));
    LT_TRY(lt_trust_compute_ratios(t, batch, false));
    return lt_trust_run_rules(t, batch, last, 1);
}

/* --- Operations --- */

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    return lt_trust_step_in_batches((lt_trust *)self, update_batch);
}

static const lt_optim_ops ops = {
    .name = "lamb",
    .bytes = sizeof(lamb),
    .slot_state = {"m", "v"},
    .step = step,
    .by_entries = true,
    .by_slots = true,
    .positive_state = 1U << 1,
    .is_capturable = lt_trust_has_workspace,
    .stat_name = {"trust_ratio"},
    .stats = lt_trust_measure_ratio,
    .destroy = lt_trust_destroy,
};

lt_status lt_optim_lamb(lt_optim **out, const lt_params *params, const lt_lamb_config *config)
{
    const lt_lamb_config c = config ? *config : LT_LAMB_DEFAULTS;
    lt_optim *o = NULL;
    LT_TRY(lt_optim_check(&lt_optim_family_lamb, &c));
    LT_TRY(lt_trust_new(&o, &ops, params, c.weight_decay, c.decay_scope));
    lamb *l = (lamb *)o;
    l->config = c;
    l->base.always_adapt = c.always_adapt;
    l->base.kernel = (lt_trust_kernel){
        .coefficient = 1, .limit = c.trust_clip ? LT_TRUST_LIMIT_ONE : LT_TRUST_NO_LIMIT};
    *out = o;
    return LT_OK;
}

/* --- Row of the registry --- */

#define AT(field) .offset = offsetof(lt_lamb_config, field)
/* clang-format off */
static const lt_optim_field fields[] = {
{"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
{"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
{"beta1", LT_FIELD_REAL, AT(beta1), .high = 1, .below = true, .in_state = true},
{"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true, .in_state = true},
{"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
{"bias_correction", LT_FIELD_FLAG, AT(bias_correction), .rare = true, .help = "correct moments for their start at zero"},
{"grad_averaging", LT_FIELD_FLAG, AT(grad_averaging), .rare = true, .in_state = true, .help = "weight a new gradient in the first moment by 1 - beta1 instead of 1"},
{"trust_clip", LT_FIELD_FLAG, AT(trust_clip), .rare = true},
{"always_adapt", LT_FIELD_FLAG, AT(always_adapt), .rare = true},
};
/* clang-format on */
#undef AT

LT_OPTIM_MAKE(lt_optim_lamb)

static const lt_optim_preset usual = {NULL, 0.001, &LT_LAMB_DEFAULTS};
static const lt_lamb_config published = {
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-6,
    .weight_decay = 0.01,
    .bias_correction = true,
    .grad_averaging = true,
};

const lt_optim_family lt_optim_family_lamb = {
    LT_OPTIM_ROW("lamb", lt_lamb_config, usual),
    .published = &published,
};
