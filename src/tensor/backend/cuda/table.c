/* The CUDA backend's table, which backend.c fills when the plugin is loaded and through which entries call others. */

#include "kernels.h"

lt_backend lt_cuda_entries;

const lt_backend *lt_cuda_table(void)
{
    return &lt_cuda_entries;
}
