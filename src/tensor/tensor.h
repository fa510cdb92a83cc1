/* Private declarations of tensors, buffers and devices. */
#ifndef LT_TENSOR_TENSOR_H
#define LT_TENSOR_TENSOR_H

#include "tensor/caching_allocator.h"
#include "tensor/shape.h"

#include "lather/param.h"

struct lt_node;

/* Memory shared by the views of a tensor. */
typedef struct lt_buffer {
    lt_device *device;
    lt_chunk *chunk; /* NULL: the memory is borrowed */
    void *borrowed;
    int references;
} lt_buffer;

struct lt_tensor {
    lt_device *device;
    lt_dtype dtype;
    lt_shape shape;
    int64_t stride[LT_MAX_DIMS];
    lt_buffer *buffer; /* memory; NULL: not allocated yet, freed, or a meta tensor */
    uint64_t version;  /* version of a weight's values; 0 for tensors of a tape */
    lt_buffer *other;  /* a gradient's buffer of the other element size: lt_tensor_set_dtype() */
    bool may_round;    /* the tensor is a gradient that may be stored in 16 bits */

    /* Fields of a handle on a tape: */
    lt_tape *tape;
    struct lt_node *producer; /* recorded; NULL: a leaf, or an operation that was not recorded */
    lt_tensor *source;        /* tensor of a leaf: the parameter's value, or the variable */
    lt_param *param;          /* parameter of a leaf */
    lt_tensor *next;          /* next in the list of all handles of the tape */
    lt_tensor *grad[2];       /* addends of the gradient, in order of arrival */
    int readers;              /* number of recorded nodes whose backward may read the value */
    int uses;                 /* recorded nodes whose backward may still add to the gradient */
    bool wants_grad, keep, dropped, freed;
    bool deferred; /* not computed by its operation yet: see lt_tensor_materialize() */
};

struct lt_device {
    const lt_backend *backend;
    void *ctx;
    lt_allocator *allocator;
    char name[16];
    lt_device_config config; /* the configuration with which it was opened */
    bool capturing;          /* the main queue is capturing a graph: see graph.c */
};

/* Finds a backend by name: linked, or loaded from its plugin. Errors: LT_E_ARG (unknown name),
 * LT_E_UNSUPPORTED (no plugin, or it cannot be loaded: the message has the reason). */
lt_status lt_backend_find(const char *name, const lt_backend **out);
/* Returns a line of lt_build_info(); load: loads plugins to ask them, else only loaded ones report. */
const char *lt_build_info_line(int index, bool load);
/* These return the choices that a cpu device, reproducible or not, opened now would make: its instruction
 * set (machine and LATHER_CPU_ISA) and its convolution kernels (LATHER_CPU_KERNELS). "" in a build without
 * that backend, or if a variable is invalid. */
const char *lt_device_isa(bool reproducible);
const char *lt_device_conv_kernels(bool reproducible);

/* Opens a device of the same kind with separate memory and compute threads, for kernels on the calling
 * thread that run concurrently with those of the other device, at lower priority. Errors: as
 * lt_device_open(). */
lt_status lt_device_open_like(lt_device **out, const lt_device *like, int threads);

/* Waits for queued work, then starts or stops the vendor's profiler (ncu --profile-from-start no); does
 * nothing on a device without one. */
lt_status lt_device_set_profiler(lt_device *device, bool on);

/* Creates a buffer with one reference. Errors: LT_E_NOMEM. */
lt_status lt_buffer_new(lt_buffer **out, lt_device *device, size_t bytes);
void lt_buffer_release(lt_buffer **buffer);

/* Creates a meta tensor (PyTorch's device "meta"): shape, dtype and strides without memory. Its view has no
 * data, and reading or writing elements fails. Owns: you. Errors: LT_E_ARG, LT_E_NOMEM. */
lt_status lt_tensor_new_meta(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                             const int64_t stride[LT_MAX_DIMS]);
/* Allocates zeroed memory for a tensor without memory; else does nothing. Errors: LT_E_NOMEM. */
lt_status lt_tensor_allocate(lt_tensor *tensor);

/* These free and allocate (uninitialised) the memory of a tensor that is not on a tape, leaving its version
 * unchanged; for parameters whose values are on another rank. Without effect if there is nothing to do.
 * Errors: LT_E_NOMEM. */
void lt_tensor_free_memory(lt_tensor *tensor);
LT_MUST_CHECK lt_status lt_tensor_allocate_raw(lt_tensor *tensor);
/* Changes the tensor's dtype; its values become undefined. A 16-bit and a wider dtype have separate buffers,
 * because recorded steps use the addresses of both; the new one may need lt_tensor_allocate_raw(). */
void lt_tensor_set_dtype(lt_tensor *tensor, lt_dtype dtype);
static inline bool lt_tensor_has_memory(const lt_tensor *tensor)
{
    return tensor->buffer;
}

/* Returns the tensor that holds a leaf's data: its source, else the tensor itself. */
const lt_tensor *lt_tensor_storage(const lt_tensor *tensor);

/* Runs the device's cast on whole tensors of one device; any strides. */
lt_status lt_device_cast(lt_device *device, const lt_view *x, const lt_view *y);

#endif
