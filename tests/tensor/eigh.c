/* The cpu backend's eigendecompositions: residual and orthogonality for matrices of all kinds, in f32 and f64. */

#include "base/alloc.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <float.h>
#include <string.h>

/* A matrix on the heap with exactly its size, so that AddressSanitizer detects a write past its end. */
typedef struct matrix {
    void *ctx, *a, *values, *vectors;
    lt_eigh_job job;
} matrix;

typedef double element(int64_t i, int64_t j);

static double usual(int64_t i, int64_t j)
{
    return i == j ? (double)(i % 5) : 1.0 / (double)(1 + i + j);
}

static double zero(int64_t i, int64_t j)
{
    return 0.0 * (double)(i + j);
}

static double unit(int64_t i, int64_t j)
{
    return i == j;
}

static double diagonal(int64_t i, int64_t j)
{
    return i == j ? (double)(i * 7 % 11) - 3 : 0;
}

static double rank_one(int64_t i, int64_t j)
{
    return (double)((1 + i % 3) * (1 + j % 3));
}

static double graded(int64_t i, int64_t j)
{
    return pow(0.5, (double)(i + j) / 2) * usual(i, j);
}

static double random_element(int64_t i, int64_t j)
{
    lt_rng rng = {.key = (uint64_t)((i < j ? i : j) * 1000 + (i < j ? j : i))};
    return lt_rng_uniform(&rng) - 0.5;
}

/* Eigenvalues 1 and 2 up to 1e-9 (a reflection of a diagonal). */
static double clustered(int64_t i, int64_t j)
{
    const double u = 1 / (double)(1 + i), v = 1 / (double)(1 + j);
    return (i == j ? 1 + 1e-9 * (double)(i % 7) : 0) + u * v;
}

/* Wilkinson's matrices of 21 rows, coupled weakly: pairs of close eigenvalues. */
static double wilkinson(int64_t i, int64_t j)
{
    if (i == j)
        return fabs((double)(i % 21 - 10));
    return i - j == 1 || j - i == 1 ? ((i > j ? i : j) % 21 ? 1 : 1e-5) : 0;
}

static double tridiagonal(int64_t i, int64_t j)
{
    return i == j ? 2 : i - j == 1 || j - i == 1 ? -1 : 0;
}

static element *const kinds[] = {usual,  zero,           unit,      diagonal,  rank_one,
                                 graded, random_element, clustered, wilkinson, tridiagonal};

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

static void open_matrix(matrix *m, element *value, int64_t n, lt_dtype dtype)
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
            set(&m->job.a, i * n + j, value(i, j));
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

/* Returns the largest of |A v - lambda v| / |A| and |v.w - (v = w)|; values must be ascending. */
static double error_of(const matrix *m)
{
    const int64_t n = m->job.a.shape.dim[0];
    const lt_view *v = &m->job.vectors;
    double most = 0, residual = 0, norm = 0;
    for (int64_t k = 0; k < n; k++) {
        const double value = get(&m->job.values, k);
        assert_true(!k || value >= get(&m->job.values, k - 1));
        norm = fmax(norm, fabs(value));
        for (int64_t i = 0; i < n; i++) {
            double image = 0, product = 0;
            for (int64_t j = 0; j < n; j++) {
                image += get(&m->job.a, i * n + j) * get(v, j * n + k);
                product += get(v, j * n + i) * get(v, j * n + k);
            }
            residual = fmax(residual, fabs(image - value * get(v, i * n + k)));
            most = fmax(most, fabs(product - (i == k)));
        }
    }
    return fmax(most, norm > 0 ? residual / norm : residual);
}

static const int64_t sizes[] = {1, 2, 3, 32, 33, 65, 130};

/* Bounds of about the square root of n roundings: LAPACK's errors are as large. */
static void check_kinds(lt_dtype dtype, double epsilon)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            const double limit = 4 * sqrt((double)sizes[i] + 3) * epsilon;
            matrix m;
            open_matrix(&m, kinds[k], sizes[i], dtype);
            assert_ok(solve(&m));
            const double error = error_of(&m);
            if (!(error < limit))
                fail_msg("kind %zu, %lld rows: error %g", k, (long long)sizes[i], error);
            set(&m.job.vectors, 0, get(&m.job.vectors, 0) + 2 * sqrt(limit)); /* control */
            assert_false(error_of(&m) < limit);
            close_matrix(&m);
        }
}

static void matrices_of_f64_are_solved_to_f64s_precision(void **state)
{
    (void)state;
    check_kinds(LT_F64, DBL_EPSILON);
}

static void matrices_of_f32_are_solved_to_f32s_precision(void **state)
{
    (void)state;
    check_kinds(LT_F32, (double)FLT_EPSILON);
}

static void an_element_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        matrix m;
        open_matrix(&m, usual, 5, i & 1 ? LT_F64 : LT_F32);
        set(&m.job.a, i & 2 ? 24 : 0, i & 2 ? (double)NAN : (double)INFINITY);
        assert_status(solve(&m), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "5 x 5 matrix has non-finite elements"));
        close_matrix(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_f64_are_solved_to_f64s_precision),
        cmocka_unit_test(matrices_of_f32_are_solved_to_f32s_precision),
        cmocka_unit_test(an_element_that_is_not_finite_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
