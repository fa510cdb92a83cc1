/* Approximation of x^(-e) on an interval by a constant and a sum of poles. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_FIT_H
#define LT_OPTIM_SHAMPOO_ROOT_FIT_H

#include "lather/detail/matrix_kernels.h"

/* Approximation of x^(-e): r(x) = constant + sum over j of weight[j] / (x + shift[j]). */
typedef struct lt_fit {
    int poles;
    double constant, weight[LT_MAX_POLES], shift[LT_MAX_POLES];
    double error; /* maximum of |r(x) x^e - 1| for 1 <= x <= range */
} lt_fit;

/* Returns the fit with the fewest poles whose error is at most tolerance, or the one with LT_MAX_POLES. 0 < e <= 1,
 * range >= 1. */
lt_fit lt_fit_power(double exponent, double range, double tolerance);

#endif
