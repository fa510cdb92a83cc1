/* Loads OpenBLAS and LAPACKE at run time instead of linking them: OpenBLAS starts a thread per core in its constructor
 * unless the environment forbids it. Each thread retries until it has mapped 128 MB, and exit() and fork() wait for it:
 * under `ulimit -v` forever (OpenBLAS 0.3.21, driver/others/blas_server.c and memory.c). */

#include "lapack.h"

#include "lather/log.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

lt_lapack lt_lapack_calls;

static const char threads_variable[] = "OPENBLAS_NUM_THREADS";

/* Looks up a function. Copies the pointer, as ISO C does not convert object to function pointers. */
static bool find_symbol(void *library, const char *name, void *function)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* Loads BLAS first and globally: LAPACKE then calls OpenBLAS's LAPACK, whatever liblapack.so.3 is. */
static bool load_libraries(lt_lapack *l)
{
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_GLOBAL);
    void *lapacke = blas ? dlopen("liblapacke.so.3", RTLD_NOW | RTLD_GLOBAL) : NULL;
    return find_symbol(blas, "openblas_set_num_threads", &l->set_threads)
           && find_symbol(blas, "openblas_get_config", &l->config)
           && find_symbol(lapacke, "LAPACKE_sstedc_work", &l->sstedc)
           && find_symbol(lapacke, "LAPACKE_dsyevd_work", &l->dsyevd)
           && find_symbol(lapacke, "LAPACKE_sgeqrf", &l->sgeqrf)
           && find_symbol(lapacke, "LAPACKE_sorgqr", &l->sorgqr);
}

static bool load_single_threaded(lt_lapack *l)
{
    const char *set = getenv(threads_variable);
    char *before = set ? strdup(set) : NULL;
    setenv(threads_variable, "1", 1);
    const bool ok = load_libraries(l);
    if (before)
        setenv(threads_variable, before, 1);
    else
        unsetenv(threads_variable);
    free(before);
    if (ok)
        l->set_threads(1); /* the program may have loaded it earlier */
    return ok;
}

bool lt_lapack_open(void)
{
    const bool ok = load_single_threaded(&lt_lapack_calls);
    if (!ok) {
        const char *why = dlerror();
        lt_lapack_calls = (lt_lapack){0};
        lt_log(LT_LOG_WARN, "tensor",
               "cpu: LAPACK cannot be loaded, eigendecompositions use slow reference code: %s",
               why ? why : "libopenblas.so.0 or liblapacke.so.3 lacks a function");
    }
    return ok;
}
