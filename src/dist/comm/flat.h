/* One-dimensional views of dense tensors, in storage order. */
#ifndef LT_DIST_COMM_FLAT_H
#define LT_DIST_COMM_FLAT_H

#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/tensor.h"

/* Returns a view of elements [offset, offset + count). */
static inline lt_view lt_flat_slice(const lt_tensor *tensor, int64_t offset, int64_t count)
{
    lt_view view = lt_tensor_view(tensor);
    LT_ASSERT(lt_view_is_dense(&view));
    view.data = (char *)view.data + (size_t)offset * lt_dtype_size(view.dtype);
    view.shape = LT_SHAPE(count);
    view.stride[0] = 1;
    view.version = 0;
    return view;
}

static inline lt_view lt_flat_view(const lt_tensor *tensor)
{
    return lt_flat_slice(tensor, 0, lt_tensor_count(tensor));
}

#endif
