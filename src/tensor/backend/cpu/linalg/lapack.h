/* The functions of OpenBLAS and LAPACKE that the backend calls. */
#ifndef LT_CPU_LAPACK_H
#define LT_CPU_LAPACK_H

#include <lapacke.h>
#include <stdbool.h>

typedef struct lt_lapack {
    __typeof__(LAPACKE_sstedc_work) *sstedc;
    __typeof__(LAPACKE_dsyevd_work) *dsyevd;
    __typeof__(LAPACKE_sgeqrf) *sgeqrf;
    __typeof__(LAPACKE_sorgqr) *sorgqr;
    void (*set_threads)(int threads);
    char *(*config)(void);
} lt_lapack;

/* Functions of the loaded libraries, filled by lt_lapack_open(). */
extern lt_lapack lt_lapack_calls;

/* Loads the libraries. Not thread-safe. False if they cannot be loaded, with a warning in the log. */
bool lt_lapack_open(void);

#endif
