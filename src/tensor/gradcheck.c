/* Gradient check by central differences. Nocedal & Wright, "Numerical optimization", 2006, section 8.1: the
 * error of a central difference is h^2/6 times the third derivative plus rounding of the order of u/h; in
 * double with h = 1e-5 both are below 1e-9 for functions and derivatives of magnitude 1. */

#include "lather/ext/gradcheck.h"

#include "base/alloc.h"
#include "base/rng.h"

#include "lather/ext/fail.h"
#include "lather/ops/math.h"

#include <math.h>
#include <string.h>

enum { MAX_INPUTS = 16 };

typedef struct checker {
    lt_tape *tape;
    lt_gradcheck_fn *fn;
    void *context;
    lt_tensor *const *in;
    int count;
    lt_gradcheck_config config;
    lt_tensor *r;         /* random upstream gradient, like y */
    double *upstream;     /* r on the host */
    double *plus, *minus; /* y at x + h and x - h */
    int64_t outputs;
} checker;

static bool is_checked(const lt_tensor *x)
{
    return lt_tensor_dtype(x) == LT_F64;
}

/* Runs fn; handle[i] receives the tensor that it passed to fn as input i. */
static lt_status run_forward(checker *c, bool record, lt_tensor **handle, lt_tensor **y)
{
    lt_pass pass = c->config.pass;
    pass.record = record;
    lt_tape_reset(c->tape, pass);
    for (int i = 0; i < c->count; i++)
        handle[i] = is_checked(c->in[i]) ? lt_tape_variable(c->tape, c->in[i]) : c->in[i];
    *y = c->fn(c->tape, handle, c->context);
    LT_TRY(lt_tape_status(c->tape));
    return *y ? LT_OK : lt_fail(LT_E_ARG, "gradcheck: the function returned NULL");
}

static lt_status evaluate_output(checker *c, double *out)
{
    lt_tensor *handle[MAX_INPUTS], *y;
    LT_TRY(run_forward(c, false, handle, &y));
    return lt_tensor_read(y, out, (size_t)c->outputs * sizeof *out);
}

/* Allocates everything that has the size of the output. */
static lt_status allocate_outputs(checker *c)
{
    lt_tensor *handle[MAX_INPUTS], *y;
    LT_TRY(run_forward(c, false, handle, &y));
    if (lt_tensor_dtype(y) != LT_F64)
        return lt_fail(LT_E_ARG, "gradcheck: the output is %s, want f64",
                       lt_dtype_name(lt_tensor_dtype(y)));
    c->outputs = lt_tensor_count(y);
    size_t count = (size_t)c->outputs;
    LT_TRY(LT_ALLOC(&c->upstream, count));
    LT_TRY(LT_ALLOC(&c->plus, count));
    LT_TRY(LT_ALLOC(&c->minus, count));
    lt_rng rng = {.key = 1};
    for (size_t j = 0; j < count; j++)
        c->upstream[j] = 2 * lt_rng_uniform(&rng) - 1;
    LT_TRY(lt_tensor_new_like(&c->r, y, LT_F64));
    return lt_tensor_write(c->r, c->upstream, count * sizeof *c->upstream);
}

/* Computes the gradients of sum(y * r) with respect to each input; zeros if it does not depend on it. */
static lt_status analytic_gradients(checker *c, double **gradient)
{
    lt_tensor *handle[MAX_INPUTS], *y;
    LT_TRY(run_forward(c, true, handle, &y));
    lt_tensor *loss = lt_sum(c->tape, lt_mul(c->tape, y, c->r), (lt_reduce_config){.dims = 0});
    LT_TRY(lt_tape_backward(c->tape, loss, 1));
    for (int i = 0; i < c->count; i++) {
        if (!is_checked(c->in[i]))
            continue;
        LT_TRY(LT_ALLOC(&gradient[i], (size_t)lt_tensor_count(c->in[i])));
        lt_tensor *g = lt_tape_gradient(c->tape, handle[i]);
        if (g)
            LT_TRY(lt_tensor_read(g, gradient[i], lt_tensor_bytes(c->in[i])));
    }
    return lt_tape_status(c->tape);
}

