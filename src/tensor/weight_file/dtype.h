/* Names of dtypes in weight files. */
#ifndef LT_TENSOR_WEIGHT_DTYPE_H
#define LT_TENSOR_WEIGHT_DTYPE_H

#include "lather/safetensors.h"

/* Sets dtype and unsupported of an entry from a name of safetensors, as "F32", and *bytes to the size of an element; false
 * for an unknown name. The name is borrowed. */
bool lt_weight_dtype(const char *name, lt_safetensors_entry *entry, size_t *bytes);

#endif
