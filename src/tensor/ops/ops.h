/* The list of operations: one line each. */
#ifndef LT_TENSOR_OPS_H
#define LT_TENSOR_OPS_H

#include "lather/ext/broadcast.h"

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
    X(softmax_xent)    \
    X(exp)             \
    X(ln)              \
    X(sqrt)            \
    X(pow)             \
    X(clamp)           \
    X(sigmoid)         \
    X(tanh)            \
    X(silu)            \
    X(sub)             \
    X(div)             \
    X(maximum)         \
    X(minimum)         \
    X(pow_tensor)      \
    X(mse_loss)        \
    X(bce_with_logits) \
    X(group_norm)      \
    X(conv_transpose2d)

#define X(name) extern const lt_op lt_op_##name;
LT_OP_LIST(X)
#undef X

/* A check of backend entries: LT_E_UNSUPPORTED naming the operation. */
#define LT_HAS_ENTRY(node, be, entry)                                                             \
    ((be)->entry ? LT_OK                                                                          \
                 : lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel %s", (node)->op->name, \
                           (be)->name, #entry))

/* The shape rule of two inputs of which each is broadcast over the other. The output has the dtype of the
 * input that has its shape, the first's if both or neither have it. */
lt_status lt_op_infer_either(const lt_node *node, lt_desc *out);
/* An input, broadcast over the output. */
lt_status lt_op_in_wide(lt_node *node, int input, lt_view *view);

#endif
