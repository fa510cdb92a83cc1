/* The gradient of a convolution's weight, by products of our own choice.
 *
 *     dw[k][r][s][c] = sum over pixels p of dy[p][k] * x[at(p, r, s)][c]
 *
 * Rows of dw are channels of dy, columns channels of x. wgrad.c cuts the work and gathers pixels;
 * a unit multiplies: in bf16 with VDPBF16PS (wgrad_avx512.c) or with AMX (wgrad_amx.c), in f32
 * with the kernels of any instruction set (kernels/wgrad.h). */
#ifndef LT_BACKEND_CPU_WGRAD_H
#define LT_BACKEND_CPU_WGRAD_H

#include "tensor/backend/cpu/internal.h"
#include "wgrad_microkernel.h"

/* The unit for x and dy of this dtype, f32 or bf16, which is computed in f32 where there are no instructions for it. */
lt_wgrad_unit lt_wgrad_unit_of(const lt_cpu *cpu, lt_dtype dtype);
/* True if this kernel computes the gradient: not where oneDNN is as fast or was asked for (LATHER_CPU_KERNELS). */
bool lt_wgrad_wanted(const lt_cpu *cpu, const lt_conv2d_config *config, lt_dtype dtype, lt_shape w);

/* x, dy: of the unit's dtype, channels-last; dw: f32 in the library's storage order; one group. */
lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_unit *unit, const lt_conv2d_config *config,
                       const lt_view *x, const lt_view *dy, lt_shape w, float *dw);

#endif
