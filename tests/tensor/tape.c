/* The tape: lifetime of memory, accumulation, recomputation, hooks, and failures. */

#include "base/alloc.h"
#include "near.h"
#include "net.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

enum { CONV1_COUNT = 4 * 3 * 9, MAX_ELEMENTS = 1024 };

static void open_net(net *n, bool f64)
{
    assert_ok(net_open(n, "ref", &(lt_device_config){.f64 = f64}));
}

static int set_up(void **state)
{
    static net n;
    open_net(&n, true);
    *state = &n;
    return 0;
}

static int tear_down(void **state)
{
    net_close(*state);
    return 0;
}

#define ON_NET(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void read_f64(const lt_tensor *t, double *out)
{
    assert_true(lt_tensor_count(t) <= MAX_ELEMENTS);
    assert_ok(lt_tensor_read(t, out, lt_tensor_bytes(t)));
}

static void backward_frees_memory(void **state)
{
    net *n = *state;
    double values[MAX_ELEMENTS];
    size_t before = lt_device_memory(n->device).used;
    assert_ok(net_step(n, LT_PASS_TRAIN));
    size_t left = lt_device_memory(n->device).used - before;
    assert_true(left <= 256); /* the loss */
    assert_status(lt_tensor_read(n->hidden, values, lt_tensor_bytes(n->hidden)), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "freed"));
    assert_ok(lt_tensor_read(n->loss, values, sizeof(double)));
    lt_tape_reset(n->tape, LT_PASS_TRAIN);
    assert_int_equal(lt_device_memory(n->device).used, before);
}

/* Its input exists, but batch norm's saved tensors were freed. */
static void an_operation_on_a_freed_output_fails(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_tape *t = NULL;
    lt_tensor *x = NULL, *c = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_tape_new(&t, device));
    assert_ok(lt_tensor_new_as(&x, device, LT_F32, LT_SHAPE(2, 3, 2, 2), LT_FORMAT_CHANNELS_LAST));
    assert_ok(lt_tensor_new(&c, device, LT_F32, LT_SHAPE(3)));
    lt_tape_reset(t, LT_PASS_TRAIN);
    lt_tensor *y =
        lt_batchnorm2d(t, lt_tape_variable(t, x), (lt_batchnorm2d_args){c, c, c, c, NULL, NULL},
                       (lt_batchnorm2d_config){.eps = 1e-5});
    lt_tensor *loss = lt_sum(t, y, (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(t, loss, 1));
    assert_null(lt_relu(t, y));
    assert_status(lt_tape_status(t), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "batchnorm2d: its output"));
    assert_non_null(strstr(lt_error_message(), "lt_tape_keep()"));
    lt_tape_free(&t);
    lt_tensor_free(&x);
    lt_tensor_free(&c);
    lt_device_close(&device);
}

static void a_freed_tensor_is_refused(void **state)
{
    net *n = *state;
    lt_tensor *hits = NULL, *like = NULL, *x = NULL;
    assert_ok(lt_tensor_new(&hits, n->device, LT_I64, LT_SHAPE(2)));
    assert_ok(net_step(n, LT_PASS_TRAIN));
    assert_ok(lt_tensor_new_like(&like, n->logits, LT_F64));
    assert_fails(lt_tensor_fill(n->logits, 1), LT_E_ARG, "tensor: fill of a freed tensor");
    assert_fails(lt_tensor_copy(like, n->logits), LT_E_ARG, "tensor: copy of a freed tensor");
    assert_fails(lt_topk_hits(n->logits, n->labels, hits), LT_E_ARG,
                 "topk_hits: the logits were freed");
    assert_ok(lt_tensor_new(&x, n->device, LT_F64, LT_SHAPE(2, 3)));
    lt_tape_reset(n->tape, LT_PASS_EVAL);
    lt_tensor *y = lt_softmax(n->tape, x);
    lt_tape_drop(n->tape, y);
    assert_null(lt_add(n->tape, x, y));
    assert_fails(lt_tape_status(n->tape), LT_E_ARG,
                 "add: input 1 was freed, because it was dropped");
    lt_tensor_free(&x);
    lt_tensor_free(&like);
    lt_tensor_free(&hits);
}

