/* The cpu backend's eigendecompositions in f64, and its behaviour if LAPACK fails or is absent: single
 * precision falls back to double, double reports the failure, and without the library ref's kernels remain. */

#include "base/alloc.h"
#include "near.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <float.h>
#include <string.h>

enum { MOST = 70 };

static bool hides_blas; /* the next dlopen() finds no library */

/* Replaces libc's dlopen(), which it calls. */
void *dlopen(const char *file, int mode)
{
    void *(*next)(const char *, int);
    void *found = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&next, &found, sizeof found);
    return next(hides_blas && file && strstr(file, "libopenblas") ? "libnowhere.so.0" : file, mode);
}

/* A matrix on the heap with exactly its size, so that AddressSanitizer detects a write past its end. */
typedef struct matrix {
    void *ctx, *a, *values, *vectors;
    lt_eigh_job job;
} matrix;

static double element(int64_t i, int64_t j)
{
    return i == j ? (double)(i % 5) : 1.0 / (double)(1 + i + j);
}

static void set(const lt_view *v, int64_t i, double value)
{
    if (v->dtype == LT_F32)
        ((float *)v->data)[i] = (float)value;
    else
        ((double *)v->data)[i] = value;
}

static double get(const lt_view *v, int64_t i)
{
    return v->dtype == LT_F32 ? (double)((const float *)v->data)[i] : ((const double *)v->data)[i];
}

static void open_matrix(matrix *m, int64_t n, lt_dtype dtype)
{
    const size_t size = lt_dtype_size(dtype);
    const lt_device_config config = {.threads = 1};
    assert_ok(lt_backend_cpu()->open(&m->ctx, 0, &config));
    m->a = lt_alloc((size_t)(n * n), size);
    m->values = lt_alloc((size_t)n, size);
    m->vectors = lt_alloc((size_t)(n * n), size);
    assert_true(m->a && m->values && m->vectors);
    m->job = (lt_eigh_job){.a = lt_cpu_dense_view(m->a, dtype, LT_SHAPE(n, n)),
                           .values = lt_cpu_dense_view(m->values, dtype, LT_SHAPE(n)),
                           .vectors = lt_cpu_dense_view(m->vectors, dtype, LT_SHAPE(n, n))};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            set(&m->job.a, i * n + j, element(i, j));
}

static void close_matrix(matrix *m)
{
    lt_free(m->a);
    lt_free(m->values);
    lt_free(m->vectors);
    lt_backend_cpu()->close(m->ctx);
}

static lt_status solve(matrix *m)
{
    const lt_status st = lt_backend_cpu()->eigh(m->ctx, &m->job, 1);
    return st ? st : m->job.status;
}

/* Returns the largest of |A v - lambda v| and |v.w - (v = w)|; values must be ascending. */
static double error_of(const matrix *m)
{
    const int64_t n = m->job.a.shape.dim[0];
    const lt_view *v = &m->job.vectors;
    double most = 0;
    for (int64_t k = 0; k < n; k++) {
        const double value = get(&m->job.values, k);
        assert_true(!k || value >= get(&m->job.values, k - 1));
        for (int64_t i = 0; i < n; i++) {
            double image = 0, product = 0;
            for (int64_t j = 0; j < n; j++) {
                image += element(i, j) * get(v, j * n + k);
                product += get(v, j * n + i) * get(v, j * n + k);
            }
            most = fmax(most, fabs(image - value * get(v, i * n + k)));
            most = fmax(most, fabs(product - (i == k)));
        }
    }
    return most;
}

static lapack_int no_sstedc(int layout, char vectors, lapack_int n, float *diagonal,
                            float *off_diagonal, float *z, lapack_int step, float *work,
                            lapack_int lwork, lapack_int *iwork, lapack_int liwork)
{
    (void)layout, (void)vectors, (void)diagonal, (void)off_diagonal, (void)z, (void)step,
        (void)work, (void)lwork, (void)iwork, (void)liwork;
    return n;
}

