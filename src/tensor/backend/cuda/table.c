/* The cuda backend's table, which backend.c fills when the plugin is loaded: entries use others of it. */

#include "kernels.h"

lt_backend lt_cuda_entries;

const lt_backend *lt_cuda_table(void)
{
    return &lt_cuda_entries;
}
