/* Adafactor: bytes of state, filters in channels-last memory, numbers of threads, and rejected settings. Its formula
 * is compared in replay_matrix.py. */

#include "makers.h"
#include "tensor/tensor.h"

#include "lather/ext/optim.h"

#include <string.h>

enum {
    ROWS = 48,
    COLS = 640,
    OUT = 6,
    IN = 5,
    SIDE = 3,
    FILTER = OUT * IN * SIDE * SIDE,
    STEPS = 3
};
static double value[ROWS * COLS];

static const double *numbers(int count, int seed)
{
    for (int i = 0; i < count; i++)
        value[i] = sin(1 + seed + 1.7 * i);
    return value;
}

static void open_on(fixture *f, const char *kind, int threads)
{
    memset(f, 0, sizeof *f);
    assert_ok(lt_device_open(&f->device, kind, &(lt_device_config){.threads = threads}));
}

static void train(fixture *f, lt_param *p, int count)
{
    put(p->value, numbers(count, 0));
    assert_ok(lt_optim_adafactor(&f->optim, &f->list, NULL));
    for (int t = 1; t <= STEPS; t++) {
        put_grad(p, numbers(count, t));
        fixture_step(f, 0.05);
    }
    get(p->value, value);
}

static void a_matrix_has_a_row_and_a_column_of_state(void **state)
{
    (void)state;
    fixture f;
    open_on(&f, "cpu", 1);
    fixture_add(&f, "matrix", LT_SHAPE(ROWS, COLS));
    fixture_add(&f, "filter", LT_SHAPE(OUT, IN, SIDE, SIDE));
    fixture_add(&f, "bias", LT_SHAPE(ROWS));
    assert_ok(lt_optim_adafactor(&f.optim, &f.list, NULL));
    for (int k = 0; k < 3; k++)
        f.param[k].has_grad = true;
    fixture_step(&f, 0.05);
    assert_int_equal(lt_optim_state_bytes(f.optim),
                     sizeof(float) * (ROWS + COLS + OUT + IN * SIDE * SIDE + ROWS));
    fixture_close(&f);
}

/* Columns are in the order of dimensions, whatever the order in memory is. */
static void a_channels_last_filter_has_the_same_update(void **state)
{
    (void)state;
    static double plain[FILTER];
    const lt_shape shape = LT_SHAPE(OUT, IN, SIDE, SIDE);
    for (int last = 0; last < 2; last++) {
        fixture f;
        open_on(&f, "cpu", 1);
        lt_param *p = &f.param[0];
        if (last)
            assert_ok(lt_param_init_filter(p, f.device, "", "w", shape));
        else
            assert_ok(lt_param_init(p, f.device, "", "w", shape, 0));
        assert_ok(lt_params_add(&f.list, p));
        assert_int_equal(lt_tensor_view(p->value).stride[1] == 1, last);
        train(&f, p, FILTER);
        for (int i = 0; i < FILTER && last; i++)
            assert_near(value[i], plain[i], 1e-7);
        memcpy(plain, value, sizeof plain);
        fixture_close(&f);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    static double one[ROWS * COLS];
    for (int threads = 1; threads <= 4; threads += 3) {
        fixture f;
        open_on(&f, "cpu", threads);
        train(&f, fixture_add(&f, "w", LT_SHAPE(ROWS, COLS)), ROWS * COLS);
        if (threads > 1)
            assert_memory_equal(value, one, sizeof one);
        memcpy(one, value, sizeof one);
        fixture_close(&f);
    }
}

static void what_it_cannot_do_is_rejected(void **state)
{
    (void)state;
    static const struct {
        lt_adafactor_config c;
        const char *message;
    } rows[] = {
        {{.beta2_decay = 0.5, .update_clip = 1}, "beta2_decay 0.5 is not in [-100,0]"},
        {{.beta2_decay = -1, .update_clip = 0.5}, "update_clip 0.5 is not in [1,inf)"},
        {{.beta2_decay = -1, .update_clip = 1, .eps = -1}, "epsilon -1 is not in [0,inf)"},
    };
    fixture f;
    open_on(&f, "ref", 1);
    fixture_add(&f, "w", LT_SHAPE(ROWS, COLS));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_status(lt_optim_adafactor(&f.optim, &f.list, &rows[i].c), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), rows[i].message));
    }
    const lt_backend *host = f.device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    f.device->backend = &far;
    assert_status(lt_optim_adafactor(&f.optim, &f.list, NULL), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "adafactor: device ref: moments are factored"));
    f.device->backend = host;
    assert_ok(lt_optim_adafactor(&f.optim, &f.list, NULL));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_has_a_row_and_a_column_of_state),
        cmocka_unit_test(a_channels_last_filter_has_the_same_update),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(what_it_cannot_do_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
