/* Batch-norm reductions that can be fused into the loop that produces the pixels: begin, then chunks on any threads,
 * then end. */
#ifndef LT_BACKEND_CPU_BATCHNORM_H
#define LT_BACKEND_CPU_BATCHNORM_H

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

/* Count, mean and M2 (sum of squared deviations) of each channel of x: batchnorm_stats. */
typedef struct lt_cpu_moments {
    const lt_cpu_kernels *kernels;
    const lt_view *x;
    int64_t chunks;
    float *part;  /* [chunks][4][C]: mean and M2, each followed by C floats of workspace */
    float *count; /* [chunks]: pixels of each chunk */
} lt_cpu_moments;

lt_status lt_cpu_moments_begin(lt_cpu *cpu, const lt_view *x, int64_t chunks, lt_cpu_moments *m);
lt_chunk_fn lt_cpu_moments_chunk;
/* Sets of[0] and of[1] to a chunk's mean and M2, for callers that compute these (and count) themselves. */
void lt_cpu_moments_of_chunk(const lt_cpu_moments *m, int64_t chunk, float *of[2]);
void lt_cpu_moments_end(const lt_cpu_moments *m, float *stats);

/* Per-channel sums of a gradient and of gradient * xhat: batchnorm_grad_stats. */
typedef struct lt_cpu_grad_sums {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    lt_bn_grad in;
    int64_t chunks;
    float *part; /* [chunks][2][C] sums of each chunk */
} lt_cpu_grad_sums;

lt_status lt_cpu_grad_sums_begin(lt_cpu *cpu, const lt_batchnorm_grad *in, const lt_view *g,
                                 int64_t chunks, lt_cpu_grad_sums *s);
lt_chunk_fn lt_cpu_grad_sums_chunk;
void lt_cpu_grad_sums_of_chunk(const lt_cpu_grad_sums *s, int64_t chunk, float *of[2]);
void lt_cpu_grad_sums_end(const lt_cpu_grad_sums *s, float *out);

/* Batch norm in place: batchnorm_apply on chunks of y's pixels. */
typedef struct lt_cpu_apply {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    lt_bn_apply in;
} lt_cpu_apply;

lt_cpu_apply lt_cpu_make_epilogue(const lt_cpu *cpu, const lt_conv_epilogue *after,
                                  const lt_view *y);
lt_chunk_fn lt_cpu_apply_norm_chunk;

/* Returns the batch norm + relu to apply to the pixels that a convolution reads. */
lt_bn_apply lt_cpu_make_input_norm(const lt_batchnorm_before *norm);

#endif
