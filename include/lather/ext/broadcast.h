/** For operations whose inputs may be smaller than the output: broadcasting, and the sum that undoes it. */
#ifndef LATHER_EXT_BROADCAST_H
#define LATHER_EXT_BROADCAST_H

#include "lather/ext/op.h"

/** small over shape as NumPy does it: its extents are shape's or 1, aligned right; a stride of 0
 *  repeats. False: it does not fit, and *out says nothing. */
LT_API bool lt_view_broadcast(const lt_view *small, lt_shape shape, lt_view *out);

/** The shape rule of two inputs of which the second is broadcast: the output is like the first.
 *  Errors: LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_op_infer_broadcast(const lt_node *node, lt_desc *out);
/** Whether input has the output's shape: then there is nothing to undo. */
LT_API bool lt_op_same_shape(const lt_node *node, int input);
/** In backward: sums g, which has the output's shape, into the gradient of a smaller input. It makes
 *  that gradient, as lt_node_grad_out() does. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_op_unbroadcast(lt_node *node, int input, const lt_view *g);

#endif
