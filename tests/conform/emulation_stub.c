/* Kernels cannot be run on the host: there is no C++ compiler. */

#include "conform.h"

const lt_backend *emulated_backend(const char *name)
{
    (void)name;
    return NULL;
}
