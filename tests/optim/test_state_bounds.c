/* Bounds, computed from the formats, of the distance between runs with quantized and with f32 state. */

#include "optim/low_precision/quantized_state.h"
#include "state_problem.h"

#include <stdio.h>

/* --- Moments --- */

/* Each rounding moves m by the largest level at most, and a parameter by lr / (1 - momentum) times that:
 * bounds for SGD with momentum, whose gradients here do not depend on the parameters. */
static void test_bound(void **state)
{
    const lt_state_dtype dtype = *(const lt_state_dtype *)*state;
    const double level = dtype == LT_STATE_BF16 ? 0x1p-7 : 0.9 / 64, lr = 0.05;
    static problem p[2];
    double bound = 0, m[SIZE] = {0}, g[SIZE];
    for (int k = 0; k < 2; k++)
        open_problem(&p[k], open_momentum, k ? dtype : LT_STATE_F32);
    for (int t = 0; t < 50; t++) {
        double most = 0;
        for (int i = 0; i < SIZE; i++) {
            g[i] = sin(1 + 0.3 * t + 1.7 * i);
            m[i] = 0.9 * m[i] + g[i];
            most = fmax(most, fabs(m[i]));
        }
        bound += lr / (1 - 0.9) * level * (most + 1);
        for (int k = 0; k < 2; k++) {
            put_grad(&p[k].f.param[0], g);
            put_grad(&p[k].f.param[1], g);
            fixture_step(&p[k].f, lr);
        }
    }
    close_problem(&p[0]);
    close_problem(&p[1]);
    assert_near(furthest(&p[0], &p[1]), 0, bound);
    assert_true(furthest(&p[0], &p[1]) > bound / 1000);
}

/* A number, and the largest error of its quantized value. */
typedef struct bounded {
    double exact, apart;
} bounded;

/* Bound after an update x = keep x + more and its rounding: by a level at x (bf16) or of the largest (int8)
 * at most, as averages are rounded up or down. */
static void update_bounded(bounded *x, double keep, double more)
{
    x->exact = keep * x->exact + more;
    x->apart = keep * x->apart;
}

static void round_bounded(bounded *x, double level, bool of_itself, double most)
{
    x->apart += level * (of_itself ? fabs(x->exact) + x->apart : most);
}

static double largest_of(const bounded *x)
{
    double most = 0;
    for (int i = 0; i < SIZE; i++)
        most = fmax(most, fabs(x[i].exact) + x[i].apart);
    return most;
}

/* Largest distance of Adam's update from any that m and v within their bounds give. */
static double direction_apart(bounded m, bounded v, int t)
{
    const double c1 = 1 - pow(0.9, t), c2 = 1 - pow(0.999, t), eps = 1e-8;
    const double exact = m.exact / c1 / (sqrt(v.exact / c2) + eps);
    const double least = fmax(v.exact - v.apart, 0), lengths[] = {least, v.exact + v.apart};
    double most = 0;
    for (int k = 0; k < 4; k++) {
        const double mean = m.exact + (k & 1 ? m.apart : -m.apart);
        most = fmax(most, fabs(mean / c1 / (sqrt(lengths[k / 2] / c2) + eps) - exact));
    }
    return most;
}

/* Bounds of Adam, whose gradients here do not depend on the parameters and are of magnitudes between 1/2 and 3/2, so that no
 * second moment is near 0, where a level of the largest would be more than all of it. A direction is of moments that were
 * rounded in the step before. */
