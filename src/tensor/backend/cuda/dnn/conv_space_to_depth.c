/* Calls of the first convolution, by space-to-depth. */

#include "conv_plan.h"
#include "tensor/backend/cuda/kernels/space_to_depth.h"

#include <string.h>

/* Replaces a tensor of the call by one in the workspace. */
static void replace_tensor(lt_conv_call *call, int slot, const lt_view *by, int64_t dim[4])
{
    call->operand[slot] = (lt_operand){.dtype = by->dtype};
    call->work[slot] = lt_dtype_size(by->dtype);
    for (int d = 0; d < 4; d++) {
        dim[d] = by->shape.dim[d];
        call->work[slot] *= (size_t)dim[d];
    }
}

static lt_status space_to_depth_x(lt_cuda *c, const lt_conv_call *call)
{
    lt_view blocks = lt_space_to_depth_blocks(call->x, call->y);
    blocks.data = call->memory[LT_CONV_X];
    return lt_space_to_depth_x(c, call->x, &blocks);
}

static lt_status space_to_depth_x_and_w(lt_cuda *c, const lt_conv_call *call)
{
    lt_view filters = lt_space_to_depth_filters(call->w, call->y);
    filters.data = call->memory[LT_CONV_W];
    LT_TRY(lt_space_to_depth_w(c, call->w, &filters));
    return space_to_depth_x(c, call);
}

static lt_status depth_to_space_w(lt_cuda *c, const lt_conv_call *call)
{
    lt_view filters = lt_space_to_depth_filters(call->w, call->y);
    filters.data = call->memory[LT_CONV_W];
    return lt_depth_to_space_w(c, &filters, call->w);
}

static lt_status run_original_conv(lt_cuda *c, const lt_conv_call *call)
{
    lt_conv_call plain =
        lt_conv_make_call(call->problem.form, call->config, call->x, call->w, call->y);
    return lt_conv_run(c, &plain);
}

void lt_conv_use_space_to_depth(lt_conv_call *call)
{
    lt_conv_problem *p = &call->problem;
    if (!lt_space_to_depth_fits(call->config, call->x, call->w, call->y))
        return;
    const lt_view blocks = lt_space_to_depth_blocks(call->x, call->y);
    const lt_view filters = lt_space_to_depth_filters(call->w, call->y);
    const bool grad_w = p->form == LT_CONV_GRAD_W;
    p->config = lt_space_to_depth_config();
    replace_tensor(call, LT_CONV_X, &blocks, p->x);
    replace_tensor(call, LT_CONV_W, &filters, p->w);
    call->before = grad_w ? space_to_depth_x : space_to_depth_x_and_w;
    if (grad_w)
        call->after = depth_to_space_w;
    if (!call->other)
        call->other = run_original_conv;
}

static lt_status space_to_depth_pixels(lt_cuda *c, const lt_conv_call *call)
{
    const lt_view *blocks = call->operand[LT_CONV_X].view;
    lt_view filters = lt_space_to_depth_filters(call->w, call->y);
    filters.data = call->memory[LT_CONV_W];
    LT_TRY(lt_space_to_depth_w(c, call->w, &filters));
    return lt_space_to_depth_pixels(c, call->pixels->x, call->pixels->config, blocks);
}

void lt_conv_use_pixels(lt_conv_call *call, lt_view *blocks, const lt_conv_pixels *pixels)
{
    *blocks = lt_space_to_depth_blocks(call->x, call->y);
    blocks->data = pixels->folded->data;
    lt_conv_use_space_to_depth(call);
    call->pixels = pixels;
    call->operand[LT_CONV_X] = (lt_operand){.view = blocks, .dtype = blocks->dtype, .fits = true};
    call->work[LT_CONV_X] = 0;
    call->before = call->problem.form == LT_CONV_GRAD_W ? NULL : space_to_depth_pixels;
}
