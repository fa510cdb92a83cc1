/* Stub for builds without a C++ compiler, which cannot run kernels on the host. */

#include "conform.h"

const lt_backend *emulated_backend(const char *name)
{
    (void)name;
    return NULL;
}
