/** Spectrum of a symmetric matrix, as --optim-stats reports it. */
#ifndef LATHER_DETAIL_SPECTRUM_H
#define LATHER_DETAIL_SPECTRUM_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

enum { LT_SPECTRUM_QUANTILES = 9 };

typedef struct lt_spectrum {
    double min, max;  /**< smallest and largest eigenvalue */
    double condition; /**< largest over smallest magnitude; infinite for a zero eigenvalue */
    double
        effective_rank; /**< exp(entropy of eigenvalues / their sum), negative ones taken as 0; 0 for zeros */
    double epsilon;       /**< as given or, if relative, times max; NaN: none */
    double below_epsilon; /**< share of eigenvalues below epsilon; NaN without it */
    double off_diagonal;  /**< |B - diag B| / |B| of B = Q^T A Q, Frobenius norms; NaN without Q */
    double
        quantile[LT_SPECTRUM_QUANTILES]; /**< eigenvalue quantiles 0, 1/8, ..., 1, interpolated */
} lt_spectrum;

/** Computes the spectrum of a symmetric matrix [n,n], contiguous, on its device: in f64 where that has the host's
 *  memory. basis: Q [n,n], or NULL; with it, both have the dtype of parameters. epsilon NaN: none; relative: times the
 *  largest eigenvalue. Waits for the device.
 *  Errors: LT_E_ARG (the matrix is not finite), LT_E_NOMEM, LT_E_UNSUPPORTED (no kernel; another dtype). */
LT_API LT_MUST_CHECK lt_status lt_spectrum_compute(lt_spectrum *out, const lt_tensor *matrix,
                                                   const lt_tensor *basis, double epsilon,
                                                   bool relative);
/** Does the same from ascending eigenvalues; off_diagonal is NaN. */
LT_API void lt_spectrum_from_eigenvalues(lt_spectrum *out, const double *value, int64_t count,
                                         double epsilon, bool relative);

#endif
