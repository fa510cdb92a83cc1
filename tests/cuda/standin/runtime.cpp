/* Device properties, and errors: of one call, or sticky. */

#include "device.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <map>
#include <set>

namespace standin
{

namespace
{

__thread int selected;
__thread cudaError_t last_code;
cudaError_t sticky_errors[MOST_DEVICES];

struct teller {
    ~teller()
    {
        if (wished().log)
            fprintf(stderr,
                    "standin: %ld works, %ld copies, %ld waits (%ld dropped), %ld captures, %ld "
                    "launches of graphs, %ld waits of the host\n",
                    counted.works, counted.copies, counted.waits, counted.drops, counted.captures,
                    counted.launches, counted.host_waits);
    }
} at_the_end;

} /* namespace */

void log_work(const char *what)
{
    static FILE *const file = wished().works.empty() ? NULL : fopen(wished().works.c_str(), "w");
    if (file)
        fprintf(file, "%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%.0f\t%" PRId64 "\t%s\n",
                in_graph ? "graph" : "stream", what, moved.read, moved.written, moved.flops,
                moved.rows, moved.types ? moved.types : "");
}

int current_device()
{
    return selected;
}

cudaError_t sticky(int device)
{
    return sticky_errors[device];
}

void make_sticky(int device, cudaError_t code)
{
    sticky_errors[device] = code;
}

cudaError_t entered(const char *name)
{
    if (sticky_errors[selected])
        return sticky_errors[selected];
    return standin_fails(name) ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t result(cudaError_t code)
{
    if (code)
        last_code = code;
    return code;
}

cudaError_t unsafe_in_capture(const char *name)
{
    return standin_allowed(name) ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

bool drops(long *waits, long which)
{
    enum { CALLERS = 10 };
    void *caller[CALLERS];
    const bool found = ++*waits == which || (which < 0 && *waits >= -which);
    if (wished().log > 1) {
        fprintf(stderr, "standin: %s %ld, by\n",
                waits == &counted.waits ? "wait" : "wait of the host", *waits);
        backtrace_symbols_fd(caller, backtrace(caller, CALLERS), 2);
    }
    counted.drops += found;
    return found;
}

} /* namespace standin */

using namespace standin;

void standin_moved(uint64_t read, uint64_t written, double flops, int64_t rows)
{
    moved.read += read;
    moved.written += written;
    moved.flops += flops;
    moved.rows += rows;
}

const char *standin_name(const std::string &text)
{
    static std::set<std::string> names;
    locked now(everything);
    return names.insert(text).first->c_str();
}

void standin_fault(const char *)
{
    locked now(everything);
    for (int i = 0; i < MOST_DEVICES; i++)
        make_sticky(i, cudaErrorIllegalAddress);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    const int generation = CUDART_VERSION / 1000;
    *version = wished().devices < 0  ? 0
               : wished().old_driver ? (generation - 1) * 1000
                                     : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (wished().devices < 0 || wished().old_driver)
        return result(cudaErrorInsufficientDriver);
    if (!wished().devices)
        return result(cudaErrorNoDevice);
    *count = wished().devices < MOST_DEVICES ? wished().devices : MOST_DEVICES;
    return result(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    locked now(everything);
    if (device < 0 || device >= wished().devices || device >= MOST_DEVICES)
        return result(cudaErrorInvalidDevice);
    selected = device;
    return result(entered("cudaSetDevice"));
}

cudaError_t cudaGetDevice(int *device)
{
    *device = selected;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= wished().devices)
        return result(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "a stand-in on the host");
    p->major = 9;
    p->multiProcessorCount = 8;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->l2CacheSize = 1 << 20;
    p->totalGlobalMem = wished().memory;
    p->warpSize = 32;
    return result(cudaSuccess);
}

/* Marks in the trace: the profiler's table covers the work between them. */
extern "C" cudaError_t cudaProfilerStart(void)
{
    locked now(everything);
    moved = {};
    log_work("profiler starts");
    return result(entered("cudaProfilerStart"));
}

extern "C" cudaError_t cudaProfilerStop(void)
{
    locked now(everything);
    moved = {};
    log_work("profiler stops");
    return result(entered("cudaProfilerStop"));
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", device + 1);
    return result(entered("cudaDeviceGetPCIBusId"));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return result(entered("cudaDeviceGetStreamPriorityRange"));
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t code = last_code;
    last_code = cudaSuccess;
    return sticky_errors[selected] ? sticky_errors[selected] : code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return sticky_errors[selected] ? sticky_errors[selected] : last_code;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch ((int)code) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorIllegalState:
        return "the operation cannot be performed in the present state";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge:
        return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched:
        return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined:
        return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
        return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
        return "attempt to terminate a thread-local capture sequence from another thread";
    }
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t code)
{
#define NAMED(code) std::make_pair(code, #code)
    static const std::map<cudaError_t, const char *> names = {
        NAMED(cudaSuccess),
        NAMED(cudaErrorUnknown),
        NAMED(cudaErrorMemoryAllocation),
        NAMED(cudaErrorInvalidConfiguration),
        NAMED(cudaErrorInsufficientDriver),
        NAMED(cudaErrorNoDevice),
        NAMED(cudaErrorInvalidDevice),
        NAMED(cudaErrorInvalidResourceHandle),
        NAMED(cudaErrorIllegalState),
        NAMED(cudaErrorNotReady),
        NAMED(cudaErrorIllegalAddress),
        NAMED(cudaErrorStreamCaptureUnsupported),
        NAMED(cudaErrorStreamCaptureInvalidated),
        NAMED(cudaErrorStreamCaptureMerge),
        NAMED(cudaErrorStreamCaptureUnmatched),
        NAMED(cudaErrorStreamCaptureUnjoined),
        NAMED(cudaErrorStreamCaptureIsolation),
        NAMED(cudaErrorCapturedEvent),
        NAMED(cudaErrorStreamCaptureWrongThread)};
#undef NAMED
    const auto found = names.find(code);
    return found == names.end() ? "unrecognized error code" : found->second;
}
