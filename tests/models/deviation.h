/* How the initial values of a parameter are distributed. */
#ifndef TESTS_MODELS_DEVIATION_H
#define TESTS_MODELS_DEVIATION_H

#include "lather/param.h"

/* Returns the deviation from 0 of a parameter's f32 values; most: the largest absolute value. */
double deviation_of(const lt_params *params, const char *name, double *most);

#endif
