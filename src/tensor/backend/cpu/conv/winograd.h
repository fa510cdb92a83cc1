/* Convolutions of 3x3 with stride 1, and their gradients, by Winograd's algorithm F(4x4, 3x3) in f32
 * arithmetic: a quarter of the products. docs/adr/0068. */
#ifndef LT_BACKEND_CPU_WINOGRAD_H
#define LT_BACKEND_CPU_WINOGRAD_H

#include "direct_conv.h"

/* Whether it is to be taken for a convolution or its gradient of x: where it was measured to be
 * faster, or where LATHER_CPU_KERNELS says so. c->after does not count. */
bool lt_winograd_wanted(const lt_cpu *cpu, const lt_own_conv *c);
/* Chunks of c->moments or c->sums. */
int64_t lt_winograd_chunks(const lt_cpu *cpu, const lt_own_conv *c);
/* Errors: LT_E_NOMEM. */
lt_status lt_winograd_run(lt_cpu *cpu, const lt_own_conv *c);

/* The gradient of w; x and dy are channels-last of one dtype, f32 or bf16, dw is f32 in the library's
 * storage order. */
typedef struct lt_winograd_grad {
    const lt_conv2d_config *config;
    const lt_view *x, *dy, *dw;
    const lt_bn_apply *before; /* what was read is relu(batchnorm(x)); NULL: x */
} lt_winograd_grad;

bool lt_winograd_wanted_w(const lt_cpu *cpu, const lt_winograd_grad *g);
/* Errors: LT_E_NOMEM. */
lt_status lt_winograd_grad_w(lt_cpu *cpu, const lt_winograd_grad *g);

#endif
