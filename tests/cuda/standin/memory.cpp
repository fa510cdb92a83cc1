/* Device and host memory. Each allocation is a separate mapping that ends at a guard page. New memory is filled with
 * NaN. While no work runs, device memory is inaccessible, so host code that dereferences a device pointer faults. */

#include "device.h"

#include <csignal>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace standin
{

void (*pages_changed)(void);

namespace
{

enum { PAGE = 4096, LARGE_PAGE = 2 << 20, ALIGNMENT = 256, GARBAGE = 0xFF };

struct allocation {
    size_t bytes;
    memory_kind kind;
    int device;
    char *mapping;
    size_t mapped;              /* without the guard page */
    std::shared_ptr<char> user; /* page-locked: of each copy that is queued */
};

std::map<uintptr_t, allocation> all;
size_t used[MOST_DEVICES];
int opened;

const allocation *find(const void *p, uintptr_t *begin = NULL)
{
    auto next = all.upper_bound((uintptr_t)p);
    if (next == all.begin())
        return NULL;
    --next;
    if ((uintptr_t)p - next->first >= next->second.bytes)
        return NULL;
    if (begin)
        *begin = next->first;
    return &next->second;
}

/* Calls only async-signal-safe functions. */
void on_fault(int, siginfo_t *info, void *)
{
    static const char text[] = "standin: memory was touched that is not there, or device memory "
                               "by the host (LATHER_STANDIN_PROTECT=0 lets it)\n";
    (void)!write(2, text, sizeof text - 1);
    (void)info;
    signal(SIGSEGV, SIG_DFL); /* the instruction runs again, and ends the program */
}

void watch_faults()
{
    static bool watched;
    struct sigaction action = {};
    if (watched)
        return;
    watched = true;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
}

void protect_all(int how)
{
    for (auto &i : all)
        if (i.second.kind == DEVICE)
            mprotect(i.second.mapping, i.second.mapped, how);
}

const char *name_of(memory_kind kind)
{
    return kind == DEVICE ? "the device's" : kind == PINNED ? "page-locked" : "the host's";
}

/* Pages that end where one without access begins. Large ones, where they fit, since each
 * change of what may be touched goes over all of them. */
char *map_pages(size_t *mapped)
{
    const size_t unit = *mapped >= LARGE_PAGE ? LARGE_PAGE : PAGE;
    *mapped = (*mapped + unit - 1) / unit * unit;
    const size_t reserved = *mapped + unit + PAGE;
    char *all_of_it = (char *)mmap(NULL, reserved, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all_of_it == MAP_FAILED)
        return NULL;
    char *mapping = all_of_it + (unit - (uintptr_t)all_of_it % unit) % unit;
    char *end = mapping + *mapped;
    if (mapping > all_of_it)
        munmap(all_of_it, (size_t)(mapping - all_of_it));
    if (all_of_it + reserved > end + PAGE)
        munmap(end + PAGE, (size_t)(all_of_it + reserved - (end + PAGE)));
    mprotect(end, PAGE, PROT_NONE);
    if (unit == LARGE_PAGE)
        madvise(mapping, *mapped, MADV_HUGEPAGE);
    return mapping;
}

cudaError_t allocate(void **out, size_t bytes, memory_kind kind)
{
    const size_t aligned = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t mapped = aligned;
    const int device = current_device();
    if (kind == DEVICE && used[device] + aligned > wished().memory)
        return cudaErrorMemoryAllocation;
    char *mapping = map_pages(&mapped);
    if (!mapping)
        return cudaErrorMemoryAllocation;
    if (wished().dry < 2)
        memset(mapping, GARBAGE, mapped);
    char *begin = kind == DEVICE ? mapping + mapped - aligned : mapping;
    if (kind == DEVICE) {
        watch_faults();
        used[device] += aligned;
        if (wished().protect && !opened)
            mprotect(mapping, mapped, PROT_NONE);
    }
    all[(uintptr_t)begin] = {bytes, kind, device, mapping, mapped, std::make_shared<char>()};
    if (pages_changed)
        pages_changed();
    *out = begin;
    return cudaSuccess;
}

/* cudaFree() need not wait for queued work: work that runs later finds no memory. */
cudaError_t release(void *p, memory_kind kind, const char *what)
{
    auto found = all.find((uintptr_t)p);
    if (found == all.end() || found->second.kind != kind)
        standin_die("%s: %p was not given by the call that belongs to it, or is free already", what,
                    p);
    if (found->second.user.use_count() > 1)
        standin_die("%s: a copy that is queued would find its memory gone", what);
    if (kind == DEVICE)
        used[found->second.device] -= (found->second.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    munmap(found->second.mapping, found->second.mapped + PAGE);
    all.erase(found);
    if (pages_changed)
        pages_changed();
    return cudaSuccess;
}

} /* namespace */

bool is_device_page(uintptr_t address)
{
    auto next = all.upper_bound((address | (PAGE - 1)));
    if (next == all.begin())
        return false;
    const allocation &a = (--next)->second;
    const uintptr_t mapping = (uintptr_t)a.mapping;
    return a.kind == DEVICE && address >= mapping && address < mapping + a.mapped;
}

memory_kind kind_of(const void *p)
{
    const allocation *found = find(p);
    return found ? found->kind : PAGEABLE;
}

void open_memory()
{
    if (!opened++ && wished().protect)
        protect_all(PROT_READ | PROT_WRITE);
}

void close_memory()
{
    if (!--opened && wished().protect)
        protect_all(PROT_NONE);
}

/* wanted PAGEABLE: any memory of the host. */
void check_span(const void *p, size_t bytes, memory_kind wanted, const char *what)
{
    locked now(everything);
    uintptr_t begin = 0;
    if (!bytes)
        return;
    const allocation *a = find(p, &begin);
    const memory_kind kind = a ? a->kind : PAGEABLE;
    if ((kind == DEVICE) != (wanted == DEVICE) || !p)
        standin_die("%s: %p is %s memory, wanted %s", what, p, p ? name_of(kind) : "no",
                    name_of(wanted));
    if (a && (uintptr_t)p - begin + bytes > a->bytes)
        standin_die("%s: %zu bytes at %zu of an allocation of %zu leave it", what, bytes,
                    (size_t)((uintptr_t)p - begin), a->bytes);
}

} /* namespace standin */

using namespace standin;

void standin_check_device(const void *p, size_t bytes, const char *what)
{
    check_span(p, bytes, DEVICE, what);
}

void standin_check_host(const void *p, size_t bytes, const char *what)
{
    check_span(p, bytes, PAGEABLE, what);
}

bool standin_is_device(const void *p)
{
    locked now(everything);
    return kind_of(p) == DEVICE;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    locked now(everything);
    cudaError_t code = entered("cudaMalloc");
    if (!code)
        code = unsafe_in_capture("cudaMalloc");
    if (!code && !bytes)
        *out = NULL;
    return result(code || !bytes ? code : allocate(out, bytes, DEVICE));
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    locked now(everything);
    cudaError_t code = entered("cudaMallocHost");
    if (!code)
        code = unsafe_in_capture("cudaMallocHost");
    return result(code ? code : allocate(out, bytes ? bytes : 1, PINNED));
}

cudaError_t cudaFree(void *p)
{
    locked now(everything);
    cudaError_t code = entered("cudaFree");
    if (!code)
        code = unsafe_in_capture("cudaFree");
    return result(code || !p ? code : release(p, DEVICE, "cudaFree"));
}

cudaError_t cudaFreeHost(void *p)
{
    locked now(everything);
    cudaError_t code = entered("cudaFreeHost");
    if (!code)
        code = unsafe_in_capture("cudaFreeHost");
    return result(code || !p ? code : release(p, PINNED, "cudaFreeHost"));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
    locked now(everything);
    *all_bytes = wished().memory;
    *free_bytes = wished().memory - used[current_device()];
    return result(entered("cudaMemGetInfo"));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    locked now(everything);
    cudaError_t code = entered("cudaMemsetAsync");
    check_span(p, bytes, DEVICE, "cudaMemsetAsync");
    if (!code)
        standin_queue(
            stream,
            [=] {
                standin_moved(0, bytes);
                if (wished().dry < 2
                    || bytes < LARGE_PAGE) /* counters: work memory is used again */
                    memset(p, value, bytes);
            },
            "cudaMemsetAsync");
    return result(code);
}

namespace
{

std::shared_ptr<char> user_of(const void *pinned, cudaStream_t stream)
{
    const allocation *a = find(pinned);
    return a && !standin_capturing(stream) ? a->user : NULL;
}

/* Pageable memory may be reused when the call returns, so its bytes are copied at once. Page-locked memory is read
 * when the copy runs. */
cudaError_t copy_in(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    if (kind_of(src) == PINNED) {
        const std::shared_ptr<char> user = user_of(src, stream);
        standin_queue(
            stream, [=] { (void)user, standin_moved(0, bytes), memcpy(dst, src, bytes); },
            "copy to the device");
        return cudaSuccess;
    }
    if (standin_capturing(stream))
        return standin_allowed("a copy from pageable memory") ? cudaSuccess
                                                              : cudaErrorStreamCaptureUnsupported;
    std::vector<char> taken((const char *)src, (const char *)src + bytes);
    standin_queue(
        stream, [=] { standin_moved(0, bytes), memcpy(dst, taken.data(), bytes); },
        "copy to the device");
    return cudaSuccess;
}

/* Copies norms to the host; a dry run replaces up to most_lists lists of them by LATHER_STANDIN_NORM. */
void copy_norms(void *dst, const void *src, size_t bytes)
{
    const size_t count = bytes / sizeof(double), most_lists = 6;
    memcpy(dst, src, bytes);
    if (wished().norm > 0 && norms && bytes % (norms * sizeof(double)) == 0
        && count <= most_lists * norms)
        std::fill_n((double *)dst, count, wished().norm);
}

cudaError_t copy_out(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    const bool pinned = kind_of(dst) == PINNED;
    if (standin_capturing(stream)) {
        if (!pinned)
            return standin_allowed("a copy to pageable memory") ? cudaSuccess
                                                                : cudaErrorStreamCaptureUnsupported;
    } else {
        memset(dst, GARBAGE, bytes);
    }
    const std::shared_ptr<char> user = user_of(dst, stream);
    standin_queue(
        stream, [=] { (void)user, standin_moved(bytes, 0), copy_norms(dst, src, bytes); },
        "copy from the device");
    if (!pinned)
        finish(stream);
    return sticky(stream->device);
}

} /* namespace */

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    static const char what[] = "cudaMemcpyAsync";
    locked now(everything);
    cudaError_t code = entered(what);
    if (code || !bytes)
        return result(code);
    counted.copies++;
    check_span(dst, bytes, kind == cudaMemcpyDeviceToHost ? PAGEABLE : DEVICE, what);
    check_span(src, bytes, kind == cudaMemcpyHostToDevice ? PAGEABLE : DEVICE, what);
    if (kind == cudaMemcpyHostToDevice)
        return result(copy_in(dst, src, bytes, stream));
    if (kind == cudaMemcpyDeviceToHost)
        return result(copy_out(dst, src, bytes, stream));
    if (kind != cudaMemcpyDeviceToDevice)
        standin_die("%s: kind %d", what, (int)kind);
    standin_queue(
        stream, [=] { standin_moved(bytes, bytes), memmove(dst, src, bytes); },
        "copy within the device");
    return result(cudaSuccess);
}
