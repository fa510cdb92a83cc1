/* Copies of operands in another dtype or memory format, and biases. */

#include "operands.h"

#include "base/parallel.h"

static bool has_lather_layout(const lt_view *view, lt_dtype dtype)
{
    return view->dtype == dtype
           && (view->shape.ndim == 4 ? lt_view_is_channels_last(view)
                                     : lt_view_is_contiguous(view));
}

lt_status lt_cpu_get_output(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                            void **data)
{
    *data = view->data;
    if (!has_lather_layout(view, dtype))
        *data =
            lt_cpu_scratch(cpu, slot, (size_t)lt_cpu_element_count(view) * lt_dtype_size(dtype));
    return *data ? LT_OK : LT_E_NOMEM;
}

lt_status lt_cpu_get_input(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                           void **data)
{
    LT_TRY(lt_cpu_get_output(cpu, slot, view, dtype, data));
    if (*data == view->data)
        return LT_OK;
    lt_view copy = lt_cpu_dense_view(*data, dtype, view->shape);
    return lt_cpu_cast(cpu, view, &copy);
}

lt_status lt_cpu_round_weight(lt_cpu *cpu, lt_dtype dtype, lt_view *w)
{
    if (w->dtype != LT_F32 || dtype == LT_F32)
        return LT_OK;
    void *data = lt_cpu_scratch(cpu, LT_CPU_PREPACKED,
                                (size_t)lt_cpu_element_count(w) * lt_dtype_size(dtype));
    if (!data)
        return LT_E_NOMEM;
    lt_view rounded = lt_cpu_dense_view(data, dtype, w->shape);
    LT_TRY(lt_cpu_cast(cpu, w, &rounded));
    *w = rounded;
    return LT_OK;
}

lt_status lt_cpu_copy_back(lt_cpu *cpu, const lt_view *view, lt_dtype dtype, void *data)
{
    if (data == view->data)
        return LT_OK;
    lt_view copy = lt_cpu_dense_view(data, dtype, view->shape);
    return lt_cpu_cast(cpu, &copy, view);
}

typedef struct bias_job {
    const lt_cpu_kernels *kernels;
    const lt_view *y;
    const float *bias;
} bias_job;

static void add_bias_to_rows(void *context, int64_t begin, int64_t end)
{
    const bias_job *all = context;
    const lt_view *y = all->y;
    const int64_t rows = y->shape.dim[1], cols = y->shape.dim[2], step = y->stride[2];
    for (int64_t i = begin; i < end; i++) {
        float *row = (float *)y->data + i / rows * y->stride[0] + i % rows * y->stride[1];
        if (step == 1)
            all->kernels->of[LT_STORE_F32].add(row, all->bias, row, cols);
        else
            for (int64_t c = 0; c < cols; c++)
                row[c * step] += all->bias[c];
    }
}

void lt_cpu_add_bias(const lt_cpu *cpu, const lt_view *y, const float *bias)
{
    enum { GRAIN = 65536 }; /* elements */
    const int64_t *dim = y->shape.dim;
    bias_job all = {cpu->kernels, y, bias};
    lt_parallel_range(dim[0] * dim[1], dim[2] < GRAIN ? GRAIN / dim[2] : 1, add_bias_to_rows, &all);
}
