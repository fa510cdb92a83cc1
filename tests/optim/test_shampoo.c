/* Shampoo against closed forms and trajectories of an independent model (tests/oracle). */

#include "fixture.h"

#include "lather/shampoo.h"

#include <math.h>

/* --- Trajectories: two tensors, weights and gradients given by formulas --- */

enum { MATRIX = 12, VECTOR = 5 };

typedef struct expected {
    double sum, square, first, last;
} expected;

typedef struct trajectory {
    const char *name;
    lt_shampoo_config config;
    int steps;
    expected want[2];
    bool wrong; /* a control: the comparison must reject it */
} trajectory;

/* Source: tests/oracle/optim_model.py on the formulas of start() and gradient(), float64. */
static const trajectory trajectories[] = {
    {"SGD grafting, Nesterov, decoupled decay, roots every 2 steps",
     {.beta2 = 0.99,
      .beta3 = -1,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 8,
      .precondition_frequency = 2,
      .start_preconditioning_step = -1,
      .use_bias_correction = true,
      .grafting = LT_GRAFTING_SGD,
      .grafting_beta2 = -1,
      .momentum = 0.9,
      .nesterov = true,
      .weight_decay = 0.01,
      .target_dimensionality = 1},
     6,
     {{0.753580355706, 9.687260916606, -0.144773447452, -0.957319858197},
      {0.816667653442, 0.793723694902, 0.601313480238, 0.268392209004}},
     false},
    {"Adam grafting, blocks of 2, first roots at step 3",
     {.beta1 = 0.9,
      .beta2 = 0.95,
      .beta3 = -1,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 2,
      .precondition_frequency = 2,
      .start_preconditioning_step = 3,
      .use_bias_correction = true,
      .grafting = LT_GRAFTING_ADAM,
      .grafting_beta2 = 0.95,
      .grafting_epsilon = 1e-8,
      .target_dimensionality = 1},
     6,
     {{-0.427296068404, 7.315342855075, -0.018178816529, -1.092304498584},
      {0.414145380607, 0.566777234380, 0.237593464754, 0.378691928312}},
     false},
    {"sum of gradients, no grafting",
     {.beta1 = 0.9,
      .beta2 = 1,
      .beta3 = -1,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 8,
      .precondition_frequency = 1,
      .start_preconditioning_step = -1,
      .use_bias_correction = true,
      .grafting_beta2 = -1,
      .target_dimensionality = 1},
     6,
     {{-0.581451451233, 6.759198792084, 0.037912059551, -1.149639865984},
      {0.352562980254, 0.562782463376, 0.198997620300, 0.453073446095}},
     false},
    {"eigenvalue correction, Adam before the first basis",
     {.beta1 = 0.9,
      .beta2 = 0.95,
      .beta3 = -1,
      .epsilon = 1e-8,
      .max_preconditioner_dim = 8,
      .precondition_frequency = 6,
      .start_preconditioning_step = -1,
      .use_bias_correction = true,
      .grafting_beta2 = -1,
      .preconditioner = LT_PRECONDITIONER_CORRECTED,
      .target_dimensionality = 1},
     7,
     {{-0.347000246812, 7.459031247817, -0.004669539814, -1.087903657480},
      {0.381368733985, 0.569591130922, 0.227037270220, 0.379909911770}},
     false},
    {"look-ahead filter, L2 decay, AdaGrad grafting, a merged matrix",
     {.beta1 = 0.9,
      .beta2 = 0.95,
      .beta3 = 0.81,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 12,
      .precondition_frequency = 1,
      .start_preconditioning_step = -1,
      .use_bias_correction = true,
      .grafting = LT_GRAFTING_ADAGRAD,
      .grafting_beta2 = -1,
      .grafting_epsilon = 1e-8,
      .weight_decay = 0.1,
      .decay_type = LT_DECAY_L2,
      .target_dimensionality = 1},
     6,
     {{-0.525634570256, 7.010546853572, 0.003734917262, -1.115986030489},
      {0.345825045084, 0.519909520078, 0.243432032183, 0.401800837669}},
     false},
    {"decay is inside Nesterov momentum, seen after one step",
     {.beta2 = 0.99,
      .beta3 = -1,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 8,
      .precondition_frequency = 2,
      .start_preconditioning_step = -1,
      .use_bias_correction = true,
      .grafting = LT_GRAFTING_SGD,
      .grafting_beta2 = -1,
      .momentum = 0.9,
      .nesterov = true,
      .weight_decay = 0.01,
      .target_dimensionality = 1},
     1,
     {{-0.596200757345, (double)NAN, (double)NAN, (double)NAN},
      {0.309734741718, (double)NAN, (double)NAN, (double)NAN}},
     false},
    {"control: beta2 off by 1e-6",
     {.beta1 = 0.9,
      .beta2 = 0.950001,
      .beta3 = -1,
      .epsilon = 1e-6,
      .max_preconditioner_dim = 2,
      .precondition_frequency = 2,
      .start_preconditioning_step = 3,
      .use_bias_correction = true,
      .grafting = LT_GRAFTING_ADAM,
      .grafting_beta2 = 0.95,
      .grafting_epsilon = 1e-8,
      .target_dimensionality = 1},
     6,
     {{-0.427296068404, 7.315342855075, -0.018178816529, -1.092304498584},
      {0.414145380607, 0.566777234380, 0.237593464754, 0.378691928312}},
     true},
};

