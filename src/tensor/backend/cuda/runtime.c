/* The table of runtime calls, with the functions of the CUDA runtime. */

#include "cuda.h"
#include "libraries.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

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

static int set_device(int ordinal)
{
    return (int)cudaSetDevice(ordinal);
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

static int memory_info(size_t *free_bytes, size_t *all_bytes)
{
    return (int)cudaMemGetInfo(free_bytes, all_bytes);
}

static int alloc_memory(void **out, size_t bytes)
{
    return (int)cudaMalloc(out, bytes);
}

static int free_memory(void *memory)
{
    return (int)cudaFree(memory);
}

static int alloc_host(void **out, size_t bytes)
{
    return (int)cudaMallocHost(out, bytes);
}

static int release_host(void *memory)
{
    return (int)cudaFreeHost(memory);
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

static int set_async(void *dst, int value, size_t bytes, lt_cuda_stream stream)
{
    return (int)cudaMemsetAsync(dst, value, bytes, stream);
}

static int stream_create(lt_cuda_stream *out, bool urgent)
{
    int least = 0, greatest = 0;
    int code = (int)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (code)
        return code;
    return (int)cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, urgent ? greatest : least);
}

static int stream_destroy(lt_cuda_stream stream)
{
    return (int)cudaStreamDestroy(stream);
}

static int stream_sync(lt_cuda_stream stream)
{
    return (int)cudaStreamSynchronize(stream);
}

static int stream_wait(lt_cuda_stream stream, lt_cuda_event event)
{
    return (int)cudaStreamWaitEvent(stream, event, 0);
}

static int event_create(lt_cuda_event *out, bool timing)
{
    return (int)cudaEventCreateWithFlags(out, timing ? cudaEventDefault : cudaEventDisableTiming);
}

static int event_destroy(lt_cuda_event event)
{
    return (int)cudaEventDestroy(event);
}

static int event_record(lt_cuda_event event, lt_cuda_stream stream)
{
    return (int)cudaEventRecord(event, stream);
}

static int event_sync(lt_cuda_event event)
{
    return (int)cudaEventSynchronize(event);
}

/* "Not ready" is a result, but CUDA also keeps it as the thread's last error. */
static int event_query(lt_cuda_event event)
{
    const cudaError_t code = cudaEventQuery(event);
    if (code == cudaErrorNotReady)
        (void)cudaGetLastError();
    return (int)code;
}

static int event_milliseconds(float *out, lt_cuda_event from, lt_cuda_event to)
{
    return (int)cudaEventElapsedTime(out, from, to);
}

static int capture_begin(lt_cuda_stream stream)
{
    return (int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}

static int capture_end(lt_cuda_stream stream, lt_cuda_graph *out)
{
    return (int)cudaStreamEndCapture(stream, out);
}

static int graph_instantiate(lt_cuda_graph_exec *out, lt_cuda_graph graph)
{
    return (int)cudaGraphInstantiate(out, graph, 0);
}

static int graph_launch(lt_cuda_graph_exec exec, lt_cuda_stream stream)
{
    return (int)cudaGraphLaunch(exec, stream);
}

static int graph_destroy(lt_cuda_graph graph)
{
    return (int)cudaGraphDestroy(graph);
}

static int graph_exec_destroy(lt_cuda_graph_exec exec)
{
    return (int)cudaGraphExecDestroy(exec);
}

static int last_error(void)
{
    return (int)cudaGetLastError();
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

const lt_cuda_api lt_cuda_runtime = {
    .versions = get_versions,
    .device_count = device_count,
    .set_device = set_device,
    .properties = get_properties,
    .memory_info = memory_info,
    .alloc = alloc_memory,
    .release = free_memory,
    .alloc_host = alloc_host,
    .release_host = release_host,
    .copy_async = copy_async,
    .set_async = set_async,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .event_query = event_query,
    .event_milliseconds = event_milliseconds,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_instantiate = graph_instantiate,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .graph_exec_destroy = graph_exec_destroy,
    .last_error = last_error,
    .text = error_text,
    .libraries_open = lt_cuda_libraries_open,
    .libraries_close = lt_cuda_libraries_close,
};
