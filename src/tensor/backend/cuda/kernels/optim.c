/* Lists of first-order optimizers' tensors as the parameter of one launch. */

#include "optim.h"

#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/strided_iter.h"

#include "lather/ext/fail.h"

static lt_status check_f32(const lt_view *view)
{
    if (!view->data || view->dtype == LT_F32)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "cuda: an optimizer's tensor is %s, want f32",
                   lt_dtype_name(view->dtype));
}

/* A weight's gradient may have the dtype of the pass. */
static lt_status check_gradient_dtype(const lt_view *view)
{
    return lt_cuda_is_16_bit(view->dtype) ? LT_OK : check_f32(view);
}

static lt_status fill_list_item(lt_list_item *to, const lt_optim_item *from)
{
    LT_TRY(check_f32(&from->value));
    LT_TRY(check_gradient_dtype(&from->grad));
    for (int i = 0; i < LT_LIST_STATES; i++)
        LT_TRY(check_f32(&from->state[i]));
    const lt_view *measured = from->value.data ? &from->value : &from->grad;
    *to = (lt_list_item){
        .value = from->value.data,
        .grad = from->grad.data,
        .grad_dtype = from->grad.dtype,
        .state = {from->state[0].data, from->state[1].data},
        .count = lt_shape_count(measured->shape),
        .lr_scale = (float)from->lr_scale,
        .weight_decay = (float)from->weight_decay,
        .missed = from->missed,
    };
    return LT_OK;
}

lt_status lt_list_fill(lt_list *list, const lt_optim_item *item, const bool *first, size_t count,
                       size_t *taken)
{
    *taken = 0;
    list->count = list->blocks = 0;
    while (list->count < LT_LIST_ITEMS && (size_t)list->count < count) {
        lt_list_item *to = &list->item[list->count];
        LT_TRY(fill_list_item(to, &item[list->count]));
        to->first = first && first[list->count];
        to->first_block = list->blocks;
        list->blocks += (int)((to->count + LT_LIST_BLOCK - 1) / LT_LIST_BLOCK);
        list->count++;
    }
    *taken = (size_t)list->count;
    return LT_OK;
}
