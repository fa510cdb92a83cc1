/* Orthogonal factors of batches of matrices by backend kernels. */
#ifndef LT_OPTIM_ORTHOGONAL_H
#define LT_OPTIM_ORTHOGONAL_H

#include "orthogonal_bf16.h"

#include "lather/detail/json.h"
#include "lather/ext/optim.h"
#include "lather/orthogonalization.h"

/* Workspace for batches of up to `most` matrices. Zero it before lt_orthogonal_open(). */
typedef struct lt_orthogonal {
    lt_tensor *a, *b; /* square matrices of a batch, concatenated */
    lt_tensor *norms; /* f64: norm of each matrix, then the number 1 */
    lt_tensor *one;   /* [1]: the number 1 */
    lt_vec_job *vec;
    lt_gram_job *gram;
    lt_mode_product_job *product;
    lt_view *view;
    int64_t *at; /* offset of each square matrix */
    lt_orthogonal_bf16 bf16;
    size_t most;
} lt_orthogonal;

/* Allocates the workspace. elements, squares: most elements of a batch's matrices and of its square matrices.
 * Errors: LT_E_NOMEM, LT_E_DEVICE. */
lt_status lt_orthogonal_open(lt_orthogonal *o, const lt_optim *optim,
                             const lt_orthogonalization *how, size_t matrices, int64_t elements,
                             int64_t squares);
void lt_orthogonal_close(lt_orthogonal *o);

/* Replaces x of each job by its orthogonal factor; overwrites y. */
lt_status lt_orthogonal_run(lt_orthogonal *o, const lt_optim *optim,
                            const lt_orthogonalization *how, lt_orthogonal_job *job, size_t count);
/* Returns true if lt_orthogonal_run() leaves the result in the memory of y, not of x. */
bool lt_orthogonal_result_is_in_y(const lt_orthogonalization *how);
int lt_orthogonal_iterations(const lt_orthogonalization *how);
/* Returns true if the method runs on the device alone. */
static inline bool lt_orthogonal_is_capturable(const lt_orthogonalization *how)
{
    return how->method != LT_ORTHOGONAL_SVD;
}

/* Parse "3,-3.2,1.2" of the flag --newton-schulz-coefficients, and its JSON. Errors: LT_E_ARG. */
lt_status lt_orthogonal_set_coeffs(lt_orthogonalization *how, const char *text);
lt_status lt_orthogonal_read_coeffs(lt_orthogonalization *how, const lt_json_value *value);

#endif
