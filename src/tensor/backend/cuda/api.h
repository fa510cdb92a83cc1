/* Table of the CUDA runtime functions that host code calls, so that tests can replace them. No CUDA header is needed:
 * handles are CUDA's structs, declared by their tags, and results are its integers. */
#ifndef LT_CUDA_API_H
#define LT_CUDA_API_H

#include "lather/detail/backend.h"

typedef struct CUstream_st *lt_cuda_stream;        /* cudaStream_t */
typedef struct CUevent_st *lt_cuda_event;          /* cudaEvent_t */
typedef struct CUgraph_st *lt_cuda_graph;          /* cudaGraph_t */
typedef struct CUgraphExec_st *lt_cuda_graph_exec; /* cudaGraphExec_t */

/* Result codes that the code tests; values of CUDA and its libraries. */
enum {
    LT_CUDA_SUCCESS = 0,
    LT_CUDA_NO_MEMORY = 2,
    LT_CUDA_OLD_DRIVER = 35,
    LT_CUDA_NO_DEVICE = 100,
    LT_CUDA_NOT_READY = 600,
    LT_CUDNN_NO_MEMORY = 4004, /* no device memory, as the next two */
    LT_CUBLAS_NO_MEMORY = 3,
    LT_CUSOLVER_NO_MEMORY = 2
};

typedef struct lt_cuda_properties {
    char name[64];
    int major, minor; /* compute capability */
    int multiprocessors;
    size_t memory_bytes, cache_bytes, shared_bytes; /* all, L2, most of a block */
} lt_cuda_properties;

/* The library that returned a result code. */
typedef enum lt_cuda_library {
    LT_CUDA_RUNTIME,
    LT_CUDA_CUDNN,
    LT_CUDA_CUBLAS,
    LT_CUDA_CUSOLVER
} lt_cuda_library;

struct lt_cuda;

/* Unless a comment says otherwise, each returns 0 or the runtime's error code. */
typedef struct lt_cuda_api {
    int (*versions)(int *driver, int *runtime); /* 13000 is 13.0; driver: 0 if missing */
    int (*device_count)(int *count);
    int (*set_device)(int ordinal); /* for the calling thread */
    int (*properties)(int ordinal, lt_cuda_properties *out);
    int (*memory_info)(size_t *free_bytes, size_t *all_bytes);

    int (*alloc)(void **out, size_t bytes);
    int (*release)(void *memory);
    int (*alloc_host)(void **out, size_t bytes); /* pinned */
    int (*release_host)(void *memory);
    int (*copy_async)(void *dst, const void *src, size_t bytes, lt_copy_kind kind,
                      lt_cuda_stream stream);
    int (*set_async)(void *dst, int value, size_t bytes, lt_cuda_stream stream);

    int (*stream_create)(lt_cuda_stream *out, bool urgent);
    int (*stream_destroy)(lt_cuda_stream stream);
    int (*stream_sync)(lt_cuda_stream stream);
    int (*stream_wait)(lt_cuda_stream stream, lt_cuda_event event);

    int (*event_create)(lt_cuda_event *out, bool timing);
    int (*event_destroy)(lt_cuda_event event);
    int (*event_record)(lt_cuda_event event, lt_cuda_stream stream);
    int (*event_sync)(lt_cuda_event event);
    int (*event_query)(lt_cuda_event event);
    int (*event_milliseconds)(float *out, lt_cuda_event from, lt_cuda_event to);

    int (*capture_begin)(lt_cuda_stream stream); /* captures this thread's calls */
    int (*capture_end)(lt_cuda_stream stream, lt_cuda_graph *out);
    int (*graph_instantiate)(lt_cuda_graph_exec *out, lt_cuda_graph graph);
    int (*graph_launch)(lt_cuda_graph_exec exec, lt_cuda_stream stream);
    int (*graph_destroy)(lt_cuda_graph graph);
    int (*graph_exec_destroy)(lt_cuda_graph_exec exec);

    int (*last_error)(void); /* last error of this thread, including failed launches; resets it */

    /* Returns the library's text for a result code. */
    const char *(*text)(lt_cuda_library library, int code);
    /* Create and destroy the context's handles of cuDNN, cuBLAS, cuBLASLt and cuSOLVER. */
    lt_status (*libraries_open)(struct lt_cuda *c);
    void (*libraries_close)(struct lt_cuda *c);
} lt_cuda_api;

/* The CUDA runtime's functions. */
extern const lt_cuda_api lt_cuda_runtime;

#endif
