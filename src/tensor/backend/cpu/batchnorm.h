/* Batch norm's sums over pixels, for loops that make the pixels: begin, chunks on any threads, end. */
#ifndef LT_BACKEND_CPU_BATCHNORM_H
#define LT_BACKEND_CPU_BATCHNORM_H

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

/* Count, mean and M2 of each channel of x: batchnorm_stats. */
typedef struct lt_cpu_moments {
    const lt_cpu_kernels *kernels;
    const lt_view *x;
    int64_t chunks;
    float *part;  /* [chunks][4][C]: mean and M2, each followed by work space */
    float *count; /* [chunks]: pixels */
} lt_cpu_moments;

lt_status lt_cpu_moments_begin(lt_cpu *cpu, const lt_view *x, int64_t chunks, lt_cpu_moments *m);
lt_chunk_fn lt_cpu_moments_chunk;
/* A chunk's mean and M2, for who makes them himself, and count. */
void lt_cpu_moments_of(const lt_cpu_moments *m, int64_t chunk, float *of[2]);
void lt_cpu_moments_end(const lt_cpu_moments *m, float *stats);

/* The sums of a gradient, and of its products with xhat: batchnorm_grad_stats. */
typedef struct lt_cpu_grad_sums {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    lt_bn_grad in;
    int64_t chunks;
    float *part; /* [chunks][2][C] */
} lt_cpu_grad_sums;

lt_status lt_cpu_grad_sums_begin(lt_cpu *cpu, const lt_batchnorm_grad *in, const lt_view *g,
                                 int64_t chunks, lt_cpu_grad_sums *s);
lt_chunk_fn lt_cpu_grad_sums_chunk;
void lt_cpu_grad_sums_of(const lt_cpu_grad_sums *s, int64_t chunk, float *of[2]);
void lt_cpu_grad_sums_end(const lt_cpu_grad_sums *s, float *out);

/* batchnorm_apply of what lies in y, on the spot, as lt_chunk_fn on pixels. */
typedef struct lt_cpu_apply {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    lt_bn_apply in;
} lt_cpu_apply;

lt_cpu_apply lt_cpu_apply_after(const lt_cpu *cpu, const lt_conv_epilogue *after, const lt_view *y);
lt_chunk_fn lt_cpu_apply_chunk;

/* What is applied to the pixels that a convolution behind such a batch norm reads. */
lt_bn_apply lt_cpu_norm_before(const lt_batchnorm_before *norm);

#endif
