/* Norms, and what needs BLAS and LAPACK, whose own threads are switched off. */

#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/lapack.h"

#include <math.h>

lt_eigh_fn lt_cpu_eigh;

typedef struct list {
    void *ctx;
    const lt_view *x;
    const lt_view *out;
} list;

static lt_status run_norm(void *context, int64_t i)
{
    const list *l = context;
    const lt_cpu *cpu = l->ctx;
    const lt_view *x = &l->x[i];
    lt_view out = *l->out;
    double *norm = (double *)out.data + i * out.stride[0];
    out.data = norm;
    out.shape.dim[0] = 1;
    if (x->dtype != LT_F32 || !lt_view_is_dense(x))
        return lt_backend_ref()->frobenius(l->ctx, x, 1, &out);
    *norm = sqrt(cpu->kernels->square_sum(x->data, 1, lt_cpu_count(x)));
    return LT_OK;
}

static lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    list l = {.ctx = ctx, .x = x, .out = out};
    return lt_cpu_each("frobenius", count, run_norm, &l);
}

void lt_cpu_install_matrix(lt_backend *be)
{
    be->frobenius = frobenius;
    if (!lt_lapack_open())
        return;
    be->eigh = lt_cpu_eigh;
    lt_cpu_install_qr(be);
}

const char *lt_cpu_matrix_info(void)
{
    return lt_lapack_calls.config ? lt_lapack_calls.config()
                                  : "LAPACK: not on this machine, eigendecompositions are slow";
}