/* As sharded gradients leave those of other ranks. */
static void a_gradient_without_memory_takes_no_more(void **state)
{
    net *n = *state;
    assert_ok(net_step(n, LT_PASS_TRAIN));
    lt_tensor_free_memory(n->fc.grad);
    net_forward(n, LT_PASS_TRAIN);
    char message[128];
    snprintf(message, sizeof message,
             "backward: the gradient of %s was reduced to its owner ranks; call "
             "lt_params_zero_grad()",
             n->fc.name);
    assert_fails(lt_tape_backward(n->tape, n->loss, 1), LT_E_ARG, message);
}

static void transfers_that_do_not_fit_are_refused(void **state)
{
    net *n = *state;
    lt_tensor *a = NULL, *b = NULL;
    double value, values[6] = {0};
    assert_ok(lt_tensor_new(&a, n->device, LT_F64, LT_SHAPE(2, 3)));
    assert_ok(lt_tensor_new(&b, n->device, LT_F64, LT_SHAPE(3, 2)));
    assert_fails(lt_tensor_write(a, values, 40), LT_E_ARG,
                 "tensor: got 40 bytes of host memory for f64 [2,3], want 48");
    assert_fails(lt_tensor_read(a, values, 8), LT_E_ARG,
                 "tensor: got 8 bytes of host memory for f64 [2,3], want 48");
    assert_fails(lt_tensor_copy(a, b), LT_E_SHAPE,
                 "tensor: cannot copy [3,2] to [2,3]: the shapes differ");
    assert_fails(lt_tensor_item(b, &value), LT_E_SHAPE,
                 "tensor: item needs one element, got [3,2]");
    lt_tensor_free(&a);
    lt_tensor_free(&b);
}

static void a_kept_tensor_is_readable_after_backward(void **state)
{
    net *n = *state;
    double before[MAX_ELEMENTS], after[MAX_ELEMENTS];
    net_forward(n, LT_PASS_TRAIN);
    lt_tape_keep(n->tape, n->logits);
    lt_tape_keep(n->tape, NULL);
    read_f64(n->logits, before);
    assert_ok(lt_tape_backward(n->tape, n->loss, 1));
    read_f64(n->logits, after);
    assert_memory_equal(before, after, lt_tensor_bytes(n->logits));
}

static void a_dropped_tensor_is_freed_at_once_in_evaluation(void **state)
{
    net *n = *state;
    double values[MAX_ELEMENTS];
    net_forward(n, LT_PASS_EVAL);
    size_t used = lt_device_memory(n->device).used;
    lt_tape_drop(n->tape, n->hidden);
    assert_true(lt_device_memory(n->device).used < used);
    assert_status(lt_tensor_read(n->hidden, values, lt_tensor_bytes(n->hidden)), LT_E_ARG);
}

static void the_second_step_reserves_no_memory(void **state)
{
    net *n = *state;
    assert_ok(net_step(n, LT_PASS_TRAIN));
    size_t reserved = lt_device_memory(n->device).reserved;
    for (int i = 0; i < 3; i++)
        assert_ok(net_step(n, LT_PASS_TRAIN));
    assert_int_equal(lt_device_memory(n->device).reserved, reserved);
}

static void two_backward_passes_accumulate(void **state)
{
    net *n = *state;
    double once[MAX_ELEMENTS], twice[MAX_ELEMENTS], fresh[MAX_ELEMENTS];
    assert_ok(net_step(n, LT_PASS_TRAIN));
    read_f64(n->conv1.grad, once);
    net_forward(n, LT_PASS_TRAIN);
    assert_ok(lt_tape_backward(n->tape, n->loss, 2));
    read_f64(n->conv1.grad, twice);
    for (int i = 0; i < CONV1_COUNT; i++)
        assert_near(twice[i], 3 * once[i], 1e-14 * (1 + fabs(once[i])));
    assert_ok(net_step(n, LT_PASS_TRAIN)); /* zero_grad: overwrites */
    read_f64(n->conv1.grad, fresh);
    assert_memory_equal(fresh, once, sizeof(double) * CONV1_COUNT);
}

