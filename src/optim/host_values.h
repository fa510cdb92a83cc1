/* Elements of f32 or f64 views in host memory, as doubles, by their offset from the first one. */
#ifndef LT_OPTIM_HOST_VALUES_H
#define LT_OPTIM_HOST_VALUES_H

#include "lather/detail/view.h"

static inline double lt_value_at(const lt_view *v, int64_t i)
{
    return v->dtype == LT_F64 ? ((const double *)v->data)[i] : (double)((const float *)v->data)[i];
}

static inline void lt_set_value_at(const lt_view *v, int64_t i, double value)
{
    if (v->dtype == LT_F64)
        ((double *)v->data)[i] = value;
    else
        ((float *)v->data)[i] = (float)value;
}

#endif
