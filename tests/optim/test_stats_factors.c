/* Numbers of --optim-stats that only some optimizers have, rules, and spectra, which are compared with an eigensolver of
 * the test: Jacobi's rotations. */

#include "stats_problem.h"

#include "lather/ext/vec.h"

/* --- Numbers that only some optimizers have --- */

static void adam_has_the_ratio_of_its_moments(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double m = 0, v = 0;
    play(&p, make_adamw);
    for (int64_t i = 0; i < 12; i++) {
        double mean = 0, square = 0;
        for (int t = 1; t <= EVERY; t++) {
            mean = 0.9 * mean + 0.1 * element(t, 0, i);
            square = 0.999 * square + 0.001 * pow(element(t, 0, i), 2);
        }
        m += pow(mean / (1 - pow(0.9, EVERY)), 2);
        v += square / (1 - pow(0.999, EVERY));
    }
    assert_string_equal(p.stats->table[LT_TABLE_PARAMETER].column[LT_PARAM_STATS], "m_over_sqrt_v");
    assert_close(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_STATS), sqrt(m / v));
    stop(&p);
}

static void lars_has_its_trust_ratio(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    play(&p, make_lars);
    const double w = number(&p, LT_TABLE_PARAMETER, 1, LT_PARAM_WEIGHT_NORM),
                 g = number(&p, LT_TABLE_PARAMETER, 1, LT_PARAM_GRADIENT_NORM);
    assert_close(number(&p, LT_TABLE_PARAMETER, 1, LT_PARAM_STATS),
                 0.001 * w / (g + 0.01 * w + 1e-8));
    assert_close(number(&p, LT_TABLE_PARAMETER, 2, LT_PARAM_STATS), 1); /* a bias */
    stop(&p);
}

/* --- Spectra --- */

/* Jacobi's method: eigenvalues of the symmetric a [n,n], in any order, and eigenvectors q in columns. */
static void jacobi(int n, double *a, double *q)
{
    for (int i = 0; i < n * n; i++)
        q[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 60; sweep++)
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                const double angle = 0.5 * atan2(2 * a[i * n + j], a[j * n + j] - a[i * n + i]);
                const double c = cos(angle), s = sin(angle);
                for (int k = 0; k < n; k++) {
                    const double x = a[k * n + i], y = a[k * n + j];
                    a[k * n + i] = c * x - s * y;
                    a[k * n + j] = s * x + c * y;
                    const double u = q[k * n + i], v = q[k * n + j];
                    q[k * n + i] = c * u - s * v;
                    q[k * n + j] = s * u + c * v;
                }
                for (int k = 0; k < n; k++) {
                    const double x = a[i * n + k], y = a[j * n + k];
                    a[i * n + k] = c * x - s * y;
                    a[j * n + k] = s * x + c * y;
                }
            }
}

/* Factor of dimension dim of the matrix [4,3] after `steps` steps, bias-corrected. */
static void factor_of(int steps, int dim, double beta2, double *f)
{
    const int n = dim ? 3 : 4, other = dim ? 4 : 3;
    for (int i = 0; i < n * n; i++)
        f[i] = 0;
    for (int t = 1; t <= steps; t++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int k = 0; k < other; k++)
                    sum += element(t, 0, dim ? k * 3 + i : i * 3 + k)
                           * element(t, 0, dim ? k * 3 + j : j * 3 + k);
                f[i * n + j] = beta2 * f[i * n + j] + (1 - beta2) * sum;
            }
    for (int i = 0; i < n * n; i++)
        f[i] /= 1 - pow(beta2, steps);
}

