/** Orthogonalization of matrices, for Muon and for Shampoo's spectral descent. */
#ifndef LATHER_ORTHOGONALIZATION_H
#define LATHER_ORTHOGONALIZATION_H

#include <stdbool.h>

/** Algorithms that compute the orthogonal factor U V^T of X = U S V^T. */
typedef enum lt_orthogonal_method {
    /** X = X / |X|, then X <- a X + b X X^T X + c X (X^T X)^2, repeated */
    LT_ORTHOGONAL_NEWTON_SCHULZ,
    LT_ORTHOGONAL_POLAR_EXPRESS, /**< NEWTON_SCHULZ, but a, b, c per iteration, X / (1.01 |X|) */
    LT_ORTHOGONAL_SVD            /**< exact SVD, on the host; zero singular values remain zero */
} lt_orthogonal_method;

/** Sources: Jordan, "Muon", 2024; Bernstein & Newhouse, "Old optimizer, new norm" (arXiv 2409.20325); Amsel
 *  et al., "The Polar Express" (arXiv 2505.16932), algorithm 1. */
typedef struct lt_orthogonalization {
    lt_orthogonal_method method;
    int iterations;             /**< number of iterations, 1 to 20; 0: 5 */
    double coefficients[3];     /**< a, b, c of NEWTON_SCHULZ; all 0: 3.4445, -4.7750, 2.0315 */
    bool scale_by_nuclear_norm; /**< with SVD: times the sum of X's singular values */
    bool
        bf16; /**< iterations multiply matrices rounded to bf16, and sum products in the master dtype */
} lt_orthogonalization;

#endif
