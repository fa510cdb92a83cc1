/* Arithmetic on shapes and strides. */
#ifndef LT_TENSOR_SHAPE_H
#define LT_TENSOR_SHAPE_H

#include "lather/detail/view.h"
#include "lather/ext/fail.h"

/* Checks the sizes and returns count * element size. Errors: LT_E_ARG, LT_E_NOMEM (overflow). */
lt_status lt_shape_bytes(lt_shape shape, lt_dtype dtype, size_t *bytes);

void lt_row_major_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS]);
/* Computes channels-last strides; shapes without 4 dimensions become row-major. */
void lt_channels_last_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS]);
/* Computes the strides of a memory format; LT_FORMAT_PRESERVE means row-major. */
void lt_format_strides(lt_shape shape, lt_memory_format format, int64_t stride[LT_MAX_DIMS]);

/* Views the elements under another shape in the same row-major order of logical indices: fills stride.
 * Returns false if that needs a copy. */
bool lt_view_reshape(const lt_view *view, lt_shape shape, int64_t stride[LT_MAX_DIMS]);

#endif
