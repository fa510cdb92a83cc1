/* Initial values: moments, bounds, and that they depend only on seed and name. */

#include "lather/init.h"

#include "base/parallel.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/module.h"

#include <string.h>

enum { K = 64, IN = 32, TAPS = 3, COUNT = K * IN * TAPS * TAPS };

typedef struct moments {
    double mean, variance, smallest, largest;
} moments;

static lt_param make(const char *name)
{
    lt_param p;
    assert_ok(lt_param_init(&p, device, name, "weight", LT_SHAPE(K, IN, TAPS, TAPS), 0));
    return p;
}

static void read_all(const lt_param *p, float *host)
{
    assert_ok(lt_tensor_read(p->value, host, COUNT * sizeof *host));
}

static moments measure(const lt_param *p)
{
    static float host[COUNT];
    moments m = {.smallest = (double)host[0], .largest = (double)host[0]};
    read_all(p, host);
    for (int i = 0; i < COUNT; i++) {
        m.mean += (double)host[i] / COUNT;
        m.smallest = fmin(m.smallest, (double)host[i]);
        m.largest = fmax(m.largest, (double)host[i]);
    }
    for (int i = 0; i < COUNT; i++)
        m.variance += ((double)host[i] - m.mean) * ((double)host[i] - m.mean) / COUNT;
    return m;
}

/* The mean of n values of deviation s has deviation s / sqrt(n), their variance s^2 sqrt(2 / n); four of
 * those are allowed. */
static void kaiming_has_variance_two_over_fan_out(void **state)
{
    (void)state;
    lt_param p = make("conv1");
    assert_ok(lt_init_kaiming_fan_out(&p, 1));
    moments m = measure(&p);
    double variance = 2.0 / (K * TAPS * TAPS);
    assert_near(m.mean, 0, 4 * sqrt(variance / COUNT));
    assert_near(m.variance, variance, 4 * variance * sqrt(2.0 / COUNT));
    lt_param_clear(&p);
}

static void integers_are_not_drawn(void **state)
{
    (void)state;
    lt_param p = {.name = "steps"};
    assert_ok(lt_tensor_new(&p.value, device, LT_I64, LT_SHAPE(2)));
    assert_fails(lt_init_normal(&p, 1, 0), LT_E_ARG, "init: steps is i64, want f32 or f64");
    lt_tensor_free(&p.value);
}

static void uniform_fills_its_interval(void **state)
{
    (void)state;
    lt_param p = make("fc");
    assert_ok(lt_init_uniform(&p, 0.25, 1));
    moments m = measure(&p);
    assert_near(m.smallest, -0.25, 1e-3);
    assert_near(m.largest, 0.25, 1e-3);
    assert_true(m.smallest >= -0.25 && m.largest < 0.25);
    assert_near(m.variance, 0.25 * 0.25 / 3, 1e-3);
    lt_param_clear(&p);
}

static void values_depend_on_seed_and_name_alone(void **state)
{
    (void)state;
    static float a[COUNT], b[COUNT], c[COUNT], d[COUNT];
    lt_param p = make("conv1"), q = make("conv2");
    assert_ok(lt_init_normal(&p, 1, 7));
    read_all(&p, a);
    lt_parallel_set_threads(1);
    assert_ok(lt_init_normal(&p, 1, 7));
    read_all(&p, b);
    assert_ok(lt_init_normal(&p, 1, 8));
    read_all(&p, c);
    assert_ok(lt_init_normal(&q, 1, 7));
    read_all(&q, d);
    assert_memory_equal(a, b, sizeof a);
    assert_true(memcmp(a, c, sizeof a) != 0);
    assert_true(memcmp(a, d, sizeof a) != 0);
    lt_param_clear(&p);
    lt_param_clear(&q);
}

