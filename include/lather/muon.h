/** Muon: momentum whose matrices are made orthogonal; AdamW for what is no matrix. */
#ifndef LATHER_MUON_H
#define LATHER_MUON_H

#include "lather/detail/name_regex.h"
#include "lather/optim.h"
#include "lather/orthogonalization.h"

/** What an orthogonal update of a [rows,cols] matrix is multiplied by. */
typedef enum lt_muon_scale {
    /** Jordan's: sqrt(max(1, outputs / inputs)) of a matrix, [out,in] or by its fans [in,out]; of a filter of his code's
     *  size(-2) / size(-1), its height over its width: 1 of a square one. Joined q, k and v are one matrix. */
    LT_MUON_ORIGINAL,
    LT_MUON_MATCH_RMS_ADAMW /**< 0.2 sqrt(max(rows, cols)): as long as AdamW's, so that its lr serves */
} lt_muon_scale;

typedef struct lt_muon_config {
    double momentum;     /**< memory of the mean gradient, in [0,1) */
    bool nesterov;       /**< look ahead: (1 - momentum) g + momentum m instead of m */
    double weight_decay; /**< decoupled: a weight shrinks by lr * weight_decay a step */
    lt_decay_scope decay_scope;
    lt_muon_scale scale;
    lt_orthogonalization orthogonalization; /**< iterations at least 1 */
    /** Parameters that AdamW updates besides those of fewer than 2 dimensions: embeddings, positions,
     *  heads. */
    lt_name_regex adamw_params;
    double adamw_lr_scale; /**< of these, times lr */
    double beta1, beta2;   /**< AdamW's, in [0,1) */
    double eps;            /**< AdamW's, added after the square root */
} lt_muon_config;

/** Names of embeddings, positions, class tokens and heads in torchvision, timm and GPT-2. */
#define LT_MUON_ADAMW_PARAMS \
    "embed|(^|[.])(wte|wpe|class_token|cls_token|heads?|lm_head|classifier|fc)([.]|$)"
/** AdamW's learning rate and decay carry over. */
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

/** A weight of 2 and more dimensions is the matrix of its first one and all others together. m: its mean
 *  gradient; its update is u = m, or the look-ahead, whose singular values are brought near 1. As lt_optim_sgd().
 *  config NULL: the defaults. Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024; LT_MUON_MATCH_RMS_ADAMW
 *  and decay: Liu et al., "Muon is scalable for LLM training", 2025 (arXiv 2502.16982). */
LT_API LT_MUST_CHECK lt_status lt_optim_muon(lt_optim **out, const lt_params *params,
                                             const lt_muon_config *config);

/** Whether the optimizer is Muon, and makes updates of the parameter of that name orthogonal. */
LT_API bool lt_muon_has_matrix(const lt_optim *optim, const char *param);

/** Seconds that the last step took for matrices: means, orthogonal updates, weights. 0 if it was skipped or is
 *  a replay of a graph; NaN if the optimizer is another one. On a device with a queue they are those of queueing. */
LT_API double lt_muon_seconds(const lt_optim *optim);

#endif
