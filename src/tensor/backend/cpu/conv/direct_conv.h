/* Convolutions and their gradients of x by own kernels: sums over taps, pixels read where they lie. What
 * comes before and after, such as batch norm's parts, is done on a block of pixels while it is in the
 * cache. Work is cut by sizes alone: the same bits for any number of threads. */
#ifndef LT_BACKEND_CPU_OWN_CONV_H
#define LT_BACKEND_CPU_OWN_CONV_H

#include "tensor/backend/cpu/batchnorm.h"

/*     to = convolution of from, or, backward, the gradient of its input where from is that of its output.
 * Both are channels-last, of one dtype, f32 or bf16; w is f32, or bf16 where they are, channels-last. */
typedef struct lt_own_conv {
    const lt_conv2d_config *config;
    const lt_view *from, *w, *to;
    bool backward;
    const lt_bn_apply
        *before;        /* what is read is relu(batchnorm(from)); NULL: from. Only its coefficients
                                  and relu count */
    lt_chunk_fn *after; /* on pixels begin..end-1 of to, when these are written; NULL: nothing */
    void *context;
    /* Winograd's `after`, at most one: batch norm of what is written; its moments, or sums of the gradient that it
     * is, in lt_winograd_chunks() chunks. */
    const lt_bn_apply *normed;
    const lt_cpu_moments *moments;
    const lt_cpu_grad_sums *sums;
} lt_own_conv;

/* Whether own kernels can do it on this CPU. */
bool lt_own_conv_can(const lt_cpu *cpu, const lt_own_conv *c);
/* Whether they are to be taken: where they are the faster ones, or where LATHER_CPU_KERNELS says so. */
bool lt_own_conv_wanted(const lt_cpu *cpu, const lt_own_conv *c);
/* The table behind it. */
bool lt_own_conv_listed(lt_cpu_isa isa, const lt_own_conv *c);
/* Pixels of `to` in a block: after() gets multiples of it. */
int64_t lt_own_conv_block(const lt_own_conv *c);
/* Errors: LT_E_NOMEM. */
lt_status lt_own_conv_run(lt_cpu *cpu, const lt_own_conv *c);

#endif
