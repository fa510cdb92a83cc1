/* Shampoo's options and presets, of which SOAP is one:
 *
 *   recommended  Lather's default, LT_SHAMPOO_DEFAULTS: see docs/guides/shampoo.md
 *   paper        the release of 2023 that Shi et al. describe (arXiv 2309.06497)
 *   reference    the defaults of its present version
 *   transformer  Lather's, with Adam grafting, for attention, embeddings and similar parameters
 *   soap         Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", 2024 */

#include "base/text.h"
#include "optim/registry/registry.h"
#include "optim/registry/splits.h"
#include "optim/shampoo/optimizer.h"
#include "optim/shampoo/reference.h"
#include "optim/shampoo/settings.h"

#include <limits.h>
#include <math.h>

/* --- Conditions under which an option is read --- */

#define CONDITION(name, condition) LT_OPTIM_CONDITION(name, lt_shampoo_config, condition)
CONDITION(has_filter, c->beta1 > 0)
CONDITION(has_momentum, c->momentum > 0)
CONDITION(grafts_with_moment, lt_shampoo_has_graft_moment(c))
CONDITION(weights_squares, grafts_with_moment(c)
                               && (c->grafting_beta2 < 0 ? c->grafting != LT_GRAFTING_ADAGRAD
                                                         : c->grafting_beta2 < 1))
CONDITION(decays_by_lr, lt_shampoo_decays_by_lr(c))
CONDITION(is_corrected, lt_shampoo_is_corrected(c))
CONDITION(is_pseudo, c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE)
CONDITION(iterates, c->root_solver != LT_ROOT_EIGH)
CONDITION(has_iterations, iterates(c) && c->root_solver != LT_ROOT_RATIONAL)
CONDITION(is_higher_order, c->root_solver == LT_ROOT_HIGHER_ORDER)
CONDITION(is_async, c->refresh_timing == LT_REFRESH_ASYNC)
CONDITION(has_factors, lt_shampoo_has_factors(c))
CONDITION(has_start, has_factors(c) || c->grafting != LT_GRAFTING_NONE)
CONDITION(weights_terms, has_factors(c) && c->beta2 < 1)
CONDITION(corrects_bias, has_filter(c) || c->grafting == LT_GRAFTING_RMSPROP
                             || (weights_terms(c) && !c->drop_weighting))
CONDITION(counts_steps,
          lt_shampoo_corrects_graft(c) || (c->use_bias_correction && corrects_bias(c)))
/* Without factors the frequency only defines the default of start_preconditioning_step. */
CONDITION(has_frequency, has_factors(c) || (has_start(c) && c->start_preconditioning_step < 0))
CONDITION(orthogonalizes, lt_shampoo_orthogonalizes(c))
CONDITION(is_sign, c->preconditioner == LT_PRECONDITIONER_SIGN)
CONDITION(makes_steps, orthogonalizes(c) && c->orthogonalization.method != LT_ORTHOGONAL_SVD)
CONDITION(has_coefficients,
          orthogonalizes(c) && c->orthogonalization.method == LT_ORTHOGONAL_NEWTON_SCHULZ)
CONDITION(is_exact, orthogonalizes(c) && c->orthogonalization.method == LT_ORTHOGONAL_SVD)
CONDITION(merges_backward, c->merge_order == LT_MERGE_BACKWARD)
#undef CONDITION

/* Replaces a preset's solver by eigh if it cannot serve the chosen preconditioner. */
static void replace_unsuited_solver(void *config)
{
    lt_shampoo_config *c = config;
    bool root =
        c->preconditioner == LT_PRECONDITIONER_ROOT || c->preconditioner == LT_PRECONDITIONER_KL;
    if (!root || is_pseudo(c))
        c->root_solver = LT_ROOT_EIGH;
}

/* --- Options --- */