static void recompute_changes_no_bit_but_needs_less_memory(void **state)
{
    (void)state;
    double kept[MAX_ELEMENTS], again[MAX_ELEMENTS], stats[2][4];
    size_t peak[2];
    for (int i = 0; i < 2; i++) {
        net n;
        open_net(&n, true);
        lt_pass pass = LT_PASS_TRAIN;
        pass.recompute = i ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
        lt_params_zero_grad(&n.params);
        net_forward(&n, pass);
        lt_tape_drop(n.tape, n.hidden);
        peak[i] = lt_device_memory(n.device).used;
        assert_ok(lt_tape_backward(n.tape, n.loss, 1));
        read_f64(n.conv1.grad, i ? again : kept);
        read_f64(n.mean1.value, stats[i]);
        net_close(&n);
    }
    assert_memory_equal(kept, again, sizeof(double) * CONV1_COUNT);
    assert_memory_equal(stats[0], stats[1], sizeof stats[0]); /* updated once, not twice */
    assert_true(peak[1] < peak[0]);
}

static void statistics_change_in_training_only(void **state)
{
    net *n = *state;
    double before[4], after[4];
    read_f64(n->var1.value, before);
    net_forward(n, LT_PASS_EVAL);
    read_f64(n->var1.value, after);
    assert_memory_equal(before, after, sizeof before);
    net_forward(n, LT_PASS_TRAIN);
    read_f64(n->var1.value, after);
    for (int c = 0; c < 4; c++)
        assert_true(after[c] != before[c]);
}

typedef struct finals {
    const net *n;
    int calls[8];
    double conv1[CONV1_COUNT];
} finals;

static void note_final(void *context, lt_param *param)
{
    finals *f = context;
    for (size_t i = 0; i < f->n->params.count; i++)
        f->calls[i] += f->n->params.item[i] == param;
    if (param == &f->n->conv1)
        read_f64(param->grad, f->conv1);
}

static void the_hook_runs_once_per_parameter_with_its_complete_gradient(void **state)
{
    net *n = *state;
    finals f = {.n = n};
    double complete[MAX_ELEMENTS];
    lt_tape_on_grad_ready(n->tape, note_final, &f);
    assert_ok(net_step(n, LT_PASS_TRAIN));
    for (int i = 0; i < 8; i++)
        assert_int_equal(f.calls[i], 1);
    read_f64(n->conv1.grad, complete);
    assert_memory_equal(f.conv1, complete, sizeof f.conv1);
}

/* p * p + p: one parameter, three uses. */
static void a_parameter_used_three_times_has_one_complete_gradient(void **state)
{
    net *n = *state;
    finals f = {.n = n};
    double p[MAX_ELEMENTS], g[MAX_ELEMENTS];
    lt_tape_on_grad_ready(n->tape, note_final, &f);
    lt_params_zero_grad(&n->params);
    lt_tape_reset(n->tape, LT_PASS_TRAIN);
    lt_tensor *w = lt_tape_param(n->tape, &n->conv1);
    lt_tensor *y = lt_add(n->tape, lt_mul(n->tape, w, lt_tape_param(n->tape, &n->conv1)), w);
    assert_ok(lt_tape_backward(n->tape, lt_sum(n->tape, y, (lt_reduce_config){.dims = 0}), 1));
    read_f64(n->conv1.value, p);
    read_f64(n->conv1.grad, g);
    for (int i = 0; i < CONV1_COUNT; i++)
        assert_near(g[i], 2 * p[i] + 1, 1e-15);
    assert_int_equal(f.calls[0], 1);
    assert_memory_equal(f.conv1, g, sizeof f.conv1);
}

static void a_frozen_parameter_gets_no_gradient(void **state)
{
    net *n = *state;
    double with[MAX_ELEMENTS], without[MAX_ELEMENTS];
    assert_ok(net_step(n, LT_PASS_TRAIN));
    read_f64(n->fc.grad, with);
    n->conv2.frozen = true;
    assert_ok(net_step(n, LT_PASS_TRAIN));
    read_f64(n->fc.grad, without);
    assert_false(n->conv2.has_grad);
    assert_true(n->conv1.has_grad);
    assert_memory_equal(with, without, lt_tensor_bytes(n->fc.grad));
}

