/* Compares a model's names, dtypes and shapes with torchvision's (tests/golden/make_keys.py). */
#ifndef TESTS_MODELS_KEYS_H
#define TESTS_MODELS_KEYS_H

#include "lather/param.h"

/* Returns the number of lines of a file in tests/golden that match the parameters in order, or -1 if their counts
 * differ. */
int matching_keys(const char *file, const lt_params *params);

#endif
