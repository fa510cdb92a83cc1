/* An operation of your own from a formula, Swish with a trained slope b per channel:
 *
 *     y = x * s(b * x),  s(t) = 1 / (1 + exp(-t))
 *
 * Ramachandran, Zoph, Le, "Searching for activation functions", 2017.
 *
 *     cc swish.c $(pkg-config --cflags --libs lather) -lm -o swish && ./swish */

#include "lather/ext/broadcast.h"
#include "lather/ext/elements.h"
#include "lather/ext/gradcheck.h"

#include <math.h>
#include <stdio.h>

enum { X, B };

static double sigmoid(double t)
{
    return 1 / (1 + exp(-t));
}

static void swish_value(const void *config, int64_t count, const double *const *in, double *y)
{
    (void)config;
    for (int64_t i = 0; i < count; i++)
        y[i] = in[0][i] * sigmoid(in[1][i] * in[0][i]);
}

/* Computes dx; in: dy, x, b. */
static void gradient_x(const void *config, int64_t count, const double *const *in, double *dx)
{
    (void)config;
    for (int64_t i = 0; i < count; i++) {
        double t = in[2][i] * in[1][i], s = sigmoid(t);
        dx[i] = in[0][i] * (s + t * s * (1 - s));
    }
}

static void gradient_b(const void *config, int64_t count, const double *const *in, double *db)
{
    (void)config;
    for (int64_t i = 0; i < count; i++) {
        double x = in[1][i], s = sigmoid(in[2][i] * x);
        db[i] = in[0][i] * x * x * s * (1 - s);
    }
}

static lt_status forward(lt_node *node)
{
    lt_view x, b, y;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, B, &b));
    LT_TRY(lt_node_out(node, &y));
    return lt_op_map(node, swish_value, (const lt_view *[]){&x, &b}, 2, &y);
}

/* Computes the gradient of b, which is smaller than y: in y's shape, then summed. */
static lt_status backward_b(lt_node *node, const lt_view *const *in)
{
    lt_view wide;
    LT_TRY(lt_node_scratch(node, lt_tensor_dtype(node->in[B]), lt_tensor_shape(node->out), &wide));
    LT_TRY(lt_op_map(node, gradient_b, in, 3, &wide));
    return lt_op_unbroadcast(node, B, &wide);
}

static lt_status backward(lt_node *node)
{
    lt_view dy, x, b, dx;
    const lt_view *const in[] = {&dy, &x, &b};
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, B, &b));
    if (lt_node_needs_grad(node, X)) {
        LT_TRY(lt_node_grad_out(node, X, &dx));
        LT_TRY(lt_op_map(node, gradient_x, in, 3, &dx));
    }
    return lt_node_needs_grad(node, B) ? backward_b(node, in) : LT_OK;
}

static const lt_op op = {
    .name = "swish",
    /* y's memory can be freed as soon as no other node reads it. */
    .backward_ignores = LT_IGNORES_OUT,
    .infer = lt_op_infer_broadcast,
    .forward = forward,
    .backward = backward,
};

static lt_tensor *swish(lt_tape *tape, lt_tensor *x, lt_tensor *b)
{
    return lt_op_run(tape, &op, (lt_tensor *[]){x, b}, 2, NULL);
}

/* The rest shows that it works: gradients against central differences, a value, a rejected input. */

enum { CHANNELS = 3, ELEMENTS = 2 * CHANNELS * 4 * 5 };

static lt_tensor *build_swish(lt_tape *tape, lt_tensor *const *in, void *context)
{
    (void)context;
    return swish(tape, in[X], in[B]);
}

static lt_status fill_inputs(lt_tensor *x, lt_tensor *b)
{
    double pixel[ELEMENTS], slope[CHANNELS] = {0.5, 1, -2};
    for (int i = 0; i < ELEMENTS; i++)
        pixel[i] = 3 * sin(i + 1.0);
    LT_TRY(lt_tensor_write(x, pixel, sizeof pixel));
    return lt_tensor_write(b, slope, sizeof slope);
}

static lt_status check_value(lt_tape *tape, lt_tensor *x, lt_tensor *b)
{
    const int at = ELEMENTS / 2 / CHANNELS; /* the first pixel of channel 1, whose slope is 1 */
    double y[ELEMENTS], want = 3 * sin(at + 1.0) * sigmoid(3 * sin(at + 1.0));
    lt_tape_reset(tape, (lt_pass){0});
    lt_tensor *out = swish(tape, x, b);
    LT_TRY(lt_tape_status(tape));
    LT_TRY(lt_tensor_read(out, y, sizeof y));
    printf("swish(%.6f) = %.6f\n", 3 * sin(at + 1.0), y[at]);
    if (!(fabs(y[at] - want) <= 1e-12))
        return lt_fail(LT_E_ARG, "swish: %.12g, want %.12g", y[at], want);
    return LT_OK;
}

/* Checks that inputs that do not fit stop the tape, with both shapes in the message; nothing is computed. */
static lt_status check_refusal(lt_tape *tape, lt_tensor *x, lt_tensor *b)
{
    lt_tape_reset(tape, (lt_pass){0});
    if (swish(tape, b, x) || lt_tape_status(tape) != LT_E_SHAPE)
        return lt_fail(LT_E_ARG, "swish: shapes that do not fit were taken");
    printf("rejected: %s\n", lt_error_message());
    return LT_OK;
}

static lt_status run_checks(lt_device *device, lt_tape *tape, lt_tensor *x, lt_tensor *b)
{
    LT_TRY(fill_inputs(x, b));
    LT_TRY(lt_gradcheck(device, build_swish, NULL, (lt_tensor *[]){x, b}, 2, NULL));
    printf("gradients of x and b: right\n");
    LT_TRY(check_value(tape, x, b));
    return check_refusal(tape, x, b);
}

int main(int argc, char **argv)
{
    lt_device *device = NULL;
    lt_tape *tape = NULL;
    lt_tensor *x = NULL, *b = NULL;
    const lt_device_config exact = {.f64 = true};

    lt_status st = lt_device_open(&device, argc > 1 ? argv[1] : "ref", &exact);
    st = st ? st : lt_tape_new(&tape, device);
    st = st ? st : lt_tensor_new(&x, device, LT_F64, LT_SHAPE(2, CHANNELS, 4, 5));
    st = st ? st : lt_tensor_new(&b, device, LT_F64, LT_SHAPE(CHANNELS, 1, 1));
    st = st ? st : run_checks(device, tape, x, b);
    if (st)
        fprintf(stderr, "swish: %s: %s\n", lt_status_name(st), lt_error_message());

    lt_tensor_free(&b);
    lt_tensor_free(&x);
    lt_tape_free(&tape);
    lt_device_close(&device);
    return st ? 1 : 0;
}
