/* Ritz values, by comparison with a bound: lather/detail/matrix_kernels.h. */
#ifndef LT_TENSOR_BACKEND_RITZ_H
#define LT_TENSOR_BACKEND_RITZ_H

#include "base/inline.h"

#include "lather/detail/matrix_kernels.h"

#include <math.h>
#include <stdbool.h>

/* Unrolls loops on a GPU, where arrays are in registers only if the compiler knows their indices. */
#ifdef __CUDA_ARCH__
#define LT_RITZ_UNROLLED _Pragma("unroll")
#else
#define LT_RITZ_UNROLLED
#endif

enum { LT_RITZ_SIDE = 2 * LT_RITZ_VECTORS, LT_RITZ_BITS = 24 };

/* Returns true if x exceeds all Ritz values: if x V^T V - V^T B V has a Cholesky factor. product: Z^T Z. */
LT_PURE bool lt_ritz_is_above(double x, const double *product)
{
    const double damping = 1e-8;
    double l[LT_RITZ_SIDE][LT_RITZ_SIDE];
    bool is_above = true;
    LT_RITZ_UNROLLED
    for (int i = 0; i < LT_RITZ_SIDE; i++) {
        LT_RITZ_UNROLLED
        for (int j = 0; j <= i; j++) {
            /* NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result) */
            const double *a = &product[i * LT_RITZ_COLUMNS], *b = &product[j * LT_RITZ_COLUMNS];
            double rest = x * a[j] - (a[j + LT_RITZ_VECTORS] + b[i + LT_RITZ_VECTORS]) / 2;
            rest += i == j ? x * damping * a[j] : 0;
            LT_RITZ_UNROLLED
            for (int k = 0; k < j; k++)
                rest -= l[i][k] * l[j][k];
            if (i == j)
                is_above = is_above && rest > 0; /* later values do not matter after a failure */
            l[i][j] = i == j ? sqrt(rest) : rest / l[j][j];
        }
    }
    return is_above;
}

#endif
