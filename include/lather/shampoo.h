/** Distributed Shampoo: one Kronecker factor per dimension of each block of each parameter. */
#ifndef LATHER_SHAMPOO_H
#define LATHER_SHAMPOO_H

#include "lather/optim.h"

typedef enum lt_grafting {
    LT_GRAFTING_NONE,
    LT_GRAFTING_SGD,
    LT_GRAFTING_ADAGRAD,
    LT_GRAFTING_RMSPROP,
    LT_GRAFTING_ADAM
} lt_grafting;

typedef enum lt_decay_type {
    LT_DECAY_DECOUPLED,  /**< direction += wd * w */
    LT_DECAY_L2,         /**< gradient += wd * w */
    LT_DECAY_CORRECTED,  /**< direction += wd * lr / peak_lr * w */
    LT_DECAY_INDEPENDENT /**< direction += wd / peak_lr * w */
} lt_decay_type;

typedef enum lt_epsilon_rule {
    LT_EPSILON_BEFORE,        /**< decompose A + eps*I */
    LT_EPSILON_AFTER,         /**< decompose A, shift the eigenvalues (the 2023 rule) */
    LT_EPSILON_PSEUDO_INVERSE /**< no eps; small eigenvalues give 0 */
} lt_epsilon_rule;

/** What stands for A^(-e) of each factor A = Q L Q^T. */
typedef enum lt_preconditioner {
    LT_PRECONDITIONER_ROOT,            /**< the inverse root, kept as a matrix */
    LT_PRECONDITIONER_EIGENDECOMPOSED, /**< the same, kept as Q and L */
    LT_PRECONDITIONER_CORRECTED,       /**< Q, with a second moment kept in its basis (SOAP) */
    LT_PRECONDITIONER_KL               /**< as ROOT; factors see the preconditioned gradient */
} lt_preconditioner;

typedef enum lt_merge_order { LT_MERGE_BACKWARD, LT_MERGE_FORWARD } lt_merge_order;

enum { LT_NO_LIMIT = 0 };

/** Exponents that replace 1/(2*order) for blocks of one order: exponent[order][dim]. */
typedef struct lt_exponents {
    double value[LT_MAX_DIMS + 1][LT_MAX_DIMS];
    bool set[LT_MAX_DIMS + 1][LT_MAX_DIMS]; /**< false: the default; a set 0 leaves the dim alone */
} lt_exponents;

/** Names and meaning: the paper's (Shi et al. 2023) and its reference implementation's. */
typedef struct lt_shampoo_config {
    double beta1;   /**< memory of the filtered gradient, in [0,1); 0: none */
    double beta2;   /**< memory of the factors, in [0,1]; 1: AdaGrad's sum */
    double beta3;   /**< in [0,1), or < 0: beta1 */
    double epsilon; /**< damping of the factors, > 0 (>= 0 with the pseudo-inverse) */
    double momentum, dampening;
    bool nesterov;
    double weight_decay;
    lt_decay_type decay_type;
    lt_decay_scope decay_scope;
    double peak_lr;                     /**< of LT_DECAY_CORRECTED and LT_DECAY_INDEPENDENT */
    int64_t max_preconditioner_dim;     /**< block side, >= 1; LT_NO_LIMIT: infinite */
    int64_t precondition_frequency;     /**< steps between roots, >= 1 */
    int64_t start_preconditioning_step; /**< -1: precondition_frequency */
    bool use_bias_correction;
    lt_grafting grafting;
    double grafting_beta2;   /**< < 0: 1 for AdaGrad, 0.99 for RMSprop, 0.999 for Adam */
    double grafting_epsilon; /**< added after the square root */
    lt_exponents inverse_exponent;
    lt_preconditioner preconditioner;
    lt_epsilon_rule epsilon_rule;
    double rank_rtol, rank_atol; /**< cut of the pseudo-inverse; rtol < 0: numel * machine eps */
    lt_merge_order merge_order;
    int target_dimensionality; /**< merging stops at this many dimensions; LT_NO_LIMIT: infinite */
    double trace_scaling;      /**< x: a factor A is used as A * max(tr A, epsilon)^-x */
    bool drop_weighting;       /**< new terms enter the factors with weight 1 */
    int tolerated_failures;    /**< of a block's roots, in a row */
} lt_shampoo_config;

#define LT_SHAMPOO_DEFAULTS                                \
    ((lt_shampoo_config){.beta1 = 0.9,                     \
                         .beta2 = 1.0,                     \
                         .beta3 = -1,                      \
                         .epsilon = 1e-12,                 \
                         .max_preconditioner_dim = 1024,   \
                         .precondition_frequency = 1,      \
                         .start_preconditioning_step = -1, \
                         .use_bias_correction = true,      \
                         .grafting_beta2 = -1,             \
                         .grafting_epsilon = 1e-10,        \
                         .target_dimensionality = 1,       \
                         .tolerated_failures = 3})

/** Borrows the parameters: they must outlive the optimizer. config NULL: the defaults.
 *  Errors: LT_E_ARG (a value out of range, named with the range), LT_E_NOMEM.
 *  Source: Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the Distributed
 *  Shampoo Optimizer", 2023 (arXiv 2309.06497). */
LT_API LT_MUST_CHECK lt_status lt_optim_shampoo(lt_optim **out, const lt_params *params,
                                                const lt_shampoo_config *config);

/** A line per block for a table before training: what is kept and what it costs. */
typedef struct lt_shampoo_block {
    const char *param;
    int block;
    lt_shape shape;       /**< after merging and splitting */
    int64_t factor_bytes; /**< of factors and roots */
} lt_shampoo_block;
/** Block number index of an optimizer made by lt_optim_shampoo(). Errors: LT_E_ARG, LT_END. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index,
                                                   lt_shampoo_block *out);

#endif
