/** Adafactor: second moments of matrices as the product of a row and a column. */
#ifndef LATHER_ADAFACTOR_H
#define LATHER_ADAFACTOR_H

#include "lather/optim.h"

typedef struct lt_adafactor_config {
    double beta2_decay; /**< second moments in step t decay by 1 - t^beta2_decay; at most 0 */
    double
        eps; /**< floor of the root of a second moment; 0: the machine epsilon of the weights' dtype */
    double rms_eps;      /**< floor of the RMS of a weight in the scale of its update */
    double update_clip;  /**< largest RMS of an update before the learning rate, >= 1 */
    double weight_decay; /**< decoupled: a weight shrinks by lr * weight_decay per step */
    lt_decay_scope decay_scope;
} lt_adafactor_config;
#define LT_ADAFACTOR_DEFAULTS \
    ((lt_adafactor_config){.beta2_decay = -0.8, .rms_eps = 1e-3, .update_clip = 1})

/** Makes Adafactor, without a first moment. In step t of a parameter w of n elements with RMS(w) = |w| / sqrt(n):
 *
 *     r, c, v = lerp to the mean of g^2 of each row, of each column, and to g^2, by t^beta2_decay
 *     V = r c^T / max(mean of r, eps)     of a matrix, dimension 0 by all others; V = v of a vector
 *     u = g / max(sqrt(V), eps)
 *     w = w - lr weight_decay w - min(lr, 1/sqrt(t)) max(rms_eps, RMS(w)) u / max(1, RMS(u) / update_clip)
 *
 * as torch.optim.Adafactor, but that factors the last two dimensions of a filter. State: r and c of a matrix, v of a vector.
 * As lt_optim_sgd(); config NULL: the defaults.
 * Errors: LT_E_ARG, LT_E_NOMEM; LT_E_UNSUPPORTED (the device's memory is not the host's).
 * Source: Shazeer & Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018 (arXiv 1804.04235),
 * algorithms 4 and 5. */
LT_API LT_MUST_CHECK lt_status lt_optim_adafactor(lt_optim **out, const lt_params *params,
                                                  const lt_adafactor_config *config);

#endif