#define AT(field)                 .offset = offsetof(lt_shampoo_config, field)
#define REAL(field, top)          .type = LT_FIELD_REAL, AT(field), .high = (top)
#define COUNT(field, bottom, top) .type = LT_FIELD_COUNT, AT(field), .low = (bottom), .high = (top)
#define SMALL(field, bottom, top) .type = LT_FIELD_SMALL, AT(field), .low = (bottom), .high = (top)
#define FLAG(field)               .type = LT_FIELD_FLAG, AT(field)
#define CHOICE(field, list)       .type = LT_FIELD_CHOICE, AT(field), .choices = (list)
#define UNSET(value, means)       .unset = (value), .unset_means = (means)
#define READ_IF(is, text, value)  .is_read = (is), .needs = (text), .neutral = (value)
/* The neutral value is that of the preset "recommended". */
#define NEEDS_FACTORS(value) READ_IF(has_factors, "a --preconditioner with factors", value)
/* Moments that use_bias_correction corrects. */
#define BIASED \
    "--beta1 above 0, --grafting rmsprop, or factors with --beta2 below 1 and without --drop-weighting"

/* clang-format off */
static const lt_optim_field fields[] = {
{"momentum", REAL(momentum, 1), .below = true, .shared = true, .common = true, .in_state = true},
{"dampening", REAL(dampening, 1), .shared = true, READ_IF(has_momentum, "--momentum above 0", 0), .rare = true, .in_state = true},
{"nesterov", FLAG(nesterov), .shared = true, READ_IF(has_momentum, "--momentum above 0", 0)},
{"weight_decay", REAL(weight_decay, HUGE_VAL), .shared = true, .common = true},
{"norm_weight_decay", .type = LT_FIELD_SCOPE, AT(decay_scope), .shared = true, .flag_only = true},
{"beta1", REAL(beta1, 1), .below = true, .shared = true, .in_state = true},
{"beta2", REAL(beta2, 1), .shared = true, NEEDS_FACTORS(0.999), .in_state = true, .help = "decay rate of the second moment; with shampoo 1 sums, as AdaGrad"},
{"beta3", REAL(beta3, 1), .below = true, .shared = true, UNSET(-1, "beta1"), READ_IF(has_filter, "--beta1 above 0", -1), .rare = true, .help = "decay rate in the filtered gradient, a look-ahead; -1: beta1"},
{"epsilon", REAL(epsilon, HUGE_VAL), .shared = true, NEEDS_FACTORS(1e-6), .help = "damping added to second moments or factors"},
{"precondition_frequency", COUNT(precondition_frequency, 1, HUGE_VAL), READ_IF(has_frequency, "a --preconditioner with factors", 50), .common = true, .help = "updates between refreshes of the inverse roots"},
{"start_preconditioning_step", COUNT(start_preconditioning_step, 1, HUGE_VAL), UNSET(-1, "precondition_frequency"), READ_IF(has_start, "a --preconditioner with factors, or --grafting", -1), .help = "first preconditioned update; -1: --precondition-frequency"},
{"max_preconditioner_dim", .type = LT_FIELD_LIMIT, AT(max_preconditioner_dim), .high = HUGE_VAL, UNSET(LT_NO_LIMIT, "no limit"), .common = true, .in_state = true, .help = "largest dimension of a block; 0: no limit"},
{"grafting", CHOICE(grafting, "none|sgd|adagrad|rmsprop|adam"), .in_state = true, .help = "grafted method, which sets the length of updates"},
{"grafting_beta2", REAL(grafting_beta2, 1), UNSET(-1, "that of the method"), READ_IF(grafts_with_moment, "--grafting with a moment", -1), .in_state = true, .help = "decay rate of the grafted second moment; -1: 1 for adagrad, 0.99 for rmsprop, 0.999 for adam"},
{"grafting_epsilon", REAL(grafting_epsilon, HUGE_VAL), READ_IF(grafts_with_moment, "--grafting with a moment", 1e-10), .help = "added to the square root of the grafted second moment"},
{"grafting_drop_weighting", FLAG(grafting_drop_weighting), READ_IF(weights_squares, "--grafting with a moment and --grafting-beta2 below 1", 0), .rare = true, .in_state = true, .help = "add squares to the grafted second moment with weight 1 instead of 1 - beta2, without bias correction"},
{"inverse_exponent", .type = LT_FIELD_LIST, .set = lt_shampoo_set_exponents, .read = lt_shampoo_read_exponents, .write = lt_shampoo_write_exponents, .meta = "[ORDER:]E,...", NEEDS_FACTORS(0), .in_state = true, .help = "exponent e of A^(-e) for all factors or, with ORDER:, per dimension of blocks with ORDER dimensions (0: not preconditioned); default: 1/(2*order), with --preset transformer 2:0.5,0.5"},
{"ignored_basis_change_dims", .type = LT_FIELD_LIST, .set = lt_shampoo_set_ignored_dims, .read = lt_shampoo_read_ignored_dims, .meta = "ORDER:DIM,...", READ_IF(is_corrected, "a --preconditioner with an eigenvalue correction", 0), .rare = true, .in_state = true, .help = "with an eigenvalue correction: dimensions, of blocks with ORDER dimensions, that are not rotated into an eigenbasis"},
{"diagonal_vectors", FLAG(diagonal_vectors), NEEDS_FACTORS(1), .in_state = true, .help = "keep only the diagonal of the factor in blocks with one dimension"},
{"use_bias_correction", FLAG(use_bias_correction), READ_IF(corrects_bias, BIASED, 1), .help = "correct moments for their start at zero"},
{"per_param_steps", FLAG(per_param_steps), READ_IF(counts_steps, "--use-bias-correction, with " BIASED ", or --grafting adam without --grafting-drop-weighting", 0), .rare = true, .help = "count steps for bias correction per parameter, those with a gradient, as AdamW; default: all steps, as Meta's Shampoo"},
{"weight_decay_type", CHOICE(decay_type, "decoupled|l2|corrected|independent"), .rare = true, .in_state = true, .help = "weight decay per step: lr*wd*w (decoupled), wd*w in the gradient (l2), lr^2/peak_lr*wd*w (corrected), lr/peak_lr*wd*w (independent)"},
{"peak_lr", REAL(peak_lr, HUGE_VAL), .flag_only = true, READ_IF(decays_by_lr, "--weight-decay-type corrected or independent", 0), .rare = true, .help = "peak learning rate for corrected and independent weight decay; 0: --lr"},
{"preconditioner", CHOICE(preconditioner, "root|eigendecomposed|eigenvalue_corrected|kl|kl_eigendecomposed|kl_eigenvalue_corrected|spectral|sign"), .in_state = true, .help = "preconditioner: inverse roots, stored as matrices (root) or eigenvectors (eigendecomposed); a second moment in the eigenbasis (eigenvalue_corrected: SOAP); factors by KL minimization (kl, kl_eigendecomposed, kl_eigenvalue_corrected: KL-SOAP); without factors orthogonal updates (spectral) or signs (sign)"},
{"orthogonalize", FLAG(orthogonalize), READ_IF(is_corrected, "a --preconditioner with an eigenvalue correction", 0), .rare = true, .help = "SOAP-Muon: with an eigenvalue correction, orthogonalize updates of blocks with two or more dimensions in the eigenbasis, except those of --diagonal"},
{"orthogonalization", CHOICE(orthogonalization.method, "newton_schulz|polar_express|svd"), READ_IF(orthogonalizes, "--preconditioner spectral or --orthogonalize", 0), .shared = true, .rare = true},
{"newton_schulz_iterations", SMALL(orthogonalization.iterations, 1, 20), UNSET(0, "5"), READ_IF(makes_steps, "--preconditioner spectral or --orthogonalize, and an --orthogonalization that iterates", 0), .shared = true, .rare = true},
{"newton_schulz_coefficients", .type = LT_FIELD_LIST, .set = lt_shampoo_set_coefficients, .read = lt_shampoo_read_coefficients, .meta = "A,B,C", READ_IF(has_coefficients, "--preconditioner spectral or --orthogonalize, with --orthogonalization newton_schulz", 0), .shared = true, .rare = true},
{"bf16_orthogonalization", FLAG(orthogonalization.bf16), READ_IF(makes_steps, "--preconditioner spectral or --orthogonalize, and an --orthogonalization that iterates", 0), .shared = true, .rare = true},
{"scale_by_nuclear_norm", FLAG(orthogonalization.scale_by_nuclear_norm), READ_IF(is_exact, "--preconditioner spectral or --orthogonalize, with --orthogonalization svd", 0), .rare = true, .help = "multiply exact orthogonal updates by the sum of singular values: steepest descent in the spectral norm"},
{"spectral_scale", CHOICE(spectral_scale, "none|original|match_rms_adamw"), READ_IF(orthogonalizes, "--preconditioner spectral or --orthogonalize", 0), .rare = true, .help = "scale of orthogonal updates: 1, sqrt(max(1, outputs/inputs)), or the RMS of AdamW's updates"},
{"sign_scale", CHOICE(sign_scale, "none|l1"), READ_IF(is_sign, "--preconditioner sign", 0), .rare = true, .help = "scale of signs: 1, or the block's sum of magnitudes"},
{"epsilon_rule", CHOICE(epsilon_rule, "before|after|pseudo_inverse|relative"), NEEDS_FACTORS(LT_EPSILON_RELATIVE), .rare = true, .help = "damping of a factor: epsilon added before or after its eigendecomposition, none, or epsilon relative to its largest eigenvalue"},
{"rank_rtol", REAL(rank_rtol, 1), UNSET(-1, "by size and precision"), READ_IF(is_pseudo, "--epsilon-rule pseudo_inverse", -1), .rare = true, .help = "with pseudo_inverse: relative cutoff of eigenvalues; -1: size times machine epsilon"},
{"rank_atol", REAL(rank_atol, HUGE_VAL), READ_IF(is_pseudo, "--epsilon-rule pseudo_inverse", 0), .rare = true, .help = "with pseudo_inverse: absolute cutoff of eigenvalues"},
{"target_dimensionality", SMALL(target_dimensionality, LT_NO_LIMIT, LT_MAX_DIMS), UNSET(LT_NO_LIMIT, "no merging"), .read = lt_shampoo_read_dimensionality, READ_IF(merges_backward, "--merge-order backward", 1), .in_state = true, .help = "number of dimensions at which merging stops; 0: no merging"},
{"large_dims", CHOICE(large_dims, "cut|whole"), .rare = true, .in_state = true, .help = "dimensions above --max-preconditioner-dim: split into blocks (cut), or not split and without a factor (whole)"},
{"split", .type = LT_FIELD_LIST, .set = lt_shampoo_set_split, .read = lt_shampoo_read_split, .meta = "REGEX:DIM:PARTS", .in_state = true, .help = "split matching parameters into PARTS equal parts along DIM with separate blocks, such as joined queries, keys and values; the last match applies; qkv: the names of torchvision, timm and GPT-2; none: no split"},
{"one_sided", .type = LT_FIELD_LIST, .set = lt_shampoo_set_one_sided, .read = lt_shampoo_read_one_sided, .meta = "REGEX", .in_state = true, .help = "tables of rows, such as embeddings, in which only the last dimension has a factor"},
{"diagonal", .type = LT_FIELD_LIST, .set = lt_shampoo_set_diagonal, .read = lt_shampoo_read_diagonal, .meta = "REGEX", NEEDS_FACTORS(0), .in_state = true, .help = "parameters that keep only the diagonal of their factors, such as large embeddings"},
{"trace_scaling", REAL(trace_scaling, HUGE_VAL), NEEDS_FACTORS(0), .rare = true, .in_state = true, .help = "power of the trace by which a factor is divided"},
{"drop_weighting", FLAG(drop_weighting), READ_IF(weights_terms, "a --preconditioner with factors and --beta2 below 1", 0), .rare = true, .in_state = true, .help = "add new terms to the factors with weight 1 instead of 1 - beta2"},
{"merge_order", CHOICE(merge_order, "backward|forward"), .in_state = true, .help = "order in which small dimensions merge; forward: as in the 2023 release"},
{"tolerated_failures", SMALL(tolerated_failures, 0, INT_MAX), NEEDS_FACTORS(3), .rare = true, .help = "consecutive failed refreshes of a block before --shampoo-on-failure applies"},
{"shampoo_on_failure", CHOICE(on_failure, "abort|keep|diagonal"), NEEDS_FACTORS(LT_ON_FAILURE_KEEP), .rare = true, .help = "after more failures than tolerated: abort the run, keep the block's old roots, or use its factors' diagonals"},
{"root_solver", CHOICE(root_solver, "eigh|newton|higher_order|newton_db|qr|rational"), .derive = replace_unsuited_solver, NEEDS_FACTORS(LT_ROOT_EIGH), .help = "algorithm for inverse roots or eigenbases"},
{"solver_tolerance", REAL(solver_tolerance, 1), .below = true, READ_IF(iterates, "a --root-solver that iterates", 0), .rare = true, .help = "largest accepted residual of a root; 0: the solver's default"},
{"solver_iterations", SMALL(solver_iterations, 0, 10000), UNSET(0, "the solver's own"), READ_IF(has_iterations, "a --root-solver with iterations: newton, higher_order, newton_db, qr", 0), .rare = true, .help = "most iterations of the solver; 0: the solver's default"},
{"solver_order", SMALL(solver_order, 2, 6), UNSET(0, "3"), READ_IF(is_higher_order, "--root-solver higher_order", 0), .rare = true, .help = "with higher_order: terms of its series, 2 to 6; 0: 3"},
{"refresh", CHOICE(refresh_timing, "reference|staggered|async"), NEEDS_FACTORS(LT_REFRESH_STAGGERED), .help = "schedule of refreshes: all blocks every --precondition-frequency updates (reference), a share of them in each update (staggered), or on other threads, used one period later (async)"},
{"factor_dtype", CHOICE(factor_dtype, "f32|bf16|int8|int4"), NEEDS_FACTORS(0), .help = "format of factors and inverse roots between updates; below f32 factors are stored as Cholesky factors, in int8 and int4 with a 4-bit residual; int4 stores roots in int8"},
{"packed_factors", FLAG(packed_factors), NEEDS_FACTORS(0), .help = "store symmetric f32 factors and roots as triangles: same results, half the memory"},
{"factor_frequency", COUNT(factor_frequency, 1, HUGE_VAL), UNSET(0, "1; a quarter of precondition_frequency with another factor_dtype"), NEEDS_FACTORS(0), .help = "updates between gradients that enter the factors; 0: 1 with --factor-dtype f32, else a quarter of --precondition-frequency, as each one requantizes the factors"},
{"refresh_threads", SMALL(refresh_threads, 0, 1024), UNSET(0, "1"), READ_IF(is_async, "--refresh async", 0), .rare = true, .help = "with --refresh async: number of threads; 0: 1"},
};
/* clang-format on */

