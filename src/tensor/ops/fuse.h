/* Fusing across operations: one looks at the operation that made its input. Nothing here changes what
 * a program computes; where a condition does not hold, operations compose. docs/adr has the reasons.
 *
 *     forward   convolution -> batch norm    the convolution takes the statistics along
 *     forward   batch norm, relu -> convolution    what lies between is not written, and neither for
 *               the weight's gradient
 *     backward  batch norm, relu <- convolution    the convolution takes relu's mask and the sums along
 */
#ifndef LT_TENSOR_FUSE_H
#define LT_TENSOR_FUSE_H

#include "lather/ext/op.h"

/* Saved tensors that one operation makes for the other. */
enum { LT_CONV2D_STATS = 0, LT_BATCHNORM2D_COEF = 1, LT_BATCHNORM2D_SUMS = 3 };
/* Inputs of a batch norm. */
enum { LT_BATCHNORM2D_X = 0, LT_BATCHNORM2D_GAMMA = 1, LT_BATCHNORM2D_BETA = 2 };

/* Whether a running conv2d should save the statistics of its output. A convolution without bias, in a
 * pass with statistics of the batch, has a batch norm behind it: that is why it has no bias. If not,
 * the statistics were computed in vain. */
bool lt_fuse_wants_stats(const lt_node *conv);

/* Makes the statistics that the producer of the batch norm's x has saved its own; false: there are
 * none. They are taken once: a merge over ranks changes them. */
bool lt_fuse_take_stats(lt_node *norm, int slot);

/* Whether a running batch norm leaves its output unwritten: nobody but convolutions can do without, and
 * who cannot has it written by looking at it. */
bool lt_fuse_leaves_unwritten(const lt_node *norm);

/* The batch norm with relu that made the convolution's input, if that is not there; else NULL. */
lt_node *lt_fuse_unwritten_before(const lt_node *conv);

/* What it read. */
typedef struct lt_fuse_views {
    lt_view x, coef, gamma, beta;
} lt_fuse_views;
LT_MUST_CHECK lt_status lt_fuse_views_of(lt_node *norm, lt_fuse_views *v, lt_batchnorm_before *out);

/* In the backward of a convolution: the batch norm with relu that made its input, if this gradient is
 * all of the gradient that it gets; else NULL. */
lt_node *lt_fuse_norm_before(const lt_node *conv);

#endif
