/** Elementary functions in f64 with the same bits on every processor, with every compiler and C library. */
#ifndef LATHER_EXT_ELEMENTARY_H
#define LATHER_EXT_ELEMENTARY_H

#include "lather/status.h"

/* Made of sums, products, quotients and bit operations, none of them fused. For whatever reaches weights, metrics or
 * checkpoints: the last bits of <math.h>'s exp(), log(), pow(), sin(), tanh() and so on depend on the library and the
 * processor. sqrt(), fabs(), floor(), fmod(), ldexp(), frexp() and nearbyint() are exact everywhere.
 *
 * Special values: C99, annex F, but for exceptions, errno and the sign of NaN. Errors measured at 10,000 random arguments each are
 * below, in units in the last place: exp 0.52, log 0.51, log1p 0.6, pow 0.6, with x near 1 and large exponents 0.7 (exp, pow: 1 where the
 * result is subnormal), sin 0.75, cos 0.75, tanh 2.2, erfc 3.6. Rounded to float, results are within 0.5001. */

/** Returns e^x. */
LT_API double lt_f64_exp(double x);
/** Returns the natural logarithm of x. */
LT_API double lt_f64_log(double x);
/** Returns log(1 + x), also for small x. */
LT_API double lt_f64_log1p(double x);
/** Returns x^y. */
LT_API double lt_f64_pow(double x, double y);
/** Returns the sine of x, in radians. */
LT_API double lt_f64_sin(double x);
/** Returns the cosine of x, in radians. */
LT_API double lt_f64_cos(double x);
/** Returns the hyperbolic tangent of x. */
LT_API double lt_f64_tanh(double x);
/** Returns 1 - erf(x), also where that is small. */
LT_API double lt_f64_erfc(double x);

#endif
