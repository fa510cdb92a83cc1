/** Distributed Shampoo: one Kronecker factor per dimension of each block of each parameter. */
#ifndef LATHER_SHAMPOO_H
#define LATHER_SHAMPOO_H

#include "lather/optim.h"
#include "lather/orthogonalization.h"
#include "lather/shampoo_kinds.h"

enum { LT_NO_LIMIT = 0 };

/** Exponents that replace 1/(2*order) for blocks of one order: exponent[order][dim]. */
typedef struct lt_exponents {
    double value[LT_MAX_DIMS + 1][LT_MAX_DIMS];
    /** true if an exponent is set; false: default. A set 0 leaves the dimension alone */
    bool set[LT_MAX_DIMS + 1][LT_MAX_DIMS];
} lt_exponents;

/** Names and meanings are those of the paper (Shi et al. 2023) and its reference implementation. */
typedef struct lt_shampoo_config {
    double beta1;   /**< decay rate of the filtered gradient, in [0,1); 0: no filter */
    double beta2;   /**< decay rate of the factors, in [0,1]; 1: AdaGrad's sum */
    double beta3;   /**< decay rate of the filter when it is applied, in [0,1); < 0: beta1 */
    double epsilon; /**< damping of the factors, > 0 (>= 0 with the pseudo-inverse) */
    double momentum, dampening;
    bool nesterov;
    double weight_decay;
    lt_decay_type decay_type;
    lt_decay_scope decay_scope;
    double peak_lr;                     /**< largest lr, for LT_DECAY_CORRECTED and _INDEPENDENT */
    int64_t max_preconditioner_dim;     /**< largest dimension of a block, >= 1, or LT_NO_LIMIT */
    int64_t precondition_frequency;     /**< steps between refreshes of inverse roots, >= 1 */
    int64_t start_preconditioning_step; /**< first step with roots; -1: precondition_frequency */
    bool use_bias_correction;
    /** Bias corrections count the steps in which the parameter has a gradient; false: all steps. */
    bool per_param_steps;
    lt_grafting grafting;
    double grafting_beta2;   /**< < 0: 1 for AdaGrad, 0.99 for RMSprop, 0.999 for Adam */
    double grafting_epsilon; /**< added after the square root of the second moment */
    /** Squares enter grafting's second moment with weight 1 instead of 1 - beta2; its bias is not corrected. */
    bool grafting_drop_weighting;
    lt_exponents inverse_exponent;
    lt_preconditioner preconditioner;
    /** With an eigenvalue correction: updates of blocks of 2 and more dimensions, other than diagonal ones, are replaced
     *  by their orthogonal factor in the basis, times spectral_scale. SOAP-Muon: Vyas, "Improving SOAP using iterative
     *  whitening and Muon", 2025. */
    bool orthogonalize;
    /** Method of orthogonalize, and of LT_PRECONDITIONER_SPECTRAL. */
    lt_orthogonalization orthogonalization;
    lt_spectral_scale spectral_scale;
    lt_sign_scale sign_scale;
    /** [order][dim]: with LT_PRECONDITIONER_CORRECTED this dimension is not rotated. */
    bool ignored_basis_change_dims[LT_MAX_DIMS + 1][LT_MAX_DIMS];
    lt_epsilon_rule epsilon_rule;
    /** cutoffs of the pseudo-inverse; rtol < 0: numel * machine eps */
    double rank_rtol, rank_atol;
    lt_merge_order merge_order;
    /** merging stops at this number of dimensions; LT_NO_LIMIT: merges nothing */
    int target_dimensionality;
    lt_large_dims large_dims;
    /** The last rule that matches a parameter applies; empty names end the list. */
    lt_param_split split[LT_MAX_SPLITS];
    /** Tables of rows: all dimensions but the last merge, are not split and have no factor. */
    lt_name_regex one_sided;
    lt_name_regex diagonal; /**< parameters whose blocks keep only the diagonal of their factors */
    double trace_scaling;   /**< x: a factor A is used as A * max(tr A, epsilon)^-x */
    bool drop_weighting;    /**< new terms enter the factors with weight 1 instead of 1 - beta2 */
    int tolerated_failures; /**< consecutive failed refreshes that a block may have */
    lt_on_failure on_failure;
    bool diagonal_vectors; /**< blocks with one dimension keep only the diagonal of their factor */
    lt_root_solver root_solver;
    double solver_tolerance; /**< tolerance of an iterative solver; 0: the solver's default */
    int solver_iterations;   /**< most iterations of the solver; 0: the solver's default */
    int solver_order;        /**< terms of LT_ROOT_HIGHER_ORDER's series, 2 to 6; 0: 3 */
    lt_refresh_timing refresh_timing;
    int refresh_threads; /**< threads that compute roots with LT_REFRESH_ASYNC; 0: 1 */
    /** Steps between gradients that enter the factors, >= 1; 0: 1 with factors in f32, else a quarter of
     *  precondition_frequency, rounded up. */
    int64_t factor_frequency;
    /** Format of factors and of roots or eigenbases between steps. With LT_STATE_INT4 the latter are in
     *  LT_STATE_INT8. */
    lt_state_dtype factor_dtype;
    bool packed_factors; /**< store symmetric matrices in f32 as triangles */
} lt_shampoo_config;

/** The preset "recommended", the default of --optim shampoo. */
#define LT_SHAMPOO_DEFAULTS                                   \
    ((lt_shampoo_config){.beta2 = 0.999,                      \
                         .beta3 = -1,                         \
                         .epsilon = 1e-6,                     \
                         .epsilon_rule = LT_EPSILON_RELATIVE, \
                         .momentum = 0.9,                     \
                         .nesterov = true,                    \
                         .weight_decay = 1e-4,                \
                         .decay_scope = LT_DECAY_WEIGHTS,     \
                         .max_preconditioner_dim = 1024,      \
                         .precondition_frequency = 50,        \
                         .start_preconditioning_step = -1,    \
                         .use_bias_correction = true,         \
                         .grafting = LT_GRAFTING_SGD,         \
                         .grafting_beta2 = -1,                \
                         .grafting_epsilon = 1e-10,           \
                         .rank_rtol = -1,                     \
                         .target_dimensionality = 1,          \
                         .tolerated_failures = 3,             \
                         .on_failure = LT_ON_FAILURE_KEEP,    \
                         .diagonal_vectors = true,            \
                         .root_solver = LT_ROOT_RATIONAL,     \
                         .refresh_timing = LT_REFRESH_STAGGERED})

/** Makes Distributed Shampoo. Borrows the parameters: they must outlive the optimizer. config NULL: the
 *  defaults. Errors: LT_E_ARG (a value out of range, named with the range), LT_E_NOMEM. Source: Shi et al.,
 *  "A Distributed Data-Parallel PyTorch Implementation of the Distributed Shampoo Optimizer", 2023 (arXiv
 *  2309.06497). */
LT_API LT_MUST_CHECK lt_status lt_optim_shampoo(lt_optim **out, const lt_params *params,
                                                const lt_shampoo_config *config);

/** Sets the config of a preset: "paper" (2023), "reference" (today's reference implementation),
 *  "recommended", "transformer" or "soap".
 *  Errors: LT_E_ARG, listing the names. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_preset(const char *name, lt_shampoo_config *out);

#endif
