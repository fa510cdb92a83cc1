/* Fusing across operations: an operation looks at the one that made its input. What may be fused is a
 * row of the table in fuse.c each; where no row applies, operations compose, with the same results.
 * docs/adr/0020 has the reasons. */
#ifndef LT_TENSOR_FUSE_H
#define LT_TENSOR_FUSE_H

#include "lather/ext/op.h"

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

/* What producers hand over; each operation alone knows its saved tensors. */

/* The statistics of the convolution's output; NULL: none, or taken before. Taken once, as a reduction over
 * ranks writes to them. *sums: as conv2d_stats says. */
lt_tensor *lt_conv2d_take_stats(lt_node *conv, bool *sums);

/* What a convolution whose output is deferred reads. */
LT_MUST_CHECK lt_status lt_conv2d_views(lt_node *conv, lt_view *x, lt_view *w);

/* What a batch norm read. */
typedef struct lt_fuse_views {
    lt_view x, coef, gamma, beta, rounded;
} lt_fuse_views;
LT_MUST_CHECK lt_status lt_batchnorm2d_views(lt_node *norm, lt_fuse_views *v,
                                             lt_batchnorm_before *out);
/* Memory for the sums that its backward then finds there. */
LT_MUST_CHECK lt_status lt_batchnorm2d_save_sums(lt_node *norm, lt_view *sums);

/* A batch norm's whole backward as a part of its reader's: whether that can be, and what the backend is given.
 * Its own turn then finds no gradient. */
typedef struct lt_fuse_along {
    lt_view x, coef, sums, dx;
} lt_fuse_along;
bool lt_batchnorm2d_goes_along(const lt_node *norm);
LT_MUST_CHECK lt_status lt_batchnorm2d_along(lt_node *norm, lt_fuse_along *v,
                                             lt_batchnorm_along *out);

#endif