static int ascending(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static void check_spectrum(const problem *p, size_t row, int n, const double *diagonal)
{
    double value[4], sum = 0, entropy = 0, smallest = HUGE_VAL;
    for (int i = 0; i < n; i++)
        value[i] = diagonal[i * (n + 1)];
    qsort(value, (size_t)n, sizeof *value, ascending);
    for (int i = 0; i < n; i++) {
        sum += fmax(value[i], 0);
        smallest = fmin(smallest, fabs(value[i]));
    }
    for (int i = 0; i < n; i++)
        entropy -= value[i] > 0 ? value[i] / sum * log(value[i] / sum) : 0;
    const lt_stats_table t = LT_TABLE_FACTOR;
    assert_close(number(p, t, row, LT_FACTOR_MIN), value[0]);
    assert_close(number(p, t, row, LT_FACTOR_MAX), value[n - 1]);
    assert_close(number(p, t, row, LT_FACTOR_CONDITION), value[n - 1] / smallest);
    assert_close(number(p, t, row, LT_FACTOR_EFFECTIVE_RANK), exp(entropy));
    for (int k = 0; k < 9; k++) {
        const double at = k / 8.0 * (n - 1);
        const int low = (int)at;
        assert_close(number(p, t, row, LT_FACTOR_QUANTILE + k),
                     value[low] + (low + 1 < n ? (at - low) * (value[low + 1] - value[low]) : 0));
    }
    assert_close(number(p, t, row, LT_FACTOR_SPECTRUM_AGE), 0);
}

/* X = Q diag((values + epsilon)^(-1/4)) Q^T applied to rows (dim 0) or columns of g [4,3]. */
static void apply_root(int dim, const double *values, const double *q, double epsilon, double *g)
{
    const int n = dim ? 3 : 4, other = dim ? 4 : 3;
    double out[12] = {0};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double r = 0;
            for (int k = 0; k < n; k++)
                r += q[i * n + k] * pow(values[k * (n + 1)] + epsilon, -0.25) * q[j * n + k];
            for (int o = 0; o < other; o++)
                out[dim ? o * 3 + i : i * 3 + o] += r * g[dim ? o * 3 + j : j * 3 + o];
        }
    memcpy(g, out, sizeof out);
}

static void shampoo_has_spectra_and_grafting_ratios(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double f[16], q[16], g[12];
    play(&p, make_plain);
    for (int i = 0; i < 12; i++)
        g[i] = element(EVERY, 0, i);
    const double before = sqrt(dot(g, g, 12));
    for (int d = 0; d < 2; d++) {
        factor_of(EVERY, d, 0.9, f);
        jacobi(d ? 3 : 4, f, q);
        apply_root(d, f, q, 0.05, g);
        check_spectrum(&p, (size_t)d, d ? 3 : 4, f);
        int below = 0;
        for (int i = 0; i < (d ? 3 : 4); i++)
            below += f[i * ((d ? 3 : 4) + 1)] < 0.05;
        assert_close(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_BELOW_EPSILON),
                     below / (d ? 3.0 : 4.0));
        assert_close(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_EPSILON), 0.05);
        assert_close(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_ROOT_AGE), 0);
        assert_true(isnan(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_OFF_DIAGONAL)));
    }
    assert_int_equal(number(&p, LT_TABLE_BLOCK, 0, LT_BLOCK_RULE), LT_RULE_ROOT);
    assert_close(number(&p, LT_TABLE_BLOCK, 0, LT_BLOCK_GRAFT_RATIO), before / sqrt(dot(g, g, 12)));
    stop(&p);
}

static lt_status make_iterated(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.root_solver = LT_ROOT_NEWTON;
    return lt_optim_shampoo(out, params, &c);
}

static void roots_by_iterations_have_a_residual(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    play(&p, make_iterated);
    for (size_t d = 0; d < 2; d++) {
        const double residual = number(&p, LT_TABLE_FACTOR, d, LT_FACTOR_RESIDUAL);
        assert_true(residual > 0 && residual < 1e-4);
    }
    stop(&p);
}

static lt_status make_trace_scaled(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.trace_scaling = 0.5;
    return lt_optim_shampoo(out, params, &c);
}

static void spectra_are_of_the_trace_scaled_factors(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double f[16], q[16];
    play(&p, make_trace_scaled);
    for (int d = 0; d < 2; d++) {
        const int n = d ? 3 : 4;
        double trace = 0;
        factor_of(EVERY, d, 0.9, f);
        for (int i = 0; i < n; i++)
            trace += f[i * (n + 1)];
        for (int i = 0; i < n * n; i++)
            f[i] /= sqrt(trace);
        jacobi(n, f, q);
        check_spectrum(&p, (size_t)d, n, f);
    }
    stop(&p);
}

