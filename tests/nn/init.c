/* Initial values: moments, bounds, and that they depend on seed and name alone. */

#include "lather/init.h"

#include "base/parallel.h"
#include "near.h"

#include <string.h>

enum { K = 64, IN = 32, TAPS = 3, COUNT = K * IN * TAPS * TAPS };

typedef struct moments {
    double mean, variance, smallest, largest;
} moments;

static lt_device *device;

static int setup(void **state)
{
    (void)state;
    assert_ok(lt_device_open(&device, "ref", NULL));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lt_device_close(&device);
    return 0;
}

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

/* The mean of n values of deviation s has deviation s / sqrt(n), their variance s^2 sqrt(2 / n);
 * four of those are allowed. */
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

static void kaiming_refuses_a_vector(void **state)
{
    (void)state;
    lt_param p;
    assert_ok(lt_param_init(&p, device, "bn1", "bias", LT_SHAPE(8), 0));
    assert_status(lt_init_kaiming_fan_out(&p, 1), LT_E_ARG);
    lt_param_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kaiming_has_variance_two_over_fan_out),
        cmocka_unit_test(uniform_fills_its_interval),
        cmocka_unit_test(values_depend_on_seed_and_name_alone),
        cmocka_unit_test(kaiming_refuses_a_vector),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
