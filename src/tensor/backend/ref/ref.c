/* The reference backend: its kernel table and memory functions. It is the specification against which the
 * other backends are tested. */

#include "ref.h"

#include <string.h>

enum { ALIGNMENT = 64 };

static lt_status open_device(void **ctx, int ordinal, const lt_device_config *config)
{
    (void)config;
    if (ordinal != 0)
        return lt_fail(LT_E_ARG, "ref: no device %d, only device 0 exists", ordinal);
    *ctx = NULL;
    return LT_OK;
}

static void close_device(void *ctx)
{
    (void)ctx;
}

static lt_status alloc_memory(void *ctx, size_t bytes, void **out)
{
    (void)ctx;
    void *memory = lt_alloc_aligned(ALIGNMENT, bytes);
    if (!memory)
        return LT_E_NOMEM;
    *out = memory;
    return LT_OK;
}

static void free_memory(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    lt_free(data);
}

static lt_status copy_memory(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    (void)ctx;
    (void)kind;
    memmove(dst, src, bytes);
    return LT_OK;
}

static lt_status sync_device(void *ctx)
{
    (void)ctx;
    return LT_OK;
}

typedef struct lt_ref_memory {
    struct lt_ref_memory *previous;
    _Alignas(2 * sizeof(double)) unsigned char bytes[];
} lt_ref_memory;

void *lt_ref_array(lt_ref_call *call, int64_t count, size_t size)
{
    lt_ref_memory *m = call->status ? NULL : lt_alloc(1, sizeof *m + (size_t)count * size);
    if (!m) {
        call->status = LT_E_NOMEM;
        return NULL;
    }
    m->previous = call->last;
    call->last = m;
    return m->bytes;
}

lt_status lt_ref_finish(lt_ref_call *call)
{
    for (lt_ref_memory *m = call->last, *previous; m; m = previous) {
        previous = m->previous;
        lt_free(m);
    }
    call->last = NULL;
    return call->status;
}

/* All dtypes are equally fast. */
static bool has_fast_dtype(void *ctx, lt_dtype dtype)
{
    (void)ctx;
    return dtype == LT_F32 || dtype == LT_F64 || dtype == LT_BF16 || dtype == LT_F16;
}

static int thread_count(void *ctx)
{
    (void)ctx;
    return 1;
}

#define ENTRY_BASIC(name) .name = lt_ref_##name,
#define ENTRY_HOST(name)  ENTRY_BASIC(name)
#define ENTRY_FUSED(name)
#define ENTRY(name, kind, cpu) ENTRY_##kind(name)

/* clang-format off */
static const lt_backend backend = {
    .name = "ref",
    .open = open_device,
    .close = close_device,
    .alloc = alloc_memory,
    .free = free_memory,
    .copy = copy_memory,
    .sync = sync_device,
    .has_fast = has_fast_dtype,
    .threads = thread_count,
    .host_memory = true,
    LT_BACKEND_ENTRIES(ENTRY)
};
/* clang-format on */

const lt_backend *lt_backend_ref(void)
{
    return &backend;
}
