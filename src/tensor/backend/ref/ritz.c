/* Ritz values by bisection: Golub & Underwood, "The block Lanczos method for computing eigenvalues", 1977. */

#include "tensor/backend/ritz.h"

#include "ref.h"

#include <string.h>

static void bisect_ritz_value(const lt_ritz_job *job)
{
    enum { SIZE = LT_RITZ_COLUMNS * LT_RITZ_COLUMNS };
    const double *part = job->product.data;
    double sum[SIZE], low = 0, high = 1;
    memcpy(sum, part, sizeof sum);
    for (int64_t k = SIZE; k < job->product.shape.dim[0] * SIZE; k++)
        sum[k % SIZE] += part[k];
    for (int k = 0; k < LT_RITZ_BITS; k++) {
        const double x = (low + high) / 2;
        *(lt_ritz_is_above(x, sum) ? &high : &low) = x;
    }
    *job->value = high * (job->bound ? *job->bound : 1);
}

lt_status lt_ref_ritz(void *ctx, const lt_ritz_job *job, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++)
        bisect_ritz_value(&job[i]);
    return LT_OK;
}
