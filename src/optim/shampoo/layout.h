/* Views of a block's elements, and their strides. */
#ifndef LT_OPTIM_SHAMPOO_LAYOUT_H
#define LT_OPTIM_SHAMPOO_LAYOUT_H

#include "optim/shampoo/shampoo.h"

/* Returns the block's elements of the parameter, and of its gradient: in the owner buffer if there is one, else in
 * their tensors. */
lt_view lt_block_value(const lt_block *block);
lt_view lt_block_grad(const lt_block *block);
/* Sets the block's offset and extent in the parameter's dimensions. */
void lt_block_region(const lt_block *block, lt_shape *offset, lt_shape *extent);
/* Returns the block's elements of a tensor shaped like the parameter, and a view of the block's merged shape as one
 * with the parameter's dimensions. */
lt_view lt_block_view_in_tensor(const lt_block *block, const lt_tensor *parameter);
lt_view lt_block_unmerged_view(const lt_block *block, const lt_view *merged);
/* Computes dense strides of the block's vectors in its merged dimensions, and applies them to its state tensors. */
void lt_block_compute_strides(const lt_block *block, int64_t *stride);
void lt_block_set_state_strides(lt_block *block);
/* Returns the buffer that a kernel which cannot work in place writes to; lt_block_swap_buffers() then makes it p. */
const lt_view *lt_block_output_buffer(const lt_block *block);
void lt_block_swap_buffers(lt_block *block);

#endif
