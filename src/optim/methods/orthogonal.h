/* Batches of matrices to their orthogonal factors, by kernels of the backend. */
#ifndef LT_OPTIM_ORTHOGONAL_H
#define LT_OPTIM_ORTHOGONAL_H

#include "lather/detail/json.h"
#include "lather/ext/optim.h"
#include "lather/orthogonalization.h"

/* One matrix: an array unfolded along a dimension, the smaller side if it has two. x and y have memory of
 * their own, and change places in each iteration. */
typedef struct lt_orthogonal_job {
    lt_view x, y;
    int dim;
} lt_orthogonal_job;

/* Memory for batches of so many matrices at most. Zeroed before lt_orthogonal_open(). */
typedef struct lt_orthogonal {
    lt_tensor *a, *b; /* squares of a batch, one after the other */
    lt_tensor *norms; /* f64: of each matrix, then the number 1 */
    lt_tensor *one;   /* [1]: the number 1 */
    lt_vec_job *vec;
    lt_gram_job *gram;
    lt_mode_product_job *product;
    lt_view *view;
    int64_t *at; /* where each square begins */
    size_t most;
} lt_orthogonal;

/* squares: elements of the squares of a batch at most. Errors: LT_E_NOMEM, LT_E_DEVICE. */
lt_status lt_orthogonal_open(lt_orthogonal *o, const lt_optim *optim, size_t matrices,
                             int64_t squares);
void lt_orthogonal_close(lt_orthogonal *o);

/* x of each job becomes its orthogonal factor; y is overwritten. */
lt_status lt_orthogonal_run(lt_orthogonal *o, const lt_optim *optim,
                            const lt_orthogonalization *how, lt_orthogonal_job *job, size_t count);
/* Returns true if x and y are in each other's place after that. */
bool lt_orthogonal_swaps(const lt_orthogonalization *how);
int lt_orthogonal_iterations(const lt_orthogonalization *how);
/* Returns true if it is the device's work alone. */
static inline bool lt_orthogonal_is_capturable(const lt_orthogonalization *how)
{
    return how->method != LT_ORTHOGONAL_SVD;
}

/* "3,-3.2,1.2", of the flag --newton-schulz-coefficients and of JSON. Errors: LT_E_ARG. */
lt_status lt_orthogonal_set(lt_orthogonalization *how, const char *text);
lt_status lt_orthogonal_read(lt_orthogonalization *how, const lt_json_value *value);

#endif
