/* From the sums that a convolution took along to what batch norm wants. */
#ifndef LT_CUDA_NORM_SUMS_H
#define LT_CUDA_NORM_SUMS_H

#include "cuda.h"
#include "rows.h"

/* The blocks that read a badly centred channel again, and what they leave of it: two doubles each. */
enum { LT_SUM_BLOCKS = 256, LT_SUMS_BYTES = LT_SUM_BLOCKS * 2 * (int)sizeof(double) };

#ifdef __cplusplus
extern "C" {
#endif

/* stats of y, as batchnorm_stats gives them, from each channel's sum and sum of squares (on the
 * device); parts: LT_SUMS_BYTES of memory for each channel, apart from the sums. In the frame of an entry. */
lt_status lt_cuda_moments_of_sums(lt_cuda *c, const lt_view *y, const float *sum,
                                  const float *squares, void *parts, const lt_view *stats);

#ifdef __cplusplus
}
#endif

/* Of sum(x) and sum(x^2). */
LT_HD lt_moments lt_moments_of_sums(double count, double sum, double squares)
{
    return lt_moments_of(count, 0, sum, squares);
}

/* Whether the difference of the two has too few digits left: squares of f32 sums that are right to
 * about 2^-20 leave a variance right to 2^-12, less than the rounding of f16 and bf16 data, as long
 * as mean^2 <= 256 * variance. False for NaN, which stays. */
LT_HD bool lt_moments_cancel(lt_moments m)
{
    return m.mean * m.mean * m.count > 256 * m.m2;
}

#endif
