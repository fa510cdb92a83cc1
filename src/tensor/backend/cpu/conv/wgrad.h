/* Gradient of a convolution's weight by built-in micro-kernels.
 *
 *     dw[k][r][s][c] = sum over pixels p of dy[p][k] * x[at(p, r, s)][c]
 *
 * Rows of dw are channels of dy, columns channels of x. wgrad.c splits the work and gathers pixels; a micro-kernel
 * packs and multiplies: bf16 with VDPBF16PS (wgrad_avx512.c) or AMX (wgrad_amx.c), f32 with the kernels of any
 * instruction set (kernels/wgrad.h). */
#ifndef LT_BACKEND_CPU_WGRAD_H
#define LT_BACKEND_CPU_WGRAD_H

#include "tensor/backend/cpu/internal.h"
#include "wgrad_microkernel.h"

/* Returns the micro-kernel for x and dy of this dtype, f32 or bf16; bf16 is computed in f32 if the CPU cannot multiply
 * it. */
lt_wgrad_microkernel lt_wgrad_microkernel_for(const lt_cpu *cpu, lt_dtype dtype);
/* Returns true if these micro-kernels are to be used: faster than oneDNN, or requested by LATHER_CPU_KERNELS. */
bool lt_wgrad_is_chosen(const lt_cpu *cpu, const lt_conv2d_config *config, lt_dtype dtype,
                        lt_shape w);

/* Computes dw (f32, channels-last) from x and dy (channels-last, of the micro-kernel's dtype); pixels of x are
 * x->stride[3] elements apart. Errors: LT_E_NOMEM. */
lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_microkernel *kernel,
                       const lt_conv2d_config *config, const lt_view *x, const lt_view *dy,
                       lt_shape w, float *dw);

#endif
