/* Stubs for the kernels that a backend lacks: each fails, naming itself. */

#include "lather/ext/fail.h"

/* The headers of kernels declare, with this definition, a kernel's type and its stub, whose parameters are
 * unused. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define LT_ENTRY(name, ...)                                                               \
    typedef lt_status lt_##name##_fn(__VA_ARGS__);                                        \
    static lt_status missing_##name(__VA_ARGS__)                                          \
    {                                                                                     \
        return lt_fail(LT_E_UNSUPPORTED, "%s: this backend has no kernel for it", #name); \
    }                                                                                     \
    _Static_assert(1, "a semicolon follows")

#include "tensor/backend/kernel_stubs.h"

const char *lt_backend_find_missing_kernel(const lt_backend *be)
{
#define FIND_BASIC(name) \
    if (!be->name)       \
        return #name;
#define FIND_HOST(name)               \
    if (be->host_memory && !be->name) \
        return #name;
#define FIND_FUSED(name)
#define FIND(name, kind, cpu) FIND_##kind(name)
    LT_BACKEND_ENTRIES(FIND)
    return NULL;
}

void lt_backend_stub_missing_kernels(lt_backend *be)
{
#define FILL_BASIC(name)      be->name = be->name ? be->name : missing_##name;
#define FILL_HOST(name)       FILL_BASIC(name)
#define FILL_FUSED(name)      (void)missing_##name;
#define FILL(name, kind, cpu) FILL_##kind(name)
    LT_BACKEND_ENTRIES(FILL)
}