static lt_status make_old_basis(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.precondition_frequency = 4;
    c.preconditioner = LT_PRECONDITIONER_CORRECTED;
    c.grafting = LT_GRAFTING_NONE;
    return lt_optim_shampoo(out, params, &c);
}

static void soap_has_the_off_diagonal_share_of_its_last_basis(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double old[16], q[16], now[16];
    play(&p, make_old_basis);
    for (int d = 0; d < 2; d++) {
        const int n = d ? 3 : 4;
        double off = 0, all = 0;
        factor_of(4, d, 0.9, old);
        factor_of(5, d, 0.9, now);
        jacobi(n, old, q);
        for (int i = 0; i < n * n; i++) {
            double b = 0;
            for (int k = 0; k < n * n; k++)
                b += q[k / n * n + i / n] * now[k] * q[k % n * n + i % n];
            off += i % (n + 1) ? b * b : 0;
            all += b * b;
        }
        assert_close(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_OFF_DIAGONAL),
                     sqrt(off / all));
        assert_close(number(&p, LT_TABLE_FACTOR, (size_t)d, LT_FACTOR_ROOT_AGE), 1);
    }
    assert_int_equal(number(&p, LT_TABLE_BLOCK, 0, LT_BLOCK_RULE), LT_RULE_EIGENBASIS);
    stop(&p);
}

static lt_status make_undecayed_muon(lt_optim **out, const lt_params *params)
{
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.weight_decay = 0;
    return lt_optim_muon(out, params, &c);
}

/* X X^T from the update itself, -lr 0.2 sqrt(max(rows, cols)) X. */
static void muon_has_the_singular_values_of_its_update(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double x[12], f[9], q[9];
    play(&p, make_undecayed_muon);
    for (int i = 0; i < 12; i++)
        x[i] = (p.value[2][0][i] - p.value[1][0][i]) / (lr * 0.2 * 2);
    for (int i = 0; i < 9; i++) {
        f[i] = 0;
        for (int k = 0; k < 4; k++)
            f[i] += x[k * 3 + i / 3] * x[k * 3 + i % 3];
    }
    jacobi(3, f, q);
    check_spectrum(&p, 0, 3, f);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_RULE), LT_RULE_ORTHOGONAL);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 2, LT_PARAM_RULE), LT_RULE_ADAMW);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, TABLE, LT_PARAM_RULE), LT_RULE_ADAMW);
    stop(&p);
}

/* --- Rules --- */

static lt_status make_spectral(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.preconditioner = LT_PRECONDITIONER_SPECTRAL;
    c.grafting = LT_GRAFTING_NONE;
    c.use_bias_correction = false;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_sign(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.preconditioner = LT_PRECONDITIONER_SIGN;
    c.grafting = LT_GRAFTING_NONE;
    c.use_bias_correction = false;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_late(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.start_preconditioning_step = 9;
    c.precondition_frequency = 9;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_late_without_grafting(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = plain_shampoo();
    c.start_preconditioning_step = 9;
    c.precondition_frequency = 9;
    c.grafting = LT_GRAFTING_NONE;
    return lt_optim_shampoo(out, params, &c);
}

static const struct rule_row {
    const char *name;
    make_fn *make;
    lt_optim_rule matrix, bias;
} rules[] = {
    {"sgd", make_sgd, LT_RULE_ELEMENTWISE, LT_RULE_ELEMENTWISE},
    {"lion", make_lion, LT_RULE_SIGN, LT_RULE_SIGN},
    {"shampoo", make_plain, LT_RULE_ROOT, LT_RULE_ROOT},
    {"diagonal biases", make_ruled, LT_RULE_ROOT, LT_RULE_DIAGONAL},
    {"grafted before the first roots", make_late, LT_RULE_GRAFTED, LT_RULE_GRAFTED},
    {"nothing before them", make_late_without_grafting, LT_RULE_NONE, LT_RULE_NONE},
    {"spectral descent", make_spectral, LT_RULE_ORTHOGONAL, LT_RULE_ORTHOGONAL},
    {"sign descent", make_sign, LT_RULE_SIGN, LT_RULE_SIGN},
};

static void the_rule_is_the_one_of_the_update(void **state)
{
    const struct rule_row *row = *state;
    problem p = {.steps = EVERY};
    play(&p, row->make);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_RULE), row->matrix);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 2, LT_PARAM_RULE), row->bias);
    stop(&p);
}

