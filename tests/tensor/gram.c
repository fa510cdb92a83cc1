/* The cpu backend's built-in Gram products and eigenvectors: their values, and bitwise identical results for
 * any number of threads, because no sum is split. */

#include "base/alloc.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <float.h>
#include <string.h>

enum { JOBS = 3, LARGEST = 300 * 520 };

/* Sizes with remainders in every dimension of the tiling, and one long sum. */
static const lt_shape shapes[JOBS] = {{.ndim = 2, .dim = {300, 520}},
                                      {.ndim = 4, .dim = {70, 33, 3, 3}},
                                      {.ndim = 2, .dim = {65, 2000}}};
static const int along[JOBS] = {0, 1, 0};
/* In storage order, with channels of four dimensions last: products of the sizes before and after that
 * dimension. */
static const size_t before[JOBS] = {1, 630, 1}, rows[JOBS] = {300, 33, 65},
                    after[JOBS] = {520, 1, 2000};

typedef struct fixture {
    void *ctx;
    float *g[JOBS], *m[JOBS], *out[JOBS], *first[JOBS];
} fixture;

static float *filled(size_t count, uint64_t stream)
{
    float *x = lt_alloc_aligned(64, count * sizeof *x);
    lt_rng rng = {.key = lt_rng_key(7, LT_STREAM_DATA, stream, 0)};
    assert_non_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(lt_rng_uniform(&rng) - 0.5);
    return x;
}

static int open_fixture(void **state)
{
    static fixture f;
    const lt_device_config config = {.threads = 1};
    assert_ok(lt_backend_cpu()->open(&f.ctx, 0, &config));
    for (uint64_t i = 0; i < JOBS; i++) {
        f.g[i] = filled(LARGEST, 2 * i);
        f.m[i] = filled(LARGEST, 2 * i + 1);
        f.out[i] = lt_alloc_aligned(64, LARGEST * sizeof(float));
        f.first[i] = lt_alloc_aligned(64, LARGEST * sizeof(float));
        assert_true(f.out[i] && f.first[i]);
    }
    *state = &f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < JOBS; i++) {
        lt_free(f->g[i]);
        lt_free(f->m[i]);
        lt_free(f->out[i]);
        lt_free(f->first[i]);
    }
    lt_backend_cpu()->close(f->ctx);
    return 0;
}

static lt_view square(float *data, int64_t n)
{
    return lt_cpu_dense_view(data, LT_F32, (lt_shape){.ndim = 2, .dim = {n, n}});
}

static void run_gram(const fixture *f)
{
    lt_gram_job job[JOBS];
    for (int i = 0; i < JOBS; i++) {
        memcpy(f->out[i], f->m[i], LARGEST * sizeof(float));
        job[i] = (lt_gram_job){.g = lt_cpu_dense_view(f->g[i], LT_F32, shapes[i]),
                               .f = square(f->out[i], shapes[i].dim[along[i]]),
                               .dim = along[i],
                               .alpha = 0.1,
                               .beta = 0};
    }
    assert_ok(lt_backend_cpu()->gram(f->ctx, job, JOBS, NULL));
}

static void run_product(const fixture *f)
{
    lt_mode_product_job job[JOBS];
    for (int i = 0; i < JOBS; i++) {
        memset(f->out[i], 0, LARGEST * sizeof(float));
        job[i] = (lt_mode_product_job){.g = lt_cpu_dense_view(f->g[i], LT_F32, shapes[i]),
                                       .y = lt_cpu_dense_view(f->out[i], LT_F32, shapes[i]),
                                       .m = square(f->m[i], shapes[i].dim[along[i]]),
                                       .dim = along[i]};
    }
    assert_ok(lt_backend_cpu()->mode_product(f->ctx, job, JOBS, NULL));
}

static void compare(const fixture *f, void (*run)(const fixture *))
{
    static const int threads[] = {1, 2, 3, 7};
    for (size_t t = 0; t < COUNT_OF(threads); t++) {
        lt_parallel_set_threads(threads[t]);
        run(f);
        for (int i = 0; i < JOBS; i++) {
            if (!t)
                memcpy(f->first[i], f->out[i], LARGEST * sizeof(float));
            assert_memory_equal(f->out[i], f->first[i], LARGEST * sizeof(float));
        }
    }
    f->out[0][1] += 1; /* control: one changed element is detected */
    assert_memory_not_equal(f->out[0], f->first[0], LARGEST * sizeof(float));
}

static void gram_has_the_same_bits_for_any_number_of_threads(void **state)
{
    compare(*state, run_gram);
}

static void mode_product_has_the_same_bits_for_any_number_of_threads(void **state)
{
    compare(*state, run_product);
}

/* A sum in double and its allowed error in f32. */
typedef struct exact {
    double sum, size;
    size_t terms;
} exact;

static void add_term(exact *e, double term)
{
    e->sum += term;
    e->size += fabs(term);
    e->terms++;
}

static void check(const exact *e, float got)
{
    assert_near(got, e->sum, (double)e->terms * (double)FLT_EPSILON * e->size);
}

