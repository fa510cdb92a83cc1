/* Tensor memory. The pool gets one range of addresses as large as the machine's memory: what is
 * never touched costs nothing, and one range wastes no ends as many segments do (a tenth of a
 * training step's memory). Huge pages make the first touch cheap. */

#include "tensor/backend/cpu/internal.h"

#include <sys/mman.h>
#include <unistd.h>

enum { SMALLEST = 1 << 30 }; /* bytes that are mapped, not allocated */

static lt_status allocate(void *ctx, size_t bytes, void **out)
{
    if (bytes < SMALLEST)
        return lt_backend_ref()->alloc(ctx, bytes, out);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return lt_fail(LT_E_NOMEM, "cpu: no %zu MiB of addresses", bytes >> 20);
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: no harm if it is not granted */
    *out = memory;
    return LT_OK;
}

static void release(void *ctx, void *data, size_t bytes)
{
    if (bytes < SMALLEST)
        lt_backend_ref()->free(ctx, data, bytes);
    else
        munmap(data, bytes);
}

void lt_cpu_install_memory(lt_backend *be)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    be->alloc = allocate;
    be->free = release;
    be->reserve = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
}
