/* Fusing across operations: an operation looks at the one that made its input. What may be fused is a
 * row of the table in fuse.c each; where no row applies, operations compose, with the same results.
 * docs/adr/0020 has the reasons. */
#ifndef LT_TENSOR_FUSE_H
#define LT_TENSOR_FUSE_H

#include "tensor/ops/fused_nodes.h"

/* Names of the operations that are fused: the table knows them by the addresses. */
extern const char lt_name_conv2d[], lt_name_batchnorm2d[], lt_name_maxpool2d[], lt_name_normalize[];

typedef enum lt_fusion {
    /* Forward: the convolution computes the statistics that the batch norm behind it needs. */
    LT_FUSE_STATS,
    /* Forward: the convolution applies the batch norm and relu before it to what it reads, and that
     * output is deferred. */
    LT_FUSE_APPLY,
    /* Backward: the same for the gradient of the convolution's weight. */
    LT_FUSE_APPLY_GRAD_W,
    /* Backward: the gradient of the convolution's input is masked by the relu before it, and summed as
     * that batch norm's backward begins. */
    LT_FUSE_GRAD_SUMS,
    /* Forward: a batch norm applies the one that made its residual too, whose output is deferred. */
    LT_FUSE_ADD,
    /* Forward: max-pooling applies the batch norm and relu before it, whose output is deferred. */
    LT_FUSE_POOL,
    /* Backward: a batch norm does that of the one that made its residual along, max-pooling that of the one
     * before it: their gradient is never written. */
    LT_FUSE_ADD_GRAD,
    LT_FUSE_POOL_GRAD,
    /* Evaluation: the convolution's output is deferred, and the batch norm has its own computed in its place. */
    LT_FUSE_AFFINE,
    /* Forward and backward: the first convolution reads pixels, and normalises them on the way. */
    LT_FUSE_PIXELS,
    LT_FUSIONS
} lt_fusion;

/* Whether a running node can be the producer of such a pair and the backend has the entry. What will read
 * its output is not known yet: if nothing fuses with it, time was lost and no result. */
bool lt_fuse_offers(const lt_node *producer, lt_fusion fusion);

/* The node that made the consumer's first input, or its residual, if the two are such a pair; else NULL. */
lt_node *lt_fuse_producer(const lt_node *consumer, lt_fusion fusion);

#endif
