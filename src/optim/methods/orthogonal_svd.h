/* Orthogonal factor of a matrix, on the host. */
#ifndef LT_OPTIM_METHODS_ORTHOGONAL_SVD_H
#define LT_OPTIM_METHODS_ORTHOGONAL_SVD_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Replaces the row-major matrix U S V^T by U V^T. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_orthogonal_svd(double *matrix, int64_t rows, int64_t cols);

#endif
