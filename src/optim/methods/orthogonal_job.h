/* A matrix to orthogonalize (orthogonal.h). */
#ifndef LT_OPTIM_ORTHOGONAL_JOB_H
#define LT_OPTIM_ORTHOGONAL_JOB_H

#include "lather/ext/optim.h"

/* An array unfolded along dimension dim, the smaller one if it has two. x is the input, y workspace; they are swapped
 * in each iteration. */
typedef struct lt_orthogonal_job {
    lt_view x, y;
    int dim;
} lt_orthogonal_job;

#endif
