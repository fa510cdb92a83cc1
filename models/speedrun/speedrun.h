/* Networks of few wide convolutions, which train on small images in minutes. */
#ifndef SPEEDRUN_H
#define SPEEDRUN_H

#include "lather/trainer.h"

enum { SPEEDRUN_STAGES = 3, SPEEDRUN_MIN_SIDE = 9 };

typedef struct speedrun_config {
    int widths[SPEEDRUN_STAGES]; /* output channels of each stage */
    int channels, classes;       /* channels of the images: 1 or 3 */
    int size;                    /* side of the images, at least SPEEDRUN_MIN_SIDE pixels */
    uint64_t seed;               /* seed of the initial values */
} speedrun_config;

/* Makes the network. Free it with lt_module_free(). Errors: LT_E_ARG (a field out of range), LT_E_NOMEM. */
LT_MUST_CHECK lt_status speedrun_new(lt_module **out, lt_device *device,
                                     const speedrun_config *config);

/* Counts the cost of one image; kept are the inputs of pooling and norms, recomputable the outputs of norms. */
void speedrun_count_cost(lt_model_cost *out, const speedrun_config *config);

#endif
