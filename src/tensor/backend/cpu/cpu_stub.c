/* Stubs for a build without the cpu backend. */

#include "tensor/backend/cpu/cpu.h"

#include <stddef.h>

const lt_backend *lt_backend_cpu(void)
{
    return NULL;
}

const char *lt_cpu_isa_in_use(bool reproducible)
{
    (void)reproducible;
    return "";
}

const char *lt_cpu_conv_kernels_in_use(bool reproducible)
{
    (void)reproducible;
    return "";
}

const char *lt_cpu_build_info(int index)
{
    (void)index;
    return NULL;
}
