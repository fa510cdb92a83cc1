/* Norms and inner products of a parameter's elements before and after a step. */
#ifndef LT_OPTIM_STATS_NORMS_H
#define LT_OPTIM_STATS_NORMS_H

#include "lather/detail/view.h"
#include "lather/tensor.h"

/* Sums over a region: w weight before the step, g gradient as it is stored, u update, v update of the step before. */
typedef enum lt_stat_sum {
    LT_SUM_WW,
    LT_SUM_GG,
    LT_SUM_UU,
    LT_SUM_UG,
    LT_SUM_UV,
    LT_SUM_VV,
    LT_SUMS
} lt_stat_sum;

/* Tensors that the sums read; NULL: absent, read as zeros. */
enum { LT_STAT_AFTER, LT_STAT_BEFORE, LT_STAT_LAST, LT_STAT_GRAD, LT_STAT_TENSORS };

/* A tensor in host memory: its own, or a copy. */
typedef struct lt_host_tensor {
    lt_view view; /* data NULL: absent */
    void *copy;
} lt_host_tensor;
/* Waits for the device. from NULL: absent. Close it after a failure too. Errors: LT_E_NOMEM, LT_E_DEVICE. */
LT_MUST_CHECK lt_status lt_host_tensor_open(lt_host_tensor *out, const lt_tensor *from);
void lt_host_tensor_close(lt_host_tensor *tensor);

/* Computes the sums of a region in an order that depends on its extent only: rows along dimension 0, each in row-major
 * order. Adds 1 to nonzero[i] (NULL: none) for each row i of the parameter with an element of g that is not 0. Errors:
 * LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stats_sum_region(const lt_host_tensor tensor[LT_STAT_TENSORS],
                                            lt_shape offset, lt_shape extent, double sum[LT_SUMS],
                                            double *nonzero);

#endif
