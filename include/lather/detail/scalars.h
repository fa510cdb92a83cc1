/** Scalars of a step, in one block on the device. */
#ifndef LATHER_DETAIL_SCALARS_H
#define LATHER_DETAIL_SCALARS_H

/* Not a stable interface: may change in any release. */

#include <stdint.h>

/** Kernels read it on the device, so that a captured step contains no number by value. The host writes the
 *  first group before a step, kernels write the second. */
typedef struct lt_scalars {
    double lr;        /**< learning rate of this step, before a slot's lr_scale */
    double clip_norm; /**< largest allowed global gradient norm; 0: no clipping */
    int64_t attempt;  /**< 1 in the first step; always advances */

    double loss_scale;  /**< loss scale, a factor of the gradients; 1 without 16-bit floats */
    double grad_norm;   /**< global norm of the unscaled gradients, before clipping */
    double grad_scale;  /**< factor that unscales and clips gradients */
    int64_t applied;    /**< steps that changed parameters, including this one */
    int32_t finite;     /**< false: a gradient is NaN or Inf; parameters and state are unchanged */
    int32_t good_steps; /**< finite steps since the loss scale last changed */
} lt_scalars;

/** Dynamic loss scaling of f16 passes: the scale is multiplied by backoff after a gradient that is not
 *  finite, and by growth after interval consecutive finite ones.
 *  Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2. */
typedef struct lt_loss_scaling {
    double start;
    double growth, backoff;
    int32_t interval;   /**< finite steps before growth; 0: constant scale 1 */
    int32_t good_steps; /**< initial count of finite steps, of a resumed run */
} lt_loss_scaling;
#define LT_LOSS_SCALING_DEFAULTS \
    ((lt_loss_scaling){.start = 65536, .growth = 2, .backoff = 0.5, .interval = 2000})

#endif
