/* Entries that a backend lacks. */
#ifndef LT_TENSOR_BACKEND_MISSING_H
#define LT_TENSOR_BACKEND_MISSING_H

#include "lather/detail/backend.h"

/* The first basic entry that is NULL, or NULL if there is none. */
const char *lt_backend_missing(const lt_backend *be);

/* Puts a function that is LT_E_UNSUPPORTED, naming itself, in place of every basic entry that is
 * NULL. Fused ones stay NULL. */
void lt_backend_fill_missing(lt_backend *be);

#endif
