/* Inside of lather/detail/readback.h: any memory of a device. */
#ifndef LT_TENSOR_READBACK_H
#define LT_TENSOR_READBACK_H

#include "lather/detail/readback.h"

/* As lt_readback_add(). */
lt_status lt_readback_add_memory(lt_readback *readback, const void *memory, size_t bytes);

#endif
