/* The optimizer of examples/one_sided.c: its update against the formula in double, bad settings, and the steps that a
 * graph may hold. */

#include "one_sided.h"
#include "snapshot.h"

#include "lather/ext/optim.h"

#include <stdio.h>

/* --- The formula --- */

enum { MOST = 16, STEPS = 20, EVERY = 3, STATES = 24 };
static const double beta2 = 0.9, epsilon = 1e-2, momentum = 0.8, decay = 0.02, lr = 0.05;

/* Jacobi's rotations: a becomes diagonal, and the columns of q its eigenvectors. */
static void diagonalize(int n, double a[MOST][MOST], double q[MOST][MOST])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            q[i][j] = i == j;
    for (int round = 0; round < 40 * n * n; round++) {
        const int i = round % n, j = round / n % n;
        if (i >= j || fabs(a[i][j]) < 1e-300)
            continue;
        const double angle = 0.5 * atan2(2 * a[i][j], a[i][i] - a[j][j]);
        const double c = cos(angle), s = sin(angle);
        for (int k = 0; k < n; k++) {
            const double x = a[i][k], y = a[j][k];
            a[i][k] = c * x + s * y;
            a[j][k] = c * y - s * x;
        }
        for (int k = 0; k < n; k++) {
            const double x = a[k][i], y = a[k][j], v = q[k][i], w = q[k][j];
            a[k][i] = c * x + s * y;
            a[k][j] = c * y - s * x;
            q[k][i] = c * v + s * w;
            q[k][j] = c * w - s * v;
        }
    }
}

/* One parameter as the formula has it: g[i][k], i along the factor's dimension. */
typedef struct model {
    int n, rest, block;
    bool by_columns, is_vector, relative;
    double l[MOST][MOST], r[MOST][MOST], v[MOST], m[MOST][MOST], w[MOST][MOST];
} model;

static int index_of(const model *p, int i, int k)
{
    return p->by_columns ? k * p->n + i : i * p->rest + k;
}

/* Sets rows and columns `from` to `to` - 1 of r to (l / correction + epsilon I)^(-1/2). */
static void refresh(model *p, double correction, int from, int to)
{
    double a[MOST][MOST] = {{0}}, q[MOST][MOST];
    const int n = to - from;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i][j] = p->l[from + i][from + j] / correction;
    diagonalize(n, a, q);
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, a[i][i]);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double added = epsilon * (p->relative ? most : 1);
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += q[i][k] * q[j][k] / sqrt(fmax(a[k][k], 0) + added);
            p->r[from + i][from + j] = sum;
        }
}

static void precondition(model *p, int t, double g[MOST][MOST], double out[MOST][MOST])
{
    const double correction = 1 - pow(beta2, t);
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->n; j++) {
            double sum = 0;
            for (int k = 0; k < p->rest; k++)
                sum += g[i][k] * g[j][k];
            p->l[i][j] = beta2 * p->l[i][j] + (1 - beta2) * sum;
        }
    for (int i = 0; i < p->n && (t - 1) % EVERY == 0; i += p->block)
        refresh(p, correction, i, i + p->block < p->n ? i + p->block : p->n);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->rest; k++) {
            out[i][k] = 0;
            for (int j = 0; j < p->n; j++)
                out[i][k] += p->r[i][j] * g[j][k];
        }
    for (int i = 0; i < p->n && p->is_vector; i++) {
        p->v[i] = beta2 * p->v[i] + (1 - beta2) * g[i][0] * g[i][0];
        out[i][0] = g[i][0] / (sqrt(p->v[i] / correction) + 1e-8);
    }
}

static void formula_step(model *p, int t, bool grafts, const double *grad)
{
    double g[MOST][MOST] = {{0}}, u[MOST][MOST] = {{0}}, of_g = 0, of_u = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->rest; k++)
            g[i][k] = grad[index_of(p, i, k)];
    precondition(p, t, g, u);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->rest; k++) {
            of_g += g[i][k] * g[i][k];
            of_u += u[i][k] * u[i][k];
        }
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->rest; k++) {
            const double scaled = u[i][k] * (grafts ? sqrt(of_g / of_u) : 1);
            const double wd = p->is_vector ? 0 : decay;
            p->m[i][k] = momentum * p->m[i][k] + scaled + wd * p->w[i][k];
            p->w[i][k] -= lr * p->m[i][k];
        }
}

/* --- The optimizer --- */

typedef struct row {
    const char *name, *device;
    lt_shape shape;
    int block;                              /* 0: no limit */
    bool f64, grafts, by_columns, relative; /* relative: epsilon times the largest eigenvalue */
    bool wrong;                             /* a control: the formula refreshes at other steps */
} row;

