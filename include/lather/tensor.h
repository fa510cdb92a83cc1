/** Dense N-dimensional arrays on one device. */
#ifndef LATHER_TENSOR_H
#define LATHER_TENSOR_H

#include "lather/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lt_tensor lt_tensor;

enum { LT_MAX_DIMS = 5 };

/** Extents, outermost first; ndim 0 is a scalar. A plain value: pass and return it by copy. */
typedef struct lt_shape {
    int ndim;
    int64_t dim[LT_MAX_DIMS];
} lt_shape;

/** lt_shape literal: LT_SHAPE(n, 3, 224, 224). */
#define LT_SHAPE(...)                                                              \
    ((lt_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})

/** The shape of a scalar. */
#define LT_SCALAR ((lt_shape){0})

/** Product of the extents; 1 for a scalar. */
LT_API int64_t lt_shape_count(lt_shape shape);
LT_API bool lt_shape_equal(lt_shape a, lt_shape b);

enum { LT_SHAPE_TEXT = 128 };
/** Writes "[32,256,14,14]" to text (of LT_SHAPE_TEXT bytes) and returns it. */
LT_API const char *lt_shape_text(lt_shape shape, char *text);

/** The order of a tensor's elements in memory. Indices are logical in either: N C H W, O I H W. */
typedef enum lt_memory_format {
    LT_FORMAT_PRESERVE,     /**< of an operation's output: as its input of that shape */
    LT_FORMAT_CONTIGUOUS,   /**< row-major */
    LT_FORMAT_CHANNELS_LAST /**< 4-D: [N,C,H,W] lies in the order N H W C */
} lt_memory_format;

/** Makes a tensor of zeros, row-major. Free it with lt_tensor_free().
 *  Errors: LT_E_ARG (an extent < 1, or > LT_MAX_DIMS of them), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tensor_new(lt_tensor **out, lt_device *device, lt_dtype dtype,
                                             lt_shape shape);
/** The same in a memory format: images that a convolution will read are best channels-last, as it
 *  copies others. Errors: LT_E_SHAPE (LT_FORMAT_CHANNELS_LAST without 4 dimensions). */
LT_API LT_MUST_CHECK lt_status lt_tensor_new_as(lt_tensor **out, lt_device *device, lt_dtype dtype,
                                                lt_shape shape, lt_memory_format format);
/** A tensor of zeros on like's device, of its shape and memory format. */
LT_API LT_MUST_CHECK lt_status lt_tensor_new_like(lt_tensor **out, const lt_tensor *like,
                                                  lt_dtype dtype);
/** Frees *tensor and sets it to NULL. *tensor may be NULL. */
LT_API void lt_tensor_free(lt_tensor **tensor);

LT_API lt_shape lt_tensor_shape(const lt_tensor *tensor);
LT_API lt_dtype lt_tensor_dtype(const lt_tensor *tensor);
LT_API lt_device *lt_tensor_device(const lt_tensor *tensor);
/** Number of elements. */
LT_API int64_t lt_tensor_count(const lt_tensor *tensor);
/** Elements times the size of one: what read and write want. */
LT_API size_t lt_tensor_bytes(const lt_tensor *tensor);

/** Copies all elements to host memory, in row-major order of logical indices; waits until the
 *  device has them. Errors: LT_E_ARG (bytes is not lt_tensor_bytes(), or the memory was given
 *  back: see lt_tape_keep()), LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_tensor_read(const lt_tensor *tensor, void *host, size_t bytes);
/** The other direction; raises the version, so that packed copies are made anew. */
LT_API LT_MUST_CHECK lt_status lt_tensor_write(lt_tensor *tensor, const void *host, size_t bytes);
/** Sets every element. */
LT_API LT_MUST_CHECK lt_status lt_tensor_fill(lt_tensor *tensor, double value);
/** Copies src to dst, converting the dtype. Errors: LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_tensor_copy(lt_tensor *dst, const lt_tensor *src);
/** The single element of a scalar or one-element tensor, of any dtype. Errors: LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_tensor_item(const lt_tensor *tensor, double *value);

#endif
