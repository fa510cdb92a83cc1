/* Matrix functions of a reproducible cpu device: bitwise identical results on every instruction set of this machine, for
 * any number of threads. */

#include "base/parallel.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 4, MOST = 131, SQUARE = MOST * MOST };

static const int64_t sizes[JOBS] = {131, 64, 33, 1};

typedef struct results {
    float values[JOBS][MOST], vectors[JOBS][SQUARE], q[JOBS][SQUARE], root[JOBS][SQUARE];
    float wide_root[JOBS][SQUARE], gram[JOBS][SQUARE], product[JOBS][SQUARE];
    double f64_values[JOBS][MOST], f64_vectors[JOBS][SQUARE], norm[2 * JOBS];
} results;

/* Positive definite matrices; the second has about half the rank. */
static float matrix[JOBS][SQUARE];
static double f64_matrix[JOBS][SQUARE];

static void fill_matrices(void)
{
    static double g[SQUARE];
    lt_rng rng = {.key = 5};
    for (int m = 0; m < JOBS; m++) {
        const int64_t n = sizes[m], depth = m == 1 ? n / 2 : n;
        for (int64_t i = 0; i < n * depth; i++)
            g[i] = lt_rng_uniform(&rng) - 0.4;
        for (int64_t i = 0; i < n * n; i++) {
            double sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += g[i / n * depth + k] * g[i % n * depth + k];
            matrix[m][i] = (float)(f64_matrix[m][i] = sum);
        }
    }
}

static lt_view square(void *data, int m)
{
    return lt_cpu_dense_view(data, LT_F32, LT_SHAPE(sizes[m], sizes[m]));
}

static void run_jobs(void *ctx, results *r)
{
    const lt_backend *be = lt_backend_cpu();
    lt_eigh_job eigh[2 * JOBS];
    lt_qr_job qr[JOBS];
    lt_rational_job root[2 * JOBS];
    lt_gram_job gram[JOBS];
    lt_mode_product_job product[JOBS];
    lt_view x[2 * JOBS], norm = lt_cpu_dense_view(r->norm, LT_F64, LT_SHAPE(2 * JOBS));
    for (int m = 0; m < JOBS; m++) {
        const lt_view a = square(matrix[m], m);
        const lt_shape n = LT_SHAPE(sizes[m]);
        eigh[m] = (lt_eigh_job){.a = a,
                                .values = lt_cpu_dense_view(r->values[m], LT_F32, n),
                                .vectors = square(r->vectors[m], m)};
        eigh[JOBS + m] =
            (lt_eigh_job){.a = lt_cpu_dense_view(f64_matrix[m], LT_F64, a.shape),
                          .values = lt_cpu_dense_view(r->f64_values[m], LT_F64, n),
                          .vectors = lt_cpu_dense_view(r->f64_vectors[m], LT_F64, a.shape)};
        qr[m] = (lt_qr_job){.a = a, .q = square(r->q[m], m)};
        root[m] = (lt_rational_job){.a = a,
                                    .y = square(r->root[m], m),
                                    .poles = 2,
                                    .constant = 0.5,
                                    .weight = {0.7, 0.3},
                                    .shift = {0.1, 2}};
        root[JOBS + m] = root[m];
        root[JOBS + m].y = square(r->wide_root[m], m);
        root[JOBS + m].wide_below = 1;
        gram[m] =
            (lt_gram_job){.g = a, .f = square(r->gram[m], m), .dim = 1, .alpha = 0.1, .beta = 0.9};
        memcpy(r->gram[m], matrix[m], sizeof r->gram[m]);
        product[m] = (lt_mode_product_job){
            .g = a, .y = square(r->product[m], m), .m = a, .dim = 0, .transpose = m & 1};
        x[m] = a;
        x[JOBS + m] = a;
        x[JOBS + m].shape.dim[1] = (sizes[m] + 1) / 2; /* rows apart */
    }
    assert_ok(be->eigh(ctx, eigh, 2 * JOBS));
    assert_ok(be->qr(ctx, qr, JOBS));
    assert_ok(be->rational(ctx, root, 2 * JOBS));
    assert_ok(be->gram(ctx, gram, JOBS, NULL));
    assert_ok(be->mode_product(ctx, product, JOBS, NULL));
    assert_ok(be->frobenius(ctx, x, 2 * JOBS, &norm));
    for (int m = 0; m < 2 * JOBS; m++)
        assert_true(!eigh[m].status && !root[m].status);
}

static void run(const char *isa, int threads, results *r)
{
    const lt_device_config config = {.threads = threads, .reproducible = true};
    void *ctx;
    assert_int_equal(setenv("LATHER_CPU_ISA", isa, 1), 0);
    assert_ok(lt_backend_cpu()->open(&ctx, 0, &config));
    lt_parallel_set_threads(threads);
    memset(r, 0, sizeof *r);
    run_jobs(ctx, r);
    lt_parallel_set_threads(1);
    lt_backend_cpu()->close(ctx);
}

#define COMPARE(field)                                                             \
    if (memcmp(first.field, got.field, sizeof got.field)) /* names the function */ \
    fail_msg(#field ": other bits on %s with %d threads", isa[i], threads)

static void results_have_the_same_bits_on_every_set(void **state)
{
#if defined(__x86_64__)
    static const char *const isa[] = {"avx512", "avx512", "avx2", "generic"};
#else
    static const char *const isa[] = {"neon_bf16", "neon", "generic"};
#endif
    static results first, got;
    (void)state;
    fill_matrices();
    run(isa[0], 1, &first);
    for (int i = 1; i < (int)COUNT_OF(isa); i++) {
        const int threads = i == 2 ? 1 : 3;
        run(isa[i], threads, &got);
        COMPARE(values);
        COMPARE(vectors);
        COMPARE(f64_values);
        COMPARE(f64_vectors);
        COMPARE(q);
        COMPARE(root);
        COMPARE(wide_root);
        COMPARE(gram);
        COMPARE(product);
        COMPARE(norm);
    }
    matrix[0][0] *= 1 + FLT_EPSILON; /* control: one rounding */
    run(isa[0], 1, &got);
    assert_memory_not_equal(first.values, got.values, sizeof got.values);
    assert_memory_not_equal(first.vectors, got.vectors, sizeof got.vectors);
    assert_memory_not_equal(first.q, got.q, sizeof got.q);
    assert_memory_not_equal(first.root, got.root, sizeof got.root);
    assert_memory_not_equal(first.norm, got.norm, sizeof got.norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_have_the_same_bits_on_every_set)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
