/* Shared declarations of `bench roots`: matrices, accuracy, LAPACK's eigendecomposition. */
#ifndef BENCH_ROOTS_H
#define BENCH_ROOTS_H

#include "bench.h"

#include "lather/detail/roots.h"

/* One symmetric matrix on the host, and its name in the table. */
typedef struct sample {
    char name[96];
    int64_t n;
    double exponent;
    float *a;       /* [n,n] */
    float *old;     /* the last root, or NULL */
    float *before;  /* the matrix before samples_move(), or NULL */
    double *root;   /* root in f64, by make_exact() */
    double largest; /* largest eigenvalue, by make_exact() */
} sample;

typedef struct samples {
    sample *item;
    size_t count;
} samples;

void samples_clear(samples *list);
/* Adds a matrix with eigenvalues from 1 to 1/condition, evenly spaced in logarithms; all after the first
 * `rank` are 0. */
lt_status samples_add_synthetic(samples *list, int64_t n, double condition, int64_t rank);
/* Adds `all` such matrices, copies of the first `few` after those; a negative condition: rank n/4. */
lt_status samples_add_made(samples *list, int64_t n, double condition, int64_t few, int64_t all);
/* Replaces each matrix a by (1 - share) a + share b, b its mirror image (rows and columns backwards),
 * and keeps the old matrix in `before`. */
lt_status samples_move(samples *list, double share);
/* Adds the factors of a checkpoint's optim.safetensors, divided by 1 - beta2^step; old: an earlier
 * checkpoint's file, or NULL; exponent: that of matrices (blocks of other orders have 1/(2 * order));
 * every: adds one in `every` factors of a size. */
lt_status samples_add_recorded(samples *list, const char *path, const char *old, double correction,
                               double exponent, int every);

/* Computes s->root by an eigendecomposition in double, damped by epsilon, or epsilon times the largest
 * eigenvalue. Errors: LT_E_UNSUPPORTED (this process has no LAPACK). */
lt_status make_exact(sample *s, bool relative, double epsilon);

/* a = the matrix with epsilon, or epsilon times its largest eigenvalue, on the diagonal; after make_exact(). */
void damp_sample(const sample *s, bool relative, double epsilon, double *a);
/* root = q diag(power) q^T; q [n,n] has eigenvectors as columns. */
void root_from_basis(const float *q, const float *power, int64_t n, float *root);

typedef struct accuracy {
    double residual; /* |R^p A - I| / sqrt(n), on random vectors, in double */
    double angle;    /* 1 - cos between R G and f64's R G, G random with covariance A */
} accuracy;
/* Compares a root in f32 with the exact one. a: the damped matrix, f64 [n,n]. */
accuracy measure_accuracy(const sample *s, const double *a, const float *root);

/* Seconds by the clock, or of all threads of the process. */
typedef struct seconds {
    double wall, cpu;
} seconds;
seconds read_clocks(void);

/* Seconds of ssyevd on the samples one after the other, with that number of OpenBLAS threads;
 * negative if this process has no LAPACK. */
seconds time_lapack(const samples *list, int threads);
/* Formats seconds of time_lapack() in milliseconds for JSON; "null" without LAPACK. */
const char *milliseconds_text(double wall, char text[32]);
/* Prints the row of ssyevd. lapack: seconds with 1 thread, with 2. */
void print_lapack(const char *name, const samples *list, const double lapack[]);

#endif
