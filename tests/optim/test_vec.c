/* Vector arithmetic of lather/ext/vec.h that no optimizer of the library calls. */

#include "fixture.h"

#include "lather/ext/vec.h"

static void matrix_stands_for_a_parameter(void **state)
{
    (void)state;
    fixture f;
    double g[48], matrix[48], back[48];
    fixture_open(&f, true);
    lt_param *w = fixture_add(&f, "w", LT_SHAPE(4, 3, 2, 2)); /* channels-last */
    lt_tensor *m = NULL, *columns = NULL;
    assert_ok(lt_tensor_new(&m, f.device, LT_F64, LT_SHAPE(4, 12)));
    assert_ok(lt_tensor_new(&columns, f.device, LT_F64, LT_SHAPE(12, 4)));
    for (int i = 0; i < 48; i++)
        g[i] = i + 1;
    put(w->grad, g);
    assert_ok(lt_tensor_fill(w->value, 0));
    assert_ok(lt_vec_axpby(m, 2, w->grad, 0, NULL));
    assert_ok(lt_vec_axpby(w->value, 1, m, 1, NULL));
    get(m, matrix);
    get(w->value, back);
    for (int i = 0; i < 48; i++) {
        assert_near(matrix[i], 2 * g[i], 0);
        assert_near(back[i], 2 * g[i], 0);
    }
    assert_fails(lt_vec_axpby(columns, 1, w->grad, 0, NULL), LT_E_SHAPE,
                 "vec: shapes [4,3,2,2] and [12,4] differ");
    lt_tensor_free(&m);
    lt_tensor_free(&columns);
    fixture_close(&f);
}

/* y = a / (sqrt(b) + 0), with each of the three as a matrix or as a parameter. */
static void matrices_and_parameters_mix(void **state)
{
    (void)state;
    fixture f = {0};
    double a[48], b[48], got[48];
    assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
    lt_tensor *matrix[3] = {NULL}, *param[3] = {NULL};
    for (int k = 0; k < 3; k++) {
        const char name[] = {(char)('a' + k), 0};
        param[k] = fixture_add(&f, name, LT_SHAPE(4, 3, 2, 2))->value;
        assert_ok(lt_tensor_new(&matrix[k], f.device, LT_F32, LT_SHAPE(4, 12)));
    }
    for (int i = 0; i < 48; i++) {
        a[i] = i - 7;
        b[i] = (i + 1) * (i + 1);
    }
    for (int k = 0; k < 2; k++) {
        put(param[k], k ? b : a);
        put(matrix[k], k ? b : a);
    }
    for (int mix = 0; mix < 8; mix++) {
        lt_tensor *y = mix & 4 ? matrix[2] : param[2];
        assert_ok(lt_tensor_fill(y, 0));
        assert_ok(lt_vec_rsqrt(y, 1, mix & 1 ? matrix[0] : param[0], 1,
                               mix & 2 ? matrix[1] : param[1], 0, NULL));
        get(y, got);
        for (int i = 0; i < 48; i++)
            assert_near(got[i], a[i] / (i + 1), 1e-6);
    }
    for (int k = 0; k < 3; k++)
        lt_tensor_free(&matrix[k]);
    fixture_close(&f);
}

static void bias_is_corrected(void **state)
{
    (void)state;
    fixture f;
    const double x[3] = {1, -2, 3};
    double got[3];
    const lt_scalars scalars = {.finite = 1, .applied = 3};
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(3));
    put(p->grad, x);
    assert_ok(lt_vec_correct_bias(p->value, p->grad, 0.5, &scalars));
    get(p->value, got);
    for (int i = 0; i < 3; i++)
        assert_near(got[i], x[i] / (1 - 0.125), 1e-14);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix_stands_for_a_parameter),
        cmocka_unit_test(matrices_and_parameters_mix),
        cmocka_unit_test(bias_is_corrected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
