/* src/tensor/elements.c: elements of views of all strides and dtypes, and formulas over them. */

#include "lather/ext/elements.h"

#include "near.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 2 * 3 * 50 * 70 };

/* Small integers, which every dtype holds exactly. */
static double number(int64_t i)
{
    return (double)(i * 7 % 100);
}

static void elements_are_counted_in_logical_order(void **state)
{
    (void)state;
    const int64_t from = 17, count = 41;
    uint16_t memory[2 * 3 * 4 * 5];
    double in[2 * 3 * 4 * 5], out[2 * 3 * 4 * 5];
    lt_view v = {.data = memory, .dtype = LT_BF16, .shape = LT_SHAPE(2, 3, 4, 5)};
    lt_channels_last_strides(v.shape, v.stride);
    for (int64_t i = 0; i < 120; i++)
        in[i] = number(i);
    lt_view_write(&v, 0, 120, in);
    lt_view_read(&v, from, count, out);
    for (int64_t i = 0; i < count; i++)
        assert_near(out[i], number(from + i), 0);
    in[0] = 255.5;
    lt_view_write(&v, from, 1, in); /* and no adjacent one */
    lt_view_read(&v, 0, 120, out);
    for (int64_t i = 0; i < 120; i++)
        assert_near(out[i], i == from ? 256 : number(i), 0); /* bf16 has 8 bits */
}

static void difference(const void *config, int64_t count, const double *const *x, double *y)
{
    const double *factor = config;
    for (int64_t i = 0; i < count; i++)
        y[i] = *factor * (x[0][i] - x[1][i]);
}

static lt_status infer(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){.dtype = LT_F32, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_view a, b, y;
    LT_TRY(lt_node_in(node, 0, &a));
    LT_TRY(lt_node_in(node, 1, &b));
    LT_TRY(lt_node_out(node, &y));
    return lt_op_map(node, difference, (const lt_view *[]){&a, &b}, 2, &y);
}

static const lt_op op = {
    .name = "difference", .config_bytes = sizeof(double), .infer = infer, .forward = forward};

typedef struct fixture {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *a, *b, *y;
    float numbers[MOST];
} fixture;

static void open(fixture *f, const char *name, lt_shape a, lt_shape b)
{
    *f = (fixture){0};
    assert_ok(lt_device_open(&f->device, name, NULL));
    assert_ok(lt_tape_new(&f->tape, f->device));
    assert_ok(lt_tensor_new(&f->a, f->device, LT_F32, a));
    assert_ok(lt_tensor_new(&f->b, f->device, LT_I32, b));
    int32_t small[3] = {0, 10, 20};
    for (int64_t i = 0; i < lt_shape_count(a); i++)
        f->numbers[i] = (float)number(i);
    assert_ok(lt_tensor_write(f->a, f->numbers, lt_tensor_bytes(f->a)));
    assert_ok(lt_tensor_write(f->b, small, lt_tensor_bytes(f->b)));
}

static void apply(fixture *f)
{
    const double factor = 2;
    lt_tape_reset(f->tape, (lt_pass){0});
    f->y = lt_op_run(f->tape, &op, (lt_tensor *[]){f->a, f->b}, 2, &factor);
}

static void shut(fixture *f)
{
    lt_tape_free(&f->tape);
    lt_tensor_free(&f->a);
    lt_tensor_free(&f->b);
    lt_device_close(&f->device);
}

static void formulas_see_each_element_once(void **state)
{
    const char *name = *state;
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    open(f, name, LT_SHAPE(2, 3, 50, 70), LT_SHAPE(3, 1, 1));
    apply(f);
    assert_ok(lt_tape_status(f->tape));
    assert_ok(lt_tensor_read(f->y, f->numbers, sizeof f->numbers));
    for (int64_t i = 0; i < MOST; i++)
        assert_near(f->numbers[i], 2 * (number(i) - 10 * (double)(i / 3500 % 3)), 0);
    shut(f);
    free(f);
}

static void shapes_that_do_not_fit_are_errors(void **state)
{
    (void)state;
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    open(f, "ref", LT_SHAPE(2, 2), LT_SHAPE(3));
    apply(f);
    assert_null(f->y);
    assert_status(lt_tape_status(f->tape), LT_E_SHAPE);
    assert_non_null(strstr(lt_error_message(), "input 1 [3] does not broadcast to [2,2]"));
    shut(f);
    free(f);
}

static lt_status forward_of_too_many(lt_node *node)
{
    lt_view y;
    LT_TRY(lt_node_out(node, &y));
    const lt_view *x[LT_MAX_MAPPED + 1];
    for (int i = 0; i <= LT_MAX_MAPPED; i++)
        x[i] = &y;
    return lt_op_map(node, difference, x, LT_MAX_MAPPED + 1, &y);
}

static void too_many_inputs_are_an_error(void **state)
{
    (void)state;
    static const lt_op greedy = {.name = "greedy", .infer = infer, .forward = forward_of_too_many};
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    open(f, "ref", LT_SHAPE(2, 3), LT_SHAPE(3));
    lt_tape_reset(f->tape, (lt_pass){0});
    assert_null(lt_op_run(f->tape, &greedy, &f->a, 1, NULL));
    assert_status(lt_tape_status(f->tape), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "greedy: got 9 inputs, want 0 to 8"));
    shut(f);
    free(f);
}

static void memory_of_a_device_is_not_mapped(void **state)
{
    (void)state;
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    open(f, "ref", LT_SHAPE(2, 3), LT_SHAPE(3));
    const lt_backend *real = f->device->backend;
    lt_backend apart = *real;
    apart.host_memory = false;
    f->device->backend = &apart;
    apply(f);
    assert_null(f->y);
    assert_status(lt_tape_status(f->tape), LT_E_UNSUPPORTED);
    f->device->backend = real;
    shut(f);
    free(f);
}

int main(void)
{
    static char ref[] = "ref", cpu[] = "cpu";
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(elements_are_counted_in_logical_order),
        cmocka_unit_test_prestate(formulas_see_each_element_once, ref),
        cmocka_unit_test_prestate(formulas_see_each_element_once, cpu),
        cmocka_unit_test(shapes_that_do_not_fit_are_errors),
        cmocka_unit_test(too_many_inputs_are_an_error),
        cmocka_unit_test(memory_of_a_device_is_not_mapped),
    };
    return cmocka_run_group_tests_name("elements", rows, NULL, NULL);
}
