/* The list of operations: one line each, X(name, inputs). Bit i of inputs: input i has a gradient, which
 * needs a row in tests/tensor/ops. */
#ifndef LT_TENSOR_OPS_H
#define LT_TENSOR_OPS_H

#include "lather/detail/process_group.h"
#include "lather/ext/broadcast.h"
#include "lather/ops/math.h"

#define LT_OP_LIST(X)              \
    X(add, 3)                      \
    X(mul, 3)                      \
    X(scale, 1)                    \
    X(relu, 1)                     \
    X(matmul, 3)                   \
    X(linear, 7)                   \
    X(reshape, 1)                  \
    X(sum, 1)                      \
    X(amax, 1)                     \
    X(amin, 1)                     \
    X(prod, 1)                     \
    X(logsumexp, 1)                \
    X(var, 1)                      \
    X(std, 1)                      \
    X(cumsum, 1)                   \
    X(topk, 0)                     \
    X(detach, 0)                   \
    X(where, 5)                    \
    X(masked_fill, 1)              \
    X(gather, 1)                   \
    X(index_select, 1)             \
    X(scatter_add, 5)              \
    X(label_weights, 0)            \
    X(shift, 1)                    \
    X(upsample, 1)                 \
    X(pad, 1)                      \
    X(dropout, 1)                  \
    X(cast, 1)                     \
    X(to_format, 1)                \
    X(conv2d, 7)                   \
    X(batchnorm2d, 7)              \
    X(batchnorm2d_add, 7 | 1 << 5) \
    X(normalize, 0)                \
    X(maxpool2d, 1)                \
    X(avgpool2d, 1)                \
    X(softmax, 1)                  \
    X(softmax_xent, 1)             \
    X(exp, 1)                      \
    X(ln, 1)                       \
    X(sqrt, 1)                     \
    X(pow, 1)                      \
    X(clamp, 1)                    \
    X(sigmoid, 1)                  \
    X(tanh, 1)                     \
    X(silu, 1)                     \
    X(sub, 3)                      \
    X(div, 3)                      \
    X(maximum, 3)                  \
    X(minimum, 3)                  \
    X(pow_tensor, 3)               \
    X(mse_loss, 3)                 \
    X(bce_with_logits, 3)          \
    X(l1_loss, 3)                  \
    X(smooth_l1_loss, 3)           \
    X(huber_loss, 3)               \
    X(kl_div, 3)                   \
    X(group_norm, 7)               \
    X(conv_transpose2d, 3)         \
    X(attention, 7)                \
    X(rotary, 1)                   \
    X(layernorm, 7)                \
    X(rmsnorm, 3)                  \
    X(gelu, 1)                     \
    X(abs, 1)                      \
    X(sign, 1)                     \
    X(leaky_relu, 1)               \
    X(elu, 1)                      \
    X(softplus, 1)                 \
    X(swiglu, 3)                   \
    X(drop_path, 1)                \
    X(permute, 1)                  \
    X(slice, 1)                    \
    X(pad_rows, 1)                 \
    X(concat, 63)                  \
    X(expand, 1)                   \
    X(embedding, 2)

#define X(name, inputs) extern const lt_op lt_op_##name;
LT_OP_LIST(X)
#undef X

