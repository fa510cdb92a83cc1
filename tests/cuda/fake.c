/* A device that is host memory. Work is done at the call: queues and events are only counted. */

#include "fake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_device fake;

void fake_reset(size_t memory)
{
    fake = (fake_device){.driver = 13000,
                         .runtime = 13000,
                         .count = 1,
                         .major = 9,
                         .memory = memory,
                         .set_device = -1};
}

/* Counts a call and returns its status. Every call begins with it. */
static int called(const char *name)
{
    if (fake.calls < FAKE_CALLS)
        fake.log[fake.calls] = name;
    fake.calls++;
    if (fake.fails && !strcmp(fake.fails, name) && fake.fails_after-- <= 0)
        return fake.error = fake.fails_with; /* which last_error() tells too, as CUDA's does */
    return LT_CUDA_SUCCESS;
}

/* A call that the trace has, with the numbers of its handles. */
static int traced(const char *name, uintptr_t a, uintptr_t b)
{
    const size_t used = strlen(fake.trace);
    snprintf(fake.trace + used, sizeof fake.trace - used, "%s%s(%d,%d)", used ? " " : "", name,
             (int)a, (int)b);
    return called(name);
}

static int versions(int *driver, int *runtime)
{
    *driver = fake.driver;
    *runtime = fake.runtime;
    return called("versions");
}

static int device_count(int *count)
{
    *count = fake.count;
    return called("device_count");
}

static int set_device(int ordinal)
{
    fake.set_device = ordinal;
    return called("set_device");
}

static int properties(int ordinal, lt_cuda_properties *out)
{
    (void)ordinal;
    *out = (lt_cuda_properties){.name = "Fake",
                                .major = fake.major,
                                .minor = fake.minor,
                                .multiprocessors = 132,
                                .memory_bytes = fake.memory};
    return called("properties");
}

static int memory_info(size_t *free_bytes, size_t *all_bytes)
{
    *free_bytes = fake.memory - fake.used;
    *all_bytes = fake.memory;
    return called("memory_info");
}

/* Bytes before a block that hold its size; keeps the alignment of cudaMalloc(). */
enum { HEADER = 256 };

static int alloc(void **out, size_t bytes)
{
    int code = called("alloc");
    if (!code && bytes > fake.memory - fake.used)
        code = fake.error = LT_CUDA_NO_MEMORY;
    if (code)
        return code;
    unsigned char *memory = aligned_alloc(HEADER, HEADER + (bytes + HEADER - 1) / HEADER * HEADER);
    if (!memory)
        return LT_CUDA_NO_MEMORY;
    memset(memory, 0xFF, HEADER + bytes); /* NaN: a device's memory has no value at first */
    memcpy(memory, &bytes, sizeof bytes);
    fake.used += bytes;
    fake.blocks++;
    *out = memory + HEADER;
    return code;
}

static int release(void *memory)
{
    size_t bytes;
    if (!memory)
        return LT_CUDA_SUCCESS;
    unsigned char *block = (unsigned char *)memory - HEADER;
    memcpy(&bytes, block, sizeof bytes);
    fake.used -= bytes;
    fake.blocks--;
    free(block);
    return called("release");
}

static int copy_async(void *dst, const void *src, size_t bytes, lt_copy_kind kind,
                      lt_cuda_stream stream)
{
    (void)kind;
    memmove(dst, src, bytes);
    return traced("copy_async", bytes, (uintptr_t)stream);
}

static int set_async(void *dst, int value, size_t bytes, lt_cuda_stream stream)
{
    (void)stream;
    memset(dst, value, bytes);
    return called("set_async");
}

/* Handles are small numbers, which are never dereferenced. */
static void *handle(int *open)
{
    return (void *)(uintptr_t)++ * open;
}

static int stream_create(lt_cuda_stream *out, bool urgent)
{
    fake.urgent += urgent;
    int code = called("stream_create");
    if (!code)
        *out = handle(&fake.streams);
    return code;
}

static int stream_destroy(lt_cuda_stream stream)
{
    (void)stream;
    fake.streams--;
    return called("stream_destroy");
}

static int stream_sync(lt_cuda_stream stream)
{
    (void)stream;
    return called("stream_sync");
}

static int stream_wait(lt_cuda_stream stream, lt_cuda_event event)
{
    return traced("stream_wait", (uintptr_t)stream, (uintptr_t)event);
}

static int event_create(lt_cuda_event *out, bool timing)
{
    (void)timing;
    int code = called("event_create");
    if (!code)
        *out = handle(&fake.events);
    return code;
}

static int event_destroy(lt_cuda_event event)
{
    (void)event;
    fake.events--;
    return called("event_destroy");
}

static int event_record(lt_cuda_event event, lt_cuda_stream stream)
{
    return traced("event_record", (uintptr_t)event, (uintptr_t)stream);
}

static int event_sync(lt_cuda_event event)
{
    return traced("event_sync", (uintptr_t)event, 0);
}

static int event_query(lt_cuda_event event)
{
    (void)event;
    return called("event_query");
}

static int event_milliseconds(float *out, lt_cuda_event from, lt_cuda_event to)
{
    (void)from;
    (void)to;
    *out = 1;
    return called("event_milliseconds");
}

static int capture_begin(lt_cuda_stream stream)
{
    (void)stream;
    return called("capture_begin");
}

static int capture_end(lt_cuda_stream stream, lt_cuda_graph *out)
{
    (void)stream;
    int code = called("capture_end");
    if (!code)
        *out = handle(&fake.graphs);
    return code;
}

static int graph_instantiate(lt_cuda_graph_exec *out, lt_cuda_graph graph)
{
    (void)graph;
    int code = called("graph_instantiate");
    if (!code)
        *out = handle(&fake.executables);
    return code;
}

static int graph_launch(lt_cuda_graph_exec exec, lt_cuda_stream stream)
{
    fake.launches++;
    return traced("graph_launch", (uintptr_t)exec, (uintptr_t)stream);
}

static int graph_destroy(lt_cuda_graph graph)
{
    (void)graph;
    fake.graphs--;
    return called("graph_destroy");
}

static int graph_exec_destroy(lt_cuda_graph_exec exec)
{
    (void)exec;
    fake.executables--;
    return called("graph_exec_destroy");
}

static int last_error(void)
{
    int code = fake.error;
    fake.error = LT_CUDA_SUCCESS;
    return code;
}

static const char *text(lt_cuda_library library, int code)
{
    (void)library;
    return code == LT_CUDA_NO_MEMORY ? "out of memory" : "a fault";
}

static lt_status libraries_open(struct lt_cuda *c)
{
    LT_CUDNN_TRY(c, called("libraries_open"));
    fake.libraries++;
    return LT_OK;
}

static void libraries_close(struct lt_cuda *c)
{
    (void)c;
    fake.libraries -= fake.libraries > 0;
}

const lt_cuda_api fake_api = {
    .versions = versions,
    .device_count = device_count,
    .set_device = set_device,
    .properties = properties,
    .memory_info = memory_info,
    .alloc = alloc,
    .release = release,
    .alloc_host = alloc,
    .release_host = release,
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
    .text = text,
    .libraries_open = libraries_open,
    .libraries_close = libraries_close,
};
