/* Second moments of orthogonal updates: NorMuon and AdaMuon, lt_muon_moment. */
#ifndef LT_OPTIM_SECOND_MOMENT_H
#define LT_OPTIM_SECOND_MOMENT_H

#include "lather/ext/optim.h"

typedef struct lt_second_moment {
    double beta2, eps;
    lt_tensor *mean;  /* mean square of each output's elements */
    lt_tensor *norms; /* f64: norms of x before and after, and a 1 */
} lt_second_moment;

typedef struct lt_second_moment_job {
    lt_view x;       /* the orthogonal update, [rows,cols] or shaped like v; replaced */
    lt_view v;       /* its second moment: of each element, or [outputs] */
    int dim;         /* dimension of x that has the outputs; -1: v is of each element */
    lt_view squares; /* workspace shaped like x; unused for elements */
    double length;   /* norm of the result; with keeps_norm a factor of that of x */
    bool keeps_norm;
} lt_second_moment_job;

/* Allocates workspace for up to `outputs` outputs; a second call completes a failed first one. */
LT_MUST_CHECK lt_status lt_second_moment_open(lt_second_moment *s, lt_device *device,
                                              int64_t outputs);
void lt_second_moment_close(lt_second_moment *s);

/* v = beta2 v + (1 - beta2) mean of x^2,  x = length x / (sqrt(v) + eps) / its norm. */
LT_MUST_CHECK lt_status lt_second_moment_divide(const lt_second_moment *s, const lt_optim *o,
                                                const lt_second_moment_job *job);

#endif