/* --- Presets --- */

static const lt_optim_preset presets[] = {
    {"recommended", 0.1, &LT_SHAMPOO_DEFAULTS},
    /* AdaGrad grafting with its large epsilon, forward merging, epsilon after the decomposition, and only a warning
     * when a root fails. */
    {"paper", 0.01,
     &(lt_shampoo_config){.beta1 = 0.9,
                          .beta2 = 1,
                          .epsilon = 1e-12,
                          .grafting = LT_GRAFTING_ADAGRAD,
                          .grafting_epsilon = 1e-3,
                          .merge_order = LT_MERGE_FORWARD,
                          .epsilon_rule = LT_EPSILON_AFTER,
                          .precondition_frequency = 1,
                          .tolerated_failures = INT_MAX,
                          LT_SHAMPOO_REFERENCE_REST}},
    {"reference", 0.01, &LT_SHAMPOO_REFERENCE},
    {"transformer", 0.001,
     &(lt_shampoo_config){.beta1 = 0.9,
                          .beta2 = 0.999,
                          .beta3 = -1,
                          .epsilon = 1e-6,
                          .epsilon_rule = LT_EPSILON_RELATIVE,
                          .weight_decay = 0.1,
                          .decay_scope = LT_DECAY_WEIGHTS,
                          .max_preconditioner_dim = 1024,
                          .precondition_frequency = 50,
                          .start_preconditioning_step = -1,
                          .use_bias_correction = true,
                          .grafting = LT_GRAFTING_ADAM,
                          .grafting_beta2 = -1,
                          .grafting_epsilon = 1e-8,
                          .inverse_exponent = {{[2] = {0.5, 0.5}}, {[2] = {true, true}}},
                          .rank_rtol = -1,
                          .target_dimensionality = 2,
                          .tolerated_failures = 3,
                          .on_failure = LT_ON_FAILURE_KEEP,
                          .diagonal_vectors = true,
                          .root_solver = LT_ROOT_RATIONAL,
                          .refresh_timing = LT_REFRESH_STAGGERED,
                          .split = {LT_SPLIT_QKV},
                          .one_sided = LT_SHAMPOO_TABLES}},
    /* As in the paper, vectors get Adam's update. Blocks of 1024 and merged windows are Lather's: a basis of the
     * 4608 inputs of a 3x3 convolution costs 90 times one of 1024. */
    {"soap", 0.003,
     &(lt_shampoo_config){.preconditioner = LT_PRECONDITIONER_CORRECTED,
                          .beta1 = 0.95,
                          .beta2 = 0.95,
                          .epsilon = 1e-8,
                          .weight_decay = 0.01,
                          .grafting_epsilon = 1e-10,
                          .rank_rtol = -1,
                          .precondition_frequency = 10,
                          .tolerated_failures = 3,
                          .diagonal_vectors = true,
                          LT_SHAMPOO_REFERENCE_REST}},
};
enum { PRESETS = sizeof presets / sizeof *presets, SOAP = PRESETS - 1 };

