/* Shampoo's settings that make it equal to another method, step for step. */

#include "fixture.h"

#include "lather/shampoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MATRIX = 12, VECTOR = 5, STEPS = 10, MOST = 72 };

static const double lr = 0.05;

/* --- A method and its equivalent --- */

typedef lt_status make_fn(lt_optim **out, const lt_params *params, double weight_decay);

static lt_status sgd(lt_optim **out, const lt_params *params, double decay)
{
    return lt_optim_sgd(out, params, &(lt_sgd_config){.weight_decay = decay});
}

static lt_status heavy_ball(lt_optim **out, const lt_params *params, double decay)
{
    const lt_sgd_config c = {.momentum = 0.9, .weight_decay = decay};
    return lt_optim_sgd(out, params, &c);
}

static lt_status nesterov(lt_optim **out, const lt_params *params, double decay)
{
    const lt_sgd_config c = {.momentum = 0.9, .nesterov = true, .weight_decay = decay};
    return lt_optim_sgd(out, params, &c);
}

static lt_status adagrad(lt_optim **out, const lt_params *params, double decay)
{
    const lt_adagrad_config c = {.eps = 1e-8, .weight_decay = decay};
    return lt_optim_adagrad(out, params, &c);
}

static lt_status adam(lt_optim **out, const lt_params *params, double decay)
{
    const lt_adam_config c = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = decay};
    return lt_optim_adam(out, params, &c);
}

static lt_status adamw(lt_optim **out, const lt_params *params, double decay)
{
    const lt_adam_config c = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = decay, .decoupled = true};
    return lt_optim_adam(out, params, &c);
}

static lt_status make(lt_optim **out, const lt_params *params, lt_shampoo_config c, double decay)
{
    c.max_preconditioner_dim = 2; /* several blocks */
    c.weight_decay = decay;
    c.decay_type = LT_DECAY_L2;
    return lt_optim_shampoo(out, params, &c);
}

/* Grafting that never ends. */
static lt_shampoo_config grafted(lt_grafting grafting)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.start_preconditioning_step = INT64_MAX;
    c.beta1 = 0;
    c.grafting = grafting;
    c.grafting_epsilon = 1e-8;
    return c;
}

static lt_status as_sgd(lt_optim **out, const lt_params *params, double decay)
{
    return make(out, params, grafted(LT_GRAFTING_SGD), decay);
}

static lt_status as_heavy_ball(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = grafted(LT_GRAFTING_SGD);
    c.momentum = 0.9;
    return make(out, params, c, decay);
}

static lt_status as_nesterov(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = grafted(LT_GRAFTING_SGD);
    c.momentum = 0.9;
    c.nesterov = true;
    return make(out, params, c, decay);
}

static lt_status as_adagrad(lt_optim **out, const lt_params *params, double decay)
{
    return make(out, params, grafted(LT_GRAFTING_ADAGRAD), decay);
}

static lt_shampoo_config adam_grafted(void)
{
    lt_shampoo_config c = grafted(LT_GRAFTING_ADAM);
    c.beta1 = 0.9;
    c.grafting_beta2 = 0.95;
    return c;
}

static lt_status as_adam(lt_optim **out, const lt_params *params, double decay)
{
    return make(out, params, adam_grafted(), decay);
}

static lt_status as_adamw(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = adam_grafted();
    c.weight_decay = decay;
    return lt_optim_shampoo(out, params, &c);
}

static lt_shampoo_config corrected(double beta1, double beta2)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.preconditioner = LT_PRECONDITIONER_CORRECTED;
    c.beta1 = beta1;
    c.beta2 = beta2;
    c.epsilon = 1e-8;
    return c;
}

static lt_status corrected_before_the_first_basis(lt_optim **out, const lt_params *params,
                                                  double decay)
{
    lt_shampoo_config c = corrected(0.9, 0.95);
    c.start_preconditioning_step = INT64_MAX;
    return make(out, params, c, decay);
}

static lt_status corrected_without_bases(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = corrected(0.9, 0.95);
    memset(c.ignored_basis_change_dims, true, sizeof c.ignored_basis_change_dims);
    return make(out, params, c, decay);
}

static lt_status corrected_sum(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = corrected(0, 1);
    memset(c.ignored_basis_change_dims, true, sizeof c.ignored_basis_change_dims);
    return make(out, params, c, decay);
}

/* The matrix becomes a vector too: 12 elements fit. */
static lt_status corrected_vectors(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = corrected(0.9, 0.95);
    c.diagonal_vectors = true;
    c.weight_decay = decay;
    c.decay_type = LT_DECAY_L2;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status off_by_little(lt_optim **out, const lt_params *params, double decay)
{
    lt_shampoo_config c = adam_grafted();
    c.grafting_epsilon = 2e-8;
    return make(out, params, c, decay);
}

typedef struct row {
    const char *name;
    make_fn *one, *other;
    bool differs; /* a control */
} row;

static const row rows[] = {
    {"grafting SGD for ever is SGD", sgd, as_sgd, false},
    {"with momentum it is SGD with momentum", heavy_ball, as_heavy_ball, false},
    {"with Nesterov's momentum too", nesterov, as_nesterov, false},
    {"grafting AdaGrad for ever is AdaGrad", adagrad, as_adagrad, false},
    {"grafting Adam for ever is Adam", adam, as_adam, false},
    {"with decoupled decay it is AdamW", adamw, as_adamw, false},
    {"eigenvalue correction before the first basis is Adam", adam, corrected_before_the_first_basis,
     false},
    {"eigenvalue correction without bases is Adam", adam, corrected_without_bases, false},
    {"with a sum it is AdaGrad", adagrad, corrected_sum, false},
    {"vectors that keep a diagonal move as Adam's", adam, corrected_vectors, false},
    {"control: Adam with another epsilon is not Adam", adam, off_by_little, true},
    {"control: SGD is not SGD with momentum", sgd, as_heavy_ball, true},
};

static void gradient(double *g, int count, int t, int k)
{
    for (int i = 0; i < count; i++)
        g[i] = sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i);
}

