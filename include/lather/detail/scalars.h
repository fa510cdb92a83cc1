/** The numbers that change from step to step, in one block on the device. */
#ifndef LATHER_DETAIL_SCALARS_H
#define LATHER_DETAIL_SCALARS_H

/* Not a stable interface: may change in any release. */

#include <stdint.h>

/** Kernels read it where it lies, so that a captured step never holds a number by value.
 *  The host writes the first group before a step, kernels keep the second. */
typedef struct lt_scalars {
    double lr;        /**< of this step, before a slot's factor */
    double clip_norm; /**< largest allowed global gradient norm; 0: no clipping */
    int64_t attempt;  /**< 1 in the first step; always advances */

    double loss_scale;  /**< gradients are this much too large; 1 without 16-bit floats */
    double grad_norm;   /**< global norm of the unscaled gradients, before clipping */
    double grad_scale;  /**< what an optimizer multiplies gradients with: unscale and clip */
    int64_t applied;    /**< steps that changed parameters, this one included */
    int32_t finite;     /**< 0: a gradient is NaN or Inf: parameters and state stay untouched */
    int32_t good_steps; /**< finite ones since the loss scale last changed */
} lt_scalars;

/** How the loss scale of f16 passes moves: times backoff after a gradient that is not finite, times
 *  growth after interval finite ones in a row.
 *  Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2. */
typedef struct lt_loss_scaling {
    double start;
    double growth, backoff;
    int32_t interval;   /**< 0: the scale stays 1 */
    int32_t good_steps; /**< to start with: of a resumed run */
} lt_loss_scaling;
#define LT_LOSS_SCALING_DEFAULTS \
    ((lt_loss_scaling){.start = 65536, .growth = 2, .backoff = 0.5, .interval = 2000})

#endif
