/* Elementwise functions at special values (0, infinities, NaN, ties), and broadcasting, on ref and on cpu. */

#include "near.h"

#include "lather/ops.h"

#include <string.h>

#define INF ((float)INFINITY)
#define NOT ((float)NAN)

enum { MOST = 12, OPERANDS = 2 };

typedef struct bench {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *made[OPERANDS];
} bench;

static void bench_open(bench *b, const char *device)
{
    *b = (bench){.device = NULL};
    assert_ok(lt_device_open(&b->device, device, NULL));
    assert_ok(lt_tape_new(&b->tape, b->device));
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
}

static void bench_close(bench *b)
{
    lt_tape_free(&b->tape);
    for (int i = 0; i < OPERANDS; i++)
        lt_tensor_free(&b->made[i]);
    lt_device_close(&b->device);
}

static lt_tensor *variable(bench *b, int operand, lt_shape shape, const float *values)
{
    assert_ok(lt_tensor_new(&b->made[operand], b->device, LT_F32, shape));
    assert_ok(lt_tensor_write(b->made[operand], values, lt_tensor_bytes(b->made[operand])));
    return lt_tape_variable(b->tape, b->made[operand]);
}

static void assert_values(const lt_tensor *t, const float *want, const char *what)
{
    float got[MOST];
    assert_non_null(t);
    assert_ok(lt_tensor_read(t, got, lt_tensor_bytes(t)));
    for (int64_t i = 0; i < lt_tensor_count(t); i++)
        if (!(got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))
              || fabsf(got[i] - want[i]) <= 4e-7F * fabsf(want[i])))
            fail_msg("%s, element %lld: %.9g, want %.9g", what, (long long)i, (double)got[i],
                     (double)want[i]);
}

typedef lt_tensor *function(lt_tape *t, lt_tensor *a, lt_tensor *b);

#define FUNCTION(name, call)                                       \
    static lt_tensor *name(lt_tape *t, lt_tensor *a, lt_tensor *b) \
    {                                                              \
        (void)b;                                                   \
        return call;                                               \
    }                                                              \
    _Static_assert(1, "a semicolon follows")
FUNCTION(power_0, lt_pow(t, a, 0));
FUNCTION(power_2, lt_pow(t, a, 2));
FUNCTION(power_third, lt_pow(t, a, 1.0 / 3));
FUNCTION(power_minus_1, lt_pow(t, a, -1));
FUNCTION(clamp, lt_clamp(t, a, -1, 2));
FUNCTION(clamp_below, lt_clamp(t, a, 0, (double)INFINITY));
FUNCTION(exponential, lt_exp(t, a));
FUNCTION(logarithm, lt_ln(t, a));
FUNCTION(root, lt_sqrt(t, a));
FUNCTION(sigmoid, lt_sigmoid(t, a));
FUNCTION(tangent, lt_tanh(t, a));
FUNCTION(silu, lt_silu(t, a));
FUNCTION(absolute, lt_abs(t, a));
FUNCTION(sign, lt_sign(t, a));
FUNCTION(leaky_relu, lt_leaky_relu(t, a, 0.25));
FUNCTION(elu, lt_elu(t, a, 2));
FUNCTION(softplus, lt_softplus(t, a, 2, 20));
FUNCTION(l1, lt_l1_loss(t, a, b, LT_LOSS_NONE));
FUNCTION(huber, lt_huber_loss(t, a, b, 0.5, LT_LOSS_NONE));
FUNCTION(smooth_l1, lt_smooth_l1_loss(t, a, b, 0.5, LT_LOSS_NONE));
FUNCTION(kl, lt_kl_div(t, a, b, false, LT_LOSS_NONE));
FUNCTION(bce, lt_bce_with_logits(t, a, b, LT_LOSS_NONE));
FUNCTION(gelu, lt_gelu(t, a, LT_GELU_ERF));

/* Value, and gradients for dy = 1. */
typedef struct row {
    const char *name;
    function *f;
    int count, operands;
    float a[MOST], b[MOST], y[MOST], da[MOST], db[MOST];
} row;