static lapack_int no_dsyevd(int layout, char vectors, char triangle, lapack_int n, double *a,
                            lapack_int step, double *values, double *work, lapack_int lwork,
                            lapack_int *iwork, lapack_int liwork)
{
    (void)layout, (void)vectors, (void)triangle, (void)a, (void)step, (void)values, (void)liwork;
    if (lwork >= 0)
        return 3;
    *work = (double)(1 + 6 * n + 2 * n * n);
    *iwork = 3 + 5 * n;
    return 0;
}

static int keep_lapack(void **state)
{
    static lt_lapack kept;
    (void)lt_backend_cpu();
    kept = lt_lapack_calls;
    *state = &kept;
    return 0;
}

static int restore_lapack(void **state)
{
    lt_lapack_calls = *(lt_lapack *)*state;
    return 0;
}

static const int64_t sizes[] = {1, 2, 33, MOST};

static void matrices_of_f64_are_solved_to_f64s_precision(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        matrix m;
        open_matrix(&m, sizes[i], LT_F64);
        assert_ok(solve(&m));
        assert_true(error_of(&m) < (double)sizes[i] * 8 * DBL_EPSILON);
        set(&m.job.vectors, 0, get(&m.job.vectors, 0) + 1e-9); /* control */
        assert_false(error_of(&m) < (double)sizes[i] * 8 * DBL_EPSILON);
        close_matrix(&m);
    }
}

static void a_matrix_that_single_precision_fails_on_is_solved_in_double(void **state)
{
    (void)state;
    lt_lapack_calls.sstedc = no_sstedc;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        matrix m;
        open_matrix(&m, sizes[i], LT_F32);
        assert_ok(solve(&m));
        assert_true(error_of(&m) < (double)sizes[i] * 2 * (double)FLT_EPSILON);
        close_matrix(&m);
    }
}

static void a_matrix_that_both_fail_on_is_an_error(void **state)
{
    (void)state;
    matrix m;
    lt_lapack_calls.sstedc = no_sstedc;
    lt_lapack_calls.dsyevd = no_dsyevd;
    open_matrix(&m, 33, LT_F32);
    assert_status(solve(&m), LT_E_ARG);
    assert_string_equal(lt_error_message(),
                        "eigh: LAPACK did not converge for a 33 x 33 matrix (info 3)");
    close_matrix(&m);
}

static void an_element_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        matrix m;
        open_matrix(&m, 5, i & 1 ? LT_F64 : LT_F32);
        set(&m.job.a, i & 2 ? 24 : 0, i & 2 ? (double)NAN : (double)INFINITY);
        assert_status(solve(&m), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "5 x 5 matrix has non-finite elements"));
        close_matrix(&m);
    }
}

static void without_blas_the_entries_are_unchanged(void **state)
{
    (void)state;
    lt_backend be = *lt_backend_ref();
    be.eigh = NULL;
    hides_blas = true;
    lt_cpu_install_matrix(&be);
    hides_blas = false;
    assert_null(be.eigh);
    assert_non_null(strstr(lt_cpu_matrix_info(), "not on this machine"));
    lt_cpu_install_matrix(&be); /* control */
    assert_true(be.eigh && be.eigh != lt_backend_ref()->eigh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_f64_are_solved_to_f64s_precision),
        cmocka_unit_test_setup_teardown(a_matrix_that_single_precision_fails_on_is_solved_in_double,
                                        keep_lapack, restore_lapack),
        cmocka_unit_test_setup_teardown(a_matrix_that_both_fail_on_is_an_error, keep_lapack,
                                        restore_lapack),
        cmocka_unit_test(an_element_that_is_not_finite_is_an_error),
        cmocka_unit_test_setup_teardown(without_blas_the_entries_are_unchanged, keep_lapack,
                                        restore_lapack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