/* --- An optimizer outside the library --- */

typedef struct halves {
    lt_optim base;
    lt_tensor *matrix;
} halves;

static lt_status step_slot(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    (void)self;
    return lt_vec_add_lr(slot->param->value, -1, slot->grad, s);
}

static lt_status halves_step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, step_slot, s);
}

/* A mistake that the optimizer makes. */
static enum {
    CORRECT,
    EXTENT,
    OFFSET,
    DIMENSIONS,
    FACTOR,
    ENDLESS,
    SIZE,
    BASIS,
    DTYPE,
    RULE,
    BLOCK_RULE
} mistake;

static lt_status halves_stats(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                              double out[LT_MAX_STATS])
{
    (void)self;
    if (mistake == RULE)
        *rule = LT_RULES;
    out[1] = (double)lt_tensor_count(slot->param->value);
    return LT_OK;
}

static bool halves_block(const lt_optim *self, const lt_slot *slot, size_t block,
                         lt_optim_block *out)
{
    (void)self;
    if ((block > 1 && mistake != ENDLESS) || strcmp(slot->param->name, "matrix") != 0)
        return false;
    block = block % 2;
    *out = (lt_optim_block){.offset = LT_SHAPE(2 * (int64_t)block, 0),
                            .extent = LT_SHAPE(2, 3),
                            .shape = LT_SHAPE(2, 3),
                            .has_factor = {false, block == 1},
                            .rule = mistake == BLOCK_RULE ? LT_RULES : LT_RULE_EIGENBASIS,
                            .graft_ratio = 2.5};
    out->extent.dim[1] += mistake == EXTENT;
    out->offset.dim[0] -= mistake == OFFSET;
    out->extent.ndim += mistake == DIMENSIONS;
    out->has_factor[2] = mistake == FACTOR;
    return true;
}

static lt_status halves_factor(lt_optim *self, const lt_slot *slot, size_t block, int dim,
                               lt_optim_factor *out)
{
    (void)block;
    (void)dim;
    out->matrix = ((halves *)self)->matrix;
    out->basis = mistake == BASIS ? slot->param->value : out->matrix;
    out->matrix = mistake == SIZE ? slot->param->value : out->matrix;
    if (mistake == DTYPE) {
        LT_TRY(lt_tensor_new(&out->temporary[1], self->device, LT_F32, LT_SHAPE(3, 3)));
        out->basis = out->temporary[1];
    }
    out->epsilon = 0.5;
    out->is_relative = true;
    out->age = 7;
    out->failures = 3;
    return LT_OK;
}

static void halves_destroy(lt_optim *self)
{
    lt_tensor_free(&((halves *)self)->matrix);
}

static const lt_optim_ops halves_ops = {.name = "halves",
                                        .bytes = sizeof(halves),
                                        .step = halves_step,
                                        .stat_name = {"absent", "elements"},
                                        .stats = halves_stats,
                                        .stat_block = halves_block,
                                        .stat_factor = halves_factor,
                                        .destroy = halves_destroy};

static lt_status make_halves(lt_optim **out, const lt_params *params)
{
    static const double diagonal[9] = {1, 0, 0, 0, 8, 0, 0, 0, 3};
    LT_TRY(lt_optim_new(out, &halves_ops, params, 0, LT_DECAY_ALL));
    lt_tensor **matrix = &((halves *)*out)->matrix;
    LT_TRY(lt_tensor_new(matrix, (*out)->device, LT_F64, LT_SHAPE(3, 3)));
    return lt_tensor_write(*matrix, diagonal, sizeof diagonal);
}

