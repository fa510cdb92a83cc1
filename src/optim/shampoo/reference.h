/* Defaults of Shampoo's reference implementation: all presets except "recommended", and optim_replay, start from
 * them. */
#ifndef LT_OPTIM_SHAMPOO_REFERENCE_H
#define LT_OPTIM_SHAMPOO_REFERENCE_H

#include "lather/shampoo.h"

/* Settings that presets derived from the reference share with it. */
#define LT_SHAMPOO_REFERENCE_REST                                                  \
    .beta3 = -1, .max_preconditioner_dim = 1024, .start_preconditioning_step = -1, \
    .use_bias_correction = true, .grafting_beta2 = -1, .target_dimensionality = 1

/* Defaults of the reference implementation's present version (arXiv 2309.06497): the preset "reference". */
#define LT_SHAMPOO_REFERENCE                          \
    ((lt_shampoo_config){.beta1 = 0.9,                \
                         .beta2 = 1.0,                \
                         .epsilon = 1e-12,            \
                         .precondition_frequency = 1, \
                         .grafting_epsilon = 1e-10,   \
                         .tolerated_failures = 3,     \
                         LT_SHAMPOO_REFERENCE_REST})

#endif