/* Results of PyTorch 2. */
/* clang-format off */
static const row rows[] = {
    {"exp", exponential, 6, 1, {-INF, -200, 0, 100, INF, NOT}, {0}, {0, 0, 1, INF, INF, NOT},
     {0, 0, 1, INF, INF, NOT}, {0}},
    {"log", logarithm, 7, 1, {0, -1, 1, INF, NOT, 1e-40F, -0.0F}, {0},
     {-INF, NOT, 0, INF, NOT, -92.1034F, -INF}, {INF, -1, 1, 0, NOT, INF, -INF}, {0}},
    {"sqrt", root, 5, 1, {0, -1, 4, INF, NOT}, {0}, {0, NOT, 2, INF, NOT}, {INF, NOT, 0.25F, 0, NOT}, {0}},
    {"pow 0", power_0, 4, 1, {0, -2, INF, NOT}, {0}, {1, 1, 1, 1}, {0, 0, 0, 0}, {0}},
    {"pow 2", power_2, 5, 1, {0, -3, INF, -INF, NOT}, {0}, {0, 9, INF, INF, NOT}, {0, -6, INF, -INF, NOT}, {0}},
    {"pow 1/3", power_third, 4, 1, {0, 8, -8, INF}, {0}, {0, 2, NOT, INF}, {INF, 0.0833333358F, NOT, 0}, {0}},
    {"pow -1", power_minus_1, 5, 1, {0, -0.0F, 4, INF, NOT}, {0}, {INF, -INF, 0.25F, 0, NOT},
     {-INF, -INF, -0.0625F, 0, NOT}, {0}},
    {"clamp", clamp, 7, 1, {-INF, -1, 0, 2, 3, INF, NOT}, {0}, {-1, -1, 0, 2, 2, 2, NOT},
     {0, 0, 1, 0, 0, 0, 0}, {0}},
    {"clamp without an upper bound", clamp_below, 4, 1, {-1, 0, INF, NOT}, {0}, {0, 0, INF, NOT},
     {0, 0, 0, 0}, {0}},
    {"sigmoid", sigmoid, 6, 1, {-INF, -200, 0, 200, INF, NOT}, {0}, {0, 0, 0.5F, 1, 1, NOT},
     {0, 0, 0.25F, 0, 0, NOT}, {0}},
    {"tanh", tangent, 7, 1, {-INF, -100, 0, 1e-20F, 100, INF, NOT}, {0}, {-1, -1, 0, 1e-20F, 1, 1, NOT},
     {0, 0, 1, 1, 0, 0, NOT}, {0}},
    {"silu", silu, 4, 1, {-200, 0, 100, NOT}, {0}, {0, 0, 100, NOT}, {0, 0.5F, 1, NOT}, {0}},
    {"div", lt_div, 6, 2, {0, 1, -1, 4, NOT, 1}, {0, 0, 0, 2, 1, INF}, {NOT, INF, -INF, 2, NOT, 0},
     {INF, INF, INF, 0.5F, 1, 0}, {NOT, -INF, INF, -1, NOT, 0}},
    {"maximum", lt_maximum, 7, 2, {1, 2, 3, NOT, 1, INF, -INF}, {2, 1, 3, 1, NOT, INF, 0},
     {2, 2, 3, NOT, NOT, INF, 0}, {0, 1, 0.5F, 1, 1, 0.5F, 0}, {1, 0, 0.5F, 1, 1, 0.5F, 1}},
    {"minimum", lt_minimum, 7, 2, {1, 2, 3, NOT, 1, INF, -INF}, {2, 1, 3, 1, NOT, INF, 0},
     {1, 1, 3, NOT, NOT, INF, -INF}, {1, 0, 0.5F, 1, 1, 0.5F, 1}, {0, 1, 0.5F, 1, 1, 0.5F, 0}},
    {"pow_tensor", lt_pow_tensor, 6, 2, {0, 0, 0, 2, -2, -8}, {0, 2, 0.5F, 3, 3, 0.5F}, {1, 0, 0, 8, -8, NOT},
     {0, 0, INF, 12, 12, NOT}, {0, 0, 0, 5.54517746F, NOT, NOT}},
    {"bce_with_logits", bce, 6, 2, {200, 200, -200, -200, 0, NOT}, {1, 0, 1, 0, 0.5F, 1},
     {0, 200, 200, 0, 0.693147182F, NOT}, {0, 1, -1, 0, 0, NOT}, {-200, -200, 200, 200, 0, NOT}},
    {"bce_with_logits of infinite logits", bce, 4, 2, {INF, -INF, -INF, INF}, {0, 1, 0, 1}, {INF, INF, 0, NOT},
     {1, -1, 0, 0}, {-INF, INF, INF, -INF}},
    {"abs", absolute, 6, 1, {-2, -0.0F, 0, 3, NOT, INF}, {0}, {2, 0, 0, 3, NOT, INF}, {-1, 0, 0, 1, 0, 1}, {0}},
    {"sign", sign, 6, 1, {-2, -0.0F, 0, 3, NOT, INF}, {0}, {-1, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 0, 0}, {0}},
    {"leaky_relu", leaky_relu, 6, 1, {-2, 0, 3, NOT, INF, -INF}, {0}, {-0.5F, 0, 3, NOT, INF, -INF},
     {0.25F, 0.25F, 1, 0.25F, 1, 0.25F}, {0}},
    {"elu", elu, 7, 1, {-2, -1e-6F, 0, 3, NOT, INF, -INF}, {0}, {-1.72932943F, -1.999999e-6F, 0, 3, NOT, INF, -2},
     {0.270670566F, 1.999998F, 2, 1, 1, 1, 0}, {0}},
    {"softplus", softplus, 6, 1, {-2, 0, 3, NOT, INF, -INF}, {0}, {0.00907496396F, 0.34657359F, 3.00123784F, NOT, INF, 0},
     {0.0179862100F, 0.5F, 0.997527377F, NOT, 1, 0}, {0}},
    {"l1_loss", l1, 3, 2, {1, 2, NOT}, {1, 3, 2}, {0, 1, NOT}, {0, -1, 0}, {0, 1, 0}},
    {"huber_loss", huber, 4, 2, {1, 2, NOT, 0.5F}, {1, 3, 2, 0}, {0, 0.375F, NOT, 0.125F}, {0, -0.5F, NOT, 0.5F},
     {0, 0.5F, NOT, -0.5F}},
    {"smooth_l1_loss", smooth_l1, 4, 2, {1, 2, NOT, 0.5F}, {1, 3, 2, 0}, {0, 0.75F, NOT, 0.25F}, {0, -1, NOT, 1},
     {0, 1, NOT, -1}},
    {"kl_div", kl, 2, 2, {-1, -2}, {0, 0.3F}, {0, 0.238808155F}, {0, -0.3F}, {-INF, 1.79602724F}},
    {"gelu far left", gelu, 3, 1, {-1000, -15, NOT}, {0}, {0, 0, NOT}, {0, 0, NOT}, {0}},
};
/* clang-format on */

