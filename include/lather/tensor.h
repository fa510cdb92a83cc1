/** Dense N-dimensional arrays on one device. */
#ifndef LATHER_TENSOR_H
#define LATHER_TENSOR_H

#include "lather/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lt_tensor lt_tensor;

enum { LT_MAX_DIMS = 5 };

/** Sizes of the dimensions, outermost first; ndim 0 is a scalar. Pass and return it by value. */
typedef struct lt_shape {
    int ndim;
    int64_t dim[LT_MAX_DIMS];
} lt_shape;

/** A shape literal: LT_SHAPE(n, 3, 224, 224). */
#define LT_SHAPE(...)                                                              \
    ((lt_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})

/** The shape of a scalar. */
#define LT_SCALAR ((lt_shape){0})

/** Returns the number of elements: the product of the sizes, 1 for a scalar. */
LT_API int64_t lt_shape_count(lt_shape shape);
/** Returns true if both have the same dimensions and sizes. */
LT_API bool lt_shape_equal(lt_shape a, lt_shape b);

enum { LT_SHAPE_TEXT = 128 };
/** Writes "[32,256,14,14]" to text (of LT_SHAPE_TEXT bytes) and returns it. */
LT_API const char *lt_shape_text(lt_shape shape, char *text);

/** Storage order of the elements. Indices are logical (N C H W, O I H W) in every format. */
typedef enum lt_memory_format {
    /** The same format as the operation's input, if that has the output's shape. */
    LT_FORMAT_PRESERVE,
    LT_FORMAT_CONTIGUOUS,   /**< row-major order */
    LT_FORMAT_CHANNELS_LAST /**< 4-D only: [N,C,H,W] is stored in the order N H W C */
} lt_memory_format;

/** Creates a row-major tensor of zeros. Free it with lt_tensor_free(). Errors: LT_E_ARG (a size
 *  below 1, or more than LT_MAX_DIMS dimensions), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tensor_new(lt_tensor **out, lt_device *device, lt_dtype dtype,
                                             lt_shape shape);
/** Creates a tensor of zeros in the given memory format. Make inputs of convolutions
 *  channels-last: other formats are copied on each call. Errors: as lt_tensor_new(); LT_E_SHAPE
 *  (LT_FORMAT_CHANNELS_LAST needs 4 dimensions). */
LT_API LT_MUST_CHECK lt_status lt_tensor_new_as(lt_tensor **out, lt_device *device, lt_dtype dtype,
                                                lt_shape shape, lt_memory_format format);
/** Creates a tensor over memory of yours, without a copy: dense, in the given memory format, at an
 *  address that is a multiple of the element size. Borrows the memory, which must outlive the tensor
 *  and every tape that used it; nothing derived from it is cached, so it may be written at any time
 *  between operations. Errors: LT_E_UNSUPPORTED (the device's memory is not the host's), LT_E_ARG
 *  (NULL; the address), those of lt_tensor_new_as(). */
LT_API LT_MUST_CHECK lt_status lt_tensor_new_borrowed(lt_tensor **out, lt_device *device,
                                                      lt_dtype dtype, lt_shape shape,
                                                      lt_memory_format format, void *memory);
/** Creates a tensor of zeros with the device, shape and memory format of like. Errors:
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tensor_new_like(lt_tensor **out, const lt_tensor *like,
                                                  lt_dtype dtype);
/** Frees *tensor and sets it to NULL. *tensor may be NULL. */
LT_API void lt_tensor_free(lt_tensor **tensor);

LT_API lt_shape lt_tensor_shape(const lt_tensor *tensor);
LT_API lt_dtype lt_tensor_dtype(const lt_tensor *tensor);
LT_API lt_device *lt_tensor_device(const lt_tensor *tensor);
/** Returns the number of elements. */
LT_API int64_t lt_tensor_count(const lt_tensor *tensor);
/** Returns the number of bytes that lt_tensor_read() and lt_tensor_write() transfer: elements
 *  times element size. */
LT_API size_t lt_tensor_bytes(const lt_tensor *tensor);

/** Copies all elements to host memory, row-major by logical index; waits for the device. Errors:
 *  LT_E_ARG (bytes differs from lt_tensor_bytes(), or the tape already freed this tensor: see
 *  lt_tape_keep()), LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_tensor_read(const lt_tensor *tensor, void *host, size_t bytes);
/** Copies all elements from host memory, in the same order. Increments the tensor's version,
 *  which invalidates cached copies of a weight. Errors: LT_E_ARG (bytes), LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_tensor_write(lt_tensor *tensor, const void *host, size_t bytes);
/** Sets every element to value. */
LT_API LT_MUST_CHECK lt_status lt_tensor_fill(lt_tensor *tensor, double value);
/** Copies src to dst and converts the dtype. Errors: LT_E_SHAPE (the shapes differ). */
LT_API LT_MUST_CHECK lt_status lt_tensor_copy(lt_tensor *dst, const lt_tensor *src);
/** Reads a one-element tensor of any dtype as a double; waits for the device. Errors: LT_E_SHAPE
 *  (more than one element). */
LT_API LT_MUST_CHECK lt_status lt_tensor_item(const lt_tensor *tensor, double *value);

#endif
