/* Private declarations of the CUDA backend: a device's context and helpers for all of its files, .c and .cu. */
#ifndef LT_CUDA_CUDA_H
#define LT_CUDA_CUDA_H

#include "external.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Streams: kernels and library calls run on main, uploads of input concurrently on copies. */
typedef enum lt_cuda_stream_index {
    LT_CUDA_MAIN,
    LT_CUDA_COPIES,
    LT_CUDA_STREAMS
} lt_cuda_stream_index;

typedef struct lt_cuda_block {
    void *data;
    size_t bytes;
    struct lt_cuda_block *older; /* smaller blocks, which captured graphs may still use */
} lt_cuda_block;

/* Private state of one file of the backend: data is NULL until that file creates it; close() is called when the
 * device is closed, after all queued work has finished. */
typedef struct lt_cuda_part {
    void *data;
    void (*close)(lt_cuda *c, void *data);
} lt_cuda_part;

enum {
    LT_CUDA_DNN_PLANS, /* execution plans of convolutions and attention */
    LT_CUDA_PRODUCTS,  /* matrix products */
    LT_CUDA_CASTS,     /* casts of weights to the dtype of a pass */
    LT_CUDA_STEPS,     /* events of uploads and of the main stream */
    LT_CUDA_PROFILER,  /* device time of each entry */
    LT_CUDA_PARTS
};

/* An opened device. Used by one thread at a time. */
struct lt_cuda {
    const lt_cuda_api *api;
    int ordinal;
    lt_cuda_properties properties;
    bool deterministic, tf32;
    lt_fused fused;
    bool sync;      /* LATHER_SYNC=1: synchronize after each entry, so that a fault names it */
    bool capturing; /* the main stream is being captured: nothing may be allocated */
    bool replayed;  /* a captured step was launched since all streams were last synchronized */
    const char *operation; /* name of the running entry, for messages */
    lt_cuda_launch_hooks hooks;

    lt_cuda_stream stream[LT_CUDA_STREAMS];
    lt_cuda_block *workspace[LT_CUDA_STREAMS]; /* see lt_cuda_workspace() */

    struct cudnnContext *cudnn;       /* cudnnHandle_t, on the main stream */
    struct cublasLtContext *cublaslt; /* cublasLtHandle_t */
    struct cublasContext *cublas;     /* cublasHandle_t, on the main stream */
    size_t taken;                     /* bytes of device memory allocated by this context */
    void *cublas_memory;              /* cuBLAS's workspace: without it, a capture would allocate */
    struct cusolverDnContext *cusolver; /* cusolverDnHandle_t, on the main stream */

    lt_cuda_part part[LT_CUDA_PARTS];
};

/* Begin and end an entry; lt_cuda_end() reports failed launches and, with LATHER_SYNC=1, faults. */
lt_status lt_cuda_begin(lt_cuda *c, const char *operation);
lt_status lt_cuda_end(lt_cuda *c);
/* Makes the device the calling thread's current one. */
lt_status lt_cuda_make_current(lt_cuda *c);

/* Return from the enclosing function if expr, a library call, failed. Messages name the call; name: that of the
 * runtime function, because expr may call it through the table. */
#define LT_CUDA_TRY(c, name, expr) LT_TRY(lt_cuda_check(c, LT_CUDA_RUNTIME, (int)(expr), name))
#define LT_CUDNN_TRY(c, expr)      LT_TRY(lt_cuda_check(c, LT_CUDA_CUDNN, (int)(expr), #expr))
#define LT_CUBLAS_TRY(c, expr)     LT_TRY(lt_cuda_check(c, LT_CUDA_CUBLAS, (int)(expr), #expr))
#define LT_CUSOLVER_TRY(c, expr)   LT_TRY(lt_cuda_check(c, LT_CUDA_CUSOLVER, (int)(expr), #expr))

/* Appends the device's free memory to the message of the failure st. Returns st. */
lt_status lt_cuda_append_free_memory(const lt_cuda *c, lt_status st);

/* Prefixes the message of a cuDNN graph's failure with device and entry, which graphs do not know. Returns st. */
lt_status lt_cuda_prefix_operation(const lt_cuda *c, lt_status st);

/* Returns workspace of at least `bytes`, aligned to 256, for one operation on that stream; the next call may return
 * the same memory. It remains allocated until the device is closed, because captured graphs may use it. Errors:
 * LT_E_NOMEM; LT_E_DEVICE if it would have to grow during a capture. */
lt_status lt_cuda_workspace(lt_cuda *c, lt_cuda_stream_index stream, size_t bytes, void **out);

/* Rounds up to a multiple of 256, where the next part of a workspace may begin. */
static inline size_t lt_cuda_pad_bytes(size_t bytes)
{
    const size_t alignment = 256;
    return (bytes + alignment - 1) / alignment * alignment;
}

static inline bool lt_cuda_is_16_bit(lt_dtype dtype)
{
    return dtype == LT_F16 || dtype == LT_BF16;
}

/* Opens a device that uses the functions of api. */
lt_status lt_cuda_open_with(const lt_cuda_api *api, void **ctx, int ordinal,
                            const lt_device_config *config);
void lt_cuda_close(void *ctx);
lt_status lt_cuda_alloc(void *ctx, size_t bytes, void **out);
void lt_cuda_free(void *ctx, void *data, size_t bytes);
size_t lt_cuda_allocated_bytes(void *ctx);
lt_status lt_cuda_copy(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);
lt_status lt_cuda_sync(void *ctx);
/* Captured graphs, and uploads on a separate stream. */
extern const lt_graph_ops lt_cuda_graphs;
extern const lt_upload_ops lt_cuda_uploads;

/* Returns LT_OK if a library found at run time has the major version that the plugin was built with and is not older
 * than `least`, else LT_E_UNSUPPORTED. A minor version older than the build's is accepted: the loader would have
 * named a missing symbol. Versions: major * 1000 + minor; path: the library's file. */
lt_status lt_cuda_check_version(const char *library, int least, int found, const char *path);

/* Returns LT_OK if there are a driver and a device that can run kernels built for compute capability `arch` (90:
 * 9.0), else LT_E_UNSUPPORTED or LT_E_DEVICE. */
lt_status lt_cuda_check_driver(const lt_cuda_api *api, int ordinal, int arch);

#ifdef __cplusplus
}
#endif

#endif
