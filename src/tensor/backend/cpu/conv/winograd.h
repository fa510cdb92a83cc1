/* 3x3 convolutions of stride 1 and their gradients by Winograd's algorithm F(4x4, 3x3) in f32 arithmetic: a quarter of
 * the multiplications. docs/adr/0053. */
#ifndef LT_BACKEND_CPU_WINOGRAD_H
#define LT_BACKEND_CPU_WINOGRAD_H

#include "direct_conv.h"

/* Returns true if Winograd is to be used for a convolution or its gradient of x: supported,
 * and measured to be faster or requested by LATHER_CPU_KERNELS. Ignores c->epilogue. */
bool lt_winograd_is_chosen(const lt_cpu *cpu, const lt_direct_conv *c);
/* Returns the number of chunks of c->moments or c->sums. */
int64_t lt_winograd_chunks(const lt_cpu *cpu, const lt_direct_conv *c);
/* Computes the convolution or its gradient of x. Errors: LT_E_NOMEM. */
lt_status lt_winograd_run(lt_cpu *cpu, const lt_direct_conv *c);

/* Gradient of a 3x3 filter w: x and dy are channels-last of one dtype, f32 or bf16; dw is f32 and channels-last. */
typedef struct lt_winograd_grad {
    const lt_conv2d_config *config;
    const lt_view *x, *dy, *dw;
    const lt_bn_apply *input_norm; /* the input was relu(batchnorm(x)); NULL: x */
} lt_winograd_grad;

bool lt_winograd_is_chosen_for_grad_w(const lt_cpu *cpu, const lt_winograd_grad *g);
/* Computes the gradient of w. Errors: LT_E_NOMEM. */
lt_status lt_winograd_grad_w(lt_cpu *cpu, const lt_winograd_grad *g);

#endif
