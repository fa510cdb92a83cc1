/* Views of a block's elements, and their strides. */
#ifndef LT_OPTIM_SHAMPOO_LAYOUT_H
#define LT_OPTIM_SHAMPOO_LAYOUT_H

#include "optim/shampoo/shampoo.h"

/* The block's elements of the parameter and of its gradient, wherever they are. */
lt_view lt_block_value(const lt_block *block);
lt_view lt_block_grad(const lt_block *block);
/* The box of the parameter's own dimensions that the block is. */
void lt_block_region(const lt_block *block, lt_shape *offset, lt_shape *extent);
/* The block in the parameter's memory, and a tensor or view of the block's shape as the same
 * number of dimensions. */
lt_view lt_block_view_of(const lt_block *block, const lt_tensor *parameter);
lt_view lt_block_unmerged_view(const lt_block *block, const lt_view *merged);
/* Strides of the block's vectors in its merged dimensions, dense; and giving them to its state. */
void lt_block_strides(const lt_block *block, int64_t *stride);
void lt_block_set_strides(lt_block *block);
/* Where a kernel that cannot work in place writes; lt_block_swap_buffers() makes it p. */
const lt_view *lt_block_output(const lt_block *block);
void lt_block_swap_buffers(lt_block *block);

#endif
