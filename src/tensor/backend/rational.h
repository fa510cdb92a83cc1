/* Sums of shifted inverses whose scale the host can read: lather/detail/matrix_kernels.h. */
#ifndef LT_TENSOR_BACKEND_RATIONAL_H
#define LT_TENSOR_BACKEND_RATIONAL_H

#include "lather/detail/matrix_kernels.h"
#include "lather/ext/elementary.h"

#include <math.h>

/* Returns the job with its scale multiplied into its numbers. */
static inline lt_rational_job lt_rational_apply_scale(const lt_rational_job *job)
{
    lt_rational_job own = *job;
    if (!job->scale)
        return own;
    own.scale = NULL;
    own.wide_below *= *job->scale;
    own.constant *= lt_f64_pow(*job->scale, -job->exponent);
    for (int j = 0; j < job->poles; j++) {
        own.shift[j] *= *job->scale;
        own.weight[j] *= lt_f64_pow(*job->scale, 1 - job->exponent);
    }
    return own;
}

/* Reports the result of a job that lt_rational_apply_scale() rewrote: in its status, or as NaN in its result. */
static inline void lt_rational_report_status(lt_rational_job *job, lt_status status)
{
    job->status = job->scale ? LT_OK : status;
    if (job->scale && status && job->y.dtype == LT_F64)
        *(double *)job->y.data = (double)NAN;
    else if (job->scale && status)
        *(float *)job->y.data = NAN;
}

#endif
