/* Workspaces, views, lists of jobs on the team, LATHER_CPU_KERNELS. */

#include "tensor/backend/cpu/internal.h"

#include "base/parallel.h"

#include "lather/ext/fail.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void *lt_cpu_scratch(lt_cpu *cpu, lt_cpu_slot slot, size_t bytes)
{
    lt_cpu_buffer *b = &cpu->slot[slot];
    if (bytes > b->bytes) {
        lt_free(b->data);
        b->data = lt_alloc_aligned(64, bytes);
        b->bytes = b->data ? bytes : 0;
    }
    b->requested = bytes;
    return b->data;
}

bool lt_cpu_has_same_layout(const lt_view *a, const lt_view *b)
{
    if (!lt_shape_equal(a->shape, b->shape))
        return false;
    for (int d = 0; d < a->shape.ndim; d++)
        if (a->shape.dim[d] > 1 && a->stride[d] != b->stride[d])
            return false;
    return lt_view_is_dense(a);
}

int lt_cpu_sort_dims_by_stride(const lt_view *y, int skip, int order[LT_MAX_DIMS])
{
    int n = 0;
    for (int d = 0; d < y->shape.ndim; d++) {
        if (d == skip || y->shape.dim[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    return n;
}

lt_view lt_cpu_dense_view(void *data, lt_dtype dtype, lt_shape shape)
{
    lt_view v = {.data = data, .dtype = dtype, .shape = shape};
    int64_t step = 1;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        if (shape.ndim == 4 && d == 1)
            continue; /* channels are innermost, and were stepped over first */
        if (shape.ndim == 4 && d == 3)
            step = shape.dim[1];
        v.stride[d] = step;
        step *= shape.dim[d];
    }
    if (shape.ndim == 4)
        v.stride[1] = 1;
    return v;
}

typedef struct job_list {
    lt_cpu_job_fn *fn;
    void *context;
    atomic_int status; /* status of the first job that failed, else LT_OK */
} job_list;

static void run_job_chunk(void *context, int64_t begin, int64_t end)
{
    job_list *l = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_status st = l->fn(l->context, i);
        int ok = LT_OK;
        if (st)
            atomic_compare_exchange_strong(&l->status, &ok, (int)st);
    }
}

lt_status lt_cpu_run_jobs(const char *what, size_t count, lt_cpu_job_fn *fn, void *context)
{
    job_list l = {.fn = fn, .context = context};
    lt_parallel_range((int64_t)count, 1, run_job_chunk, &l);
    const lt_status st = (lt_status)atomic_load(&l.status);
    return st ? lt_fail(st, "cpu: %s failed", what) : LT_OK;
}

const char *lt_cpu_choice_name(lt_cpu_choice choice)
{
    static const char *const names[] = {[LT_KERNELS_AUTO] = "auto",
                                        [LT_KERNELS_BUILTIN] = "builtin",
                                        [LT_KERNELS_ONEDNN] = "onednn"};
    return names[choice];
}

lt_status lt_cpu_read_kernel_choice(lt_cpu_choice *out)
{
    const char *text = getenv("LATHER_CPU_KERNELS");
    *out = LT_KERNELS_AUTO;
    if (!text || !*text)
        return LT_OK;
    for (int i = LT_KERNELS_AUTO; i <= LT_KERNELS_ONEDNN; i++)
        if (!strcmp(text, lt_cpu_choice_name((lt_cpu_choice)i))) {
            *out = (lt_cpu_choice)i;
            return LT_OK;
        }
    if (!strcmp(text, "own")) { /* name in version 0.1 */
        *out = LT_KERNELS_BUILTIN;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG, "LATHER_CPU_KERNELS: unknown value '%s'; valid: auto, builtin, onednn",
                   text);
}
