/* Hyperball around an optimizer: which weights keep their norm, what decays, resumes, and rejected settings. The formula
 * is compared in replay_matrix.py. */

#include "makers.h"
#include "snapshot.h"

#include "lather/cautious.h"
#include "lather/ext/optim.h"

enum { MATRIX = 12, BIAS = 5, STEPS = 5 };
static const double lr = 0.05;
static const lt_cautious_config hyperball = {.hyperball = true};

static double norm(const double *w, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += w[i] * w[i];
    return sqrt(sum);
}

static double distance(const double *a, const double *b, int count)
{
    double d[MATRIX];
    for (int i = 0; i < count; i++)
        d[i] = a[i] - b[i];
    return norm(d, count);
}

static void start(fixture *f, make_fn *make)
{
    two_params(f, make, true);
    assert_ok(lt_optim_start_cautious(f->optim, &hyperball));
}

/* The largest distance on the sphere is that of a tangent update, whose end is pulled back to it. */
static void a_matrix_keeps_its_norm(void **state)
{
    const maker *m = *state;
    double w[MATRIX], next[MATRIX];
    fixture f;
    start(&f, m->make);
    get(f.param[0].value, w);
    const double radius = norm(w, MATRIX);
    for (int t = 1; t <= STEPS; t++) {
        steps(&f, t, t);
        get(f.param[0].value, next);
        assert_near(norm(next, MATRIX), radius, 1e-12);
        assert_true(distance(next, w, MATRIX) < 1.01 * lr * radius);
        memcpy(w, next, sizeof w);
    }
    fixture_close(&f);
}

/* Vectors, and a matrix of zeros, are updated as without it; the latter keeps its decay too. */
static void other_weights_are_the_optimizers(void **state)
{
    (void)state;
    const double zeros[MATRIX] = {0};
    double with[2][MATRIX], without[2][MATRIX];
    for (int on = 0; on < 2; on++) {
        fixture f;
        two_params(&f, make_adamw, true);
        put(f.param[0].value, zeros);
        if (on)
            assert_ok(lt_optim_start_cautious(f.optim, &hyperball));
        steps(&f, 1, STEPS);
        for (int k = 0; k < 2; k++)
            get(f.param[k].value, on ? with[k] : without[k]);
        fixture_close(&f);
    }
    assert_memory_equal(with[0], without[0], sizeof *with);
    assert_memory_equal(with[1], without[1], BIAS * sizeof **with);
}

static void decay_does_not_move_a_matrix(void **state)
{
    (void)state;
    double w[2][MATRIX];
    for (int decays = 0; decays < 2; decays++) {
        lt_adam_config c = LT_ADAM_DEFAULTS;
        c.weight_decay = decays;
        fixture f;
        two_params(&f, make_adamw, true);
        lt_optim_free(&f.optim);
        assert_ok(lt_optim_adam(&f.optim, &f.list, &c));
        assert_ok(lt_optim_start_cautious(f.optim, &hyperball));
        steps(&f, 1, STEPS);
        get(f.param[0].value, w[decays]);
        fixture_close(&f);
    }
    assert_memory_equal(w[0], w[1], sizeof *w);
}

/* A resume after another norm at the start: the saved one counts. */
static void a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    static snapshot s;
    double whole[MATRIX], resumed[MATRIX], other[MATRIX];
    fixture f;
    start(&f, make_adamw);
    steps(&f, 1, 2);
    take(&s, &f, false);
    steps(&f, 3, STEPS);
    get(f.param[0].value, whole);
    fixture_close(&f);
    two_params(&f, make_adamw, true);
    for (int i = 0; i < MATRIX; i++)
        other[i] = 3;
    put(f.param[0].value, other);
    assert_ok(lt_optim_start_cautious(f.optim, &hyperball));
    f.optim->attempt = 2;
    take(&s, &f, true);
    steps(&f, 3, STEPS);
    get(f.param[0].value, resumed);
    assert_memory_equal(resumed, whole, sizeof whole);
    fixture_close(&f);
}

static void decay_that_it_replaces_is_rejected(void **state)
{
    (void)state;
    const lt_cautious_config both = {.decay = true, .hyperball = true};
    fixture f;
    two_params(&f, make_adamw, true);
    assert_status(lt_optim_start_cautious(f.optim, &both), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "hyperball replaces weight decay"));
    fixture_close(&f);
}

int main(void)
{
    struct CMUnitTest tests[MAKERS + 4];
    size_t count = 0;
    for (; count < MAKERS; count++)
        tests[count] = row_test(makers[count].name, a_matrix_keeps_its_norm, &makers[count]);
    const struct CMUnitTest single[] = {
        cmocka_unit_test(other_weights_are_the_optimizers),
        cmocka_unit_test(decay_does_not_move_a_matrix),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(decay_that_it_replaces_is_rejected),
    };
    memcpy(tests + count, single, sizeof single);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
