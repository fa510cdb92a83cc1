/* Kernels of PowerSGD: low-rank products and orthonormalization. */

#include "dist/reducer/lowrank.h"

#include "base/parallel.h"
#include "base/rng.h"
#include "near.h"

static double number(const char *name, int64_t i)
{
    lt_rng rng = {.key = lt_rng_name_key((uint64_t)i, LT_STREAM_INIT, name)};
    return lt_rng_uniform(&rng) - 0.5;
}

/* With full rank, which a reducer would not compress, the reconstruction is exact. */
static void full_rank_is_exact(void **state)
{
    (void)state;
    static float x[9 * 40], y[9 * 40], p[9 * 9], q[9 * 40];
    static double wide_q[9 * 40], wide_p[9 * 9];
    for (int i = 0; i < 9 * 40; i++)
        x[i] = (float)number("x", i);
    lt_lowrank_warm_start(wide_q, 9, 40, "w");
    for (int i = 0; i < 9 * 40; i++)
        q[i] = (float)wide_q[i];
    lt_lowrank_compute_p(&(lt_lowrank){x, p, q, 9, 40, 9});
    for (int i = 0; i < 9 * 9; i++)
        wide_p[i] = (double)p[i];
    lt_lowrank_orthonormalize(wide_p, 9, 9);
    for (int i = 0; i < 9 * 9; i++)
        p[i] = (float)wide_p[i];
    lt_lowrank_compute_q(&(lt_lowrank){x, p, q, 9, 40, 9});
    lt_lowrank_reconstruct(&(lt_lowrank){y, p, q, 9, 40, 9});
    for (int i = 0; i < 9 * 40; i++)
        assert_near(y[i], x[i], 1e-6);
}

/* Rows of zeros are drawn, others keep their direction. */
static void a_start_has_rows_of_norm_one(void **state)
{
    (void)state;
    double q[3 * 4] = {[4] = 3e200, [7] = -4e200, [8] = 1e-200};
    lt_lowrank_warm_start(q, 3, 4, "w");
    for (int k = 0; k < 3; k++) {
        double sum = 0;
        for (int j = 0; j < 4; j++)
            sum += q[4 * k + j] * q[4 * k + j];
        assert_near(sum, 1, 1e-12);
    }
    assert_near(q[4], 0.6, 1e-12);
    assert_near(q[7], -0.8, 1e-12);
    assert_near(q[8], 1, 1e-12);
}

static void columns_become_orthonormal(void **state)
{
    (void)state;
    enum { ROWS = 50, K = 6 };
    double p[ROWS * K];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < K; k++)
            p[i * K + k] = number("p", i * K + k) * pow(10, 30 * (k - 2));
        p[i * K + 1] = p[i * K] * (1 + 1e-9 * number("n", i)); /* nearly the same column */
        p[i * K + 4] = 2 * p[i * K] / 1e-60 * 1e60;            /* a multiple of it */
    }
    lt_lowrank_orthonormalize(p, ROWS, K);
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++) {
            double sum = 0;
            for (int i = 0; i < ROWS; i++)
                sum += p[i * K + a] * p[i * K + b];
            assert_near(sum, a == b && a != 4, 1e-14);
        }
    p[3] = (double)NAN;
    lt_lowrank_orthonormalize(p, ROWS, K);
    for (int i = 0; i < ROWS; i++)
        assert_true(isnan(p[i * K + 3]));
}

static void results_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 2100, K = 3 };
    static float x[2][ROWS * COLS], p[2][ROWS * K], q[2][K * COLS];
    for (int i = 0; i < 2; i++) {
        lt_parallel_set_threads(i ? 4 : 1);
        for (int64_t k = 0; k < ROWS * COLS; k++)
            x[i][k] = (float)sin((double)k);
        for (int k = 0; k < K * COLS; k++)
            q[i][k] = (float)cos(1.7 * k);
        const lt_lowrank m = {x[i], p[i], q[i], ROWS, COLS, K};
        lt_lowrank_compute_p(&m);
        lt_lowrank_compute_q(&m);
        lt_lowrank_reconstruct(&m);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    assert_memory_equal(q[0], q[1], sizeof q[0]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    double want = 0;
    for (int j = 0; j < COLS; j++)
        want += sin((double)(5 * COLS + j)) * cos(1.7 * (COLS + j));
    assert_near(p[0][5 * K + 1], want, 1e-3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_rank_is_exact),
        cmocka_unit_test(a_start_has_rows_of_norm_one),
        cmocka_unit_test(columns_become_orthonormal),
        cmocka_unit_test(results_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
