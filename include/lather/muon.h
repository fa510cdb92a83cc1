/** Muon: momentum with orthogonalized matrices; AdamW for all other parameters. */
#ifndef LATHER_MUON_H
#define LATHER_MUON_H

#include "lather/detail/name_regex.h"
#include "lather/optim.h"
#include "lather/orthogonalization.h"

/** Rule that scales the orthogonal update of a [rows,cols] matrix. */
typedef enum lt_muon_scale {
    /** Jordan's: sqrt(max(1, outputs / inputs)) of a matrix stored [out,in] or, by its fans, [in,out]; of a
     *  filter, as in his code, by size(-2) / size(-1), so 1 if it is square. Joined q, k and v count as one
     *  matrix without a split. */
    LT_MUON_ORIGINAL,
    LT_MUON_MATCH_RMS_ADAMW /**< 0.2 sqrt(max(rows, cols)): gives AdamW's RMS, so its lr applies */
} lt_muon_scale;

/** Second moment v of the orthogonal update O, by whose root it is divided; beta2 and eps are AdamW's. */
typedef enum lt_muon_moment {
    LT_MUON_NO_MOMENT,
    /** NorMuon: mean square of each output's elements. Li et al. 2025 (arXiv 2510.05491), algorithm 1 */
    LT_MUON_OF_OUTPUTS,
    /** AdaMuon: of each element; the sign of the momentum is orthogonalized. Si et al. 2025 (arXiv 2507.11005) */
    LT_MUON_OF_ELEMENTS
} lt_muon_moment;

typedef struct lt_muon_config {
    double momentum;     /**< decay rate of the momentum, in [0,1) */
    bool nesterov;       /**< look ahead: (1 - momentum) g + momentum m instead of m */
    double weight_decay; /**< decoupled: a weight shrinks by lr * weight_decay per step */
    lt_decay_scope decay_scope;
    lt_muon_scale scale;
    lt_muon_moment
        moment; /**< the quotient gets the norm of O, or with MATCH_RMS_ADAMW an RMS of 0.2 */
    lt_orthogonalization orthogonalization; /**< method; iterations at least 1 */
    /** Parameters that AdamW updates in addition to those of fewer than 2 dimensions: embeddings, positions,
     *  heads. */
    lt_name_regex adamw_params;
    /** Joined parameters, whose parts are separate matrices: the last rule that matches a parameter applies; empty
     *  names end the list. */
    lt_param_split split[LT_MAX_SPLITS];
    double adamw_lr_scale; /**< learning rate of these parameters, relative to lr */
    double beta1, beta2;   /**< AdamW's decay rates, in [0,1) */
    double eps;            /**< added after AdamW's square root */
} lt_muon_config;

/** Regex of the default adamw_params: embeddings, positions, class tokens, heads in torchvision, timm and GPT-2. */
#define LT_MUON_ADAMW_PARAMS \
    "embed|(^|[.])(wte|wpe|class_token|cls_token|heads?|lm_head|classifier|fc)([.]|$)"
/** Defaults of lt_muon_config, with which AdamW's learning rate and decay carry over. */
#define LT_MUON_DEFAULTS                                            \
    ((lt_muon_config){.momentum = 0.95,                             \
                      .nesterov = true,                             \
                      .weight_decay = 0.1,                          \
                      .decay_scope = LT_DECAY_WEIGHTS,              \
                      .scale = LT_MUON_MATCH_RMS_ADAMW,             \
                      .orthogonalization = {.iterations = 5},       \
                      .adamw_params = {LT_MUON_ADAMW_PARAMS, true}, \
                      .adamw_lr_scale = 1,                          \
                      .beta1 = 0.9,                                 \
                      .beta2 = 0.95,                                \
                      .eps = 1e-8})

/** Makes Muon. A weight of 2 or more dimensions is the matrix of its first dimension and all others. m is the
 *  mean gradient; the update is u = m, or the look-ahead, with its singular values brought near 1. Ownership
 *  as in lt_optim_sgd(). config NULL: the defaults.
 *  Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024; LT_MUON_MATCH_RMS_ADAMW
 *  and decay: Liu et al., "Muon is scalable for LLM training", 2025 (arXiv 2502.16982). */
LT_API LT_MUST_CHECK lt_status lt_optim_muon(lt_optim **out, const lt_params *params,
                                             const lt_muon_config *config);

/** Returns true if the optimizer is Muon and orthogonalizes the updates of the parameter of that name. */
LT_API bool lt_muon_has_matrix(const lt_optim *optim, const char *param);

/** Returns the seconds that the last step took for matrices: momentum, orthogonalization, weights. 0 if it
 *  was skipped or replayed by a graph; NaN for another optimizer. On a device with a stream it is the time to
 *  queue the work. */
LT_API double lt_muon_seconds(const lt_optim *optim);

#endif
