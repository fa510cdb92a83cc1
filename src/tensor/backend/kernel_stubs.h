/* Stubs for the kernels that a backend lacks. */
#ifndef LT_TENSOR_BACKEND_KERNEL_STUBS_H
#define LT_TENSOR_BACKEND_KERNEL_STUBS_H

#include "lather/detail/backend.h"

/* Returns the name of the first basic kernel that is NULL, or NULL if none is missing. */
const char *lt_backend_find_missing_kernel(const lt_backend *be);

/* Replaces every basic kernel that is NULL by a stub, which returns LT_E_UNSUPPORTED with its name. Fused
 * ones remain NULL. */
void lt_backend_stub_missing_kernels(lt_backend *be);

#endif
