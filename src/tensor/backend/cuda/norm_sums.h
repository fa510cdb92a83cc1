/* Batch norm's statistics from the sums that a fused convolution computed. */
#ifndef LT_CUDA_NORM_SUMS_H
#define LT_CUDA_NORM_SUMS_H

#include "cuda.h"
#include "rows.h"

/* Blocks that reread a channel whose variance cancels, and the bytes of their partial sums: two doubles each. */
enum { LT_SUM_BLOCKS = 256, LT_SUMS_BYTES = LT_SUM_BLOCKS * 2 * (int)sizeof(double) };

#ifdef __cplusplus
extern "C" {
#endif

/* Computes stats of y, as batchnorm_stats does, from each channel's sum and sum of squares in device memory. parts:
 * workspace of LT_SUMS_BYTES per channel, distinct from the sums. Called within an entry. */
lt_status lt_cuda_moments_from_sums(lt_cuda *c, const lt_view *y, const float *sum,
                                    const float *squares, void *parts, const lt_view *stats);

#ifdef __cplusplus
}
#endif

/* Returns the moments of x from sum(x) and sum(x^2). */
LT_HD lt_moments lt_moments_from_raw_sums(double count, double sum, double squares)
{
    return lt_moments_from_sums(count, 0, sum, squares);
}

/* Returns whether m2 lost too many digits by cancellation. f32 sums with a relative error of about 2^-20 give a
 * variance with one of 2^-12, below the rounding of f16 and bf16 data, while mean^2 <= 256 * variance. False for
 * NaN. */
LT_HD bool lt_moments_have_cancelled(lt_moments m)
{
    return m.mean * m.mean * m.count > 256 * m.m2;
}

#endif
