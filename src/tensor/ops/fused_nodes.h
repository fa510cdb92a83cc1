/* Convolutions and batch norms as nodes: their inputs and saved tensors, and what an operation that is fused with one
 * reads of it. */
#ifndef LT_TENSOR_FUSED_NODES_H
#define LT_TENSOR_FUSED_NODES_H

#include "lather/ext/op.h"

enum { LT_CONV_X, LT_CONV_W, LT_CONV_B };
/* Saved: of the output, one of the first two for the batch norm after it; of pixels. */
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
/* Saved. */
enum { LT_NORM_STATS, LT_NORM_COEF, LT_NORM_MASK, LT_NORM_SUMS, LT_NORM_ROUNDED };

/* The statistics of the convolution's output; NULL: none, or taken before. Taken once, as a reduction over
 * ranks writes to them. *sums: as conv2d_stats says. */
lt_tensor *lt_conv2d_take_stats(lt_node *conv, bool *sums);

/* Inputs of a convolution whose output is deferred. */
LT_MUST_CHECK lt_status lt_conv2d_views(lt_node *conv, lt_view *x, lt_view *w);

/* False: the running statistics are read, and not changed. */
bool lt_batchnorm2d_uses_batch(const lt_node *norm);
/* This rank's values per channel; 0 if the statistics were constants. */
double lt_batchnorm2d_count(const lt_node *norm);
/* True if the sums remain local to this rank, so that batchnorm_grad_x can give them to gamma and beta. */
bool lt_batchnorm2d_is_local(const lt_node *norm);

/* Input of a batch norm. */
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