static void a_variable_that_loss_does_not_depend_on_has_no_gradient(void **state)
{
    net *n = *state;
    lt_tape_reset(n->tape, LT_PASS_TRAIN);
    lt_tensor *a = lt_tape_variable(n->tape, n->x), *b = lt_tape_variable(n->tape, n->fc.value);
    lt_tensor *loss = lt_sum(n->tape, a, (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(n->tape, loss, 1));
    assert_non_null(lt_tape_gradient(n->tape, a));
    assert_null(lt_tape_gradient(n->tape, b));
}

static void draw_dropout(net *n, lt_pass pass, bool second, double *out)
{
    lt_tape_reset(n->tape, pass);
    lt_tensor *y = lt_dropout(n->tape, n->x, 0.25);
    if (second)
        y = lt_dropout(n->tape, n->x, 0.25);
    read_f64(y, out);
}

static void dropout_depends_on_seed_attempt_micro_batch_and_operation(void **state)
{
    net *n = *state;
    double first[MAX_ELEMENTS], other[MAX_ELEMENTS];
    size_t bytes = lt_tensor_bytes(n->x);
    lt_pass pass = LT_PASS_TRAIN, passes[4];
    for (int i = 0; i < 4; i++)
        passes[i] = pass;
    passes[0].seed = 1;
    passes[1].attempt = 1;
    passes[2].micro = 1;
    draw_dropout(n, pass, false, first);
    draw_dropout(n, pass, false, other);
    assert_memory_equal(first, other, bytes);
    for (int i = 0; i < 4; i++) {
        draw_dropout(n, passes[i], i == 3, other);
        assert_memory_not_equal(first, other, bytes);
    }
}

typedef lt_tensor *drop_fn(lt_tape *t, lt_tensor *x, double p);

/* From 3 in every element: the elements of a sample become 4, or all 0. */
static void check_zeroed(net *n, drop_fn *drop, int samples, int each)
{
    lt_tensor *x = NULL;
    double *y = lt_alloc((size_t)samples * (size_t)each, sizeof *y);
    assert_ok(lt_tensor_new(&x, n->device, LT_F64, LT_SHAPE(samples, each)));
    assert_ok(lt_tensor_fill(x, 3));
    lt_tape_reset(n->tape, LT_PASS_TRAIN);
    assert_ok(lt_tensor_read(drop(n->tape, x, 0.25), y, lt_tensor_bytes(x)));
    int zeros = 0;
    for (int i = 0; i < samples * each; i++) {
        zeros += y[i] == 0;
        assert_true(y[i] == 0 || fabs(y[i] - 4) < 1e-15 * 4);
        assert_true(i % each == 0 || y[i] == y[i - 1]);
    }
    assert_near((double)zeros / (samples * each), 0.25, 5 * sqrt(0.25 * 0.75 / samples));
    assert_ptr_equal(drop(n->tape, x, 0), x);
    lt_tape_reset(n->tape, LT_PASS_EVAL);
    assert_ptr_equal(drop(n->tape, x, 0.25), x);
    lt_tape_reset(n->tape, LT_PASS_TRAIN);
    lt_tensor_free(&x);
    lt_free(y);
}

static void dropout_zeroes_a_quarter_and_scales_the_rest(void **state)
{
    check_zeroed(*state, lt_dropout, 20000, 1);
}

static void drop_path_zeroes_whole_samples_and_scales_the_rest(void **state)
{
    check_zeroed(*state, lt_drop_path, 2000, 3);
}

static void sixteen_bit_gradients_are_near_and_parameters_keep_theirs_in_f32(void **state)
{
    (void)state;
    net n;
    open_net(&n, false);
    float want[MAX_ELEMENTS], got[MAX_ELEMENTS], top = 0;
    lt_pass pass = LT_PASS_TRAIN;
    pass.dropout = false;
    assert_ok(net_step(&n, pass));
    assert_ok(lt_tensor_read(n.conv2.grad, want, lt_tensor_bytes(n.conv2.grad)));
    pass.dtype = LT_BF16;
    assert_ok(net_step(&n, pass));
    assert_int_equal(lt_tensor_dtype(n.conv2.grad), LT_F32);
    assert_ok(lt_tensor_read(n.conv2.grad, got, lt_tensor_bytes(n.conv2.grad)));
    int64_t count = lt_tensor_count(n.conv2.grad);
    for (int64_t i = 0; i < count; i++)
        top = fmaxf(top, fabsf(want[i]));
    int apart = 0; /* one or more roundings: 2^-8 each, six layers deep; a relu may switch */
    for (int64_t i = 0; i < count; i++)
        apart += !(fabsf(got[i] - want[i]) <= 0.05F * top);
    assert_true(apart <= (int)count / 20);
    assert_memory_not_equal(got, want, lt_tensor_bytes(n.conv2.grad));
    net_close(&n);
}

/* Failures. */

static void a_failure_sticks_until_the_reset(void **state)
{
    net *n = *state;
    net_forward(n, LT_PASS_TRAIN);
    assert_null(lt_add(n->tape, n->x, n->fc.value));
    assert_null(lt_relu(n->tape, n->x)); /* valid by itself */
    (void)lt_fail(LT_E_IO, "something else");
    assert_status(lt_tape_status(n->tape), LT_E_SHAPE);
    assert_non_null(strstr(lt_error_message(), "add: a "));
    assert_non_null(strstr(lt_error_message(), "and b [5,36] do not broadcast"));
    assert_status(lt_tape_backward(n->tape, n->loss, 1), LT_E_SHAPE);
    assert_ok(net_step(n, LT_PASS_TRAIN));
}

static void backward_needs_a_recorded_scalar_of_its_tape(void **state)
{
    net *n = *state;
    net_forward(n, LT_PASS_TRAIN);
    assert_status(lt_tape_backward(n->tape, n->logits, 1), LT_E_SHAPE);
    net_forward(n, LT_PASS_TRAIN);
    assert_status(lt_tape_backward(n->tape, n->x, 1), LT_E_ARG);
    net_forward(n, LT_PASS_TRAIN);
    assert_status(lt_tape_backward(n->tape, NULL, 1), LT_E_ARG);
    net_forward(n, LT_PASS_EVAL);
    assert_status(lt_tape_backward(n->tape, n->loss, 1), LT_E_ARG);
}

/* Everything from opening the device to backward, twice. */
static lt_status whole_life(void)
{
    net n;
    lt_pass pass = LT_PASS_TRAIN;
    pass.recompute = LT_RECOMPUTE_CHEAP;
    lt_status st = net_open(&n, "ref", &(lt_device_config){.f64 = true});
    if (!st)
        st = net_step(&n, pass);
    if (st == LT_E_NOMEM && n.loss) /* works when repeated */
        assert_ok(net_step(&n, LT_PASS_TRAIN));
    net_close(&n);
    return st;
}

static void any_allocation_may_fail_without_leak(void **state)
{
    enum { LIMIT = 5000 };
    (void)state;
    int64_t failures = 0;
    for (int64_t i = 1; i < LIMIT; i++) {
        lt_alloc_fail_at(i);
        lt_status st = whole_life();
        if (!st)
            break;
        assert_status(st, LT_E_NOMEM);
        failures = i;
    }
    lt_alloc_fail_at(0);
    assert_true(failures > 50 && failures < LIMIT - 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON_NET(backward_frees_memory),
        cmocka_unit_test(an_operation_on_a_freed_output_fails),
        ON_NET(a_freed_tensor_is_refused),
        ON_NET(a_gradient_without_memory_takes_no_more),
        ON_NET(transfers_that_do_not_fit_are_refused),
        ON_NET(a_kept_tensor_is_readable_after_backward),
        ON_NET(a_dropped_tensor_is_freed_at_once_in_evaluation),
        ON_NET(the_second_step_reserves_no_memory),
        ON_NET(two_backward_passes_accumulate),
        cmocka_unit_test(recompute_changes_no_bit_but_needs_less_memory),
        ON_NET(statistics_change_in_training_only),
        ON_NET(the_hook_runs_once_per_parameter_with_its_complete_gradient),
        ON_NET(a_parameter_used_three_times_has_one_complete_gradient),
        ON_NET(a_frozen_parameter_gets_no_gradient),
        ON_NET(a_variable_that_loss_does_not_depend_on_has_no_gradient),
        ON_NET(dropout_depends_on_seed_attempt_micro_batch_and_operation),
        ON_NET(dropout_zeroes_a_quarter_and_scales_the_rest),
        ON_NET(drop_path_zeroes_whole_samples_and_scales_the_rest),
        cmocka_unit_test(sixteen_bit_gradients_are_near_and_parameters_keep_theirs_in_f32),
        ON_NET(a_failure_sticks_until_the_reset),
        ON_NET(backward_needs_a_recorded_scalar_of_its_tape),
        cmocka_unit_test(any_allocation_may_fail_without_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
