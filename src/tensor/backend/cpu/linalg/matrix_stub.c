/* Stubs for a build without BLAS and LAPACK: norms and eigendecompositions use the reference backend. */

#include "tensor/backend/cpu/internal.h"

void lt_cpu_install_matrix(lt_backend *be)
{
    (void)be;
}

const char *lt_cpu_matrix_info(void)
{
    return "LAPACK: not in this build, eigendecompositions are slow";
}
