/* The table of runtime calls, with the functions of the CUDA runtime. */

#include "cuda.h"
#include "libraries.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

/* Functions of the table that are one call of the runtime: name, call, parameters. */
#define CALLS(X)                                                                                   \
    X(set_device, cudaSetDevice(ordinal), int ordinal)                                             \
    X(memory_info, cudaMemGetInfo(free_bytes, all_bytes), size_t *free_bytes, size_t *all_bytes)   \
    X(alloc, cudaMalloc(out, bytes), void **out, size_t bytes)                                     \
    X(release, cudaFree(memory), void *memory)                                                     \
    X(alloc_host, cudaMallocHost(out, bytes), void **out, size_t bytes)                            \
    X(release_host, cudaFreeHost(memory), void *memory)                                            \
    X(set_async, cudaMemsetAsync(dst, value, bytes, stream), void *dst, int value, size_t bytes,   \
      lt_cuda_stream stream)                                                                       \
    X(stream_destroy, cudaStreamDestroy(stream), lt_cuda_stream stream)                            \
    X(stream_sync, cudaStreamSynchronize(stream), lt_cuda_stream stream)                           \
    X(stream_wait, cudaStreamWaitEvent(stream, event, 0), lt_cuda_stream stream,                   \
      lt_cuda_event event)                                                                         \
    X(event_create,                                                                                \
      cudaEventCreateWithFlags(out, timing ? cudaEventDefault : cudaEventDisableTiming),           \
      lt_cuda_event *out, bool timing)                                                             \
    X(event_destroy, cudaEventDestroy(event), lt_cuda_event event)                                 \
    X(event_record, cudaEventRecord(event, stream), lt_cuda_event event, lt_cuda_stream stream)    \
    X(event_sync, cudaEventSynchronize(event), lt_cuda_event event)                                \
    X(event_milliseconds, cudaEventElapsedTime(out, from, to), float *out, lt_cuda_event from,     \
      lt_cuda_event to)                                                                            \
    X(capture_begin, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),             \
      lt_cuda_stream stream)                                                                       \
    X(capture_end, cudaStreamEndCapture(stream, out), lt_cuda_stream stream, lt_cuda_graph *out)   \
    X(graph_instantiate, cudaGraphInstantiate(out, graph, 0), lt_cuda_graph_exec *out,             \
      lt_cuda_graph graph)                                                                         \
    X(graph_launch, cudaGraphLaunch(exec, stream), lt_cuda_graph_exec exec, lt_cuda_stream stream) \
    X(graph_destroy, cudaGraphDestroy(graph), lt_cuda_graph graph)                                 \
    X(graph_exec_destroy, cudaGraphExecDestroy(exec), lt_cuda_graph_exec exec)                     \
    X(last_error, cudaGetLastError(), void)

#define DEFINE(name, call, ...)  \
    static int name(__VA_ARGS__) \
    {                            \
        return (int)call;        \
    }
CALLS(DEFINE)

static int get_versions(int *driver, int *runtime)
{
    int code = (int)cudaDriverGetVersion(driver);
    return code ? code : (int)cudaRuntimeGetVersion(runtime);
}

static int device_count(int *count)
{
    int code = (int)cudaGetDeviceCount(count);
    if (code)
        cudaGetLastError();
    return code;
}

static int get_properties(int ordinal, lt_cuda_properties *out)
{
    struct cudaDeviceProp p;
    int code = (int)cudaGetDeviceProperties(&p, ordinal);
    if (code)
        return code;
    *out = (lt_cuda_properties){
        .major = p.major,
        .minor = p.minor,
        .multiprocessors = p.multiProcessorCount,
        .memory_bytes = p.totalGlobalMem,
        .cache_bytes = (size_t)p.l2CacheSize,
        .shared_bytes = p.sharedMemPerBlockOptin,
    };
    snprintf(out->name, sizeof out->name, "%.63s", p.name);
    return 0;
}

static int copy_async(void *dst, const void *src, size_t bytes, lt_copy_kind kind,
                      lt_cuda_stream stream)
{
    static const enum cudaMemcpyKind kinds[] = {
        [LT_COPY_IN] = cudaMemcpyHostToDevice,
        [LT_COPY_OUT] = cudaMemcpyDeviceToHost,
        [LT_COPY_WITHIN] = cudaMemcpyDeviceToDevice,
    };
    return (int)cudaMemcpyAsync(dst, src, bytes, kinds[kind], stream);
}

static int stream_create(lt_cuda_stream *out, bool urgent)
{
    int least = 0, greatest = 0;
    int code = (int)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (code)
        return code;
    return (int)cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, urgent ? greatest : least);
}

/* "Not ready" is a result, but CUDA also keeps it as the thread's last error. */
static int event_query(lt_cuda_event event)
{
    const cudaError_t code = cudaEventQuery(event);
    if (code == cudaErrorNotReady)
        (void)cudaGetLastError();
    return (int)code;
}

static const char *error_text(lt_cuda_library library, int code)
{
    static __thread char named[256];
    if (library != LT_CUDA_RUNTIME)
        return lt_cuda_library_text(library, code);
    snprintf(named, sizeof named, "%s, %s", cudaGetErrorName((cudaError_t)code),
             cudaGetErrorString((cudaError_t)code));
    return named;
}

#define ENTRY(name, call, ...) .name = (name),
const lt_cuda_api lt_cuda_runtime = {.versions = get_versions,
                                     .device_count = device_count,
                                     .properties = get_properties,
                                     .copy_async = copy_async,
                                     .stream_create = stream_create,
                                     .event_query = event_query,
                                     .text = error_text,
                                     .libraries_open = lt_cuda_libraries_open,
                                     .libraries_close = lt_cuda_libraries_close,
                                     CALLS(ENTRY)};
