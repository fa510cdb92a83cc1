/* Rows of elementwise functions and of their gradients, by every operand. */

#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Arguments of a function. */
typedef struct function_row {
    lt_pointwise_kind kind;
    const char *name;
    double low, high;     /* range of a, or of the gradient's argument */
    double b_low, b_high; /* range of b, for functions of two operands */
    double number[2];
    bool exact;  /* the value is exact */
    bool single; /* too large for f16 */
} function_row;

static const function_row functions[] = {
    {LT_POINTWISE_EXP, "exp", -9, 10, 0, 0, {0}, false, false},
    {LT_POINTWISE_EXP, "exp of large numbers", -80, 80, 0, 0, {0}, false, true},
    {LT_POINTWISE_LOG, "log", 0.01, 3, 0, 0, {0}, false, false},
    {LT_POINTWISE_LOG, "log of large numbers", 1, 60000, 0, 0, {0}, false, false},
    {LT_POINTWISE_SQRT, "sqrt", 0.01, 50, 0, 0, {0}, false, false},
    {LT_POINTWISE_POW, "pow 0", -1, 1, 0, 0, {0}, true, false},
    {LT_POINTWISE_POW, "pow 1", -1, 1, 0, 0, {1}, true, false},
    {LT_POINTWISE_POW, "pow 2", -1, 1, 0, 0, {2}, false, false},
    {LT_POINTWISE_POW, "pow 3", -1, 1, 0, 0, {3}, false, false},
    {LT_POINTWISE_POW, "pow 0.5", 0.01, 9, 0, 0, {0.5}, false, false},
    {LT_POINTWISE_POW, "pow -0.5", 0.01, 9, 0, 0, {-0.5}, false, false},
    {LT_POINTWISE_POW, "pow -1", 0.01, 9, 0, 0, {-1}, false, false},
    {LT_POINTWISE_POW, "pow 2.25", 0.01, 9, 0, 0, {2.25}, false, false},
    {LT_POINTWISE_SIGMOID, "sigmoid", -80, 80, 0, 0, {0}, false, false},
    {LT_POINTWISE_TANH, "tanh", -3, 3, 0, 0, {0}, false, false},
    {LT_POINTWISE_TANH, "tanh of small numbers", -0.01, 0.01, 0, 0, {0}, false, false},
    {LT_POINTWISE_TANH, "tanh of large numbers", -200, 200, 0, 0, {0}, false, false},
    {LT_POINTWISE_SILU, "silu", -20, 20, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU, "gelu", -6, 6, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU, "gelu of small numbers", -0.1, 0.1, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU, "gelu of large numbers", -40, 40, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU_TANH, "gelu by tanh", -6, 6, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU_TANH, "gelu by tanh of small numbers", -0.1, 0.1, 0, 0, {0}, false, false},
    {LT_POINTWISE_GELU_TANH, "gelu by tanh of large numbers", -40, 40, 0, 0, {0}, false, false},
    {LT_POINTWISE_CLAMP, "clamp", -1, 1, 0, 0, {-0.5, 0.25}, true, false},
    {LT_POINTWISE_ABS, "abs", -1, 1, 0, 0, {0}, true, false},
    {LT_POINTWISE_SIGN, "sign", -1, 1, 0, 0, {0}, true, false},
    {LT_POINTWISE_LEAKY_RELU, "leaky relu", -1, 1, 0, 0, {0.01}, false, false},
    {LT_POINTWISE_ELU, "elu", -20, 2, 0, 0, {1.5}, false, false},
    {LT_POINTWISE_ELU, "elu of small numbers", -0.01, 0.01, 0, 0, {1}, false, false},
    {LT_POINTWISE_SOFTPLUS, "softplus", -40, 40, 0, 0, {0.5, 12}, false, false},
    {LT_POINTWISE_ADD, "add", -1, 1, -1, 1, {0}, false, false},
    {LT_POINTWISE_MUL, "mul", -1, 1, -1, 1, {0}, false, false},
    {LT_POINTWISE_SUB, "sub", -1, 1, -1, 1, {0}, false, false},
    {LT_POINTWISE_DIV, "div", -1, 1, 0.01, 3, {0}, false, false},
    {LT_POINTWISE_MAXIMUM, "maximum", -1, 1, -1, 1, {0}, true, false},
    {LT_POINTWISE_MINIMUM, "minimum", -1, 1, -1, 1, {0}, true, false},
    {LT_POINTWISE_POW_TENSOR, "power", 0.1, 9, -2, 2, {0}, false, false},
    {LT_POINTWISE_SQUARED_DIFFERENCE, "squared difference", -1, 1, -1, 1, {0}, false, false},
    {LT_POINTWISE_ABSOLUTE_DIFFERENCE, "absolute difference", -1, 1, -1, 1, {0}, false, false},
    {LT_POINTWISE_HUBER, "huber", -1, 1, -1, 1, {0.5, 3}, false, false},
    {LT_POINTWISE_KL, "kl divergence", -9, 0, 0.01, 1, {0}, false, false},
    {LT_POINTWISE_KL_LOG, "kl divergence of logarithms", -9, 0, -9, 0, {0}, false, false},
    {LT_POINTWISE_SWIGLU, "swiglu", -20, 20, -1, 1, {0}, false, false},
    {LT_POINTWISE_BCE, "bce", -30, 30, 0, 1, {0}, false, false},
};

