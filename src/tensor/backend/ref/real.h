/* The type that a build of the reference kernels computes in. Files that include this are compiled twice:
 * for f32 and 16-bit data with real = float, and for f64 data with real = double. The kernel table holds the
 * first build, whose kernels begin with IF_F64: it calls the second build if a view is f64. It uses ctx in both builds,
 * which kernels have for the table's sake. */
#ifndef LT_REF_REAL_H
#define LT_REF_REAL_H

#ifdef LT_REF_DOUBLE
typedef double real;
#define NAME(function)          lt_ref_##function##_f64
#define ENTRY(name)             lt_ref_##name##_f64
#define IF_F64(view, name, ...) (void)ctx
#else
typedef float real;
#define NAME(function) lt_ref_##function##_f32
#define ENTRY(name)    lt_ref_##name
#define IF_F64(view, name, ...)                      \
    do {                                             \
        if ((view)->dtype == LT_F64)                 \
            return lt_ref_##name##_f64(__VA_ARGS__); \
    } while (0)
#endif

#endif
