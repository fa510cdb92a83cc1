/* Prodigy: the distance that it finds, numbers of threads, and rejected settings. Its formula is compared in
 * replay_matrix.py. */

#include "makers.h"
#include "tensor/tensor.h"

#include "lather/ext/optim.h"

#include <string.h>

enum { COUNT = 40000, SMALL = 40, STEPS = 300 };
static double value[COUNT], grad[COUNT], one[COUNT];

static void open_on(fixture *f, const char *kind, int threads, int count)
{
    memset(f, 0, sizeof *f);
    assert_ok(lt_device_open(&f->device, kind, &(lt_device_config){.threads = threads}));
    fixture_add(f, "w", LT_SHAPE(count));
    for (int i = 0; i < count; i++)
        value[i] = 0;
    put(f->param[0].value, value);
    assert_ok(lt_optim_prodigy(&f->optim, &f->list, NULL));
}

/* A step on the sum of |w_i - target_i|, whose solution is at distance 2 along each element. */
static void step(fixture *f, int count)
{
    get(f->param[0].value, value);
    for (int i = 0; i < count; i++)
        grad[i] = value[i] - (i % 2 ? 2 : -2) > 0 ? 1 : -1;
    put_grad(&f->param[0], grad);
    fixture_step(f, 1);
}

static lt_status skip_entry(void *context, const lt_state_entry *entry)
{
    (void)context, (void)entry;
    return LT_OK;
}

static lt_status read_d(void *context, const char *name, int64_t *bits)
{
    if (!strcmp(name, "d_bits"))
        memcpy(context, bits, sizeof *bits);
    return LT_OK;
}

static void the_distance_is_found_from_below(void **state)
{
    (void)state;
    fixture f;
    double d = 0, before = 1e-6;
    lt_state_visitor visitor = {skip_entry, read_d, &d};
    open_on(&f, "cpu", 1, SMALL);
    for (int t = 1; t <= STEPS; t++) {
        step(&f, SMALL);
        assert_ok(lt_optim_visit(f.optim, &visitor));
        assert_true(d >= before && d <= 2);
        before = d;
    }
    assert_true(d > 0.02); /* from 1e-6 */
    get(f.param[0].value, value);
    for (int i = 0; i < SMALL; i++)
        assert_near(value[i], i % 2 ? 2 : -2, 0.25);
    fixture_close(&f);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads += 3) {
        fixture f;
        open_on(&f, "cpu", threads, COUNT);
        for (int t = 1; t <= 20; t++)
            step(&f, COUNT);
        get(f.param[0].value, value);
        if (threads > 1)
            assert_memory_equal(value, one, sizeof one);
        memcpy(one, value, sizeof one);
        fixture_close(&f);
    }
}

static void what_it_cannot_do_is_rejected(void **state)
{
    (void)state;
    fixture f;
    lt_optim *o = NULL;
    lt_prodigy_config c = LT_PRODIGY_DEFAULTS;
    open_on(&f, "ref", 1, SMALL);
    c.d0 = 0;
    assert_status(lt_optim_prodigy(&o, &f.list, &c), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "d0 0 is not in [1e-12,inf)"));
    const lt_backend *host = f.device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    f.device->backend = &far;
    assert_status(lt_optim_prodigy(&o, &f.list, NULL), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "prodigy: device ref: sums are in host memory"));
    f.device->backend = host;
    fixture_close(&f);
}

static void a_gradient_in_another_order_is_rejected(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f, false);
    lt_param *p = fixture_add(&f, "kernel", LT_SHAPE(2, 3, 2, 2)); /* channels-last */
    lt_tensor_free(&p->grad);
    assert_ok(lt_tensor_new(&p->grad, f.device, LT_F32, LT_SHAPE(2, 3, 2, 2)));
    assert_ok(lt_tensor_fill(p->grad, 1));
    p->has_grad = true;
    assert_ok(lt_optim_prodigy(&f.optim, &f.list, NULL));
    assert_fails(lt_optim_step(f.optim, &(lt_step){.lr = 1, .attempt = 1}), LT_E_UNSUPPORTED,
                 "prodigy: the gradient of kernel has other strides than it");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_distance_is_found_from_below),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(what_it_cannot_do_is_rejected),
        cmocka_unit_test(a_gradient_in_another_order_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