typedef struct shape_row {
    const char *name;
    lt_shape shape;
    layout a, b, y;
    bool large; /* sizes of transformers, for their activations only */
} shape_row;

static const shape_row shapes[] = {
    {"a scalar", {0, {0}}, ROWS, ROWS, ROWS, false},
    {"odd count", {1, {1237}}, ROWS, ROWS, ROWS, false},
    {"channels-last", {4, {2, 5, 3, 7}}, STORAGE, STORAGE, STORAGE, false},
    {"channels-last to gaps", {4, {2, 5, 3, 7}}, STORAGE, CHANNEL, GAPS, false},
    {"gaps to transposed, 5 dimensions", {5, {2, 3, 1, 4, 5}}, GAPS, REVERSED, REVERSED, false},
    {"a repeated element", {2, {3, 700}}, BROADCAST, ROWS, ROWS, false},
    {"another repeated element", {2, {700, 3}}, ROWS, BROADCAST, ROWS, false},
    {"ViT-S/16, 32 images", {2, {6304, 384}}, ROWS, ROWS, ROWS, true},
    {"GPT-2, 4 x 256", {2, {1024, 768}}, ROWS, ROWS, ROWS, true},
};

enum { A, B, DY, OUTPUT, GRADS = 3 /* the value, the gradients by a and by b */ };

static lt_pointwise function_of(const test *t)
{
    return t->config.pointwise.f;
}

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    const lt_pointwise f = function_of(t);
    const lt_view *b = v[B].data ? &v[B] : NULL;
    if (!strcmp(t->entry, "pointwise"))
        return be->pointwise(ctx, &f, &v[A], b, &v[OUTPUT]);
    return be->pointwise_grad(ctx, &f, t->config.pointwise.input, &v[DY], &v[A], b, &v[OUTPUT]);
}

/* gelu: the error of P(x) is relative to 1, like that of 1 + erf(x). */
static double gelu_magnitude(bool value, double x)
{
    return value ? fabs(x) : 1 + fabs(x) * 0.4 * exp(-0.5 * x * x) * (1 + x * x);
}

/* gelu's approximation: P(x) errs by the rounding of its exponential's argument, which grows as |x| + |x|^3,
 * times the exponential's slope. P below 2^-127 is 0: one divided by a number that is infinite in f32. */
static double gelu_tanh_magnitude(bool value, double x)
{
    const double z = fabs(x), size = 1.6 * z + 0.072 * z * z * z, least = 0x1p-104;
    const double p = 1 / (1 + exp(-1.5957691 * x - 0.0713548 * x * x * x));
    const double slope = p * (1 - p) * (1.6 + 0.2141 * x * x);
    const double tail = (x < 0 ? p : 1 - p) * size;
    if (value)
        return z * (p + tail + least);
    return p + tail + z * slope * (1 + size) + (1 + z * size) * least;
}

/* Returns an element's magnitude before cancellation; without cancellation, the result's. */
static double magnitude_of(const lt_pointwise *f, bool value, double a, double b, double want)
{
    const double s = 1 / (1 + exp(-a));
    switch ((int)f->kind) {
    case LT_POINTWISE_BCE:
        return value ? fabs(a) + fabs(a * b) + log1p(exp(-fabs(a))) : s + fabs(b) + fabs(a);
    case LT_POINTWISE_TANH:
        return value ? fabs(want) : 1 + a * a;
    case LT_POINTWISE_GELU:
        return gelu_magnitude(value, a);
    case LT_POINTWISE_GELU_TANH:
        return gelu_tanh_magnitude(value, a);
    case LT_POINTWISE_SWIGLU: /* also for the gradient by a; both have the factor b or 1 */
        return value ? fabs(want) : fmax(s * fabs(a), s * (1 + fabs(a)) * fabs(b));
    case LT_POINTWISE_SILU:
        return value ? fabs(want) : s * (1 + fabs(a));
    case LT_POINTWISE_POW_TENSOR: /* the gradient's exponent, b - 1, is rounded too */
        return fabs(want) * (value ? 1 : 1 + fabs(log(a)) * (1 + fabs(b)));
    case LT_POINTWISE_SOFTPLUS:
    case LT_POINTWISE_ELU:
        return fabs(want) * (1 + fabs(a));
    case LT_POINTWISE_KL:
        return value ? fabs(b * log(b)) + fabs(b * a) : fabs(log(b)) + 1 + fabs(a);
    case LT_POINTWISE_KL_LOG:
        return exp(b) * (1 + fabs(b - a));
    case LT_POINTWISE_SQUARED_DIFFERENCE:
        return value ? fabs(want) : 2 * fabs(a - b);
    default:
        return fabs(want);
    }
}

