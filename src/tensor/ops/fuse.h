/* Fusion across operations: an operation inspects the producer of its input (docs/adr/0020). Each possible
 * fusion is a row of the table in fuse.c; without a matching row operations compose, with the same results. */
#ifndef LT_TENSOR_FUSE_H
#define LT_TENSOR_FUSE_H

#include "tensor/ops/fused_nodes.h"

/* Names of the operations that are fused; the table compares their addresses. */
extern const char lt_name_conv2d[], lt_name_batchnorm2d[], lt_name_maxpool2d[], lt_name_normalize[];

typedef enum lt_fusion {
    /* Forward: the convolution computes the statistics that the following batch norm needs. */
    LT_FUSE_STATS,
    /* Forward: the convolution applies the preceding batch norm and relu, whose output is deferred, to its
     * input. */
    LT_FUSE_APPLY,
    /* Backward: the same for the gradient of the convolution's weight. */
    LT_FUSE_APPLY_GRAD_W,
    /* Backward: the gradient of the convolution's input is masked by the preceding relu and summed, the
     * first step of the batch norm's backward. */
    LT_FUSE_GRAD_SUMS,
    /* Forward: a batch norm also applies the one that made its residual, whose output is deferred. */
    LT_FUSE_ADD,
    /* Forward: max-pooling applies the preceding batch norm and relu, whose output is deferred. */
    LT_FUSE_POOL,
    /* Backward: a batch norm's kernel also computes the backward of the one that made its residual,
     * max-pooling's that of the one before it, so that the gradient in between is not written. */
    LT_FUSE_ADD_GRAD,
    LT_FUSE_POOL_GRAD,
    /* Evaluation: the convolution's output is deferred, and the batch norm applies itself as its epilogue. */
    LT_FUSE_AFFINE,
    /* Forward and backward: the first convolution reads pixels and normalises them itself. */
    LT_FUSE_PIXELS,
    LT_FUSIONS
} lt_fusion;

/* Returns true if a running node can be the producer of such a pair and the backend has the kernel. The
 * reader of its output is not known yet: if nothing fuses with it, that only costs time. */
bool lt_fuse_can_produce(const lt_node *producer, lt_fusion fusion);

/* Returns the node that made the consumer's first input, or its residual, if the two are such a pair; else
 * NULL. */
lt_node *lt_fuse_find_producer(const lt_node *consumer, lt_fusion fusion);

#endif
