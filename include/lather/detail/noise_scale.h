/** The gradient noise scale, an estimate of the critical batch size, and its effect on the number of steps.
 *  Source: McCandlish, Kaplan, Amodei & the OpenAI Dota Team, "An Empirical Model of Large-Batch Training",
 *  2018, arXiv 1812.06162, section 2 and appendix A.1; Qiao et al., "Pollux: Co-adaptive Cluster Scheduling
 *  for Goodput-Optimized Deep Learning", OSDI 2021, section 3.1. */
#ifndef LATHER_DETAIL_NOISE_SCALE_H
#define LATHER_DETAIL_NOISE_SCALE_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stdint.h>

/** Squared norms of two gradients of the same weights, the mean over b samples and the mean over B > b. */
typedef struct lt_noise_sample {
    double small_batch, small_square; /**< b; |G_b|^2, or its mean over several such batches */
    double large_batch, large_square; /**< B; |G_B|^2. 0: not measured */
} lt_noise_sample;

/** Moving averages over steps. They are the complete state: copy, save and set them as they are. */
typedef struct lt_noise_scale {
    double decay;         /**< decay rate of the averages, in [0,1) */
    double square, trace; /**< averages that start at 0, without bias correction */
    int64_t count;        /**< number of steps added */
} lt_noise_scale;
#define LT_NOISE_SCALE_DEFAULTS ((lt_noise_scale){.decay = 0.99})

/** Estimates from the averages, corrected for their start at 0. */
typedef struct lt_noise_estimate {
    double square; /**< |G|^2 of the true gradient; may be negative if noise dominates */
    double trace;  /**< tr(Sigma) of the gradient of one sample */
    double
        scale; /**< phi = tr(Sigma) / |G|^2, in samples; NaN if nothing was added or |G|^2 <= 0 */
} lt_noise_estimate;

/**
 * Adds a step. With E|G_b|^2 = |G|^2 + tr(Sigma) / b the two unbiased estimates of it are
 *
 *     |G|^2     = (B |G_B|^2 - b |G_b|^2) / (B - b)
 *     tr(Sigma) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)
 *
 * and each has a separate average, x <- decay x + (1 - decay) estimate: their ratio is phi, while a mean of
 * ratios would be biased. Units: b, B samples. Samples of several sizes may be mixed.
 * Errors: LT_E_ARG (not 0 < b < B, a square that is negative or not finite, a decay outside [0,1)); then nothing
 * was added.
 */
LT_API LT_MUST_CHECK lt_status lt_noise_scale_add(lt_noise_scale *self,
                                                  const lt_noise_sample *sample);
/** Returns the estimates; a negative trace counts as 0 in scale. */
LT_API lt_noise_estimate lt_noise_scale_estimate(const lt_noise_scale *self);

/**
 * Steps to the same loss with another batch, each with its best learning rate: of S(B) = S_min (1 + phi / B)
 *
 *     *steps = steps_measured (1 + phi / batch) / (1 + phi / batch_measured)
 *
 * S_min is its value for an infinite batch, and phi the critical batch, which takes 2 S_min steps.
 * phi grows while the loss falls: the sum over recorded steps, of steps_measured 1 and each its phi, is the prediction of
 * a whole run (tools/noise_steps).
 * Errors: LT_E_ARG (phi negative or not finite, steps or a batch that is not above 0).
 */
LT_API LT_MUST_CHECK lt_status lt_noise_steps(double *steps, double phi, double steps_measured,
                                              double batch_measured, double batch);

#endif