static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    const lt_pointwise f = function_of(t);
    const bool value = !strcmp(t->entry, "pointwise");
    for (int64_t i = 0; i < operand_count(&t->operand[OUTPUT]); i++) {
        const double b = t->operand[B].value ? t->operand[B].value[i] : 0;
        magnitudes[OUTPUT][i] = magnitude_of(&f, value, t->operand[A].value[i], b, want[OUTPUT][i]);
    }
}

/* Creates ties, for half of a gradient. */
static void prepare(test *t)
{
    const operand *a = &t->operand[A], *b = &t->operand[B];
    for (int64_t i = 0; b->value && i < operand_count(a); i += 5)
        a->value[i] = t->operand[A].low >= 0 ? a->value[i] : b->value[i];
}

static void make(const function_row *r, const shape_row *s, int what, test *t)
{
    static char name[96];
    const lt_shape absent = {.ndim = -1};
    const bool reads_y = what > 0 && lt_pointwise_reads_y(r->kind);
    const bool binary = lt_pointwise_is_binary(r->kind);
    snprintf(name, sizeof name, "%s%s, %s", r->name, what == 2 ? " by b" : "", s->name);
    *t = (test){.entry = what ? "pointwise_grad" : "pointwise",
                .name = name,
                .call = call,
                .magnitude = magnitude,
                .prepare = prepare,
                .operands = OUTPUT + 1,
                .terms = 4,
                .exact = r->exact && !what,
                .large = s->large,
                .master = r->single};
    t->config.pointwise.f = (lt_pointwise){r->kind, {r->number[0], r->number[1]}};
    t->config.pointwise.input = what - 1;
    t->operand[A] = (operand){IN, DATA, s->shape, s->a, KEEP, r->low, r->high, NULL};
    if (reads_y) { /* the function's value */
        t->operand[A].low = r->kind == LT_POINTWISE_TANH ? -1 : 0.001;
        t->operand[A].high = r->kind == LT_POINTWISE_TANH ? 0.999 : 0.998;
    }
    t->operand[B] =
        (operand){IN, DATA, binary ? s->shape : absent, s->b, KEEP, r->b_low, r->b_high, NULL};
    t->operand[DY] = (operand){IN, DATA, what ? s->shape : absent, STORAGE, KEEP, -1, 1, NULL};
    t->operand[OUTPUT] = (operand){OUT, DATA, s->shape, s->y, KEEP, 0, 0, NULL};
}

static size_t shapes_of(lt_pointwise_kind which)
{
    const bool all = which == LT_POINTWISE_GELU || which == LT_POINTWISE_GELU_TANH
                     || which == LT_POINTWISE_SWIGLU;
    size_t count = 0;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        count += all || !shapes[s].large;
    return count;
}

bool pointwise_tests(size_t i, test *t)
{
    size_t row = 0;
    for (size_t k = 0; k < COUNT_OF(functions); k++) {
        const size_t each = lt_pointwise_is_binary(functions[k].kind) ? GRADS : GRADS - 1;
        const size_t count = each * shapes_of(functions[k].kind);
        if (i - row < count) {
            make(&functions[k], &shapes[(i - row) / each], (int)((i - row) % each), t);
            return true;
        }
        row += count;
    }
    return false;
}

/* Counts kinds without rows. */
int pointwise_without_rows(void)
{
    int missing = 0;
    for (int number = 0; number < LT_POINTWISE_KINDS; number++) {
        bool found = false;
        for (size_t k = 0; k < COUNT_OF(functions); k++)
            found = found || (int)functions[k].kind == number;
        if (!found)
            printf("FAIL pointwise: function %d has no rows\n", number);
        missing += !found;
    }
    return missing;
}
