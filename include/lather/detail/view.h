/** What a kernel sees of a tensor. */
#ifndef LATHER_DETAIL_VIEW_H
#define LATHER_DETAIL_VIEW_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** No tape, no owner, no refcount. Channels-last means: stride[1] is 1, stride[3] is C, stride[2] is
 *  W*C, stride[0] is H*W*C. Strides of size-1 dimensions may be anything. */
typedef struct lt_view {
    void *data; /**< device pointer; NULL: absent */
    lt_dtype dtype;
    lt_shape shape;
    int64_t stride[LT_MAX_DIMS]; /**< in elements */
    uint64_t version; /**< of a parameter's value, never reused; 0: cache nothing of it */
} lt_view;

/** The tensor's memory; computes nothing. Its data is NULL if it was given back, or deferred. */
LT_API lt_view lt_tensor_view(const lt_tensor *tensor);
/** Computes an output that its operation deferred, as batch norm does where the convolution behind it
 *  can do without; else does nothing. Operations that take a tensor do it, and lt_tensor_read(),
 *  lt_tensor_copy(), lt_tensor_item(), lt_tape_keep(). Errors: those of the operation. */
LT_API LT_MUST_CHECK lt_status lt_tensor_materialize(const lt_tensor *tensor);
/** After writing through a view: what is cached of the tensor is stale. */
LT_API void lt_tensor_touch(lt_tensor *tensor);

/** What a backend may offer that keeps copies of weights, in the dtype of a pass. */
typedef struct lt_weight_ops {
    /** on: whoever writes this value with sgd, adagrad, adam, vec or vec_lists has its copy written
     *  along, all of it: a recorded pass may take it as it is. */
    void (*follow)(void *ctx, const lt_view *value, bool on);
    /** The value was written by something else: copies it again. */
    lt_status (*renew)(void *ctx, const lt_view *value);
} lt_weight_ops;

/** True if the elements lie row-major without gaps. */
LT_API bool lt_view_is_contiguous(const lt_view *view);
/** True if a 4-D view is channels-last without gaps. */
LT_API bool lt_view_is_channels_last(const lt_view *view);
/** True if the elements fill one interval of memory, each place once, in any order. */
LT_API bool lt_view_is_dense(const lt_view *view);

#endif
