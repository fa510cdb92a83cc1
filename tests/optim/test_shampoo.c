/* Shampoo against closed forms; test_replay.c has trajectories of an independent model (tests/oracle). */

#include "fixture.h"

#include "lather/shampoo.h"

#include <math.h>

/* --- Closed forms: two updates of the factors, then the second gradient preconditioned --- */

typedef struct closed {
    const char *name;
    lt_shape shape;
    double g1[4], g2[4], want[4];
    double epsilon, exponent; /* exponent < 0: the default */
    double trace_scaling;
    lt_preconditioner kind;
} closed;

#define S2        0.70710678118654752440 /* 2^(-1/2) */
#define Q2        0.84089641525371454303 /* 2^(-1/4) */
#define Q2I       1.18920711500272106672 /* 2^(1/4) */
#define Q82       0.33231239229804016    /* 82^(-1/4) */
#define TINY      1e-14
#define CORRECTED LT_PRECONDITIONER_CORRECTED

static const closed closed_forms[] = {
    /* clang-format off */
    {"vector", {1, {2}}, {1, 0}, {0, 1}, {0, 1}, TINY, -1, 0, 0},
    {"matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, TINY, -1, 0, 0},
    {"row", {2, {1, 2}}, {1, 0}, {0, 1}, {0, Q2}, TINY, -1, 0, 0},
    {"trace to the power 1/2: vector", {1, {2}}, {1, 0}, {0, 1}, {0, Q2I}, TINY, -1, 0.5, 0},
    {"trace to the power 1/2: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2},
     {S2 * Q2I, 0, 0, S2 * Q2I}, TINY, -1, 0.5, 0},
    {"trace: vector", {1, {2}}, {1, 0}, {0, 1}, {0, S2 * 2}, TINY, -1, 1, 0},
    {"trace: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {1, 0, 0, 1}, TINY, -1, 1, 0},
    {"trace to the power 1/2: row", {2, {1, 2}}, {1, 0}, {0, 1}, {0, 1}, TINY, -1, 0.5, 0},
    {"trace: row", {2, {1, 2}}, {1, 0}, {0, 1}, {0, Q2I}, TINY, -1, 1, 0},
    {"epsilon 80: row", {2, {1, 2}}, {1, 0}, {0, 1}, {0, Q82 / 3}, 80, -1, 0, 0},
    {"longer gradients: row", {2, {1, 2}}, {2, 0}, {0, 2}, {0, Q2}, TINY, -1, 0, 0},
    {"exponent 1: row", {2, {1, 2}}, {1, 0}, {0, 2}, {0, 0.1}, TINY, 1, 0, 0},
    {"epsilon 80: vector", {1, {2}}, {1, 0}, {0, 1}, {0, 1.0 / 9}, 80, -1, 0, 0},
    {"epsilon 80: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {S2 / 9, 0, 0, S2 / 9},
     80, -1, 0, 0},
    {"longer gradients: vector", {1, {2}}, {4, 0}, {0, 4}, {0, 1}, TINY, -1, 0, 0},
    {"longer gradients: matrix", {2, {2, 2}}, {3, 0, 0, 3}, {4, 0, 0, 4}, {0.8, 0, 0, 0.8}, TINY,
     -1, 0, 0},
    {"exponent 0 leaves the gradient alone", {2, {2, 2}}, {3, 1, 2, 3}, {4, 5, 6, 7},
     {4, 5, 6, 7}, TINY, 0, 0, 0},
    {"exponent 1: vector", {1, {2}}, {1, 0}, {0, 2}, {0, 0.5}, TINY, 1, 0, 0},
    {"exponent 1: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, TINY, 1,
     0, 0},
    {"corrected: vector", {1, {2}}, {1, 0}, {0, 2}, {0, 1}, TINY, -1, 0, CORRECTED},
    {"corrected: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, TINY, -1,
     0, CORRECTED},
    {"corrected: row", {2, {1, 2}}, {1, 0}, {0, 2}, {0, 1}, TINY, -1, 0, CORRECTED},
    {"corrected, exponent 1: matrix", {2, {2, 2}}, {S2, 0, 0, S2}, {S2, 0, 0, S2}, {S2, 0, 0, S2},
     TINY, 1, 0, CORRECTED},
    {"corrected, exponent 1: row", {2, {1, 2}}, {1, 0}, {0, 2}, {0, 0.5}, TINY, 1, 0, CORRECTED},
    {"exponent 0 leaves a vector alone", {1, {2}}, {3, 1}, {4, 5}, {4, 5}, TINY, 0, 0, 0},
    {"corrected: scalar", {1, {1}}, {1}, {2}, {0.89442719099991587856}, TINY, -1, 0, CORRECTED},
    {"corrected, exponent 1: vector", {1, {2}}, {1, 0}, {0, 2}, {0, 0.5}, TINY, 1, 0, CORRECTED},
    {"corrected, exponent 1: scalar", {1, {1}}, {1}, {2}, {0.4}, TINY, 1, 0, CORRECTED},
    /* clang-format on */
};

/* The same factors by other averages: both gradients are scaled so that the bias-corrected F is G1 G1^T +
 * G2 G2^T, as with a sum; the result scales with G2. */
typedef struct average {
    double beta2;
    bool bias, drop;
    double scale1, scale2;
} average;

static const average averages[] = {
    {1, true, false, 1, 1},
    {0.9, false, false, 1 / 0.3, 3.16227766016837933200},
    {0.9, true, false, 0.43588989435406735522 / 0.3, 1.37840487520902217677},
    {0.9, true, true, 1.05409255338945977734, 1},
};

static lt_shampoo_config closed_config(const closed *row, const average *by)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.beta1 = 0;
    c.beta2 = by->beta2;
    c.use_bias_correction = by->bias;
    c.drop_weighting = by->drop;
    c.start_preconditioning_step = 2; /* one basis for both, the identity before */
    c.epsilon = row->epsilon;
    c.trace_scaling = row->trace_scaling;
    c.preconditioner = row->kind;
    c.target_dimensionality = LT_NO_LIMIT; /* [1,2] remains a matrix */
    for (int order = 0; order <= LT_MAX_DIMS; order++)
        for (int d = 0; d < LT_MAX_DIMS; d++) {
            c.inverse_exponent.set[order][d] = row->exponent >= 0;
            c.inverse_exponent.value[order][d] = row->exponent;
        }
    return c;
}

static void put_scaled(lt_param *p, const double *g, double scale)
{
    double scaled[4];
    for (int i = 0; i < 4; i++)
        scaled[i] = scale * g[i];
    put_grad(p, scaled);
}

/* The largest difference from the closed form. */
static double closed_error(const closed *row, const average *by)
{
    const lt_shampoo_config c = closed_config(row, by);
    const double zero[4] = {0};
    double got[4], worst = 0;
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", row->shape);
    assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
    put_scaled(p, row->g1, by->scale1);
    fixture_step(&f, 0);
    put_scaled(p, row->g2, by->scale2);
    put(p->value, zero);
    fixture_step(&f, 1);
    get(p->value, got);
    for (int64_t i = 0; i < lt_shape_count(row->shape); i++) {
        double error = fabs(-got[i] / by->scale2 - row->want[i]);
        worst = error <= worst ? worst : error; /* keeps a NaN */
    }
    fixture_close(&f);
    return worst;
}

static void gives_the_closed_form(void **state)
{
    const closed *row = *state;
    for (size_t i = 0; i < COUNT_OF(averages); i++) {
        double error = closed_error(row, &averages[i]);
        if (!(error <= 1e-7))
            fail_msg("beta2 %g: apart by %g", averages[i].beta2, error);
    }
}

static void control_a_wrong_scale_is_seen(void **state)
{
    (void)state;
    const average wrong = {0.9, false, false, 1 / 0.3, 1};
    assert_true(closed_error(&closed_forms[2], &wrong) > 1e-3);
}

int main(void)
{
    enum { C = COUNT_OF(closed_forms) };
    struct CMUnitTest tests[C + 1];
    for (size_t i = 0; i < C; i++)
        tests[i] = row_test(closed_forms[i].name, gives_the_closed_form, &closed_forms[i]);
    tests[C] = (struct CMUnitTest)cmocka_unit_test(control_a_wrong_scale_is_seen);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
