/* The gradient noise scale: its formulas by hand, and on gradients of a quadratic whose covariance is known. */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/noise_scale.h"

/* --- By hand --- */

/* |G|^2 = (8 x 3 - 2 x 6) / 6 = 2 and tr = 3 / (1/2 - 1/8) = 8: four samples. */
static const lt_noise_sample four = {2, 6, 8, 3};
/* |G|^2 = (6 x 2 - 3 x 3) / 3 = 1 and tr = 1 / (1/3 - 1/6) = 6. */
static const lt_noise_sample six = {3, 3, 6, 2};

static void one_step_by_hand(void **state)
{
    lt_noise_scale n = LT_NOISE_SCALE_DEFAULTS;
    (void)state;
    assert_true(isnan(lt_noise_scale_estimate(&n).scale));
    assert_ok(lt_noise_scale_add(&n, &four));
    const lt_noise_estimate e = lt_noise_scale_estimate(&n);
    assert_near(e.square, 2, 1e-13);
    assert_near(e.trace, 8, 1e-13);
    assert_near(e.scale, 4, 1e-13);
}

/* The ratio of averages: (1/4 x 8 + 1/2 x 6) / (1/4 x 2 + 1/2 x 1) = 5, not an average of 4 and 6, 5 1/3. */
static void the_ratio_is_of_averages(void **state)
{
    lt_noise_scale n = {.decay = 0.5};
    (void)state;
    assert_ok(lt_noise_scale_add(&n, &four));
    assert_ok(lt_noise_scale_add(&n, &six));
    const lt_noise_estimate e = lt_noise_scale_estimate(&n);
    assert_near(e.square, 1 / 0.75, 1e-14);
    assert_near(e.trace, 5 / 0.75, 1e-14);
    assert_near(e.scale, 5, 1e-14);
}

static void noise_that_covers_the_gradient_is_unknown(void **state)
{
    const lt_noise_sample covered = {1, 9, 2, 4}, quiet = {1, 4, 2, 4.5};
    lt_noise_scale n = LT_NOISE_SCALE_DEFAULTS;
    (void)state;
    assert_ok(lt_noise_scale_add(&n, &covered)); /* |G|^2 = 8 - 9 */
    assert_true(isnan(lt_noise_scale_estimate(&n).scale));
    n = LT_NOISE_SCALE_DEFAULTS;
    assert_ok(lt_noise_scale_add(&n, &quiet)); /* tr = -1 */
    assert_true(lt_noise_scale_estimate(&n).trace < 0);
    assert_near(lt_noise_scale_estimate(&n).scale, 0, 0);
}

static void a_sample_that_cannot_be_changes_nothing(void **state)
{
    lt_noise_scale n = LT_NOISE_SCALE_DEFAULTS, before, other = {.decay = 1};
    const struct {
        lt_noise_sample sample;
        const char *says;
    } rows[] = {{{8, 3, 2, 6}, "8 and 2 samples"},          {{2, 6, 2, 3}, "2 and 2 samples"},
                {{0, 6, 2, 3}, "0 and 2 samples"},          {{2, -1, 8, 3}, "squares -1 and 3"},
                {{2, 6, 8, (double)INFINITY}, "6 and inf"}, {{2, (double)NAN, 8, 3}, "nan and 3"}};
    (void)state;
    assert_ok(lt_noise_scale_add(&n, &four));
    before = n;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_fails(lt_noise_scale_add(&n, &rows[i].sample), LT_E_ARG, rows[i].says);
    assert_memory_equal(&n, &before, sizeof n);
    assert_fails(lt_noise_scale_add(&other, &four), LT_E_ARG, "decay 1");
}

/* --- A quadratic: f(x) = E |x - c|^2 / 2, whose gradient of a sample is x - c, with mean G and covariance Sigma of c --- */

enum { SIZE = 40, PARTS = 4, PART = 3, ROUNDS = 600 };

typedef struct quadratic {
    double gradient[SIZE], deviation[SIZE];
    double square, trace, trace_of_square, along; /* |G|^2, tr(S), tr(S S), G^T S G */
    lt_rng rng;
} quadratic;

static void open_quadratic(quadratic *q)
{
    *q = (quadratic){.rng = {.key = lt_rng_key(7, LT_STREAM_INIT, 0, 0)}};
    for (int i = 0; i < SIZE; i++) {
        q->gradient[i] = 0.5 * cos(i);
        q->deviation[i] = 0.3 + 0.05 * i;
        const double g = q->gradient[i], v = q->deviation[i] * q->deviation[i];
        q->square += g * g;
        q->trace += v;
        q->trace_of_square += v * v;
        q->along += g * v * g;
    }
}

/* A batch's gradient is normal, with covariance Sigma / batch. */
static double draw(quadratic *q, double batch, double *sum)
{
    double square = 0;
    for (int i = 0; i < SIZE; i++) {
        const double radius = sqrt(-2 * log(1 - lt_rng_uniform(&q->rng)));
        const double normal = radius * cos(2 * 3.14159265358979323846 * lt_rng_uniform(&q->rng));
        const double g = q->gradient[i] + q->deviation[i] / sqrt(batch) * normal;
        square += g * g;
        sum[i] += g;
    }
    return square;
}

