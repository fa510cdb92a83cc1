/* Counts the bytes that a kernel moves. The host compiler instruments memory accesses (-fsanitize=thread); this file
 * implements the calls of that instrumentation. Each sector of 32 bytes, the unit of a GPU's memory traffic, counts
 * once as read and once as written: the traffic with a perfect cache. */

#include "device.h"

#include <atomic>
#include <unordered_map>

namespace
{

enum { SECTOR = 32, PAGE = 4096, RECENT = 1024 };

struct page {
    uint32_t read[PAGE / SECTOR],
        written[PAGE / SECTOR]; /* the kernel that was the last to do so */
};

struct recent {
    uintptr_t number;
    page *it;
};

std::unordered_map<uintptr_t, page> pages;
recent cache[RECENT];
uint32_t kernel;
thread_local bool tracing __attribute__((tls_model("initial-exec")));

void reset_pages()
{
    pages.clear();
    for (recent &r : cache)
        r = {};
}

page *find(uintptr_t number)
{
    recent &r = cache[number % RECENT];
    if (r.number != number)
        r = {number, standin::is_device_page(number * PAGE) ? &pages[number] : nullptr};
    return r.it;
}

void access(uintptr_t address, size_t bytes, bool write)
{
    if (!tracing)
        return;
    for (uintptr_t at = address / SECTOR; at <= (address + bytes - 1) / SECTOR; at++) {
        page *p = find(at * SECTOR / PAGE);
        if (!p)
            continue;
        uint32_t &last = (write ? p->written : p->read)[at % (PAGE / SECTOR)];
        if (last == kernel)
            continue;
        last = kernel;
        (write ? standin::moved.written : standin::moved.read) += SECTOR;
    }
}

void trace(bool begin)
{
    kernel += begin;
    tracing = begin;
}

const struct installer {
    installer()
    {
        standin::tracer = trace;
        standin::pages_changed = reset_pages;
    }
} at_the_start;

} /* namespace */

extern "C" {

#define SIZED(bytes)                                 \
    void __tsan_read##bytes(void *p)                 \
    {                                                \
        access((uintptr_t)p, bytes, false);          \
    }                                                \
    void __tsan_write##bytes(void *p)                \
    {                                                \
        access((uintptr_t)p, bytes, true);           \
    }                                                \
    void __tsan_unaligned_read##bytes(void *p)       \
    {                                                \
        access((uintptr_t)p, bytes, false);          \
    }                                                \
    void __tsan_unaligned_write##bytes(void *p)      \
    {                                                \
        access((uintptr_t)p, bytes, true);           \
    }                                                \
    void __tsan_read_write##bytes(void *p)           \
    {                                                \
        access((uintptr_t)p, bytes, false);          \
        access((uintptr_t)p, bytes, true);           \
    }                                                \
    void __tsan_unaligned_read_write##bytes(void *p) \
    {                                                \
        __tsan_read_write##bytes(p);                 \
    }
SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
SIZED(16)

void __tsan_read_range(void *p, size_t bytes)
{
    access((uintptr_t)p, bytes, false);
}
void __tsan_write_range(void *p, size_t bytes)
{
    access((uintptr_t)p, bytes, true);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    access((uintptr_t)from, bytes, false);
    access((uintptr_t)to, bytes, true);
    return __builtin_memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    access((uintptr_t)from, bytes, false);
    access((uintptr_t)to, bytes, true);
    return __builtin_memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes)
{
    access((uintptr_t)to, bytes, true);
    return __builtin_memset(to, value, bytes);
}

void __tsan_init()
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit()
{
}
void __tsan_vptr_read(void **)
{
}
void __tsan_vptr_update(void **, void *)
{
}
/* Called by kernels' atomicAdd(), and by shared pointers, which lie outside device memory. */
int __tsan_atomic32_fetch_add(int *p, int more, int)
{
    access((uintptr_t)p, sizeof *p, false);
    access((uintptr_t)p, sizeof *p, true);
    return __atomic_fetch_add(p, more, __ATOMIC_SEQ_CST);
}
long __tsan_atomic64_fetch_add(long *p, long more, int)
{
    access((uintptr_t)p, sizeof *p, false);
    access((uintptr_t)p, sizeof *p, true);
    return __atomic_fetch_add(p, more, __ATOMIC_SEQ_CST);
}
/* Guards of function-local statics. */
char __tsan_atomic8_load(const char *p, int)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
}
