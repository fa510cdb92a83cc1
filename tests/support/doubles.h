/* Tensors of any floating dtype written from doubles and read into them. */
#ifndef LT_TESTS_DOUBLES_H
#define LT_TESTS_DOUBLES_H

#include "lather/ext/fail.h"
#include "lather/tensor.h"

LT_MUST_CHECK static inline lt_status write_doubles(lt_tensor *t, const double *values)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, lt_tensor_device(t), LT_F64, lt_tensor_shape(t)));
    lt_status st = lt_tensor_write(wide, values, lt_tensor_bytes(wide));
    if (!st)
        st = lt_tensor_copy(t, wide);
    lt_tensor_free(&wide);
    return st;
}

LT_MUST_CHECK static inline lt_status read_doubles(const lt_tensor *t, double *values)
{
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, lt_tensor_device(t), LT_F64, lt_tensor_shape(t)));
    lt_status st = lt_tensor_copy(wide, t);
    if (!st)
        st = lt_tensor_read(wide, values, lt_tensor_bytes(wide));
    lt_tensor_free(&wide);
    return st;
}

#endif
