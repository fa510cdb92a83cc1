/* Distribution of a parameter's initial values. */
#ifndef TESTS_MODELS_DEVIATION_H
#define TESTS_MODELS_DEVIATION_H

#include "lather/param.h"

/* Returns the root mean square of a parameter's f32 values; *most receives the largest absolute value. */
double deviation_of(const lt_params *params, const char *name, double *most);

#endif
