/* The type that a build of the reference kernels computes in. Files that include this are compiled
 * twice: for f32 and 16-bit data with real = float, for f64 data with real = double. */
#ifndef LT_REF_REAL_H
#define LT_REF_REAL_H

#ifdef LT_REF_DOUBLE
typedef double real;
#define NAME(entry) lt_ref_##entry##_f64
#else
typedef float real;
#define NAME(entry) lt_ref_##entry##_f32
#endif

#endif
