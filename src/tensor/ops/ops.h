/* The list of operations: one line each. */
#ifndef LT_TENSOR_OPS_H
#define LT_TENSOR_OPS_H

#include "lather/ext/op.h"

#define LT_OP_LIST(X)  \
    X(add)             \
    X(mul)             \
    X(scale)           \
    X(relu)            \
    X(matmul)          \
    X(linear)          \
    X(reshape)         \
    X(sum)             \
    X(dropout)         \
    X(cast)            \
    X(conv2d)          \
    X(batchnorm2d)     \
    X(batchnorm2d_add) \
    X(normalize)       \
    X(maxpool2d)       \
    X(avgpool2d)       \
    X(softmax_xent)

#define X(name) extern const lt_op lt_op_##name;
LT_OP_LIST(X)
#undef X

/* A check of backend entries: LT_E_UNSUPPORTED naming the operation. */
#define LT_HAS_ENTRY(node, be, entry)                                                             \
    ((be)->entry ? LT_OK                                                                          \
                 : lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel %s", (node)->op->name, \
                           (be)->name, #entry))

/* The shape rule of two inputs of which the second is broadcast: the output is like the first. */
lt_status lt_op_infer_broadcast(const lt_node *node, lt_desc *out);
/* Sums g, which has the shape of a broadcast result, into the gradient of a smaller input. */
lt_status lt_op_unbroadcast(lt_node *node, int input, const lt_view *g);
/* Whether input has the output's shape. */
bool lt_op_same_shape(const lt_node *node, int input);

#endif
