/* Muon's options, its row in the registry, and its constructor. */

#include "muon_new.h"
#include "optim/registry/names.h"
#include "optim/registry/registry.h"
#include "optim/registry/splits.h"
#include "orthogonal.h"

#include <math.h>

lt_status lt_optim_muon(lt_optim **out, const lt_params *params, const lt_muon_config *config)
{
    const lt_muon_config c = config ? *config : LT_MUON_DEFAULTS;
    LT_TRY(lt_optim_check(&lt_optim_family_muon, &c));
    return lt_muon_new(out, params, &c);
}

/* --- Row of the registry --- */

static lt_status set_adamw_params(void *config, const char *text)
{
    return lt_name_regex_set(&((lt_muon_config *)config)->adamw_params, "--adamw-params", text);
}

static lt_status read_adamw_params(void *config, const lt_json_value *v)
{
    return lt_name_regex_set_from_json(&((lt_muon_config *)config)->adamw_params, v);
}

static lt_status set_split(void *config, const char *text)
{
    return lt_splits_set(((lt_muon_config *)config)->split, text);
}

static lt_status read_split(void *config, const lt_json_value *v)
{
    return lt_splits_read(((lt_muon_config *)config)->split, v);
}

static lt_status set_coefficients(void *config, const char *text)
{
    return lt_orthogonal_set_coeffs(&((lt_muon_config *)config)->orthogonalization, text);
}

static lt_status read_coefficients(void *config, const lt_json_value *v)
{
    return lt_orthogonal_read_coeffs(&((lt_muon_config *)config)->orthogonalization, v);
}

LT_OPTIM_CONDITION(iterates, lt_muon_config, c->orthogonalization.method != LT_ORTHOGONAL_SVD)
LT_OPTIM_CONDITION(has_coefficients, lt_muon_config,
                   c->orthogonalization.method == LT_ORTHOGONAL_NEWTON_SCHULZ)
LT_OPTIM_CONDITION(has_momentum, lt_muon_config, c->momentum > 0)

#define AT(field) .offset = offsetof(lt_muon_config, field)
/* clang-format off */
static const lt_optim_field fields[] = {
{"momentum", LT_FIELD_REAL, AT(momentum), .high = 1, .below = true, .common = true, .in_state = true},
{"nesterov", LT_FIELD_FLAG, AT(nesterov), .is_read = has_momentum, .needs = "--momentum above 0"},
{"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
{"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
{"muon_scale", LT_FIELD_CHOICE, AT(scale), .choices = "original|match_rms_adamw", .rare = true, .help = "scale of orthogonal updates: sqrt(max(1, outputs/inputs)), or the RMS of AdamW's updates, so that AdamW's lr and decay apply"},
{"muon_second_moment", LT_FIELD_CHOICE, AT(moment), .choices = "none|outputs|elements", .rare = true, .in_state = true, .help = "divide orthogonal updates by the root of their second moment, of outputs (NorMuon) or of elements (AdaMuon); --beta2 and --epsilon are also its own"},
{"orthogonalization", LT_FIELD_CHOICE, AT(orthogonalization.method), .choices = "newton_schulz|polar_express|svd", .rare = true, .help = "orthogonalization of updates: one polynomial for all iterations, an optimal one per iteration, or an exact SVD on the host"},
{"newton_schulz_iterations", LT_FIELD_SMALL, AT(orthogonalization.iterations), .low = 1, .high = 20, .is_read = iterates, .needs = "an --orthogonalization that iterates", .neutral = 5, .rare = true, .help = "iterations per orthogonalization"},
{"newton_schulz_coefficients", LT_FIELD_LIST, .set = set_coefficients, .read = read_coefficients, .meta = "A,B,C", .is_read = has_coefficients, .needs = "--orthogonalization newton_schulz", .rare = true, .help = "coefficients of the polynomial a x + b x^3 + c x^5; default: 3.4445,-4.7750,2.0315"},
{"bf16_orthogonalization", LT_FIELD_FLAG, AT(orthogonalization.bf16), .is_read = iterates, .needs = "an --orthogonalization that iterates", .rare = true, .help = "multiply matrices rounded to bf16 in the iterations, as PyTorch's Muon does"},
{"adamw_params", LT_FIELD_LIST, .set = set_adamw_params, .read = read_adamw_params, .meta = "REGEX", .rare = true, .in_state = true, .help = "parameters that AdamW updates, in addition to biases and parameters of norms; default: embeddings, positions, class tokens and heads"},
{"split", LT_FIELD_LIST, .set = set_split, .read = read_split, .meta = "REGEX:DIM:PARTS", .in_state = true},
{"adamw_lr_scale", LT_FIELD_REAL, AT(adamw_lr_scale), .high = HUGE_VAL, .rare = true, .help = "learning rate of parameters that AdamW updates, relative to --lr"},
{"beta1", LT_FIELD_REAL, AT(beta1), .high = 1, .below = true, .in_state = true},
{"beta2", LT_FIELD_REAL, AT(beta2), .high = 1, .below = true, .in_state = true},
{"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
};
/* clang-format on */
#undef AT

LT_OPTIM_MAKE(lt_optim_muon)

static const lt_optim_preset usual = {NULL, 0.001, &LT_MUON_DEFAULTS};
/* Jordan's settings, with the same learning rate for AdamW. */
static const lt_muon_config published = {
    .momentum = 0.95,
    .nesterov = true,
    .scale = LT_MUON_ORIGINAL,
    .orthogonalization = {.iterations = 5},
    .adamw_params = {LT_MUON_ADAMW_PARAMS, true},
    .adamw_lr_scale = 1,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
};

const lt_optim_family lt_optim_family_muon = {
    LT_OPTIM_ROW("muon", lt_muon_config, usual),
    .published = &published,
    .divided = true,
};
