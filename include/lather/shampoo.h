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
    LT_EPSILON_BEFORE,         /**< decompose A + eps*I */
    LT_EPSILON_AFTER,          /**< decompose A, shift the eigenvalues (the 2023 rule) */
    LT_EPSILON_PSEUDO_INVERSE, /**< no eps; small eigenvalues give 0 */
    LT_EPSILON_RELATIVE        /**< as AFTER, with eps times the largest eigenvalue */
} lt_epsilon_rule;

/** What stands for A^(-e) of each factor A = Q L Q^T. */
typedef enum lt_preconditioner {
    LT_PRECONDITIONER_ROOT,              /**< the inverse root, kept as a matrix */
    LT_PRECONDITIONER_EIGENDECOMPOSED,   /**< the same, kept as Q and L */
    LT_PRECONDITIONER_CORRECTED,         /**< Q, with a second moment kept in its basis (SOAP) */
    LT_PRECONDITIONER_KL,                /**< as ROOT; factors see the preconditioned gradient */
    LT_PRECONDITIONER_KL_EIGENDECOMPOSED /**< as EIGENDECOMPOSED, with KL's factors */
} lt_preconditioner;

/** How inverse roots, or eigenbases, are computed. */
typedef enum lt_root_solver {
    LT_ROOT_EIGH,         /**< eigendecomposition */
    LT_ROOT_NEWTON,       /**< coupled Newton iteration: Guo & Higham 2006; integer roots */
    LT_ROOT_HIGHER_ORDER, /**< coupled iteration with a truncated binomial series */
    LT_ROOT_NEWTON_DB,    /**< Newton-Denman-Beavers: roots 2 and 4 */
    LT_ROOT_QR,           /**< orthogonal iteration from the last basis */
    LT_ROOT_TRACKED,      /**< the last basis, turned by simultaneous Jacobi rotations */
    LT_ROOT_RATIONAL      /**< a sum of shifted inverses: Hale, Higham & Trefethen 2008 */
} lt_root_solver;

/** When roots are computed and used. */
typedef enum lt_refresh_timing {
    LT_REFRESH_REFERENCE, /**< all when t mod f == 0 or t == start, used at once */
    LT_REFRESH_STAGGERED, /**< after a first time at start: in every step those of 1/f of the cost */
    LT_REFRESH_ASYNC      /**< as REFERENCE, on another thread; used from step t + f on */
} lt_refresh_timing;

/** What a block does when its roots fail more than tolerated_failures times in a row. */
typedef enum lt_on_failure {
    LT_ON_FAILURE_ABORT,   /**< the step fails */
    LT_ON_FAILURE_KEEP,    /**< goes on with its old roots */
    LT_ON_FAILURE_DIAGONAL /**< goes on with the powers of the factors' diagonals */
} lt_on_failure;

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
    /** [order][dim]: with LT_PRECONDITIONER_CORRECTED this dimension keeps its own basis. */
    bool ignored_basis_change_dims[LT_MAX_DIMS + 1][LT_MAX_DIMS];
    lt_epsilon_rule epsilon_rule;
    double rank_rtol, rank_atol; /**< cut of the pseudo-inverse; rtol < 0: numel * machine eps */
    lt_merge_order merge_order;
    int target_dimensionality; /**< merging stops at this many dimensions; LT_NO_LIMIT: infinite */
    double trace_scaling;      /**< x: a factor A is used as A * max(tr A, epsilon)^-x */
    bool drop_weighting;       /**< new terms enter the factors with weight 1 */
    int tolerated_failures;    /**< of a block's roots, in a row */
    lt_on_failure on_failure;
    bool diagonal_vectors; /**< blocks with one dimension keep the diagonal of their factor only */
    lt_root_solver root_solver;
    double solver_tolerance; /**< 0: the solver's own */
    int solver_iterations;   /**< 0: the solver's own */
    int solver_order;        /**< terms of LT_ROOT_HIGHER_ORDER's series, 2 to 6; 0: 3 */
    lt_refresh_timing refresh_timing;
    int refresh_threads; /**< of LT_REFRESH_ASYNC; 0: 1 */
} lt_shampoo_config;

/** What train_resnet50 --optim shampoo does: the preset "recommended". */
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

/** Borrows the parameters: they must outlive the optimizer. config NULL: the defaults.
 *  Errors: LT_E_ARG (a value out of range, named with the range), LT_E_NOMEM.
 *  Source: Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the Distributed
 *  Shampoo Optimizer", 2023 (arXiv 2309.06497). */
LT_API LT_MUST_CHECK lt_status lt_optim_shampoo(lt_optim **out, const lt_params *params,
                                                const lt_shampoo_config *config);

/** Settings under a name: "paper" (2023), "reference" (today's), "recommended" (ours), "soap".
 *  Errors: LT_E_ARG, listing the names. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_preset(const char *name, lt_shampoo_config *out);

#endif
