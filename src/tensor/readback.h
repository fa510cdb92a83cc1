/* Readback of device memory that is not a tensor; private part of lather/detail/readback.h. */
#ifndef LT_TENSOR_READBACK_H
#define LT_TENSOR_READBACK_H

#include "lather/detail/readback.h"

/* Does the same as lt_readback_add() for raw memory. */
lt_status lt_readback_add_memory(lt_readback *readback, const void *memory, size_t bytes);

#endif