/* Checks that the backend has a kernel; LT_E_UNSUPPORTED names operation, backend and kernel. */
#define LT_HAS_ENTRY(node, be, entry)                                                             \
    ((be)->entry ? LT_OK                                                                          \
                 : lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel %s", (node)->op->name, \
                           (be)->name, #entry))

/* A node's backend, with two views: its first input and its output, or in backward the gradient of its output and the
 * one of its first input. */
typedef struct lt_op_views {
    const lt_backend *be;
    void *ctx;
    lt_view in, out;
} lt_op_views;
LT_MUST_CHECK lt_status lt_op_forward_views(lt_node *node, lt_op_views *v);
LT_MUST_CHECK lt_status lt_op_grad_views(lt_node *node, lt_op_views *v);

/* Shape rule of an output like the first input. */
lt_status lt_op_infer_same(const lt_node *node, lt_desc *out);
/* Shape rule of two inputs that are broadcast to each other. The output has the dtype of the input with its
 * shape, the first's if both or neither have it. */
lt_status lt_op_infer_mutual_broadcast(const lt_node *node, lt_desc *out);
/* Returns the random stream of the next operation. */
lt_random lt_op_random_stream(const lt_tape *tape);
/* Returns x in the memory format of image kernels: x itself, or a copy on the tape. NULL, and tensors
 * without 4 dimensions, are returned unchanged, for the operation to reject. */
lt_tensor *lt_op_to_channels_last(lt_tape *tape, lt_tensor *x);
/* Defaults and checks of a convolution's geometry: replaces zeros except padding by 1; rejects negative values. */
lt_conv2d_config lt_op_conv_defaults(lt_conv2d_config c);
lt_status lt_op_check_conv(const char *name, const lt_conv2d_config *c);
/* Shape rule of reductions, and a view of y, or of its gradient, with sizes of 1 in place of reduced dimensions. */
lt_status lt_op_infer_reduction(const lt_node *node, lt_reduce_config config, lt_desc *out);
lt_view lt_op_keep_dims(const lt_node *node, lt_reduce_config config, const lt_view *small);
/* Resolves dimensions below 0, which count from the end; returns -1 if invalid. */
int lt_op_resolve_dim(int dim, int ndim);
/* Views a dimension of a contiguous view as the middle one of [A,n,B]. */
lt_view lt_op_around_dim(const lt_view *dense, int dim);
/* lt_shard_gather() along the last dimension of x [N,K] by labels [N,1]; LT_IGNORED_LABEL gives 0. */
lt_tensor *lt_op_gather_labels(lt_tape *tape, lt_tensor *x, lt_tensor *labels);
/* Returns false if the shapes do not broadcast to each other. */
bool lt_op_broadcast_shape(lt_shape a, lt_shape b, lt_shape *out);
/* Returns an input, broadcast to the output's shape. */
lt_status lt_op_broadcast_input(lt_node *node, int input, lt_view *view);

/* View tensors of any rank as matrices whose rows are the last dimension. lt_op_as_rows() of an input is a view if
 * strides allow, else a row-major copy in scratch memory. */
lt_status lt_op_as_rows(lt_node *node, const lt_view *x, lt_view *rows);
/* Returns a tensor as a vector: a view if strides allow, else a copy in scratch memory. */
lt_status lt_op_as_vector(lt_node *node, const lt_view *x, lt_view *vector);
/* Returns x contiguous and row-major: x itself, or a copy in scratch memory. */
lt_status lt_op_as_contiguous(lt_node *node, const lt_view *x, lt_view *dense);
/* Returns an output as rows, to be written; lt_op_copy_output_rows() then copies them to y, if they are
 * scratch memory. */
lt_status lt_op_output_rows(lt_node *node, const lt_view *y, lt_view *rows);
lt_status lt_op_copy_output_rows(lt_node *node, const lt_view *rows, const lt_view *y);

/* Returns a linear layer's weight, or its gradient, as [out,in], however it is stored. */
lt_view lt_op_as_out_in(const lt_view *w, bool in_out);
/* Returns a matrix, or its transpose, as a batch of one, as matmul kernels need it. */
lt_view lt_op_as_batch(const lt_view *matrix, bool transpose);
/* Views features of x [B,T,C] from `first` on as heads of d features: [B,T,heads,d]. */
lt_view lt_op_as_heads(const lt_view *x, int64_t first, int64_t heads, int64_t d);
/* Computes the product y = a b of batches made by lt_op_as_batch(). */
lt_status lt_op_matrix_product(lt_node *node, lt_view a, lt_view b, const lt_view *y);

/* Computes the gradient of an embedding table, input `table`, from ids [N] and gradients of rows [N,C]. */
lt_status lt_op_embedding_grad(lt_node *node, int table, const lt_view *ids, const lt_view *rows);

/* Waits for `count` requests, also after a failure; returns st, or the first failure of a request. */
lt_status lt_op_wait_requests(lt_process_group *group, void **request, int count, lt_status st);

#endif
