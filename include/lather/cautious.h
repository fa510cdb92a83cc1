/** Cautious updates, cautious weight decay and Hyperball, around any optimizer. */
#ifndef LATHER_CAUTIOUS_H
#define LATHER_CAUTIOUS_H

#include "lather/optim.h"

typedef struct lt_cautious_config {
    bool mask;      /**< leave out elements of an update whose sign is not the gradient's */
    bool decay;     /**< decay only elements that the update does not move away from zero */
    bool hyperball; /**< weights of two or more dimensions keep their norm; not with decay */
} lt_cautious_config;

/** Changes each update u of the optimizer, the difference of a weight w of n elements before and after:
 *
 *     mask:   u = u * phi * n / (1 + number of ones in phi),  phi = 1 where u * gradient > 0, else 0
 *     decay:  w = w - u - lr * weight_decay * w               only where u * w >= 0
 *     hyperball:  w = R N(w - lr R N(u)),  N(a) = a / |a|,    R the norm |w| at this call, Frobenius's
 *
 * Decay: the optimizer itself gets weight decay 0; lr includes the factors of parameter groups. With the mask alone,
 * weight decay that is decoupled is applied after it, unmasked; L2 decay, and that in the ratio of LARS and LAMB, is part of u.
 * Hyperball applies to weights of two or more dimensions that are not 0 now: they have no weight decay, and lr is the length
 * of an update relative to R. R is saved with the optimizer's state; load or scale weights before this call.
 * No other state; two copies of the largest parameter and one of all. Call before the first step, before the state is sharded, and
 * after lt_optim_set_group().
 * Errors: LT_E_ARG (a step was made; called twice; decay with hyperball; the optimizer's decay does not follow lr), LT_E_NOMEM; in the first
 * step LT_E_UNSUPPORTED (gradients or parameters are sharded).
 * Sources: Liang et al., "Cautious Optimizers", 2024 (arXiv 2411.16085), algorithm 2, with > 0 for >= 0 as in its code;
 * Chen et al., "Cautious Weight Decay", 2025 (arXiv 2510.12402), algorithm 1; Wen et al., "Fantastic Pretraining Optimizers
 * and Where to Find Them II: Hyperball Optimization", 2026 (arXiv 2606.16899). */
LT_API LT_MUST_CHECK lt_status lt_optim_start_cautious(lt_optim *optim,
                                                       const lt_cautious_config *config);

#endif
