/* The cuda backend's kernels as code for the host, with the fake device's memory: their arithmetic,
 * their cuts and their barriers, without the hardware. What is no kernel of this project stays ref's. */

#include "conform.h"
#include "fake.h"
#include "tensor/backend/cuda/kernels.h"
#include "tensor/backend/cuda/matrices.h"

#include <string.h>

static lt_status open_emulated(void **ctx, int ordinal, const lt_device_config *config)
{
    fake_reset((size_t)1 << 40);
    return lt_cuda_open_with(&fake_api, ctx, ordinal, config);
}

const lt_backend *emulated_backend(const char *name)
{
    static lt_backend table;
    if (strcmp(name, "emulated") != 0)
        return NULL;
    table = *lt_backend_ref();
    table.name = "emulated";
    table.open = open_emulated;
    table.close = lt_cuda_close;
    table.alloc = lt_cuda_alloc;
    table.free = lt_cuda_free;
    table.copy = lt_cuda_copy;
    table.sync = lt_cuda_sync;
    lt_cuda_install_kernels(&table);
    lt_cuda_install_matrices(&table);
    return &table;
}