static void an_optimizer_outside_takes_part(void **state)
{
    (void)state;
    problem p = {.steps = EVERY};
    double f[9] = {1, 0, 0, 0, 8, 0, 0, 0, 3};
    play(&p, make_halves);
    for (int k = 0; k < FROZEN; k++)
        check_param(&p, k, 1);
    check_spectrum(&p, 0, 3, f);
    assert_int_equal(p.stats->table[LT_TABLE_BLOCK].rows, 2);
    assert_int_equal(p.stats->table[LT_TABLE_FACTOR].rows, 1);
    assert_close(number(&p, LT_TABLE_FACTOR, 0, LT_FACTOR_EPSILON), 4);
    assert_close(number(&p, LT_TABLE_FACTOR, 0, LT_FACTOR_BELOW_EPSILON), 2.0 / 3);
    assert_close(number(&p, LT_TABLE_FACTOR, 0, LT_FACTOR_OFF_DIAGONAL), 0);
    assert_close(number(&p, LT_TABLE_FACTOR, 0, LT_FACTOR_ROOT_AGE), 7);
    assert_close(number(&p, LT_TABLE_FACTOR, 0, LT_FACTOR_FAILURES), 3);
    assert_close(number(&p, LT_TABLE_BLOCK, 1, LT_BLOCK_GRAFT_RATIO), 2.5);
    assert_close(number(&p, LT_TABLE_BLOCK, 1, LT_BLOCK_GRADIENT_NORM),
                 sqrt(dot(p.grad[0] + 6, p.grad[0] + 6, 6)));
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_RULE), LT_RULE_EIGENBASIS);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, 1, LT_PARAM_RULE), LT_RULE_ELEMENTWISE);
    assert_true(isnan(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_STATS)));
    assert_close(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_STATS + 1), 12);
    stop(&p);
}

static void mistakes_of_an_optimizer_are_named(void **state)
{
    static const struct {
        int mistake;
        lt_status status;
        const char *text;
    } rows[] = {
        {EXTENT, LT_E_SHAPE,
         "halves: stat_block: block 0 of matrix, offset [0,0], extent [2,4], is no part of [4,3]"},
        {OFFSET, LT_E_SHAPE, "block 0 of matrix, offset [-1,0], extent [2,3], is no part of [4,3]"},
        {DIMENSIONS, LT_E_SHAPE, "is no part of [4,3]"},
        {FACTOR, LT_E_SHAPE, "block 0 of matrix"},
        {ENDLESS, LT_E_SHAPE, "block 12 of matrix"},
        {SIZE, LT_E_SHAPE, "stat_factor: matrix [4,3] of matrix, dimension 1, whose size is 3"},
        {BASIS, LT_E_SHAPE, "stat_factor: matrix [4,3] of matrix, dimension 1, whose size is 3"},
        {DTYPE, LT_E_UNSUPPORTED, "optim-stats: matrix of f64 and basis of f32: want f64"},
        {RULE, LT_E_ARG, "halves: rule 12 of matrix is no lt_optim_rule"},
        {BLOCK_RULE, LT_E_ARG, "halves: rule 12 of matrix is no lt_optim_rule"},
    };
    const lt_device_config config = {.f64 = true, .threads = 1};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        problem p = {.steps = EVERY, .every = EVERY, .make = make_halves};
        mistake = rows[i].mistake;
        assert_ok(lt_device_open(&p.at.device, "ref", &config));
        assert_fails(run_problem(&p), rows[i].status, rows[i].text);
        stop(&p);
    }
    mistake = CORRECT;
}

int main(void)
{
    struct CMUnitTest tests[8 + COUNT_OF(rules)] = {
        cmocka_unit_test(adam_has_the_ratio_of_its_moments),
        cmocka_unit_test(lars_has_its_trust_ratio),
        cmocka_unit_test(shampoo_has_spectra_and_grafting_ratios),
        cmocka_unit_test(roots_by_iterations_have_a_residual),
        cmocka_unit_test(spectra_are_of_the_trace_scaled_factors),
        cmocka_unit_test(soap_has_the_off_diagonal_share_of_its_last_basis),
        cmocka_unit_test(muon_has_the_singular_values_of_its_update),
        cmocka_unit_test(an_optimizer_outside_takes_part),
        cmocka_unit_test(mistakes_of_an_optimizer_are_named),
    };
    size_t count = 8;
    for (size_t i = 0; i < COUNT_OF(rules); i++)
        tests[count++] = row_test(rules[i].name, the_rule_is_the_one_of_the_update, &rules[i]);
    return _cmocka_run_group_tests("stats_factors", tests, count, NULL, NULL);
}
