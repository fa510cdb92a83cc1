/* The CUDA backend's table and its plugin. Each part of the backend sets its entries; those that are not set return
 * LT_E_UNSUPPORTED. */

#include "cuda.h"
#include "event_profiler.h"
#include "kernels.h"
#include "libraries.h"
#include "operands.h"

#include <cuda_runtime_api.h>

/* Functions of the runtime, whose header cuda_profiler_api.h is a separate package. */
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

/* Kernels are built for compute capability LT_CUDA_ARCH (90: 9.0), and as PTX for later ones. */
static lt_status open_device(void **ctx, int ordinal, const lt_device_config *config)
{
    LT_TRY(lt_cuda_libraries_check());
    LT_TRY(lt_cuda_check_driver(&lt_cuda_runtime, ordinal, LT_CUDA_ARCH));
    return lt_cuda_open_with(&lt_cuda_runtime, ctx, ordinal, config);
}

static bool has_fast_dtype(void *ctx, lt_dtype dtype)
{
    (void)ctx;
    return dtype == LT_F32 || dtype == LT_BF16 || dtype == LT_F16;
}

static int thread_count(void *ctx)
{
    return lt_backend_ref()->threads(ctx);
}

static lt_status set_profiler(void *ctx, bool on)
{
    lt_cuda *c = ctx;
    if (!on)
        LT_TRY(lt_cuda_profiler_stop(c));
    LT_TRY(lt_cuda_begin(c, "profiler"));
    if (on)
        LT_CUDA_TRY(c, "cudaProfilerStart", cudaProfilerStart());
    else
        LT_CUDA_TRY(c, "cudaProfilerStop", cudaProfilerStop());
    LT_TRY(lt_cuda_end(c));
    return on ? lt_cuda_profiler_start(c) : LT_OK;
}

static const lt_backend device_entries = {
    .name = "cuda",
    .open = open_device,
    .close = lt_cuda_close,
    .alloc = lt_cuda_alloc,
    .free = lt_cuda_free,
    .taken = lt_cuda_allocated_bytes,
    .copy = lt_cuda_copy,
    .sync = lt_cuda_sync,
    .profiler = set_profiler,
    .has_fast = has_fast_dtype,
    .threads = thread_count,
    .graphs = &lt_cuda_graphs,
    .uploads = &lt_cuda_uploads,
    .weights = &lt_cuda_weights,
    .rounds_grad_w = true,
};

#define INSTALL(name) lt_cuda_install_##name(table);
__attribute__((constructor)) static void fill_table(void)
{
    lt_backend *table = &lt_cuda_entries;
    *table = device_entries;
    LT_CUDA_KERNELS(INSTALL)
    LT_CUDA_MATRIX_PARTS(INSTALL)
    LT_CUDA_LIBRARY_PARTS(INSTALL)
}

LT_API extern const lt_backend_plugin lt_plugin_cuda;
const lt_backend_plugin lt_plugin_cuda = {
    .version = LT_VERSION,
    .table_bytes = sizeof(lt_backend),
    .backend = &lt_cuda_entries,
    .info = lt_cuda_libraries_info,
};
