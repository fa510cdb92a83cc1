/** All operations on the tape. */
#ifndef LATHER_OPS_H
#define LATHER_OPS_H

#include "lather/detail/group_ops.h"
#include "lather/detail/linear_parallel.h"
#include "lather/detail/norm_layer.h"
#include "lather/detail/sharded.h"
#include "lather/ops/activation.h"
#include "lather/ops/arithmetic.h"
#include "lather/ops/attention.h"
#include "lather/ops/class_losses.h"
#include "lather/ops/conv.h"
#include "lather/ops/elementwise.h"
#include "lather/ops/embedding.h"
#include "lather/ops/image.h"
#include "lather/ops/index.h"
#include "lather/ops/loss.h"
#include "lather/ops/losses.h"
#include "lather/ops/math.h"
#include "lather/ops/matmul.h"
#include "lather/ops/norm.h"
#include "lather/ops/pool.h"
#include "lather/ops/reduce.h"
#include "lather/ops/shape.h"

#endif
