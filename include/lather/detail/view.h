/** Views: a tensor's memory as kernels see it. */
#ifndef LATHER_DETAIL_VIEW_H
#define LATHER_DETAIL_VIEW_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** A tensor's memory, without ownership. Channels-last means: stride[1] is 1, stride[3] is
 *  C, stride[2] is W*C, stride[0] is H*W*C. Strides of size-1 dimensions may be anything. */
typedef struct lt_view {
    void *data; /**< device pointer; NULL: absent */
    lt_dtype dtype;
    lt_shape shape;
    int64_t stride[LT_MAX_DIMS]; /**< strides in elements */
    /** Version of a parameter's value, never reused; 0: do not cache anything derived from it. */
    uint64_t version;
} lt_view;

/** Returns a view of the tensor's memory without computing anything; data is NULL if the memory was freed, or
 *  if the output was deferred. */
LT_API lt_view lt_tensor_view(const lt_tensor *tensor);
/** Computes an output that its operation deferred, as batch norm does if the next convolution may not need it;
 *  else does nothing. Called by all operations that take a tensor, and by lt_tensor_read(), lt_tensor_copy(),
 *  lt_tensor_item() and lt_tape_keep(). Errors: those of the operation. */
LT_API LT_MUST_CHECK lt_status lt_tensor_materialize(const lt_tensor *tensor);
/** Invalidates cached copies of the tensor; call it after writing through a view. */
LT_API void lt_tensor_bump_version(lt_tensor *tensor);

/** Functions of a backend that caches casts of weights to the dtype of a pass. Optional as a whole. */
typedef struct lt_weight_ops {
    /** on: from now on sgd, adagrad, adam, vec and vec_lists write the cached cast together with the value, all
     *  of it, so that recorded passes may read it. */
    void (*follow)(void *ctx, const lt_view *value, bool on);
    /** Recomputes the cached cast after another writer changed the value. */
    lt_status (*renew)(void *ctx, const lt_view *value);
} lt_weight_ops;

/** Returns true if the elements are stored row-major and contiguous. */
LT_API bool lt_view_is_contiguous(const lt_view *view);
/** Returns true if a 4-D view is channels-last and contiguous. */
LT_API bool lt_view_is_channels_last(const lt_view *view);
/** Returns true if the elements fill an interval of memory, each address once, in any order. */
LT_API bool lt_view_is_dense(const lt_view *view);

#endif