/* g[o][i][q] of a job. */
static double element(const fixture *f, int job, size_t o, size_t i, size_t q)
{
    return (double)f->g[job][(o * rows[job] + i) * after[job] + q];
}

static void gram_is_a_sum_of_products(void **state)
{
    const fixture *f = *state;
    run_gram(f);
    for (int job = 0; job < JOBS; job++)
        for (size_t i = 0; i < rows[job]; i++)
            for (size_t j = 0; j <= i; j++) {
                exact e = {0};
                for (size_t o = 0; o < before[job]; o++)
                    for (size_t q = 0; q < after[job]; q++)
                        add_term(&e, 0.1 * element(f, job, o, i, q) * element(f, job, o, j, q));
                check(&e, f->out[job][i * rows[job] + j]);
                check(&e, f->out[job][j * rows[job] + i]);
            }
}

static void mode_product_is_a_sum_of_products(void **state)
{
    const fixture *f = *state;
    run_product(f);
    for (int job = 0; job < JOBS; job++)
        for (size_t at = 0; at < before[job] * rows[job] * after[job]; at++) {
            const size_t q = at % after[job], i = at / after[job] % rows[job];
            exact e = {0};
            for (size_t j = 0; j < rows[job]; j++)
                add_term(&e, (double)f->m[job][i * rows[job] + j]
                                 * element(f, job, at / after[job] / rows[job], j, q));
            check(&e, f->out[job][at]);
        }
}

/* Rows of the result with a gap after every five: 20 or 27 elements apart within one tile. */
static void rows_of_a_product_may_lie_at_uneven_distances(void **state)
{
    enum { OUTER = 11, INNER = 5, N = 20, GAP = 7 };
    const fixture *f = *state;
    const lt_shape shape = LT_SHAPE(OUTER, INNER, N);
    lt_mode_product_job job = {.g = lt_cpu_dense_view(f->g[0], LT_F32, shape),
                               .y = lt_cpu_dense_view(f->first[0], LT_F32, shape),
                               .m = square(f->m[0], N),
                               .dim = 2};
    assert_ok(lt_backend_cpu()->mode_product(f->ctx, &job, 1, NULL));
    job.y.data = f->out[0];
    job.y.stride[0] = INNER * N + GAP;
    memset(f->out[0], 0, LARGEST * sizeof(float));
    assert_ok(lt_backend_cpu()->mode_product(f->ctx, &job, 1, NULL));
    for (size_t i = 0; i < OUTER; i++)
        assert_memory_equal(f->out[0] + i * (INNER * N + GAP), f->first[0] + i * INNER * N,
                            sizeof(float[INNER * N]));
}

/* Symmetric matrices whose sizes differ from a panel's; values are stored after the vectors. */
static void list_eigh(const fixture *f, lt_eigh_job job[JOBS])
{
    static const int64_t sizes[JOBS] = {70, 33, 131};
    for (int i = 0; i < JOBS; i++) {
        const int64_t n = sizes[i];
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < r; c++)
                f->m[i][r * n + c] = f->m[i][c * n + r];
        memset(f->out[i], 0, LARGEST * sizeof(float));
        job[i] = (lt_eigh_job){
            .a = {.data = f->m[i], .dtype = LT_F32, .shape = LT_SHAPE(n, n), .stride = {n, 1}},
            .values = {
                .data = f->out[i] + n * n, .dtype = LT_F32, .shape = LT_SHAPE(n), .stride = {1}}};
        job[i].vectors = job[i].a;
        job[i].vectors.data = f->out[i];
    }
}

static void run_eigh(const fixture *f)
{
    lt_eigh_job job[JOBS];
    list_eigh(f, job);
    assert_ok(lt_backend_cpu()->eigh(f->ctx, job, JOBS));
    for (int i = 0; i < JOBS; i++)
        assert_ok(job[i].status);
}

static void run_eigh_one_by_one(const fixture *f)
{
    lt_eigh_job job[JOBS];
    list_eigh(f, job);
    for (int i = 0; i < JOBS; i++)
        assert_ok(lt_backend_cpu()->eigh(f->ctx, &job[i], 1));
}

static void eigh_has_the_same_bits_for_any_number_of_threads(void **state)
{
    compare(*state, run_eigh);
}

static void eigh_of_a_list_is_that_of_each_matrix(void **state)
{
    const fixture *f = *state;
    run_eigh_one_by_one(f);
    for (int i = 0; i < JOBS; i++)
        memcpy(f->first[i], f->out[i], LARGEST * sizeof(float));
    run_eigh(f);
    for (int i = 0; i < JOBS; i++)
        assert_memory_equal(f->out[i], f->first[i], LARGEST * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gram_has_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(mode_product_has_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(gram_is_a_sum_of_products),
        cmocka_unit_test(mode_product_is_a_sum_of_products),
        cmocka_unit_test(rows_of_a_product_may_lie_at_uneven_distances),
        cmocka_unit_test(eigh_has_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(eigh_of_a_list_is_that_of_each_matrix),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