static void test_adam_bound(void **state)
{
    const lt_state_dtype dtype = *(const lt_state_dtype *)*state;
    const bool of_itself = dtype == LT_STATE_BF16;
    const double level_m = of_itself ? 0x1p-7 : 0.9 / 64, level_v = of_itself ? 0x1p-7 : 0.9 / 128;
    static problem p[2];
    static bounded m[SIZE], v[SIZE];
    double bound[SIZE] = {0}, g[SIZE];
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int k = 0; k < 2; k++)
        open_problem(&p[k], open_adam, k ? dtype : LT_STATE_F32);
    for (int t = 1; t <= 50; t++) {
        for (int i = 0; i < SIZE; i++) {
            g[i] = (1 + 0.5 * sin(1 + 0.3 * t + 1.7 * i)) * ((i + t / 7) % 2 ? 1 : -1);
            update_bounded(&m[i], 0.9, 0.1 * g[i]);
            update_bounded(&v[i], 0.999, 0.001 * g[i] * g[i]);
            bound[i] += 0.01 * direction_apart(m[i], v[i], t);
        }
        const double most_m = largest_of(m), most_v = largest_of(v);
        for (int i = 0; i < SIZE; i++) {
            round_bounded(&m[i], level_m, of_itself, most_m);
            round_bounded(&v[i], level_v, of_itself, most_v);
        }
        for (int k = 0; k < 2; k++) {
            put_grad(&p[k].f.param[0], g);
            put_grad(&p[k].f.param[1], g);
            fixture_step(&p[k].f, 0.01);
        }
    }
    close_problem(&p[0]);
    close_problem(&p[1]);
    double share = 0;
    for (int i = 0; i < SIZE; i++) {
        assert_near(p[1].value[i], p[0].value[i], bound[i] + 1e-5); /* f32's own rounding */
        share = fmax(share, fabs(p[1].value[i] - p[0].value[i]) / bound[i]);
    }
    print_message("parameters are apart by %g of the bound, %g\n", share, bound[0]);
    assert_true(share > 0.01);
}

/* --- Factors --- */

typedef struct factors {
    float value[16 * SIZE];
    size_t count;
} factors;

static lt_status add_factor(void *context, const lt_state_entry *entry)
{
    factors *f = context;
    lt_tensor *dense = entry->tensor;
    if (strncmp(entry->name, "factor.", 7) != 0)
        return LT_OK;
    if (entry->quantized)
        assert_ok(lt_quantized_dequantize(entry->quantized, &dense));
    const size_t count = (size_t)lt_tensor_count(dense);
    assert_true(f->count + count <= COUNT_OF(f->value));
    assert_ok(lt_tensor_read(dense, f->value + f->count, count * sizeof *f->value));
    f->count += count;
    if (entry->quantized)
        lt_tensor_free(&dense);
    return LT_OK;
}

static const factors *factors_of(problem *p)
{
    static factors f[2];
    static int turn;
    factors *to = &f[turn ^= 1];
    lt_state_visitor visitor = {add_factor, ignore_number, to};
    to->count = 0;
    assert_ok(lt_optim_visit(p->f.optim, &visitor));
    assert_true(to->count > 0);
    return to;
}

static lt_status open_seen(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(dtype);
    c.factor_frequency = 1;
    c.beta2 = 0.95;
    return lt_optim_shampoo(out, params, &c);
}

/* Most that rounding moves an element of a Cholesky factor C, over the largest of its block (bf16: over itself). With int8 and
 * int4 it is a level of the 4 bits of what the codes leave, which is half a level of theirs; a scale in bf16 is off by 2^-9 or,
 * drawn, 2^-8. */
static double level_of_factor(lt_state_dtype dtype)
{
    const double gap = 13 / 49.0 * (1 + 0x1p-8);
    return dtype == LT_STATE_BF16   ? 0x1p-7
           : dtype == LT_STATE_INT8 ? gap * (0.5 / 127 + 0x1p-9)
                                    : gap * (0.5 * 13 / 49 + 0x1p-9);
}

/* Bound of F = C C^T after rounding C by E: C E^T + E C^T + E E^T, where E is by draws, so mean 0 and a deviation of half a level of
 * the largest at most. A row of C has the length sqrt(F_ii), so an element of the first two has the deviation level max F_ii at
 * most, and the last is up to n (level/2)^2 max F_ii in the mean. Factors keep beta2 of that in each update. 3.5 such
 * deviations: most elements are below the largest and few draws are between the middles of levels, so deviations are a
 * third of that, and a factor whose codes' errors are dropped is beyond it. */
