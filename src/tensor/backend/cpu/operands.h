/* Operands of convolutions and products: copies of those that a kernel cannot read or write in place, and biases. */
#ifndef LT_BACKEND_CPU_OPERANDS_H
#define LT_BACKEND_CPU_OPERANDS_H

#include "tensor/backend/cpu/internal.h"

/* Sets *data to the view's memory if it has this dtype and Lather's storage order (dense, 4-D channels-last), else to
 * such a copy in the slot. */
lt_status lt_cpu_get_input(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                           void **data);
/* Rounds an f32 weight to the activations' dtype, as every kernel does: replaces *w by a copy in LT_CPU_PREPACKED if
 * the dtypes differ. */
lt_status lt_cpu_round_weight(lt_cpu *cpu, lt_dtype dtype, lt_view *w);
/* Sets *data to the memory to write; lt_cpu_copy_back() then copies it to view if it differs. */
lt_status lt_cpu_get_output(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                            void **data);
lt_status lt_cpu_copy_back(lt_cpu *cpu, const lt_view *view, lt_dtype dtype, void *data);
/* Adds bias [cols] to the rows of y, f32 [batches, rows, cols] at any strides. */
void lt_cpu_add_bias(const lt_cpu *cpu, const lt_view *y, const float *bias);

#endif
