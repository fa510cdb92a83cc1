/** Matrix functions for optimizers, the kernels that Shampoo and Muon use: Gram matrices, products,
 *  eigenvectors, inverse roots. Start from examples/one_sided.c and docs/guides/matrix-optimizers.md. */
#ifndef LATHER_EXT_MATRIX_H
#define LATHER_EXT_MATRIX_H

#include "lather/detail/scalars.h"
#include "lather/shampoo_kinds.h"
#include "lather/tensor.h"

#include <stddef.h>

/* A tensor x unfolded along dimension dim is the matrix X [n,rest]: its rows are the slices of x along dim, n is the
 * size of dim. x may have any strides and 1 to LT_MAX_DIMS dimensions; lt_vec_axpby() copies a parameter [rows,...]
 * to a matrix [rows,rest], whose dim 1 has all other dimensions of the parameter.
 *
 * A factor of X has shape [n,n]; or [k,b,b]: then it is block-diagonal, with k = ceil(n / b) blocks of b rows each.
 * The last block has the n - (k-1) b remaining rows, contiguous at its beginning; the rest of it is not used.
 *
 * Dtypes: all tensors of a call have that of the parameters, f32 or f64 (norms: f64).
 * Functions with scalars queue their work on the device's main stream, and leave the output unchanged in a skipped
 * step (scalars NULL: no step is skipped); a captured step may have them. The others wait for the device.
 * Errors of all: LT_E_SHAPE (shapes that do not fit: names both), LT_E_ARG (other dtype, device or dimension),
 * LT_E_UNSUPPORTED (the backend lacks the kernel), LT_E_NOMEM. */

/** f = decay * f + weight * X X^T: adds the Gram matrix of x, unfolded along dim, to a factor. */
LT_API LT_MUST_CHECK lt_status lt_matrix_gram(lt_tensor *f, double decay, double weight,
                                              const lt_tensor *x, int dim, const lt_scalars *s);

/** Y = M X: y is x multiplied along dim by the factor m, in other memory; y [.., i, ..] is the sum over j of
 *  m[i,j] * x[.., j, ..]. */
LT_API LT_MUST_CHECK lt_status lt_matrix_mode_product(lt_tensor *y, const lt_tensor *m,
                                                      const lt_tensor *x, int dim,
                                                      const lt_scalars *s);
/** Y = M^T X, as lt_matrix_mode_product(): into an eigenbasis, where that rotates back. */
LT_API LT_MUST_CHECK lt_status lt_matrix_mode_product_transposed(lt_tensor *y, const lt_tensor *m,
                                                                 const lt_tensor *x, int dim,
                                                                 const lt_scalars *s);

/** Makes a copy [r,r] of block number `block` of a factor of n rows; of [n,n]: 0. n 0: those of the factor. Owns: you. */
LT_API LT_MUST_CHECK lt_status lt_matrix_copy_block(lt_tensor **out, const lt_tensor *factor,
                                                    int64_t n, size_t block);

/** out[0] = Frobenius norm of x, summed in double in a fixed order. out: f64 [1]. Runs in a skipped step too. */
LT_API LT_MUST_CHECK lt_status lt_matrix_norm(lt_tensor *out, const lt_tensor *x);
/** y *= |x| / |y|, Frobenius norms: y keeps its direction and takes the length of x (grafting). y = 0 remains 0. */
LT_API LT_MUST_CHECK lt_status lt_matrix_rescale(lt_tensor *y, const lt_tensor *x,
                                                 const lt_scalars *s);

/** Eigenvalues [n], ascending, and eigenvectors (columns) [n,n] of the symmetric matrix a [n,n].
 *  Errors: LT_E_ARG (a is not finite, or the iteration failed). */
LT_API LT_MUST_CHECK lt_status lt_matrix_eigh(lt_tensor *values, lt_tensor *vectors,
                                              const lt_tensor *a);

/** How lt_matrix_inverse_roots() and lt_matrix_eigenbases() solve. */
typedef struct lt_matrix_root_config {
    const char *optim; /**< name of the optimizer, for messages */
    double exponent;   /**< e of A^(-e), above 0: 0.5 of one factor, 0.25 of two */
    double epsilon;    /**< damping, added to the eigenvalues by epsilon_rule */
    lt_epsilon_rule epsilon_rule;
    lt_root_solver solver; /**< 0: LT_ROOT_EIGH, which takes every exponent */
    double tolerance;      /**< residual that an iterative solver must reach; 0: its default */
    int iterations;        /**< most iterations of such a solver; 0: its default */
    double beta2; /**< A = F / (1 - beta2^applied), F an average that began at 0; 0 or 1: A = F */
} lt_matrix_root_config;

/** One factor F and its result. */
typedef struct lt_matrix_root_job {
    const lt_tensor *factor; /**< F, symmetric and positive semidefinite; unchanged */
    lt_tensor *out;          /**< result, shape of the factor */
    int64_t n;               /**< rows of X; 0: those of the factor */
    /** out has the result of an earlier call; false: matrices without a result become the identity. */
    bool warm;
    const char *param; /**< name of the parameter, for messages */
    int dim;           /**< its dimension, for messages */
    /** out: LT_OK; LT_END (skipped step, or a matrix of zeros); or why another matrix has no result. */
    lt_status status;
    double residual; /**< out: largest |R^p A - I| / sqrt(n) of its matrices; < 0: not measured */
} lt_matrix_root_job;

/** Computes out = A^(-e) of all factors. Matrices of equal size are solved in one batch; one that a solver
 *  fails at is repeated in double, then by eigendecomposition, as in Shampoo. A matrix without a result keeps
 *  the one that it has. scalars: those of the optimizer, self->scalars, or NULL. Waits for the device: call it
 *  in lt_host_phase_ops.host, or where lt_optim_ops.is_capturable returns false.
 *  Errors: LT_E_SHAPE, LT_E_ARG (a field out of range; a solver that cannot compute it; a factor is not
 *  finite: names parameter, block, dimension and step), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_matrix_inverse_roots(const lt_matrix_root_config *config,
                                                       lt_matrix_root_job *job, size_t count,
                                                       const lt_scalars *scalars);
/** Computes out = eigenvectors (columns) of all factors, as lt_matrix_inverse_roots(); exponent is not read.
 *  LT_ROOT_QR starts from the eigenvectors in out if the job is warm. */
LT_API LT_MUST_CHECK lt_status lt_matrix_eigenbases(const lt_matrix_root_config *config,
                                                    lt_matrix_root_job *job, size_t count,
                                                    const lt_scalars *scalars);

#endif
