/* In place of the toolkit's header of that name, for kernels on the host: the toolkit's calls and
 * types, and what its compiler would bring. */
#ifndef LT_TESTS_STANDIN_CUDA_RUNTIME_H
#define LT_TESTS_STANDIN_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>
/* clang-format off: it uses these */
#ifdef __cplusplus
#include "../../emulated/threads.h"
#endif
/* clang-format on */

#endif