static const row rows[] = {
    {"a wide matrix", "ref", {2, {3, 7}}, 0, true, false, false, false, false},
    {"a wide matrix, grafted", "ref", {2, {3, 7}}, 0, true, true, false, false, false},
    {"a tall matrix: its columns have the factor",
     "ref",
     {2, {7, 4}},
     0,
     true,
     true,
     true,
     false,
     false},
    {"a relative epsilon", "ref", {2, {3, 7}}, 0, true, false, false, true, false},
    {"a relative epsilon for each block", "cpu", {2, {7, 8}}, 3, false, true, false, true, false},
    {"two blocks and a shorter one", "ref", {2, {7, 8}}, 3, true, false, false, false, false},
    {"two blocks of columns", "ref", {2, {9, 6}}, 3, true, true, true, false, false},
    {"a filter, channels-last", "ref", {4, {4, 2, 2, 3}}, 0, true, true, false, false, false},
    {"a vector", "ref", {1, {6}}, 0, true, false, false, false, false},
    {"1 x 1", "ref", {2, {1, 1}}, 0, true, false, false, false, false},
    {"1 x n", "ref", {2, {1, 9}}, 0, true, true, false, false, false},
    {"n x 1", "ref", {2, {9, 1}}, 0, true, true, true, false, false},
    {"a wide matrix in f32", "ref", {2, {3, 7}}, 0, false, true, false, false, false},
    {"a wide matrix on cpu", "cpu", {2, {3, 7}}, 0, false, false, false, false, false},
    {"blocks on cpu", "cpu", {2, {7, 8}}, 3, false, true, false, false, false},
    {"a filter on cpu", "cpu", {4, {4, 2, 2, 3}}, 2, false, true, false, false, false},
    {"a vector on cpu", "cpu", {1, {6}}, 0, false, true, false, false, false},
    {"control: a refresh every step", "ref", {2, {3, 7}}, 0, true, false, false, false, true},
};

static void open_row(fixture *f, const row *r)
{
    char json[256];
    *f = (fixture){0};
    assert_ok(
        lt_device_open(&f->device, r->device, &(lt_device_config){.f64 = r->f64, .threads = 1}));
    fixture_add(f, "w", r->shape)->role = r->shape.ndim > 1 ? LT_PARAM_WEIGHT : LT_PARAM_BIAS;
    snprintf(
        json, sizeof json,
        "\"beta2\": %g, \"epsilon\": %g, \"momentum\": %g, \"weight_decay\": %g, "
        "\"epsilon_rule\": \"%s\", \"precondition_frequency\": %d, \"max_preconditioner_dim\": %s%.0d, \"graft_to\": \"%s\"",
        beta2, epsilon, momentum, decay, r->relative ? "relative" : "after", r->wrong ? 1 : EVERY,
        r->block ? "" : "Infinity", r->block, r->grafts ? "sgd" : "none");
    assert_ok(make_one_sided_by(&f->optim, &f->list, json));
    lt_optim_group group = {1, r->shape.ndim > 1 ? decay : 0};
    assert_ok(lt_optim_set_group(f->optim, "w", group));
}

/* Returns the largest distance from the formula after 20 steps, relative to the largest weight. */
static double distance(const row *r)
{
    static model p;
    fixture f;
    double start[MOST * MOST] = {0}, g[MOST * MOST], got[MOST * MOST], most = 0, apart = 0;
    const int count = (int)lt_shape_count(r->shape);
    open_row(&f, r);
    p = (model){
        .by_columns = r->by_columns, .is_vector = r->shape.ndim == 1, .relative = r->relative};
    p.n = (int)r->shape.dim[r->by_columns ? 1 : 0];
    p.rest = count / p.n;
    const int k = r->block ? (p.n + r->block - 1) / r->block : 1;
    p.block = (p.n + k - 1) / k;
    for (int i = 0; i < count; i++)
        start[i] = cos(1.1 * i) - 0.3;
    put(f.param[0].value, start);
    for (int i = 0; i < p.n; i++)
        for (int j = 0; j < p.rest; j++)
            p.w[i][j] = start[index_of(&p, i, j)];
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < count; i++)
            g[i] = sin(1 + 7.0 * t + 1.7 * i + 0.9 * t * i);
        put_grad(&f.param[0], g);
        fixture_step(&f, lr);
        formula_step(&p, t, r->grafts, g);
    }
    get(f.param[0].value, got);
    for (int i = 0; i < p.n; i++)
        for (int j = 0; j < p.rest; j++) {
            most = fmax(most, fabs(p.w[i][j]));
            apart = fmax(apart, fabs(got[index_of(&p, i, j)] - p.w[i][j]));
        }
    fixture_close(&f);
    return apart / most;
}

static void update_is_that_of_the_formula(void **state)
{
    const row *r = *state;
    const double d = distance(r), bound = r->f64 ? 1e-11 : 1e-5;
    if (r->wrong)
        assert_true(d > bound);
    else
        assert_near(d, 0, bound);
}

/* --- State --- */