static void test_factor_bound(void **state)
{
    const lt_state_dtype dtype = *(const lt_state_dtype *)*state;
    const double level = level_of_factor(dtype), keep = 0.95, n = 16;
    static problem p[2];
    double variance = 0, mean = 0, apart = 0, g[SIZE];
    for (int k = 0; k < 2; k++)
        open_problem(&p[k], open_seen, k ? dtype : LT_STATE_F32);
    for (int t = 0; t < 50; t++) {
        for (int i = 0; i < SIZE; i++)
            g[i] = sin(1 + 0.3 * t + 1.7 * i + 0.9 * t * i);
        for (int k = 0; k < 2; k++) {
            put_grad(&p[k].f.param[0], g);
            put_grad(&p[k].f.param[1], g);
            fixture_step(&p[k].f, 0.01);
        }
        const factors *f = factors_of(&p[0]);
        double most = 0;
        for (size_t i = 0; i < f->count; i++)
            /* a factor's largest element is on the diagonal */
            most = fmax(most, fabs((double)f->value[i]));
        variance = keep * keep * variance + level * level * most * most;
        mean = keep * mean + n * level * level / 4 * most;
    }
    const factors *exact = factors_of(&p[0]), *kept = factors_of(&p[1]);
    const double bound = 3.5 * sqrt(variance) + mean;
    assert_int_equal(exact->count, kept->count);
    for (size_t i = 0; i < exact->count; i++)
        apart = fmax(apart, fabs((double)exact->value[i] - (double)kept->value[i]));
    print_message("factors are apart by %g, the bound is %g\n", apart, bound);
    assert_true(apart <= bound);
    assert_true(apart > bound / 100);
    close_problem(&p[0]);
    close_problem(&p[1]);
}

/* As if the 4-bit quantization errors were not kept. */
static lt_status drop_errors(void *context, const lt_state_entry *entry)
{
    lt_tensor *shown = NULL;
    (void)context;
    if (strncmp(entry->name, "factor.", 7) != 0)
        return LT_OK;
    assert_ok(lt_quantized_to_checkpoint(entry->quantized, &shown));
    const int64_t n = lt_tensor_shape(shown).dim[0];
    float x[16 * 16];
    assert_true(n <= 16);
    assert_ok(lt_tensor_read(shown, x, (size_t)(n * n) * sizeof *x));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            x[i * n + j] = 0;
    assert_ok(lt_tensor_write(shown, x, (size_t)(n * n) * sizeof *x));
    assert_ok(lt_quantized_from_checkpoint(entry->quantized, shown));
    lt_tensor_free(&shown);
    return LT_OK;
}

/* Quantization errors are worth their bits: without them the same steps end further from f32. */
static void test_feedback(void **state)
{
    const lt_state_dtype dtype = *(const lt_state_dtype *)*state;
    enum { F32, KEPT, DROPPED, RUNS };
    static problem p[RUNS];
    lt_state_visitor visitor = {drop_errors, ignore_number, NULL};
    for (int k = 0; k < RUNS; k++) {
        open_problem(&p[k], open_seen, k ? dtype : LT_STATE_F32);
        for (int t = 0; t < 50; t++) {
            run_steps(&p[k], 1, 0.05);
            if (k == DROPPED)
                assert_ok(lt_optim_visit(p[k].f.optim, &visitor));
        }
        close_problem(&p[k]);
    }
    const double with = furthest(&p[F32], &p[KEPT]), without = furthest(&p[F32], &p[DROPPED]);
    print_message("from f32 by %g, without what codes leave by %g\n", with, without);
    assert_true(without > 2 * with);
}

static lt_state_dtype bounds[] = {LT_STATE_BF16, LT_STATE_INT8, LT_STATE_INT4};
enum { OF_MOMENTS = 2 }; /* the first rows */

int main(void)
{
    struct CMUnitTest tests[16];
    size_t n = 0;
    for (size_t i = 0; i < OF_MOMENTS; i++) {
        tests[n++] =
            row_test("momentum is as far from f32 as its levels allow", test_bound, &bounds[i]);
        tests[n++] =
            row_test("adam is as far from f32 as its levels allow", test_adam_bound, &bounds[i]);
    }
    for (size_t i = 0; i < COUNT_OF(bounds); i++)
        tests[n++] = row_test("factors are as far from f32 as their levels allow",
                              test_factor_bound, &bounds[i]);
    for (size_t i = 1; i < COUNT_OF(bounds); i++)
        tests[n++] = row_test("without quantization errors parameters are further from f32",
                              test_feedback, &bounds[i]);
    return _cmocka_run_group_tests("bounds of state dtypes", tests, n, NULL, NULL);
}
