/* Inside of tensors, buffers and devices. */
#ifndef LT_TENSOR_TENSOR_H
#define LT_TENSOR_TENSOR_H

#include "tensor/caching_allocator.h"
#include "tensor/shape.h"

#include "lather/param.h"

struct lt_node;

/* Memory shared by the views of a tensor. */
typedef struct lt_buffer {
    lt_device *device;
    lt_chunk *chunk;
    int references;
} lt_buffer;

struct lt_tensor {
    lt_device *device;
    lt_dtype dtype;
    lt_shape shape;
    int64_t stride[LT_MAX_DIMS];
    lt_buffer *buffer; /* NULL: not made yet, given back, or a meta tensor's */
    uint64_t version;  /* 0 for what lives on a tape */
    lt_buffer *other;  /* a gradient's, in its other width: lt_tensor_hold() */
    bool may_round;    /* a gradient: it may be in 16 bits */

    /* On a tape. */
    lt_tape *tape;
    struct lt_node *producer; /* recorded; NULL: a leaf, or nothing to record */
    lt_tensor *source;        /* a leaf's tensor: the parameter's value, or the variable */
    lt_param *param;          /* the leaf's parameter */
    lt_tensor *next;          /* all handles of the tape */
    lt_tensor *grad[2];       /* addends of the gradient, in order of arrival */
    int readers;              /* recorded nodes whose backward may read the value */
    int uses;                 /* recorded nodes that may still give a gradient */
    bool wants_grad, keep, dropped, given_back;
    bool deferred; /* its operation has not computed it: lt_tensor_materialize() does */
};

struct lt_device {
    const lt_backend *backend;
    void *ctx;
    lt_allocator *allocator;
    char name[16];
    lt_device_config config; /* that it was opened with */
    bool capturing;          /* the main queue is in a graph capture: see graph.c */
};

/* The backend of that name: linked, or loaded from its plugin. Errors: LT_E_ARG (no such name),
 * LT_E_UNSUPPORTED (no plugin, or it cannot be loaded: the message says why). */
lt_status lt_backend_find(const char *name, const lt_backend **out);
/* As lt_build_info(); load: load plugins to ask them, else only those that are loaded say theirs. */
const char *lt_build_line(int index, bool load);
/* What a cpu device that is opened now takes: its instruction set, of the machine and LATHER_CPU_ISA, and the choice of
 * convolutions, LATHER_CPU_KERNELS. "" in a build without that backend, or where the variable is wrong. */
const char *lt_device_isa(void);
const char *lt_device_choice(void);

/* A device of the same kind with memory and compute threads of its own, for kernels on the calling
 * thread beside those of the other, to which they give way. Errors: as lt_device_open(). */
lt_status lt_device_open_like(lt_device **out, const lt_device *like, int threads);

/* Waits for queued work, then starts or stops the profiler of the device's maker (ncu --profile-from-start no); nothing
 * on a device that has none. */
lt_status lt_device_profiler(lt_device *device, bool on);

/* A buffer with one reference. Errors: LT_E_NOMEM. */
lt_status lt_buffer_new(lt_buffer **out, lt_device *device, size_t bytes);
void lt_buffer_release(lt_buffer **buffer);

/* A meta tensor (PyTorch's device "meta"): a shape, a dtype and strides, without memory. Its view has no
 * data, and what reads or writes elements fails. Owns: you. Errors: LT_E_ARG, LT_E_NOMEM. */
lt_status lt_tensor_new_meta(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                             const int64_t stride[LT_MAX_DIMS]);
/* Memory of zeros for a tensor that has none. Errors: LT_E_NOMEM. */
lt_status lt_tensor_allocate(lt_tensor *tensor);

/* Takes the memory of a tensor that is not on a tape away, and gives it uninitialised memory again; its version
 * stays: what a parameter is where another rank has its value. Without effect where there is none, or some already.
 * Errors: LT_E_NOMEM. */
void lt_tensor_release(lt_tensor *tensor);
LT_MUST_CHECK lt_status lt_tensor_allocate_raw(lt_tensor *tensor);
/* The tensor becomes one of that dtype, and has no values. Of 16 bits and of more it has memory of its own, as
 * recorded steps have the addresses of both; none yet: lt_tensor_allocate_raw(). */
void lt_tensor_hold(lt_tensor *tensor, lt_dtype dtype);
static inline bool lt_tensor_has_memory(const lt_tensor *tensor)
{
    return tensor->buffer;
}

/* Where a leaf's data is: its source, else the tensor itself. */
const lt_tensor *lt_tensor_storage(const lt_tensor *tensor);

/* A version that no tensor has had. */
uint64_t lt_next_version(void);

/* The device's operation of that kind on whole tensors of one device; any strides. */
lt_status lt_device_cast(lt_device *device, const lt_view *x, const lt_view *y);

#endif