static void state_is_resumed_bit_for_bit(void **state)
{
    (void)state;
    static snapshot at_7, whole, resumed;
    fixture f;
    two_params(&f, make_one_sided, false);
    steps(&f, 1, 7);
    take(&at_7, &f, false);
    steps(&f, 8, 14);
    take(&whole, &f, false);
    fixture_close(&f);
    two_params(&f, make_one_sided, false);
    at_7.restore = true;
    take(&at_7, &f, true);
    f.attempt = 7;
    f.optim->attempt = 7;
    steps(&f, 8, 14);
    take(&resumed, &f, false);
    assert_int_equal(resumed.used, whole.used);
    assert_memory_equal(resumed.bytes, whole.bytes, whole.used);
    fixture_close(&f);
}

static void bytes_of_state_are_counted(void **state)
{
    (void)state;
    fixture f;
    two_params(&f, make_one_sided, true); /* a [3,4]: factor and root [3,3]; b [5]: two vectors */
    assert_int_equal(lt_optim_state_bytes(f.optim), (12 + 2 * 9 + 2 * 5) * sizeof(double));
    fixture_close(&f);
}

static void skipped_step_changes_nothing(void **state)
{
    (void)state;
    static snapshot before, after;
    fixture f;
    two_params(&f, make_one_sided, false);
    steps(&f, 1, 3);
    take(&before, &f, false);
    give_gradients(&f, 4, (double)NAN);
    fixture_step(&f, 0.05);
    f.optim->attempt--; /* it counts skipped steps too */
    take(&after, &f, false);
    assert_memory_equal(before.bytes, after.bytes, before.used);
    fixture_close(&f);
}

/* A graph may hold all steps but the first and those that refresh. */
static void steps_with_roots_are_not_captured(void **state)
{
    (void)state;
    fixture f;
    two_params(&f, make_one_sided, false);
    for (int t = 1; t <= 8; t++) {
        give_gradients(&f, t, 1);
        assert_ok(lt_optim_prepare(f.optim, &(lt_step){.lr = 0.1, .attempt = t}));
        assert_int_equal(lt_optim_is_capturable(f.optim), (t - 1) % 3 != 0);
        assert_int_equal(f.optim->ops->host_phase->has_host_phase(f.optim),
                         t > 1 && (t - 1) % 3 == 0);
        assert_ok(lt_optim_update(f.optim));
        lt_optim_advance(f.optim);
    }
    fixture_close(&f);
}

static lt_status zero_gradient_step(fixture *f)
{
    const double zero[12] = {0};
    put_grad(&f->param[0], zero);
    put_grad(&f->param[1], zero);
    const lt_step step = {.lr = 0.05, .attempt = ++f->attempt};
    return lt_optim_step(f->optim, &step);
}

/* A factor of zeros has no root: the gradient itself is the update until the next refresh. */
static void zero_gradients_start_with_the_identity(void **state)
{
    (void)state;
    fixture f;
    double root[9];
    two_params(&f, make_one_sided, true);
    assert_ok(zero_gradient_step(&f));
    get(f.optim->slot[0].state[3], root);
    for (int i = 0; i < 9; i++)
        assert_near(root[i], i % 4 == 0, 0);
    steps(&f, 2, 4);
    get(f.optim->slot[0].state[3], root);
    assert_true(root[1] != 0);
    fixture_close(&f);
}

/* --- Bad settings --- */

typedef struct bad {
    const char *name, *json, *message;
} bad;

static const bad wrong[] = {
    {"f below 1", "\"precondition_frequency\": 0", "one_sided: precondition_frequency 0 is not"},
    {"beta2 above 1", "\"beta2\": 1.5", "one_sided: beta2 1.5 is not in [0,1)"},
    {"beta2 of 1", "\"beta2\": 1", "one_sided: beta2 1 is not in [0,1)"},
    {"negative epsilon", "\"epsilon\": -1", "one_sided: epsilon -1 is not"},
    {"momentum of 1", "\"momentum\": 1", "one_sided: momentum 1 is not in [0,1)"},
    {"another method to graft", "\"graft_to\": \"adam\"", "graft_to"},
    {"an unknown key", "\"precondition_frequencies\": 3", "precondition_frequency"},
};

static void is_rejected(void **state)
{
    const bad *b = *state;
    fixture f;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2, 2));
    assert_fails(make_one_sided_by(&f.optim, &f.list, b->json), LT_E_ARG, b->message);
    assert_null(f.optim);
    fixture_close(&f);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(wrong) + 5] = {
        cmocka_unit_test(state_is_resumed_bit_for_bit),
        cmocka_unit_test(bytes_of_state_are_counted),
        cmocka_unit_test(skipped_step_changes_nothing),
        cmocka_unit_test(steps_with_roots_are_not_captured),
        cmocka_unit_test(zero_gradients_start_with_the_identity),
    };
    size_t count = 5;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[count++] = row_test(rows[i].name, update_is_that_of_the_formula, &rows[i]);
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        tests[count++] = row_test(wrong[i].name, is_rejected, &wrong[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