/* Shards of a filter [K,IN,TAPS,TAPS], whose tensors need not be 4-D. */
static void a_box_gets_its_slice_of_the_whole_parameters_values(void **state)
{
    (void)state;
    static float all[COUNT], want[COUNT], got[COUNT];
    const lt_shape logical = LT_SHAPE(K, IN, TAPS, TAPS), view = LT_SHAPE(4, K / 4, IN, 3, 3);
    lt_param whole = make("conv1");
    assert_ok(lt_init_kaiming_fan_out(&whole, 7));
    read_all(&whole, all);
    for (int dim = 0; dim < view.ndim; dim++)
        for (int part = 0; part < 3; part++) {
            lt_shard_spec spec = lt_shard_spec_even(logical, view, dim, 3, part);
            lt_shard_spec_split(&spec, 1, 5, 4 - part);
            lt_param p;
            assert_ok(lt_param_init(&p, device, "conv1", "weight",
                                    LT_SHAPE(lt_shard_spec_count(&spec)), 0));
            assert_ok(lt_param_set_shard_spec(&p, &spec));
            assert_int_equal(p.fan_out, whole.fan_out);
            assert_ok(lt_init_kaiming_fan_out(&p, 7));
            assert_ok(lt_tensor_read(p.value, got, lt_tensor_bytes(p.value)));
            lt_shard_spec_read(&spec, all, want, sizeof *want);
            assert_memory_equal(got, want, lt_tensor_bytes(p.value));
            lt_param_clear(&p);
        }
    lt_param_clear(&whole);
}

static void kaiming_of_a_vector_is_an_error(void **state)
{
    (void)state;
    lt_param p;
    assert_ok(lt_param_init(&p, device, "bn1", "bias", LT_SHAPE(8), 0));
    assert_status(lt_init_kaiming_fan_out(&p, 1), LT_E_ARG);
    lt_param_clear(&p);
}

/* A layer defined by a program, with a parameter of each kind. */
typedef struct own_layer {
    lt_module base;
    lt_param filter, matrix, gain, bias;
} own_layer;

static lt_status own_params(lt_module *self, lt_params *list)
{
    own_layer *own = (own_layer *)self;
    lt_param *const all[] = {&own->filter, &own->matrix, &own->gain, &own->bias};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        LT_TRY(lt_params_add(list, all[i]));
    return LT_OK;
}

static lt_tensor *own_forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    (void)self;
    (void)tape;
    return x;
}

static void own_destroy(lt_module *self)
{
    own_layer *own = (own_layer *)self;
    lt_param_clear(&own->filter);
    lt_param_clear(&own->matrix);
    lt_param_clear(&own->gain);
    lt_param_clear(&own->bias);
}

static bool stayed_at_half(const lt_param *p)
{
    float x[COUNT];
    assert_ok(lt_tensor_read(p->value, x, lt_tensor_bytes(p->value)));
    for (int64_t i = 0; i < lt_tensor_count(p->value); i++)
        if (x[i] < 0.5F || x[i] > 0.5F)
            return false;
    return true;
}

static void only_filters_and_matrices_of_a_model_are_drawn(void **state)
{
    static const lt_module_ops ops = {.kind = "own",
                                      .bytes = sizeof(own_layer),
                                      .forward = own_forward,
                                      .params = own_params,
                                      .destroy = own_destroy};
    (void)state;
    lt_module *m = NULL;
    assert_ok(lt_module_new(&m, &ops));
    own_layer *own = (own_layer *)m;
    assert_ok(lt_param_init(&own->filter, device, "own", "filter", LT_SHAPE(4, 3, 2, 2), 0.5));
    assert_ok(lt_param_init(&own->matrix, device, "own", "matrix", LT_SHAPE(4, 3), 0.5));
    assert_ok(lt_param_init(&own->gain, device, "own", "gain", LT_SHAPE(4, 1, 1), 0.5));
    assert_ok(
        lt_param_init_kind(&own->bias, device, "own", "bias", LT_SHAPE(4), 0.5, LT_PARAM_BIAS));
    assert_ok(lt_init_module(m, 1));
    assert_false(stayed_at_half(&own->filter));
    assert_false(stayed_at_half(&own->matrix));
    assert_true(stayed_at_half(&own->gain));
    assert_true(stayed_at_half(&own->bias));
    lt_module_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kaiming_has_variance_two_over_fan_out),
        cmocka_unit_test(integers_are_not_drawn),
        cmocka_unit_test(uniform_fills_its_interval),
        cmocka_unit_test(values_depend_on_seed_and_name_alone),
        cmocka_unit_test(a_box_gets_its_slice_of_the_whole_parameters_values),
        cmocka_unit_test(kaiming_of_a_vector_is_an_error),
        cmocka_unit_test(only_filters_and_matrices_of_a_model_are_drawn),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
