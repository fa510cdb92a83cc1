/* Inside of the cuda backend: a device's context and what all files share. For .c and .cu. */
#ifndef LT_CUDA_CUDA_H
#define LT_CUDA_CUDA_H

#include "external.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work is queued on main; input is copied beside it. */
typedef enum lt_cuda_queue { LT_CUDA_MAIN, LT_CUDA_COPIES, LT_CUDA_QUEUES } lt_cuda_queue;

typedef struct lt_cuda_block {
    void *data;
    size_t bytes;
    struct lt_cuda_block *older; /* smaller ones, which captured graphs may still use */
} lt_cuda_block;

/* What files of the backend keep for themselves: data is NULL until they make it, close is called
 * when the device is closed, after all its work is done. */
typedef struct lt_cuda_part {
    void *data;
    void (*close)(lt_cuda *c, void *data);
} lt_cuda_part;

enum {
    LT_CUDA_DNN_PLANS, /* of convolutions and attention */
    LT_CUDA_PRODUCTS,  /* matrix products */
    LT_CUDA_WEIGHTS,   /* weights in the dtype of a pass */
    LT_CUDA_MATRICES,  /* Shampoo's */
    LT_CUDA_STEPS,     /* graphs, scalars, input */
    LT_CUDA_TIMES,     /* of entries */
    LT_CUDA_PARTS
};

/* One opened device. Calls come from one thread at a time. */
struct lt_cuda {
    const lt_cuda_api *api;
    int ordinal;
    lt_cuda_properties properties;
    bool deterministic, tf32;
    lt_fused fused;
    bool sync;      /* LATHER_SYNC=1: wait after each operation, so that a fault has its name */
    bool capturing; /* the main stream is being captured: nothing may be allocated */
    bool replayed;  /* a recorded step was launched since the last wait for all queues */
    const char *operation; /* the entry that runs, for messages */
    lt_cuda_launch_hooks hooks;

    lt_cuda_stream stream[LT_CUDA_QUEUES];
    lt_cuda_block *workspace[LT_CUDA_QUEUES]; /* see lt_cuda_workspace() */

    struct cudnnContext *cudnn;         /* cudnnHandle_t, on the main stream */
    struct cublasLtContext *cublaslt;   /* cublasLtHandle_t */
    struct cublasContext *cublas;       /* cublasHandle_t, on the main stream */
    size_t taken;                       /* bytes of device memory, whoever has them */
    void *cublas_memory;                /* its own, so that it asks for none in a capture */
    struct cusolverDnContext *cusolver; /* cusolverDnHandle_t, on the main stream */

    lt_cuda_part part[LT_CUDA_PARTS];
};

/* Every entry begins with lt_cuda_begin() and ends with lt_cuda_end(), which reports failed launches
 * and, with LATHER_SYNC=1, faults. */
lt_status lt_cuda_begin(lt_cuda *c, const char *operation);
lt_status lt_cuda_end(lt_cuda *c);
/* Makes the device the calling thread's current one. */
lt_status lt_cuda_enter(lt_cuda *c);

/* Return from the enclosing function if expr, a call of a library, failed. Messages have its name: that of the runtime's
 * function, which expr may call by the table, is name. */
#define LT_CUDA_TRY(c, name, expr) LT_TRY(lt_cuda_check(c, LT_CUDA_RUNTIME, (int)(expr), name))
#define LT_CUDNN_TRY(c, expr)      LT_TRY(lt_cuda_check(c, LT_CUDA_CUDNN, (int)(expr), #expr))
#define LT_CUBLAS_TRY(c, expr)     LT_TRY(lt_cuda_check(c, LT_CUDA_CUBLAS, (int)(expr), #expr))
#define LT_CUSOLVER_TRY(c, expr)   LT_TRY(lt_cuda_check(c, LT_CUDA_CUSOLVER, (int)(expr), #expr))

/* The failure st, with how much of the device's memory is free. */
lt_status lt_cuda_with_free_memory(const lt_cuda *c, lt_status st);

/* A failure of graphs of cuDNN, which know neither, with device and operation; any other as it is. */
lt_status lt_cuda_of_operation(const lt_cuda *c, lt_status st);

/* Memory of at least bytes, aligned to 256, for one operation on that queue: the next call on it may
 * give the same. Memory once given stays allocated until the device is closed, so that a captured
 * graph can go on using it. Errors: LT_E_NOMEM; LT_E_DEVICE if it would have to grow in a capture. */
lt_status lt_cuda_workspace(lt_cuda *c, lt_cuda_queue queue, size_t bytes, void **out);

/* Bytes up to where the next part of such memory may begin. */
static inline size_t lt_cuda_padded(size_t bytes)
{
    const size_t alignment = 256;
    return (bytes + alignment - 1) / alignment * alignment;
}

static inline bool lt_cuda_is_16_bit(lt_dtype dtype)
{
    return dtype == LT_F16 || dtype == LT_BF16;
}

/* A device with the table's calls. */
lt_status lt_cuda_open_with(const lt_cuda_api *api, void **ctx, int ordinal,
                            const lt_device_config *config);
void lt_cuda_close(void *ctx);
lt_status lt_cuda_alloc(void *ctx, size_t bytes, void **out);
void lt_cuda_free(void *ctx, void *data, size_t bytes);
size_t lt_cuda_taken(void *ctx);
lt_status lt_cuda_copy(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);
lt_status lt_cuda_sync(void *ctx);

/* Whether a library found at run time can stand for the one that the plugin was built with: of the same
 * major version, and not older than what the code needs. An older minor version than the build's has all
 * that is used, or the loader has said which symbol is missing. Versions: 9 * 1000 + 19 (major, minor);
 * path: its file. */
lt_status lt_cuda_check_version(const char *library, int least, int found, const char *path);

/* Whether driver (13000: 13.0; 0: none) and devices are there. arch: 90, what kernels were built for. */
lt_status lt_cuda_check_driver(const lt_cuda_api *api, int ordinal, int arch);

#ifdef __cplusplus
}
#endif

#endif