static void start(double *w, int count)
{
    for (int i = 0; i < count; i++)
        w[i] = 0.1 * (i + 1) * (i % 2 ? -1 : 1);
}

static void gradient(double *g, int count, int t, int k)
{
    for (int i = 0; i < count; i++)
        g[i] = sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i);
}

static void run(fixture *f, const trajectory *row, bool f64)
{
    double value[MATRIX];
    fixture_open(f, f64);
    fixture_add(f, "matrix", LT_SHAPE(3, 4));
    fixture_add(f, "vector", LT_SHAPE(VECTOR));
    for (int k = 0; k < 2; k++) {
        start(value, k ? VECTOR : MATRIX);
        put(f->param[k].value, value);
    }
    assert_ok(lt_optim_shampoo(&f->optim, &f->list, &row->config));
    for (int t = 1; t <= row->steps; t++) {
        for (int k = 0; k < 2; k++) {
            gradient(value, k ? VECTOR : MATRIX, t, k);
            put_grad(&f->param[k], value);
        }
        fixture_step(f, 0.05);
    }
}

static double error_of(double got, double want)
{
    return isnan(want) ? 0 : fabs(got - want); /* not given */
}

static double trajectory_error(const trajectory *row, bool f64)
{
    fixture f;
    double value[MATRIX], worst = 0;
    run(&f, row, f64);
    for (int k = 0; k < 2; k++) {
        int count = k ? VECTOR : MATRIX;
        double sum = 0, square = 0;
        get(f.param[k].value, value);
        for (int i = 0; i < count; i++) {
            sum += value[i];
            square += value[i] * value[i];
        }
        const expected *want = &row->want[k];
        worst = fmax(worst, error_of(sum, want->sum));
        worst = fmax(worst, error_of(square, want->square));
        worst = fmax(worst, error_of(value[0], want->first));
        worst = fmax(worst, error_of(value[count - 1], want->last));
        assert_true(isfinite(sum));
    }
    fixture_close(&f);
    return worst;
}

/* The numbers have 12 digits after the point; rank-deficient factors add their own rounding. */
static void follows_the_model(void **state)
{
    const trajectory *row = *state;
    double error = trajectory_error(row, true);
    if ((error <= 1e-11) == row->wrong)
        fail_msg("apart by %g", error);
}

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
    enum { T = COUNT_OF(trajectories), C = COUNT_OF(closed_forms) };
    struct CMUnitTest tests[T + C + 1];
    for (size_t i = 0; i < T; i++)
        tests[i] = row_test(trajectories[i].name, follows_the_model, &trajectories[i]);
    for (size_t i = 0; i < C; i++)
        tests[T + i] = row_test(closed_forms[i].name, gives_the_closed_form, &closed_forms[i]);
    tests[T + C] = (struct CMUnitTest)cmocka_unit_test(control_a_wrong_scale_is_seen);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
