/* Views of a block's elements, and their strides. Merging joins adjacent dimensions in logical order. Where these
 * are adjacent in the parameter's memory too, which is channels-last, the block's vectors use the memory order of
 * the parameter, and kernels pass over both contiguously. Otherwise (a window merged with its channels) they are
 * row-major and the gradient is gathered. Either way a factor's rows and a checkpoint's elements are in logical
 * order: only strides differ. */

#include "optim/shampoo/layout.h"

#include "tensor/tensor.h"

lt_view lt_block_view_in_tensor(const lt_block *block, const lt_tensor *parameter)
{
    const lt_view whole = lt_tensor_view(parameter);
    const lt_view part = lt_split_view(block->partition->split, block->part, &whole);
    return lt_region_view(&block->partition->merged, &block->region, &part);
}

lt_view lt_block_value(const lt_block *block)
{
    return block->value.data ? block->value
                             : lt_block_view_in_tensor(block, block->slot->param->value);
}

lt_view lt_block_grad(const lt_block *block)
{
    return block->grad.data ? block->grad
                            : lt_block_view_in_tensor(block, block->slot->param->grad);
}

void lt_block_region(const lt_block *block, lt_shape *offset, lt_shape *extent)
{
    const lt_partition *partition = block->partition;
    lt_region_map_to_param(&partition->merged, &block->region, offset, extent);
    const int dim = partition->split.dim;
    if (partition->split.parts > 1)
        offset->dim[dim] += block->part * partition->merged.from.dim[dim];
}

lt_view lt_block_unmerged_view(const lt_block *block, const lt_view *merged)
{
    return lt_region_unmerged_view(&block->partition->merged, &block->region, merged);
}

const lt_view *lt_block_output_buffer(const lt_block *block)
{
    return &block->buffer[block->output];
}

void lt_block_swap_buffers(lt_block *block)
{
    block->p = block->buffer[block->output];
    block->output = !block->output;
}

/* Finds the stride of each merged dimension in the parameter; returns false if one has no single stride. */
static bool find_strides(const lt_block *b, int64_t *stride)
{
    lt_view v = lt_tensor_view(b->slot->param->value);
    lt_shape offset;
    lt_block_region(b, &offset, &v.shape);
    int64_t next[LT_MAX_DIMS] = {0};
    for (int g = 0; g < LT_MAX_DIMS; g++)
        stride[g] = 0;
    for (int d = v.shape.ndim - 1; d >= 0; d--) {
        const int g = b->partition->merged.group[d];
        if (g < 0 || v.shape.dim[d] == 1)
            continue;
        if (!next[g])
            next[g] = stride[g] = v.stride[d];
        if (v.stride[d] != next[g])
            return false;
        next[g] *= v.shape.dim[d];
    }
    return true;
}

void lt_block_compute_strides(const lt_block *b, int64_t *stride)
{
    const lt_shape *shape = &b->region.shape;
    int64_t found[LT_MAX_DIMS], step = 1;
    const bool as_parameter = find_strides(b, found);
    int order[LT_MAX_DIMS] = {0}; /* the innermost dimension first */
    for (int d = shape->ndim - 1, n = 0; d >= 0; d--, n++) {
        int at = n;
        for (; as_parameter && at > 0 && found[order[at - 1]] > found[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < shape->ndim; i++) {
        stride[order[i]] = step;
        step *= shape->dim[order[i]];
    }
}

void lt_block_set_state_strides(lt_block *b)
{
    lt_tensor *const all[] = {b->m, b->graft, b->momentum, b->corrected, b->factor[0].diagonal};
    for (size_t i = 0; i < sizeof all / sizeof(lt_tensor *); i++)
        if (all[i])
            lt_block_compute_strides(b, all[i]->stride);
}
