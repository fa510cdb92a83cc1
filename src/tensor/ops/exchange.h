/* Helpers shared by the operations between ranks. */
#ifndef LT_TENSOR_OPS_EXCHANGE_H
#define LT_TENSOR_OPS_EXCHANGE_H

#include "tensor/ops/ops.h"

#include "lather/detail/exchange.h"

/* Returns x contiguous and row-major: x itself, or a copy in scratch memory. */
lt_status lt_op_dense(lt_node *node, const lt_view *x, lt_view *dense);

#endif
