/* Converts failures of CUDA and its libraries to statuses whose messages name the operation. */

#include "cuda.h"

#include <string.h>

/* A library's name, and its code for lack of device memory. */
static const struct {
    const char *name;
    int no_memory;
} libraries[] = {[LT_CUDA_RUNTIME] = {"CUDA", LT_CUDA_NO_MEMORY},
                 [LT_CUDA_CUDNN] = {"cuDNN", LT_CUDNN_NO_MEMORY},
                 [LT_CUDA_CUBLAS] = {"cuBLAS", LT_CUBLAS_NO_MEMORY},
                 [LT_CUDA_CUSOLVER] = {"cuSOLVER", LT_CUSOLVER_NO_MEMORY}};

/* A fault is reported by a later call, unless each operation is synchronized. */
static const char *fault_hint(const lt_cuda *c, lt_cuda_library library)
{
    if (c->sync || library != LT_CUDA_RUNTIME)
        return "";
    return c->replayed ? "; a captured step was running: if an operation in it is at fault, "
                         "LATHER_SYNC=1 names it"
                       : "; if an earlier operation is at fault, LATHER_SYNC=1 names it";
}

lt_status lt_cuda_append_free_memory(const lt_cuda *c, lt_status st)
{
    size_t left = 0, all = 0;
    c->api->memory_info(&left, &all);
    return lt_fail(st, "%s: %.1f of %.1f MiB are free", lt_error_message(), (double)left / 0x1p20,
                   (double)all / 0x1p20);
}

lt_status lt_cuda_check(const lt_cuda *c, lt_cuda_library library, int code, const char *call)
{
    if (code == LT_CUDA_SUCCESS)
        return LT_OK;
    c->api->last_error(); /* reported here: the next launch must not report it again */
    const bool no_memory = code == libraries[library].no_memory;
    lt_status st =
        lt_fail(no_memory ? LT_E_NOMEM : LT_E_DEVICE, "cuda:%d: %s: %.*s: %s says: %s (%d)%s",
                c->ordinal, c->operation ? c->operation : "device", (int)strcspn(call, "("), call,
                libraries[library].name, c->api->text(library, code), code,
                no_memory ? ", device memory" : fault_hint(c, library));
    return no_memory ? lt_cuda_append_free_memory(c, st) : st;
}

lt_status lt_cuda_prefix_operation(const lt_cuda *c, lt_status st)
{
    static const char cudnn[] = "cudnn: ";
    const bool no_memory = st == LT_E_NOMEM;
    if (!st || strncmp(lt_error_message(), cudnn, sizeof cudnn - 1) != 0)
        return st;
    st = lt_fail(st, "cuda:%d: %s: %s%s", c->ordinal, c->operation ? c->operation : "device",
                 lt_error_message(), no_memory ? ", device memory" : "");
    return no_memory ? lt_cuda_append_free_memory(c, st) : st;
}

lt_status lt_cuda_check_version(const char *library, int least, int found, const char *path)
{
    enum { MAJOR = 1000 };
    if (found / MAJOR == least / MAJOR && found >= least)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "device cuda: %s %d.%d was found (%s), want %d.%d or a later %d.x: the plugin "
                   "was built with %d.x",
                   library, found / MAJOR, found % MAJOR, path, least / MAJOR, least % MAJOR,
                   least / MAJOR, least / MAJOR);
}

static lt_status check_capability(const lt_cuda_api *api, int ordinal, int arch)
{
    lt_cuda_properties p;
    int code = api->properties(ordinal, &p);
    if (code)
        return lt_fail(LT_E_DEVICE, "cuda:%d: %s (%d)", ordinal, api->text(LT_CUDA_RUNTIME, code),
                       code);
    if (p.major * 10 + p.minor >= arch)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "cuda:%d: %s has compute capability %d.%d, the plugin is built for %d.%d and "
                   "later (meson -Dgpu_arch)",
                   ordinal, p.name, p.major, p.minor, arch / 10, arch % 10);
}

lt_status lt_cuda_check_driver(const lt_cuda_api *api, int ordinal, int arch)
{
    enum { MAJOR = 1000, MINOR = 10 };
    int driver = 0, runtime = 0, count = 0;
    int code = api->versions(&driver, &runtime);
    if (!code && driver == 0)
        return lt_fail(LT_E_UNSUPPORTED, "device cuda: this machine has no NVIDIA driver: "
                                         "libcuda.so.1 is missing or does not start");
    if (!code && driver / MAJOR < runtime / MAJOR)
        return lt_fail(LT_E_UNSUPPORTED,
                       "device cuda: the driver is for CUDA %d.%d, want one for CUDA %d.0 or later",
                       driver / MAJOR, driver % MAJOR / MINOR, runtime / MAJOR);
    code = code ? code : api->device_count(&count);
    if (code == LT_CUDA_NO_DEVICE || (!code && count == 0))
        return lt_fail(LT_E_UNSUPPORTED, "device cuda: there is a driver, but no device");
    if (code)
        return lt_fail(code == LT_CUDA_OLD_DRIVER ? LT_E_UNSUPPORTED : LT_E_DEVICE,
                       "device cuda: %s (%d)", api->text(LT_CUDA_RUNTIME, code), code);
    if (ordinal >= count)
        return lt_fail(LT_E_UNSUPPORTED, "device cuda:%d: there are %d devices, cuda:0 to cuda:%d",
                       ordinal, count, count - 1);
    return check_capability(api, ordinal, arch);
}
