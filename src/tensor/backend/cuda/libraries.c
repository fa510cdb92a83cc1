/* The context's handles of cuDNN, cuBLAS and cuSOLVER, and the libraries' versions. */

#include "libraries.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <stdio.h>

_Static_assert((int)CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED == LT_CUDNN_NO_MEMORY
                   && (int)CUBLAS_STATUS_ALLOC_FAILED == LT_CUBLAS_NO_MEMORY
                   && (int)CUSOLVER_STATUS_ALLOC_FAILED == LT_CUSOLVER_NO_MEMORY,
               "error.c, which is built without CUDA too, knows these by number");

/* Workspace that cuBLAS's manual recommends for Hopper. cublasSetStream() removes it. */
static const size_t cublas_bytes = (size_t)32 << 20;

lt_status lt_cuda_libraries_open(lt_cuda *c)
{
    const lt_cuda_stream stream = c->stream[LT_CUDA_MAIN];
    LT_CUDNN_TRY(c, cudnnCreate(&c->cudnn));
    LT_CUDNN_TRY(c, cudnnSetStream(c->cudnn, stream));
    LT_CUBLAS_TRY(c, cublasLtCreate(&c->cublaslt));
    LT_CUBLAS_TRY(c, cublasCreate(&c->cublas));
    LT_CUBLAS_TRY(c, cublasSetStream(c->cublas, stream));
    LT_TRY(lt_cuda_alloc(c, cublas_bytes, &c->cublas_memory));
    LT_CUBLAS_TRY(c, cublasSetWorkspace(c->cublas, c->cublas_memory, cublas_bytes));
    LT_CUSOLVER_TRY(c, cusolverDnCreate(&c->cusolver));
    LT_CUSOLVER_TRY(c, cusolverDnSetStream(c->cusolver, stream));
    return LT_OK;
}

void lt_cuda_libraries_close(lt_cuda *c)
{
    if (c->cusolver)
        cusolverDnDestroy(c->cusolver);
    if (c->cublas)
        cublasDestroy(c->cublas);
    if (c->cublas_memory)
        c->api->release(c->cublas_memory);
    if (c->cublaslt)
        cublasLtDestroy(c->cublaslt);
    if (c->cudnn)
        cudnnDestroy(c->cudnn);
}

#define TEXT(status, text) [status] = #status ", " text
/* cuSOLVER has no function for this. */
static const char *const cusolver_texts[] = {
    TEXT(CUSOLVER_STATUS_NOT_INITIALIZED, "not initialized"),
    TEXT(CUSOLVER_STATUS_ALLOC_FAILED, "no memory"),
    TEXT(CUSOLVER_STATUS_INVALID_VALUE, "an argument is not allowed"),
    TEXT(CUSOLVER_STATUS_ARCH_MISMATCH, "not on this device"),
    TEXT(CUSOLVER_STATUS_EXECUTION_FAILED, "a kernel failed"),
    TEXT(CUSOLVER_STATUS_INTERNAL_ERROR, "a failure within cuSOLVER"),
};

static const char *cusolver_text(int code)
{
    const int count = (int)(sizeof cusolver_texts / sizeof *cusolver_texts);
    return code >= 0 && code < count && cusolver_texts[code] ? cusolver_texts[code] : "a failure";
}

const char *lt_cuda_library_text(lt_cuda_library library, int code)
{
    static __thread char text[256];
    if (library == LT_CUDA_CUBLAS) {
        snprintf(text, sizeof text, "%s, %s", cublasGetStatusName((cublasStatus_t)code),
                 cublasGetStatusString((cublasStatus_t)code));
        return text;
    }
    if (library == LT_CUDA_CUSOLVER)
        return cusolver_text(code);
    if (library != LT_CUDA_CUDNN)
        return "a failure";
    char detail[192] = "";
    cudnnGetLastErrorString(detail, sizeof detail);
    snprintf(text, sizeof text, "%s%s%s", cudnnGetErrorString((cudnnStatus_t)code),
             detail[0] ? ": " : "", detail);
    return text;
}

typedef struct library {
    const char *name;
    const void *anchor; /* an address in the library, to find its file */
    int least, found;   /* 1000 * major + minor */
} library;

enum { LIBRARIES = 4, MAJOR = 1000 };

/* Defines a function that returns a library's version. The libraries' functions differ in type. */
#define VERSION(name, get)            \
    static int name(void)             \
    {                                 \
        int major = 0, minor = 0;     \
        get(MAJOR_VERSION, &major);   \
        get(MINOR_VERSION, &minor);   \
        return major * MAJOR + minor; \
    }
VERSION(get_cudnn_version, cudnnGetProperty)
VERSION(get_cublas_version, cublasGetProperty)
VERSION(get_cusolver_version, cusolverGetProperty)

static int get_runtime_version(void)
{
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version / MAJOR * MAJOR + version % MAJOR / 10;
}

/* Required: the build's major versions, and cuDNN 9.8, which introduced plans as text. */
static void find_libraries(library out[LIBRARIES])
{
    enum { CUDNN_LEAST_MINOR = 8 };
    out[0] = (library){"the CUDA runtime", (const void *)(uintptr_t)cudaRuntimeGetVersion,
                       CUDART_VERSION / MAJOR * MAJOR, get_runtime_version()};
    out[1] = (library){"cuDNN", (const void *)(uintptr_t)cudnnGetProperty,
                       CUDNN_MAJOR * MAJOR + CUDNN_LEAST_MINOR, get_cudnn_version()};
    out[2] = (library){"cuBLAS", (const void *)(uintptr_t)cublasGetProperty,
                       CUBLAS_VER_MAJOR * MAJOR, get_cublas_version()};
    out[3] = (library){"cuSOLVER", (const void *)(uintptr_t)cusolverGetProperty,
                       CUSOLVER_VER_MAJOR * MAJOR, get_cusolver_version()};
}

lt_status lt_cuda_libraries_check(void)
{
    library all[LIBRARIES];
    find_libraries(all);
    for (int i = 0; i < LIBRARIES; i++) {
        Dl_info info = {0};
        const bool known = dladdr(all[i].anchor, &info) && info.dli_fname;
        LT_TRY(lt_cuda_check_version(all[i].name, all[i].least, all[i].found,
                                     known ? info.dli_fname : "?"));
    }
    return LT_OK;
}

const char *lt_cuda_libraries_info(void)
{
    static __thread char text[256];
    library all[LIBRARIES];
    size_t used = 0;
    find_libraries(all);
    for (int i = 0; i < LIBRARIES && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d.%d",
                                 i ? ", " : "cuda: ", all[i].name, all[i].found / MAJOR,
                                 all[i].found % MAJOR);
    return text;
}
