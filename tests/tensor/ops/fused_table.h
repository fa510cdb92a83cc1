/* A table with the fused entries, composed of ref's, that counts their calls. */
#ifndef LT_TESTS_FUSED_TABLE_H
#define LT_TESTS_FUSED_TABLE_H

#include "tensor/tensor.h"

/* Elements of the largest tensor that the entries can do. */
enum { FUSED_MOST = 512 };

/* How often entries were called, and how they behave. */
typedef struct calls {
    int stats, sums, batchnorm_stats, batchnorm_grad_stats;
    int norm_stats, norm_grad_w, applies, adds, pools;
    int add_grads, pool_grads;
    bool spoils;   /* a control: the sums are wrong */
    bool declines; /* a deferred input must be materialised */
    bool refuses;  /* batch norm's second half fails */
} calls;

extern calls seen;

/* What a table has. */
typedef enum level { COMPOSED, FUSED, UNWRITTEN } level;

/* A device in f64; the caller's table outlives it. */
lt_device *open_device(lt_backend *table, level fused);

#endif
