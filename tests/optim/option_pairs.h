/* Tables of option_pairs.c: values of settings, and settings without effect. */
#ifndef LT_TESTS_OPTIM_OPTION_PAIRS_H
#define LT_TESTS_OPTIM_OPTION_PAIRS_H

/* Values of fields whose type does not tell one, or where that of the type would change nothing here. */
static const char *const field_values[][2] = {
    {"inverse_exponent", "0.4"},
    {"ignored_basis_change_dims", "2:0"},
    {"newton_schulz_coefficients", "3,-3.2,1.2"},
    {"split", "qkv"},
    {"one_sided", "wte"},
    {"diagonal", "wte"},
    {"adamw_params", "^m"},
    {"start_preconditioning_step", "4"},
    {"precondition_frequency", "3"},
    {"factor_frequency", "2"},
    {"target_dimensionality", "2"},
    {"beta3", "0.5"},
    {"solver_tolerance", "1e-4"},
    {"solver_order", "4"},
    {"rms_epsilon", "2"},
    {"d_coef", "1000"},
};

/* Settings of time, memory and errors: they change no weight where nothing fails. */
static const char *const no_effect[] = {"tolerated_failures", "shampoo_on_failure",
                                        "refresh_threads"};

/* Pairs of which one setting has no effect for a reason in the formulas. */
static const struct {
    const char *setting, *with, *reason;
} reasons[] = {
    {"epsilon_rule", "preconditioner=eigenvalue_corrected", "damping changes no eigenvector"},
    {"epsilon", "epsilon_rule=pseudo_inverse", "a pseudo-inverse adds none"},
    {"one_sided", "large_dims", "the longer dimension of wte is whole with either"},
    {"epsilon_rule", "preset=soap", "damping changes no eigenvector"},
    {"merge_order", "preconditioner=sign", "signs do not depend on a block's shape"},
    {"target_dimensionality", "preconditioner=sign", "signs do not depend on a block's shape"},
    {"split", "preset=transformer", "the preset has it"},
    {"one_sided", "preset=transformer", "the preset has it"},
    {"one_sided", "diagonal", "a parameter that both match keeps the diagonal"},
    {"always_adapt", "norm_weight_decay", "with decay of all parameters all adapt"},
    {"trust_clip", "bias_correction", "the ratios of these steps are below 1"},
    {"trust_clip", "grad_averaging", "the ratios of these steps are below 1"},
    {"weight_decay", "hyperball",
     "weights of constant norm do not decay, vectors by norm_weight_decay"},
    {"weight_decay_type", "hyperball", "weights of constant norm do not decay"},
    {"trust_coefficient", "hyperball", "it scales updates, which hyperball normalizes"},
    {"trust_clip", "hyperball", "it scales updates, which hyperball normalizes"},
    {"epsilon", "hyperball", "LARS: it scales updates, which hyperball normalizes"},
};

#endif
