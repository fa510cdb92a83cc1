/* The cpu backend before its kernels: ref's table under its own name. */

#include "tensor/backend/cpu/cpu.h"

const lt_backend *lt_backend_cpu(void)
{
    static lt_backend table;
    if (!table.name) {
        table = *lt_backend_ref();
        table.name = "cpu";
    }
    return &table;
}

const char *lt_cpu_build_info(int index)
{
    (void)index;
    return NULL;
}