static double max_magnitude(const double *x, int64_t count)
{
    double top = 0;
    for (int64_t i = 0; i < count; i++)
        top = fabs(x[i]) > top ? fabs(x[i]) : top;
    return top;
}

/* Computes the central difference along element e of an input whose values are x. */
static lt_status central_difference(checker *c, lt_tensor *input, double *x, int64_t e, double *out)
{
    size_t bytes = lt_tensor_bytes(input);
    double was = x[e], high = was + c->config.step, low = was - c->config.step;
    x[e] = high;
    LT_TRY(lt_tensor_write(input, x, bytes));
    LT_TRY(evaluate_output(c, c->plus));
    x[e] = low;
    LT_TRY(lt_tensor_write(input, x, bytes));
    LT_TRY(evaluate_output(c, c->minus));
    x[e] = was;
    double sum = 0;
    for (int64_t j = 0; j < c->outputs; j++)
        sum += c->upstream[j] * (c->plus[j] - c->minus[j]);
    *out = sum / (high - low);
    return LT_OK;
}

static lt_status check_elements(checker *c, int input, const double *analytic, double *x)
{
    int64_t count = lt_tensor_count(c->in[input]);
    double scale =
        fmax(max_magnitude(analytic, count), 1e-3 * max_magnitude(c->upstream, c->outputs));
    for (int64_t e = 0; e < count; e++) {
        double numeric = 0;
        LT_TRY(central_difference(c, c->in[input], x, e, &numeric));
        if (!(fabs(numeric - analytic[e]) <= c->config.tolerance * scale))
            return lt_fail(LT_E_ARG,
                           "gradcheck: input %d, element %lld: numeric %.12g, analytic %.12g, "
                           "difference %.3g, allowed %.3g",
                           input, (long long)e, numeric, analytic[e], fabs(numeric - analytic[e]),
                           c->config.tolerance * scale);
    }
    return LT_OK;
}

static lt_status check_input(checker *c, int input, const double *analytic)
{
    size_t bytes = lt_tensor_bytes(c->in[input]);
    double *original = lt_alloc(bytes, 1), *x = lt_alloc(bytes, 1);
    lt_status st = LT_E_NOMEM;
    if (original && x)
        st = lt_tensor_read(c->in[input], original, bytes);
    if (!st) {
        memcpy(x, original, bytes);
        st = check_elements(c, input, analytic, x);
        lt_status restored = lt_tensor_write(c->in[input], original, bytes);
        st = st ? st : restored;
    }
    lt_free(original);
    lt_free(x);
    return st;
}

static lt_status check_all_inputs(checker *c)
{
    double *gradient[MAX_INPUTS] = {0};
    LT_TRY(allocate_outputs(c));
    lt_status st = analytic_gradients(c, gradient);
    for (int i = 0; i < c->count && !st; i++)
        if (gradient[i])
            st = check_input(c, i, gradient[i]);
    for (int i = 0; i < c->count; i++)
        lt_free(gradient[i]);
    return st;
}

lt_status lt_gradcheck(lt_device *device, lt_gradcheck_fn *fn, void *context, lt_tensor *const *in,
                       int count, const lt_gradcheck_config *config)
{
    if (lt_device_master_dtype(device) != LT_F64)
        return lt_fail(LT_E_ARG, "gradcheck: the device was not opened with f64");
    if (count < 1 || count > MAX_INPUTS)
        return lt_fail(LT_E_ARG, "gradcheck: got %d inputs, want 1 to %d", count, MAX_INPUTS);
    checker c = {.fn = fn, .context = context, .in = in, .count = count};
    c.config = config ? *config : (lt_gradcheck_config){.pass = LT_PASS_TRAIN};
    c.config.step = c.config.step > 0 ? c.config.step : 1e-5;
    c.config.tolerance = c.config.tolerance > 0 ? c.config.tolerance : 1e-7;

    LT_TRY(lt_tape_new(&c.tape, device));
    lt_status st = check_all_inputs(&c);
    lt_tape_free(&c.tape);
    lt_tensor_free(&c.r);
    lt_free(c.upstream);
    lt_free(c.plus);
    lt_free(c.minus);
    return st;
}
