/* A kernel table with the fused kernels, composed of ref's, that counts their calls. */
#ifndef LT_TESTS_FUSED_TABLE_H
#define LT_TESTS_FUSED_TABLE_H

#include "tensor/tensor.h"

/* Elements of the largest tensor that the kernels support. */
enum { FUSED_MOST = 512 };

/* Numbers of calls, and options of the kernels. */
typedef struct calls {
    int stats, sums, batchnorm_stats, batchnorm_grad_stats;
    int norm_stats, norm_grad_w, applies, adds, pools;
    int add_grads, pool_grads;
    bool spoils;   /* control: the sums are wrong */
    bool declines; /* a deferred input must be materialised */
    bool refuses;  /* batch norm's second half fails */
} calls;

extern calls seen;

/* Fused kernels of a table: none, those on written inputs, all. */
typedef enum level { COMPOSED, FUSED, UNWRITTEN } level;

/* Opens a device in f64; the caller's table must outlive it. */
lt_device *open_device(lt_backend *table, level fused);

#endif