static void check_row_on(const row *r, const char *device)
{
    bench b;
    bench_open(&b, device);
    lt_tensor *x = variable(&b, 0, LT_SHAPE(r->count), r->a);
    lt_tensor *z = r->operands > 1 ? variable(&b, 1, LT_SHAPE(r->count), r->b) : NULL;
    lt_tensor *y = r->f(b.tape, x, z);
    lt_tensor *sum = lt_sum(b.tape, y, (lt_reduce_config){.dims = 0});
    assert_values(y, r->y, "the value");
    assert_ok(lt_tape_backward(b.tape, sum, 1));
    assert_values(lt_tape_gradient(b.tape, x), r->da, "the gradient by a");
    if (z)
        assert_values(lt_tape_gradient(b.tape, z), r->db, "the gradient by b");
    bench_close(&b);
}

static void check_row(void **state)
{
    check_row_on(*state, "ref");
    check_row_on(*state, "cpu");
}

static void either_operand_is_broadcast(void **state)
{
    const float column[] = {10, 20, 30}, line[] = {1, 2, 3, 4};
    const float want[] = {9, 8, 7, 6, 19, 18, 17, 16, 29, 28, 27, 26};
    const float dcolumn[] = {4, 4, 4}, dline[] = {-3, -3, -3, -3};
    (void)state;
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_open(&b, i ? "cpu" : "ref");
        lt_tensor *x = variable(&b, 0, LT_SHAPE(3, 1), column);
        lt_tensor *z = variable(&b, 1, LT_SHAPE(4), line), *y = lt_sub(b.tape, x, z);
        assert_true(lt_shape_equal(lt_tensor_shape(y), LT_SHAPE(3, 4)));
        assert_values(y, want, "the value");
        assert_ok(lt_tape_backward(b.tape, lt_sum(b.tape, y, (lt_reduce_config){.dims = 0}), 1));
        assert_values(lt_tape_gradient(b.tape, x), dcolumn, "the gradient by a");
        assert_values(lt_tape_gradient(b.tape, z), dline, "the gradient by b");
        bench_close(&b);
    }
}

