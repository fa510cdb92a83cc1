/* Arithmetic on shapes and strides. */
#ifndef LT_TENSOR_SHAPE_H
#define LT_TENSOR_SHAPE_H

#include "lather/ext/fail.h"
#include "lather/ext/view.h"

/* Checks the extents and gives count * element size. Errors: LT_E_ARG, LT_E_NOMEM (overflow). */
lt_status lt_shape_bytes(lt_shape shape, lt_dtype dtype, size_t *bytes);

/* Strides of a tensor of the library: channels-last for 4-D shapes, row-major for others. */
void lt_storage_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS]);
void lt_row_major_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS]);

/* The view under another shape in the same row-major order of logical indices, if strides allow:
 * fills stride. False: only a copy can do it. */
bool lt_view_reshape(const lt_view *view, lt_shape shape, int64_t stride[LT_MAX_DIMS]);

#endif
