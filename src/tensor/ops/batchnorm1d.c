/* Batch normalisation of [N,C] and [N,C,L]: that of pictures, of one column. */

#include "tensor/tensor.h"

#include "lather/ops/math.h"
#include "lather/ops/norm.h"

static lt_tensor *as_picture(lt_tape *tape, lt_tensor *x)
{
    return x ? lt_reshape(tape, x, LT_SHAPE(x->shape.dim[0], x->shape.dim[1], -1, 1)) : NULL;
}

lt_tensor *lt_batchnorm1d(lt_tape *tape, lt_tensor *x, lt_batchnorm2d_args args,
                          lt_batchnorm2d_config config)
{
    char text[LT_SHAPE_TEXT], residual[LT_SHAPE_TEXT];
    const lt_shape shape = x ? x->shape : LT_SCALAR;
    if (x && shape.ndim != 2 && shape.ndim != 3)
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE, "batchnorm1d: x %s, want [N,C] or [N,C,L]",
                                          lt_shape_text(shape, text)));
    if (x && args.residual && !lt_shape_equal(args.residual->shape, shape))
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE, "batchnorm1d: residual %s, x is %s",
                                          lt_shape_text(args.residual->shape, residual),
                                          lt_shape_text(shape, text)));
    args.residual = as_picture(tape, args.residual);
    return lt_reshape(tape, lt_batchnorm2d(tape, as_picture(tape, x), args, config), shape);
}
