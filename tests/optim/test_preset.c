/* Shampoo's presets, and the report on its blocks. */

#include "fixture.h"

#include "lather/detail/shampoo_report.h"

#include <limits.h>
#include <string.h>

/* Source: the release of 2023 and the defaults of its present version (arXiv 2309.06497 and its
 * implementation), and Vyas et al. 2024, section 5. */
static void presets_are_what_their_sources_say(void **state)
{
    (void)state;
    lt_shampoo_config c;
    assert_ok(lt_shampoo_preset("paper", &c));
    assert_int_equal(c.grafting, LT_GRAFTING_ADAGRAD);
    assert_near(c.grafting_epsilon, 1e-3, 0);
    assert_near(c.beta2, 1, 0);
    assert_int_equal(c.merge_order, LT_MERGE_FORWARD);
    assert_int_equal(c.epsilon_rule, LT_EPSILON_AFTER);
    assert_int_equal(c.tolerated_failures, INT_MAX);
    assert_ok(lt_shampoo_preset("reference", &c));
    assert_int_equal(c.grafting, LT_GRAFTING_NONE);
    assert_int_equal(c.merge_order, LT_MERGE_BACKWARD);
    assert_int_equal(c.epsilon_rule, LT_EPSILON_BEFORE);
    assert_near(c.epsilon, 1e-12, 0);
    assert_int_equal(c.precondition_frequency, 1);
    assert_int_equal(c.tolerated_failures, 3);
    assert_ok(lt_shampoo_preset("soap", &c));
    assert_false(c.inverse_exponent.set[2][0]);
    assert_int_equal(c.preconditioner, LT_PRECONDITIONER_CORRECTED);
    assert_near(c.beta1, 0.95, 0);
    assert_near(c.beta2, 0.95, 0);
    assert_int_equal(c.precondition_frequency, 10);
    assert_true(c.diagonal_vectors);
}

/* The first update of a 2 x 2 parameter without grafting: A^-e G B^-e of factors A = G G^T and B = G^T G.
 * For G = diag(4, 1) it is diag(4^(1 - 4e), 1): with e = 1/2, diag(1/4, 1); with 1/4 the identity. A
 * vector's exponent is always 1/2: g / |g| elementwise. */
static void transformer_takes_square_roots_of_matrices(void **state)
{
    (void)state;
    static const double g[4] = {4, 0, 0, 1};
    for (int fourth = 0; fourth < 2; fourth++) {
        lt_shampoo_config c;
        fixture f;
        double w[4], b[2];
        fixture_open(&f, true);
        lt_param *p = fixture_add(&f, "w", LT_SHAPE(2, 2)), *q = fixture_add(&f, "b", LT_SHAPE(2));
        put_grad(p, g);
        put_grad(q, (double[]){4, -1});
        assert_ok(lt_shampoo_preset("transformer", &c));
        if (fourth) /* the control: the result of 1/(2*order) */
            c.inverse_exponent = (lt_exponents){0};
        c.grafting = LT_GRAFTING_NONE;
        c.precondition_frequency = 1;
        c.weight_decay = 0;
        c.epsilon = 1e-12;
        c.root_solver = LT_ROOT_EIGH;
        assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
        fixture_step(&f, 1);
        get(p->value, w);
        get(q->value, b);
        assert_near(w[0], fourth ? -1 : -0.25, 1e-6);
        assert_near(w[3], -1, 1e-6);
        assert_near(b[0], -1, 1e-6);
        assert_near(b[1], 1, 1e-6);
        fixture_close(&f);
    }
}

static void presets_can_be_used(void **state)
{
    (void)state;
    static const char *const names[] = {"paper", "reference", "recommended", "transformer", "soap"};
    static const double g[6] = {1, -2, 3, -4, 5, -6};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        lt_shampoo_config c;
        fixture f;
        double w[6];
        fixture_open(&f, true);
        lt_param *p = fixture_add(&f, "w", LT_SHAPE(2, 3));
        put_grad(fixture_add(&f, "b", LT_SHAPE(2)), g);
        put_grad(p, g);
        assert_ok(lt_shampoo_preset(names[i], &c));
        c.precondition_frequency = 1;
        assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
        fixture_step(&f, 0.1);
        fixture_step(&f, 0.1);
        get(p->value, w);
        double along = 0; /* downhill */
        for (int k = 0; k < 6; k++)
            along += w[k] * g[k];
        assert_true(along < -0.1);
        fixture_close(&f);
    }
}

static void an_unknown_preset_is_refused_by_name(void **state)
{
    (void)state;
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    assert_status(lt_shampoo_preset("sope", &c), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "'sope'; the nearest is 'soap'"));
    assert_non_null(strstr(lt_error_message(), "recommended"));
    assert_near(c.beta1, 0.9, 0); /* untouched */
}

/* [5,3] in blocks of at most 4: [4,3] and [1,3]; and a diagonal vector. */
static void the_report_adds_up(void **state)
{
    (void)state;
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    lt_shampoo_block b[3], past;
    c.max_preconditioner_dim = 4;
    c.diagonal_vectors = true;
    c.momentum = 0.9;
    fixture f;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(5, 3));
    fixture_add(&f, "v", LT_SHAPE(4));
    assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
    int64_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(b); i++) {
        assert_ok(lt_shampoo_block_at(f.optim, i, &b[i]));
        bytes += b[i].state_bytes;
        assert_true(b[i].step_ns > 0);
    }
    assert_int_equal(lt_shampoo_block_at(f.optim, COUNT_OF(b), &past), LT_END);
    assert_int_equal(bytes, (int64_t)lt_optim_state_bytes(f.optim));
    assert_int_equal(b[0].factors, 2);
    assert_int_equal(b[0].factor_bytes, 2 * (16 + 9) * (int64_t)sizeof(double));
    assert_int_equal(b[1].block, 1);
    assert_string_equal(b[2].param, "v");
    assert_int_equal(b[2].factors, 0);
    assert_int_equal(b[2].factor_bytes, 4 * (int64_t)sizeof(double));
    assert_near(b[2].refresh_ns, 0, 0);
    assert_near(b[0].refresh_ns / b[1].refresh_ns, (64 + 27) / (1.0 + 27), 1e-12);
    fixture_close(&f);
}

static void others_have_no_blocks(void **state)
{
    (void)state;
    fixture f;
    lt_shampoo_block b;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2));
    assert_ok(lt_optim_adagrad(&f.optim, &f.list, NULL));
    assert_status(lt_shampoo_block_at(f.optim, 0, &b), LT_E_ARG);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_what_their_sources_say),
        cmocka_unit_test(transformer_takes_square_roots_of_matrices),
        cmocka_unit_test(presets_can_be_used),
        cmocka_unit_test(an_unknown_preset_is_refused_by_name),
        cmocka_unit_test(the_report_adds_up),
        cmocka_unit_test(others_have_no_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