static lt_noise_sample measure(quadratic *q)
{
    double sum[SIZE] = {0};
    lt_noise_sample s = {.small_batch = PART, .large_batch = PART * PARTS};
    for (int p = 0; p < PARTS; p++)
        s.small_square += draw(q, PART, sum) / PARTS;
    for (int i = 0; i < SIZE; i++)
        s.large_square += sum[i] * sum[i] / (PARTS * PARTS);
    return s;
}

/* With tr^ = T, |G|^2^ = Q, k parts, B samples: T is B times what the variance of k means adds up to, and Q = |mean|^2 - T / B
 * with a mean that does not depend on it. So
 *
 *     Var T = 2 tr(SS) / (k-1),  Cov(T, Q) = -Var T / B,
 *     Var Q = 4 G^T S G / B + 2 tr(SS) / B^2 + Var T / B^2,
 *
 * and the relative variance of T / Q is Var T / T^2 + Var Q / Q^2 - 2 Cov / (T Q), over as many independent steps as an
 * average of that decay has, (1 + decay) / (1 - decay). Five deviations. */
static double bound_of(const quadratic *q, double decay)
{
    const double large = PART * PARTS, t = q->trace, s = q->square;
    const double var_t = 2 * q->trace_of_square / (PARTS - 1);
    const double var_q =
        4 * q->along / large + 2 * q->trace_of_square / (large * large) + var_t / (large * large);
    const double relative = var_t / (t * t) + var_q / (s * s) + 2 * var_t / large / (t * s);
    return 5 * t / s * sqrt(relative * (1 - decay) / (1 + decay));
}

typedef struct averages {
    lt_noise_scale right, exchanged;
    double of_ratios; /* an average of ratios */
} averages;

static void run_quadratic(const quadratic *start, averages *a)
{
    quadratic q = *start;
    *a = (averages){.right = LT_NOISE_SCALE_DEFAULTS, .exchanged = LT_NOISE_SCALE_DEFAULTS};
    for (int i = 0; i < ROUNDS; i++) {
        const lt_noise_sample s = measure(&q);
        const lt_noise_sample wrong = {s.small_batch, s.large_square, s.large_batch,
                                       s.small_square};
        lt_noise_scale alone = LT_NOISE_SCALE_DEFAULTS;
        assert_ok(lt_noise_scale_add(&a->right, &s));
        assert_ok(lt_noise_scale_add(&a->exchanged, &wrong));
        assert_ok(lt_noise_scale_add(&alone, &s));
        const lt_noise_estimate e = lt_noise_scale_estimate(&alone);
        a->of_ratios = 0.99 * a->of_ratios + 0.01 * e.trace / e.square;
    }
}

static void the_scale_of_a_quadratic(void **state)
{
    quadratic q;
    averages a;
    (void)state;
    open_quadratic(&q);
    run_quadratic(&q, &a);
    const double phi = q.trace / q.square, bound = bound_of(&q, a.right.decay);
    assert_true(bound < 0.35 * phi); /* otherwise the test would be void */
    assert_near(lt_noise_scale_estimate(&a.right).scale, phi, bound);
    /* Controls: what must not pass. */
    assert_false(fabs(lt_noise_scale_estimate(&a.exchanged).scale - phi) <= bound);
    assert_false(fabs(a.of_ratios / (1 - pow(0.99, ROUNDS)) - phi) <= bound);
}

/* --- Steps and samples to the same loss --- */

static void steps_of_other_batches(void **state)
{
    double steps;
    (void)state;
    assert_ok(lt_noise_steps(&steps, 100, 500, 25, 1e15)); /* S_min */
    assert_near(steps, 100, 1e-9);
    assert_ok(lt_noise_steps(&steps, 100, 500, 25, 100)); /* the critical batch: twice that, */
    assert_near(steps, 200, 1e-10);
    assert_ok(lt_noise_steps(&steps, 0, 500, 25, 3)); /* without noise the batch does not matter */
    assert_near(steps, 500, 0);
    assert_fails(lt_noise_steps(&steps, -1, 500, 25, 3), LT_E_ARG, "-1");
    assert_fails(lt_noise_steps(&steps, (double)NAN, 500, 25, 3), LT_E_ARG, "nan");
    assert_fails(lt_noise_steps(&steps, 1, 500, 0, 3), LT_E_ARG, "500 steps of batch 0");
    assert_fails(lt_noise_steps(&steps, 1, 0, 25, 3), LT_E_ARG, "0 steps of batch 25");
    assert_fails(lt_noise_steps(&steps, 1, 500, 25, 0), LT_E_ARG, "for batch 0");
    assert_fails(lt_noise_steps(&steps, (double)INFINITY, 500, 25, 3), LT_E_ARG, "inf");
    assert_ok(lt_noise_steps(&steps, 1, 1e-9, 1e-9, 1e-9));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(one_step_by_hand),
        cmocka_unit_test(the_ratio_is_of_averages),
        cmocka_unit_test(noise_that_covers_the_gradient_is_unknown),
        cmocka_unit_test(a_sample_that_cannot_be_changes_nothing),
        cmocka_unit_test(the_scale_of_a_quadratic),
        cmocka_unit_test(steps_of_other_batches),
    };
    return cmocka_run_group_tests_name("gradient noise scale", rows, NULL, NULL);
}
