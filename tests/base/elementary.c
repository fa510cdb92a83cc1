/* src/base/elementary/elementary.c: errors against results of 200 bits and more, tests/golden/elementary.txt or the file that is the
 * argument; special values; order of results where two approximations meet. */

#include "lather/ext/elementary.h"

#include "near.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef double unary(double x);

/* As lt_f64_exp() if one number of its table were an ulp larger. */
static double wrong_exp(double x)
{
    const bool entry = ((int)nearbyint(x * 46.16624130844683) & 31) == 2;
    return lt_f64_exp(x) * (entry ? 1 + 0x1p-52 : 1);
}

typedef struct function {
    const char *name, *row;
    unary *f; /* NULL: lt_f64_pow() */
    double bound;
    bool broken; /* a control: has errors above the bound */
} function;

/* The bounds that lather/ext/elementary.h has. */
static const function functions[] = {
    {"exp", "exp", lt_f64_exp, 0.52, false},
    {"exp", "control: exp, a coefficient off by an ulp", wrong_exp, 0.52, true},
    {"log", "log", lt_f64_log, 0.51, false},
    {"log1p", "log1p", lt_f64_log1p, 0.6, false},
    {"pow", "pow", NULL, 0.7, false},
    {"sin", "sin", lt_f64_sin, 0.75, false},
    {"cos", "cos", lt_f64_cos, 0.75, false},
    {"tanh", "tanh", lt_f64_tanh, 2.2, false},
    {"erfc", "erfc", lt_f64_erfc, 3.6, false},
};

static const char *golden;

/* Returns the error in units in the last place of the result, whose first part is rounded and second what remains. */
static double error_of(double y, double first, double rest)
{
    int exponent;
    frexp(first, &exponent);
    if (exponent < -1021) /* two roundings */
        return ldexp(fabs(y - first), 1074) <= 1 ? 0 : 9;
    return fabs(ldexp(y - first - rest, 53 - exponent));
}

static void errors_are_bounded(void **state)
{
    const function *f = *state;
    double largest = 0, at[2] = {0};
    int count = 0;
    char line[512], *end;
    FILE *file = fopen(golden, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const size_t name = strcspn(line, " ");
        if (name != strlen(f->name) || strncmp(line, f->name, name) != 0)
            continue;
        const double x = strtod(line + name, &end), y = f->f ? 0 : strtod(end, &end);
        const double first = strtod(end, &end), rest = strtod(end, &end);
        const double error = error_of(f->f ? f->f(x) : lt_f64_pow(x, y), first, rest);
        if (!(error <= largest)) {
            largest = error;
            at[0] = x;
            at[1] = y;
        }
        count++;
    }
    fclose(file);
    print_message("%s: %d results, largest error %.4f ulp at %a %a\n", f->row, count, largest,
                  at[0], at[1]);
    assert_true(count > 50);
    assert_int_equal(largest <= f->bound, !f->broken);
}

typedef struct special {
    unary *f;
    double x, want;
} special;

static const double inf = (double)INFINITY, nan_ = (double)NAN;

static void assert_same(double got, double want, const char *name, double x, double y)
{
    if (isnan(want) ? !isnan(got) : memcmp(&got, &want, sizeof got) != 0)
        fail_msg("%s of %a %a: %a, want %a", name, x, y, got, want);
}

