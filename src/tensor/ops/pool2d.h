/* The shape rule that both poolings share. */
#ifndef LT_TENSOR_OPS_POOL2D_H
#define LT_TENSOR_OPS_POOL2D_H

#include "tensor/ops/ops.h"

/* Checks node's lt_pool2d_config, complete, against its input; gives the output's shape. */
lt_status lt_pool2d_infer(const lt_node *node, lt_desc *out);

#endif