lt_status lt_shampoo_preset(const char *name, lt_shampoo_config *out)
{
    const char *names[PRESETS];
    const lt_optim_preset *preset = lt_optim_find_preset(&lt_optim_family_shampoo, name);
    if (preset) {
        *out = *(const lt_shampoo_config *)preset->config;
        return LT_OK;
    }
    for (int i = 0; i < PRESETS; i++)
        names[i] = presets[i].name;
    return lt_fail(LT_E_ARG,
                   "shampoo: no preset '%s'; the nearest is '%s'; presets: paper, reference, "
                   "recommended, soap, transformer",
                   name, lt_nearest_word(name, names, PRESETS));
}

/* --- Rows of the registry --- */

static lt_status make(lt_optim **out, const lt_params *params, const void *config, double lr)
{
    lt_shampoo_config c = *(const lt_shampoo_config *)config;
    c.nesterov = c.nesterov && c.momentum > 0;
    c.peak_lr = c.peak_lr > 0 ? c.peak_lr : lr;
    return lt_optim_shampoo(out, params, &c);
}

/* Fields that both rows share; they differ in their presets. */
#define METHOD                                                                      \
    .group = "Shampoo", .config_bytes = sizeof(lt_shampoo_config), .field = fields, \
    .fields = sizeof fields / sizeof *fields, .divided = true, .make = make

const lt_optim_family lt_optim_family_shampoo = {
    METHOD,
    .name = "shampoo",
    .preset = presets,
    .presets = PRESETS,
    .preset_help =
        "settings to start from, lr included: Lather's recommendation, the 2023 paper, today's reference implementation, transformers, or SOAP; other flags override them",
    .published = &LT_SHAMPOO_REFERENCE,
};

const lt_optim_family lt_optim_family_soap = {
    METHOD,
    .name = "soap",
    .preset = &presets[SOAP],
    .presets = 1,
};

/* --- Constructor --- */

lt_status lt_shampoo_check_config(lt_shampoo_config *c)
{
    LT_TRY(lt_optim_check(&lt_optim_family_shampoo, c));
    return lt_shampoo_resolve_config(c);
}

lt_status lt_optim_shampoo(lt_optim **out, const lt_params *params, const lt_shampoo_config *config)
{
    lt_shampoo_config c = config ? *config : LT_SHAMPOO_DEFAULTS;
    LT_TRY(lt_shampoo_check_config(&c));
    return lt_shampoo_new(out, params, &c);
}
