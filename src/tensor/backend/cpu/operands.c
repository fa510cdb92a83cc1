/* Copies of operands in another dtype or memory format. */

#include "operands.h"

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
