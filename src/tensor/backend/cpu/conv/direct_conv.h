/* Direct convolution and its gradient of x: sums over taps, with input pixels read in place. Input normalisation and an
 * epilogue, such as batch-norm statistics, run on a block of pixels while it is in the cache. Work is split by sizes
 * only: results do not depend on the number of threads. */
#ifndef LT_BACKEND_CPU_DIRECT_CONV_H
#define LT_BACKEND_CPU_DIRECT_CONV_H

#include "tensor/backend/cpu/batchnorm.h"

/* A convolution to = conv(from, w), or if backward the gradient of the input, where from is the gradient of the
 * output. Both are channels-last, of one dtype, f32 or bf16; w is channels-last, f32, or bf16 if they are. */
typedef struct lt_direct_conv {
    const lt_conv2d_config *config;
    const lt_view *from, *w, *to;
    int64_t from_step; /* elements between pixels of from; 0: its channels */
    bool backward;
    const lt_bn_apply
        *input_norm; /* input relu(batchnorm(from)), one group; NULL: from. Uses coef and relu */
    lt_chunk_fn *epilogue; /* called on pixels [begin, end) of `to` once written; or NULL */
    void *context;
    /* Epilogue of Winograd's form, at most one: batch norm of the output, its moments, or gradient sums, in
     * lt_winograd_chunks() chunks. */
    const lt_bn_apply *output_norm;
    const lt_cpu_moments *moments;
    const lt_cpu_grad_sums *sums;
} lt_direct_conv;

/* Returns true if the direct kernels support the convolution on this CPU. */
bool lt_direct_conv_supports(const lt_cpu *cpu, const lt_direct_conv *c);
/* Returns true if the direct kernels are to be used: supported, and faster or requested by LATHER_CPU_KERNELS. */
bool lt_direct_conv_is_chosen(const lt_cpu *cpu, const lt_direct_conv *c);
/* Returns true if the table of measurements lists the direct kernel as faster than oneDNN. */
bool lt_direct_conv_is_faster(lt_cpu_isa isa, const lt_direct_conv *c);
/* Returns the pixels of `to` in a block; epilogue() gets multiples of it. */
int64_t lt_direct_conv_block_pixels(const lt_direct_conv *c);
/* Computes the convolution. Errors: LT_E_NOMEM. */
lt_status lt_direct_conv_run(lt_cpu *cpu, const lt_direct_conv *c);

#endif
