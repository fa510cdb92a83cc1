/* Convolutions and batch norms as nodes: their inputs and saved tensors, and what fused operations read of
 * them. */
#ifndef LT_TENSOR_FUSED_NODES_H
#define LT_TENSOR_FUSED_NODES_H

#include "lather/ext/op.h"

enum { LT_CONV_X, LT_CONV_W, LT_CONV_B };
/* Indices of tensors saved by a convolution: statistics of its output, as moments or as sums; its unfolded pixels. */
enum { LT_CONV_STATS, LT_CONV_SUMS, LT_CONV_FOLDED };

enum {
    LT_NORM_X,
    LT_NORM_GAMMA,
    LT_NORM_BETA,
    LT_NORM_MEAN,
    LT_NORM_VAR,
    LT_NORM_RESIDUAL,
    LT_NORM_BATCHES
};
/* Indices of tensors saved by a batch norm. */
enum { LT_NORM_STATS, LT_NORM_COEF, LT_NORM_MASK, LT_NORM_SUMS, LT_NORM_ROUNDED };

/* Returns the statistics of the convolution's output and removes them from the node, because a reduction
 * over ranks overwrites them; NULL if absent. *sums: as in conv2d_stats. */
lt_tensor *lt_conv2d_take_stats(lt_node *conv, bool *sums);

/* Returns the inputs of a convolution whose output is deferred. */
LT_MUST_CHECK lt_status lt_conv2d_get_views(lt_node *conv, lt_view *x, lt_view *w);

/* Returns true if the norm uses batch statistics; false if it uses the running ones, unchanged. */
bool lt_batchnorm2d_uses_batch_stats(const lt_node *node);
/* Returns this rank's number of values per channel; 0 if the statistics were constants. */
double lt_batchnorm2d_values_per_channel(const lt_node *node);
/* Returns true if the sums are not reduced over ranks, so that batchnorm_grad_x can write them to gamma and
 * beta. */
bool lt_batchnorm2d_has_local_sums(const lt_node *node);

/* Inputs of a batch norm for a kernel that applies it. */
typedef struct lt_fuse_views {
    lt_view x, coef, gamma, beta, rounded;
} lt_fuse_views;
LT_MUST_CHECK lt_status lt_batchnorm2d_get_views(lt_node *norm, lt_fuse_views *v,
                                                 lt_batchnorm_before *out);
/* Allocates the sums that another node computes for this norm's backward. */
LT_MUST_CHECK lt_status lt_batchnorm2d_alloc_grad_sums(lt_node *norm, lt_view *sums);

/* A batch norm's whole backward inside its reader's kernel: whether that is possible, and the kernel's
 * arguments. The norm's own turn in backward then finds no gradient. */
typedef struct lt_fused_grad_views {
    lt_view x, coef, sums, dx;
} lt_fused_grad_views;
bool lt_batchnorm2d_can_fuse_grad(const lt_node *norm);
LT_MUST_CHECK lt_status lt_batchnorm2d_fused_grad_args(lt_node *norm, lt_fused_grad_views *v,
                                                       lt_batchnorm_fused_grad *out);

#endif