static void run(make_fn *make_optim, double decay, double *w)
{
    fixture f;
    double value[MATRIX];
    fixture_open(&f, true);
    fixture_add(&f, "matrix", LT_SHAPE(3, 4));
    fixture_add(&f, "vector", LT_SHAPE(VECTOR));
    for (int k = 0; k < 2; k++) {
        gradient(value, MATRIX, 0, k);
        put(f.param[k].value, value);
    }
    assert_ok(make_optim(&f.optim, &f.list, decay));
    for (int t = 1; t <= STEPS; t++) {
        for (int k = 0; k < 2; k++) {
            gradient(value, MATRIX, t, k);
            put_grad(&f.param[k], value);
        }
        fixture_step(&f, lr);
    }
    get(f.param[0].value, w);
    get(f.param[1].value, w + MATRIX);
    fixture_close(&f);
}

static void is_the_same(void **state)
{
    const row *r = *state;
    static const double decays[] = {0, 0.3};
    for (size_t d = 0; d < COUNT_OF(decays); d++) {
        double a[MATRIX + VECTOR], b[MATRIX + VECTOR], worst = 0;
        run(r->one, decays[d], a);
        run(r->other, decays[d], b);
        for (int i = 0; i < MATRIX + VECTOR; i++) {
            double error = fabs(a[i] - b[i]);
            worst = error <= worst ? worst : error;
        }
        if ((worst <= 1e-13) == r->differs)
            fail_msg("decay %g: apart by %g", decays[d], worst);
    }
}

/* --- RMSprop, which the library has as an example only --- */

static void grafting_rmsprop_for_ever_is_rmsprop(void **state)
{
    (void)state;
    lt_shampoo_config c = grafted(LT_GRAFTING_RMSPROP);
    double w[VECTOR], g[VECTOR], v[VECTOR] = {0}, got[VECTOR];
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(VECTOR));
    gradient(w, VECTOR, 0, 0);
    put(p->value, w);
    assert_ok(make(&f.optim, &f.list, c, 0));
    for (int t = 1; t <= STEPS; t++) {
        gradient(g, VECTOR, t, 0);
        put_grad(p, g);
        fixture_step(&f, lr);
        for (int i = 0; i < VECTOR; i++) {
            v[i] = 0.99 * v[i] + 0.01 * g[i] * g[i];
            w[i] -= lr * g[i] / (sqrt(v[i]) + 1e-8);
        }
    }
    get(p->value, got);
    for (int i = 0; i < VECTOR; i++)
        assert_near(got[i], w[i], 1e-13);
    fixture_close(&f);
}

/* --- A dimension without a factor equals one whose root is the identity --- */

static const int skipped[] = {0, 2, 4};

static bool is_skipped(int dim)
{
    for (size_t i = 0; i < COUNT_OF(skipped); i++)
        if (skipped[i] == dim)
            return true;
    return false;
}

static lt_status set_identity(void *context, const lt_state_entry *entry)
{
    int dim;
    (void)context;
    if (sscanf(entry->name, "root.%d", &dim) != 1 || !is_skipped(dim))
        return LT_OK;
    double identity[9] = {0};
    for (int64_t i = 0, n = entry->extent.dim[0]; i < n; i++)
        identity[i * n + i] = 1;
    put(entry->tensor, identity);
    return LT_OK;
}

/* Roots at step 2, an update with lr 1 at step 3. */
static void move_of_order_5(bool leave_alone, double *out)
{
    const lt_shape shape = {5, {2, 3, 2, 2, 3}};
    const double zero[MOST] = {0};
    double g[MOST];
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.beta1 = 0;
    c.epsilon = 1e-3;
    c.precondition_frequency = 2;
    c.target_dimensionality = LT_NO_LIMIT;
    for (size_t i = 0; i < COUNT_OF(skipped) && leave_alone; i++)
        c.inverse_exponent.set[5][skipped[i]] = true;
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", shape);
    assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
    for (int t = 1; t <= 2; t++) {
        gradient(g, MOST, t, 0);
        put_grad(p, g);
        fixture_step(&f, 0);
    }
    lt_state_visitor visitor = {set_identity, ignore_number, NULL};
    if (!leave_alone)
        assert_ok(lt_optim_visit(f.optim, &visitor));
    gradient(g, MOST, 3, 0);
    put_grad(p, g);
    put(p->value, zero);
    fixture_step(&f, 1);
    get(p->value, out);
    fixture_close(&f);
}

static void a_skipped_dimension_has_the_identity_as_root(void **state)
{
    (void)state;
    double a[MOST], b[MOST], moved = 0;
    move_of_order_5(true, a);
    move_of_order_5(false, b);
    for (int i = 0; i < MOST; i++) {
        assert_near(a[i], b[i], 1e-13);
        moved += fabs(a[i]);
    }
    assert_true(moved > 1);
}

int main(void)
{
    enum { R = COUNT_OF(rows) };
    struct CMUnitTest tests[R + 2];
    for (size_t i = 0; i < R; i++)
        tests[i] = row_test(rows[i].name, is_the_same, &rows[i]);
    tests[R] = (struct CMUnitTest)cmocka_unit_test(grafting_rmsprop_for_ever_is_rmsprop);
    tests[R + 1] =
        (struct CMUnitTest)cmocka_unit_test(a_skipped_dimension_has_the_identity_as_root);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
