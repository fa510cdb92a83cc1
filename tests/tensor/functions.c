/* The cpu backend's functions of sixteen floats against those in f64: largest errors over a part of all floats, spread by
 * a fixed step, or over all of them (LATHER_TEST_FULL=1, minutes). */

#include "tensor/backend/cpu/kernels/functions.h"

#include "base/parallel.h"
#include "full.h"
#include "near.h"

#include "lather/ext/elementary.h"

enum { WIDTH = 16 };

typedef void sixteen(const float *x, float y, float *out);
typedef double exact(double x, double y);

#define SIXTEEN(name, expression)                                \
    static void name(const float *from, float other, float *out) \
    {                                                            \
        const vec x = load(from, 0, WIDTH, LT_STORE_F32);        \
        (void)other;                                             \
        save(out, 0, (expression), WIDTH, LT_STORE_F32);         \
    }
SIXTEEN(vec_exp, exponential(x))
SIXTEEN(vec_exp2, exponential_of_2(x))
SIXTEEN(vec_log, logarithm(x))
SIXTEEN(vec_log1p, logarithm_of_1_plus(x))
SIXTEEN(vec_tanh, hyperbolic_tangent(x))
SIXTEEN(vec_normal, normal_distribution(x))
SIXTEEN(vec_gelu_slope, gelu_slope(x))
SIXTEEN(vec_sqrt, square_root(x))
SIXTEEN(vec_pow, power_of(x, vec_set(other)))
SIXTEEN(wrong_exp, exponential(x) * (1 + 0x1p-22F))

#define EXACT(name, expression)            \
    static double name(double x, double y) \
    {                                      \
        (void)y;                           \
        return expression;                 \
    }
EXACT(exact_exp, lt_f64_exp(x))
EXACT(exact_exp2, lt_f64_exp(x * 0.69314718055994530942))
EXACT(exact_log, lt_f64_log(x))
EXACT(exact_log1p, lt_f64_log1p(x))
EXACT(exact_tanh, lt_f64_tanh(x))
EXACT(exact_normal, lt_f64_erfc(x * -0.70710678118654752440) / 2)
EXACT(exact_sqrt, sqrt(x))
EXACT(exact_slope,
      exact_normal(x, 0) + (isinf(x) ? 0 : x * lt_f64_exp(-x * x / 2) * 0.39894228040143267794))

typedef struct function {
    const char *name;
    sixteen *f;
    exact *want;
    float y, low, high; /* second argument; arguments between which the bound holds */
    double bound;       /* in ulp of the result, or of 1 */
    bool of_one, broken;
} function;

#define ALL -INFINITY, INFINITY
/* The bounds that kernels/functions.h has. */
static const function functions[] = {
    {"exponential", vec_exp, exact_exp, 0, ALL, 0.95, false, false},
    {"control: exponential, two ulp too large", wrong_exp, exact_exp, 0, ALL, 0.9, false, true},
    {"exponential of 2", vec_exp2, exact_exp2, 0, -126, 127, 1, false, false},
    {"logarithm", vec_log, exact_log, 0, ALL, 2, false, false},
    {"logarithm of 1 + x", vec_log1p, exact_log1p, 0, 0, INFINITY, 3.9, false, false},
    {"hyperbolic tangent", vec_tanh, exact_tanh, 0, ALL, 3, false, false},
    {"normal distribution", vec_normal, exact_normal, 0, ALL, 1.7, true, false},
    {"gelu's slope", vec_gelu_slope, exact_slope, 0, ALL, 3, true, false},
    {"square root", vec_sqrt, exact_sqrt, 0, ALL, 0.5, false, false},
    {"power -0.25", vec_pow, lt_f64_pow, -0.25F, ALL, 0.5001, false, false},
    {"power -0.5", vec_pow, lt_f64_pow, -0.5F, ALL, 0.5001, false, false},
    {"power 3", vec_pow, lt_f64_pow, 3, ALL, 0.5001, false, false},
    {"power 17.3", vec_pow, lt_f64_pow, 17.3F, ALL, 0.5001, false, false},
};

enum { PARTS = 4096 };

typedef struct walk {
    const function *f;
    double largest[PARTS];
    float at[PARTS];
} walk;

static float float_of(uint32_t bits_)
{
    float x;
    memcpy(&x, &bits_, sizeof x);
    return x;
}

/* Returns the error in ulp; 0 where both are NaN or the same infinity. */
static double error_of(float got, double want, bool of_one)
{
    int exponent;
    if (isnan(want) || isinf((float)want))
        return isnan(want) ? !isnan(got) : got != (float)want;
    frexp(of_one ? 1 : want, &exponent);
    return fabs(ldexp((double)got - want, 24 - (exponent < -125 ? -125 : exponent)));
}

static void compare_part(void *context, int64_t begin, int64_t end, int64_t part)
{
    walk *w = context;
    const uint32_t step = test_full() ? 1 : 4099;
    float x[WIDTH], y[WIDTH];
    for (int64_t i = begin; i < end; i += (int64_t)step * WIDTH) {
        for (uint32_t l = 0; l < WIDTH; l++)
            x[l] = float_of((uint32_t)i + l * step);
        w->f->f(x, w->f->y, y);
        for (int l = 0; l < WIDTH; l++) {
            const bool in = isnan(x[l]) || (x[l] >= w->f->low && x[l] <= w->f->high);
            const double error =
                in ? error_of(y[l], w->f->want((double)x[l], (double)w->f->y), w->f->of_one) : 0;
            if (!(error <= w->largest[part])) {
                w->largest[part] = error;
                w->at[part] = x[l];
            }
        }
    }
}

static void errors_are_bounded(void **state)
{
    static walk w;
    int worst = 0;
    w = (walk){.f = *state};
    lt_parallel((int64_t)1 << 32, ((int64_t)1 << 32) / PARTS, compare_part, &w);
    for (int i = 1; i < PARTS; i++)
        worst = w.largest[i] <= w.largest[worst] ? worst : i;
    print_message("%s: largest error %.4f ulp at %a\n", w.f->name, w.largest[worst],
                  (double)w.at[worst]);
    assert_int_equal(w.largest[worst] <= w.f->bound, !w.f->broken);
}

static void special_powers_are_those_in_f64(void **state)
{
    (void)state;
    const float all[] = {0,        0.5F,           1,       2,         3,     4,        2.5F,
                         0x1p23F,  0x1.000002p23F, 0x1p24F, 0x1.8p23F, 1e38F, INFINITY, NAN,
                         0x1p-149F};
    for (size_t i = 0; i < 4 * COUNT_OF(all) * COUNT_OF(all); i++) {
        const float x = all[i / 4 % COUNT_OF(all)] * (i & 1 ? -1.0F : 1.0F);
        const float y = all[i / 4 / COUNT_OF(all)] * (i & 2 ? -1.0F : 1.0F);
        const float got = power_of(vec_set(x), vec_set(y))[5],
                    want = (float)lt_f64_pow((double)x, (double)y);
        if (isnan(want) ? !isnan(got) : memcmp(&got, &want, sizeof got) != 0)
            fail_msg("%a to the power %a: %a, want %a", (double)x, (double)y, (double)got,
                     (double)want);
    }
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(functions) + 1] = {
        cmocka_unit_test(special_powers_are_those_in_f64)};
#if defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 77;
#endif
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        tests[1 + i] = row_test(functions[i].name, errors_are_bounded, &functions[i]);
    return cmocka_run_group_tests_name("functions of sixteen floats", tests, NULL, NULL);
}