static void special_values_are_those_of_annex_f(void **state)
{
    (void)state;
    const special rows[] = {
        {lt_f64_exp, inf, inf},
        {lt_f64_exp, -inf, 0},
        {lt_f64_exp, 0, 1},
        {lt_f64_exp, nan_, nan_},
        {lt_f64_exp, 1e4, inf},
        {lt_f64_exp, -1e4, 0},
        {lt_f64_exp, 0x1.62e42fefa39fp+9, inf},
        {lt_f64_log, 0, -inf},
        {lt_f64_log, -0.0, -inf},
        {lt_f64_log, 1, 0},
        {lt_f64_log, -1, nan_},
        {lt_f64_log, inf, inf},
        {lt_f64_log, nan_, nan_},
        {lt_f64_log, -inf, nan_},
        {lt_f64_log1p, -0.0, -0.0},
        {lt_f64_log1p, -1, -inf},
        {lt_f64_log1p, -2, nan_},
        {lt_f64_log1p, inf, inf},
        {lt_f64_log1p, nan_, nan_},
        {lt_f64_log1p, -inf, nan_},
        {lt_f64_sin, -0.0, -0.0},
        {lt_f64_sin, inf, nan_},
        {lt_f64_sin, nan_, nan_},
        {lt_f64_cos, -0.0, 1},
        {lt_f64_cos, -inf, nan_},
        {lt_f64_cos, nan_, nan_},
        {lt_f64_tanh, -0.0, -0.0},
        {lt_f64_tanh, inf, 1},
        {lt_f64_tanh, -inf, -1},
        {lt_f64_tanh, nan_, nan_},
        {lt_f64_erfc, 0, 1},
        {lt_f64_erfc, inf, 0},
        {lt_f64_erfc, -inf, 2},
        {lt_f64_erfc, nan_, nan_},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_same(rows[i].f(rows[i].x), rows[i].want, "a function", rows[i].x, 0);
}

/* All pairs of these with the C library's pow(), whose results are exact there. */
static void special_powers_are_those_of_the_c_library(void **state)
{
    (void)state;
    const double all[] = {0, 0.5, 1, 2, 3, 4, 0x1p53, 0x1p54, 1e300, inf, nan_, 0x1p-1074};
    for (size_t i = 0; i < 4 * COUNT_OF(all) * COUNT_OF(all); i++) {
        const double x = all[i / 4 % COUNT_OF(all)] * (i & 1 ? -1 : 1);
        const double y = all[i / 4 / COUNT_OF(all)] * (i & 2 ? -1 : 1);
        if (y != 0.5 && y != -0.5)
            assert_same(lt_f64_pow(x, y), pow(x, y), "pow", x, y);
    }
}

/* Seams: ends of the tables' intervals, 1 for tanh, pi/4 for sin. */
static void results_rise_at_seams(void **state)
{
    (void)state;
    for (int i = -64; i <= 64; i++) {
        double x[] = {(i + 0.5) / 32 * 0.6931471805599453, 1 + (i + 64.5) / 64, (i + 64) / 64.0,
                      i / 65.0 * 0.785};
        for (size_t k = 0; k < COUNT_OF(x); k++) {
            unary *const f = k == 0   ? lt_f64_exp
                             : k == 1 ? lt_f64_log
                             : k == 2 ? lt_f64_tanh
                                      : lt_f64_sin;
            for (int steps = 0; steps < 20; steps++)
                x[k] = nextafter(x[k], -inf);
            for (int steps = 0; steps < 40; steps++) {
                const double next = nextafter(x[k], inf), slack = k > 1 ? fabs(x[k]) * 0x1p-52 : 0;
                if (!(f(next) >= f(x[k]) - slack))
                    fail_msg("function %d falls from %a to %a", (int)k, x[k], next);
                x[k] = next;
            }
        }
    }
}

int main(int argc, char **argv)
{
    char path[4096];
    struct CMUnitTest tests[COUNT_OF(functions) + 3] = {
        cmocka_unit_test(special_values_are_those_of_annex_f),
        cmocka_unit_test(special_powers_are_those_of_the_c_library),
        cmocka_unit_test(results_rise_at_seams),
    };
    snprintf(path, sizeof path, "%s/tests/golden/elementary.txt", getenv("LATHER_TEST_SOURCE"));
    golden = argc > 1 ? argv[1] : path;
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        tests[3 + i] = row_test(functions[i].row, errors_are_bounded, &functions[i]);
    return cmocka_run_group_tests_name("elementary functions", tests, NULL, NULL);
}
