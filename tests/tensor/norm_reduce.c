/* Synchronised batch norm: two ranks with the same half batch must compute the statistics of the whole
 * batch. The callback plays the other rank. */

#include "near.h"

#include "lather/ops.h"

#include <string.h>

enum { N = 2, C = 3, PIXELS = 4, HALF = N * C * PIXELS };

/* Results of a run. */
typedef struct results {
    double y[HALF], dx[HALF], dgamma[C], dbeta[C], mean[C], var[C];
} results;

/* The other rank has the same values: twice the count and M2, the same mean; equal sums. */
static lt_status merge_with_a_twin(void *context, lt_norm_reduce op, lt_tensor *x)
{
    int *calls = context;
    double stats[3 * C];
    calls[op]++;
    if (op == LT_NORM_REDUCE_MEAN)
        return LT_OK;
    assert_ok(lt_tensor_read(x, stats, sizeof stats));
    for (int c = 0; c < C; c++) {
        stats[c] *= 2;
        stats[2 * C + c] *= 2;
    }
    return lt_tensor_write(x, stats, sizeof stats);
}

static lt_tensor *vector(lt_device *device, double value)
{
    lt_tensor *t = NULL;
    assert_ok(lt_tensor_new(&t, device, LT_F64, LT_SHAPE(C)));
    assert_ok(lt_tensor_fill(t, value));
    return t;
}

static lt_tensor *repeated(lt_device *device, int copies, double phase)
{
    lt_tensor *t = NULL;
    double values[2 * HALF];
    assert_ok(lt_tensor_new(&t, device, LT_F64, LT_SHAPE(copies * N, C, 2, PIXELS / 2)));
    for (int i = 0; i < copies * HALF; i++)
        values[i] = sin(phase + 1.3 * (i % HALF));
    assert_ok(lt_tensor_write(t, values, lt_tensor_bytes(t)));
    return t;
}

/* Reads the first count elements. */
static void read_first(const lt_tensor *t, double *out, size_t count)
{
    double all[2 * HALF];
    assert_non_null(t);
    assert_ok(lt_tensor_read(t, all, lt_tensor_bytes(t)));
    memcpy(out, all, count * sizeof *out);
}

static void run(int copies, lt_norm_reduce_fn *merge, int *calls, results *out)
{
    lt_device *device = NULL;
    lt_tape *tape = NULL;
    assert_ok(lt_device_open(&device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tape_new(&tape, device));
    lt_tape_on_norm_reduce(tape, merge, calls);
    lt_tape_reset(tape, LT_PASS_TRAIN);
    lt_tensor *own[] = {repeated(device, copies, 0), repeated(device, copies, 1),
                        vector(device, 1.5),         vector(device, 0.2),
                        vector(device, 0),           vector(device, 1)};
    lt_tensor *x = lt_tape_variable(tape, own[0]), *gamma = lt_tape_variable(tape, own[2]);
    lt_tensor *beta = lt_tape_variable(tape, own[3]);
    lt_batchnorm2d_args args = {gamma, beta, own[4], own[5], NULL, NULL};
    lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1};
    lt_tensor *y = lt_batchnorm2d(tape, x, args, config);
    lt_tape_keep(tape, y);
    lt_tensor *loss = lt_sum(tape, lt_mul(tape, y, own[1]), (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(tape, loss, 1));

    read_first(y, out->y, HALF);
    read_first(lt_tape_gradient(tape, x), out->dx, HALF);
    read_first(lt_tape_gradient(tape, gamma), out->dgamma, C);
    read_first(lt_tape_gradient(tape, beta), out->dbeta, C);
    read_first(own[4], out->mean, C);
    read_first(own[5], out->var, C);
    lt_tape_free(&tape);
    for (size_t i = 0; i < COUNT_OF(own); i++)
        lt_tensor_free(&own[i]);
    lt_device_close(&device);
}

static void two_ranks_see_the_whole_batch(void **state)
{
    (void)state;
    results one, two;
    int calls[2] = {0};
    run(2, NULL, NULL, &one);
    run(1, merge_with_a_twin, calls, &two);
    assert_int_equal(calls[LT_NORM_REDUCE_MOMENTS], 1);
    assert_int_equal(calls[LT_NORM_REDUCE_MEAN], 1);
    for (int i = 0; i < HALF; i++) {
        assert_near(two.y[i], one.y[i], 1e-14);
        assert_near(two.dx[i], one.dx[i], 1e-14);
    }
    for (int c = 0; c < C; c++) { /* a rank's contribution, to be summed over ranks */
        assert_near(2 * two.dgamma[c], one.dgamma[c], 1e-13);
        assert_near(2 * two.dbeta[c], one.dbeta[c], 1e-13);
        assert_near(two.mean[c], one.mean[c], 1e-15);
        assert_near(two.var[c], one.var[c], 1e-15);
    }
}

/* Control: without the callback the unbiased running variance differs. */
static void statistics_of_one_rank_differ(void **state)
{
    (void)state;
    results one, alone;
    run(2, NULL, NULL, &one);
    run(1, NULL, NULL, &alone);
    assert_false(fabs(alone.var[0] - one.var[0]) <= 1e-6);
}

static lt_status fail_to_merge(void *context, lt_norm_reduce op, lt_tensor *x)
{
    (void)context;
    (void)op;
    (void)x;
    return LT_E_COMM;
}

static void a_failed_merge_fails_the_pass(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_tape *tape = NULL;
    assert_ok(lt_device_open(&device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tape_new(&tape, device));
    lt_tape_on_norm_reduce(tape, fail_to_merge, NULL);
    lt_tape_reset(tape, LT_PASS_TRAIN);
    lt_tensor *own[] = {repeated(device, 1, 0), vector(device, 1), vector(device, 0)};
    lt_batchnorm2d_args args = {own[1], own[2], own[2], own[1], NULL, NULL};
    lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1};
    assert_null(lt_batchnorm2d(tape, own[0], args, config));
    assert_status(lt_tape_status(tape), LT_E_COMM);
    lt_tape_free(&tape);
    for (size_t i = 0; i < COUNT_OF(own); i++)
        lt_tensor_free(&own[i]);
    lt_device_close(&device);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_see_the_whole_batch),
        cmocka_unit_test(statistics_of_one_rank_differ),
        cmocka_unit_test(a_failed_merge_fails_the_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
