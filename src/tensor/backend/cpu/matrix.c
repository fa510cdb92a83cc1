/* Norms, and what needs BLAS and LAPACK, whose own threads are switched off. */

#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <cblas.h>
#include <math.h>
#include <stdatomic.h>

lt_eigh_fn lt_cpu_eigh;

/* A list of jobs on the team; the first failure is kept. */
typedef struct list {
    void *ctx;
    const lt_view *x;
    const lt_view *out;
    atomic_int status;
} list;

static void note(list *l, lt_status st)
{
    int ok = LT_OK;
    if (st)
        atomic_compare_exchange_strong(&l->status, &ok, (int)st);
}

/* The message was set on the thread that failed. */
static lt_status finish(list *l, const char *what)
{
    const lt_status st = (lt_status)atomic_load(&l->status);
    return st ? lt_fail(st, "cpu: %s failed", what) : LT_OK;
}

static void run_norm(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    const lt_cpu *cpu = l->ctx;
    for (int64_t i = begin; i < end; i++) {
        const lt_view *x = &l->x[i];
        lt_view out = *l->out;
        double *norm = (double *)out.data + i * out.stride[0];
        out.data = norm;
        out.shape.dim[0] = 1;
        if (x->dtype == LT_F32 && lt_view_is_dense(x))
            *norm = sqrt(cpu->kernels->square_sum(x->data, 1, lt_cpu_count(x)));
        else
            note(l, lt_backend_ref()->frobenius(l->ctx, x, 1, &out));
    }
}

static lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    list l = {.ctx = ctx, .x = x, .out = out};
    lt_parallel((int64_t)count, 1, run_norm, &l);
    return finish(&l, "frobenius");
}

void lt_cpu_install_matrix(lt_backend *be)
{
    openblas_set_num_threads(1);
    be->frobenius = frobenius;
    be->eigh = lt_cpu_eigh;
    lt_cpu_install_qr(be);
}

const char *lt_cpu_matrix_info(void)
{
    return openblas_get_config();
}
