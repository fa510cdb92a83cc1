/* What the operations between ranks share. */
#ifndef LT_TENSOR_OPS_EXCHANGE_H
#define LT_TENSOR_OPS_EXCHANGE_H

#include "tensor/ops/ops.h"

#include "lather/detail/exchange.h"

/* x row-major without gaps: itself, or a copy in scratch memory. */
lt_status lt_op_dense(lt_node *node, const lt_view *x, lt_view *dense);

#endif
