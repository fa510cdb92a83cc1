/** Broadcasting for operations whose inputs may be smaller than the output, and the sum that
 *  reverses it. */
#ifndef LATHER_EXT_BROADCAST_H
#define LATHER_EXT_BROADCAST_H

#include "lather/ext/op.h"

/** Broadcasts a view to a shape by NumPy's rule: sizes, aligned right, must be equal or 1;
 *  repeated dimensions get stride 0. Returns false, with *out undefined, if it does not fit. */
LT_API bool lt_view_broadcast(const lt_view *small, lt_shape shape, lt_view *out);

/** Shape rule for two inputs whose second is broadcast: the output is like the first. Errors:
 *  LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_op_infer_broadcast(const lt_node *node, lt_desc *out);
/** Returns true if the input has the output's shape, so that its gradient needs no sum. */
LT_API bool lt_op_same_shape(const lt_node *node, int input);
/** Sums g, of the output's shape, into the gradient of a broadcast input, which it creates as
 *  lt_node_grad_out() does. In backward. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_op_unbroadcast(lt_node *node, int input, const lt_view *g);

#endif