static void a_scalar_broadcasts_to_any_shape(void **state)
{
    const float one = 1, many[] = {1, 2, 4}, want[] = {1, 0.5F, 0.25F};
    (void)state;
    bench b;
    bench_open(&b, "cpu");
    lt_tensor *x = variable(&b, 0, LT_SCALAR, &one), *z = variable(&b, 1, LT_SHAPE(3), many);
    assert_values(lt_div(b.tape, x, z), want, "one over many");
    assert_values(lt_div(b.tape, z, x), many, "many over one");
    bench_close(&b);
}

static void assert_refused(const bench *b, const lt_tensor *y, lt_status st, const char *text)
{
    assert_null(y);
    assert_status(lt_tape_status(b->tape), st);
    assert_non_null(strstr(lt_error_message(), text));
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
}

static void inputs_that_do_not_fit_are_errors(void **state)
{
    const float v[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    bench b;
    bench_open(&b, "ref");
    variable(&b, 0, LT_SHAPE(3), v);
    variable(&b, 1, LT_SHAPE(2), v);
    lt_tensor *x = b.made[0], *y = b.made[1];
    assert_refused(&b, lt_sub(b.tape, x, y), LT_E_SHAPE, "sub: a [3] and b [2]");
    assert_refused(&b, lt_mse_loss(b.tape, x, y, LT_LOSS_MEAN), LT_E_SHAPE,
                   "mse_loss: target [2], want [3]");
    assert_refused(&b, lt_mse_loss(b.tape, x, x, (lt_loss_reduction)7), LT_E_ARG, "reduction 7");
    assert_refused(&b, lt_clamp(b.tape, x, 2, 1), LT_E_ARG, "clamp: low 2, high 1");
    assert_refused(&b, lt_clamp(b.tape, x, (double)NAN, 1), LT_E_ARG, "clamp: low nan");
    assert_refused(&b, lt_group_norm(b.tape, x, NULL, NULL, (lt_group_norm_config){1, 1e-5}),
                   LT_E_SHAPE, "group_norm: x [3]");
    assert_refused(&b,
                   lt_batchnorm1d(b.tape, x, (lt_batchnorm2d_args){0}, (lt_batchnorm2d_config){0}),
                   LT_E_SHAPE, "batchnorm1d: x [3], want [N,C] or [N,C,L]");
    bench_close(&b);
}

int main(void)
{
    static struct CMUnitTest tests[sizeof rows / sizeof *rows + 3] = {
        cmocka_unit_test(either_operand_is_broadcast),
        cmocka_unit_test(a_scalar_broadcasts_to_any_shape),
        cmocka_unit_test(inputs_that_do_not_fit_are_errors),
    };
    size_t count = 3;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tests[count++] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return _cmocka_run_group_tests("pointwise", tests, count, NULL, NULL);
}
