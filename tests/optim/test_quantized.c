/* Quantized state: its formats, and optimizers that use it. */

#include "base/alloc.h"
#include "makers.h"
#include "optim/low_precision/quantized_state.h"

#include "lather/shampoo.h"
#include "lather/train.h"

#include <float.h>
#include <stdio.h>

/* --- Formats --- */

enum { SIDE = 37, ELEMENTS = SIDE * SIDE };
static const lt_quantized_rounding nearest = {0};

/* Numbers of many magnitudes, from a counter: no two runs differ. */
static double number(int64_t i)
{
    const double x = sin(12.9898 * (double)(i + 1)) * 43758.5453, unit = x - floor(x) - 0.5;
    return unit * pow(10, 3 * sin(0.37 * (double)i));
}

typedef struct format_row {
    const char *name;
    lt_quantized_format format;
    double bound; /* bound of an element's error, times the largest magnitude of its block */
} format_row;

/* Half the largest distance of adjacent levels; scales in bf16 add 2^-9. */
static const double even = 0.5 / 127 + 0x1p-9, quarter = 0.5 * 13 / 49 + 0x1p-9;
static const double tree = 0.5 * 0.9 / 64, tree_positive = 0.5 * 0.9 / 128;

static void fill(float *x, const format_row *w)
{
    const lt_quantized_kind kind = w->format.kind;
    const bool square = kind == LT_QUANTIZED_SYMMETRIC;
    for (int64_t i = 0; i < ELEMENTS; i++)
        x[i] = (float)number(i);
    for (int64_t i = 0; i < ELEMENTS && kind == LT_QUANTIZED_NONNEGATIVE; i++)
        x[i] = fabsf(x[i]);
    for (int64_t r = 0; r < SIDE && square; r++)
        for (int64_t c = 0; c < r; c++)
            x[c * SIDE + r] = x[r * SIDE + c];
}

/* The largest magnitude of all: more than any block's. */
static double largest(const float *x)
{
    double most = 0;
    for (int64_t i = 0; i < ELEMENTS; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static void test_format(void **state)
{
    const format_row *w = *state;
    static float x[ELEMENTS], once[ELEMENTS], twice[ELEMENTS];
    static unsigned char memory[4 * ELEMENTS + 4 * SIDE], again[sizeof memory];
    const size_t bytes = (size_t)lt_quantized_bytes(w->format, ELEMENTS);
    double error = 0;
    assert_true(bytes <= sizeof memory);
    fill(x, w);
    memset(memory, 0, sizeof memory);
    lt_quantized_encode(w->format, x, ELEMENTS, memory, false, nearest);
    lt_quantized_decode(w->format, memory, ELEMENTS, true, once);
    for (int64_t i = 0; i < ELEMENTS; i++)
        error = fmax(error, fabs((double)x[i] - (double)once[i]));
    assert_near(error, 0, w->bound * largest(x));
    if (w->bound > 0) /* and no finer: int8 really has its levels */
        assert_true(error > w->bound * largest(x) / 8);
    memset(again, 0, sizeof again);
    lt_quantized_encode(w->format, once, ELEMENTS, again, false, nearest);
    assert_memory_equal(memory, again, bytes);
    lt_quantized_decode(w->format, again, ELEMENTS, true, twice);
    assert_memory_equal(once, twice, sizeof once);
}

static lt_quantized_rounding by_draw(int64_t step)
{
    return (lt_quantized_rounding){.stochastic = true, .key = 0x1234567890ABCDEF, .step = step};
}

/* Stochastic rounding errs by twice as much at most, and a rounded number is unchanged by further rounding. */
static void test_draws(void **state)
{
    const format_row *w = *state;
    static float x[ELEMENTS], once[ELEMENTS], twice[ELEMENTS];
    static unsigned char memory[4 * ELEMENTS + 4 * SIDE];
    fill(x, w);
    for (int64_t step = 1; step <= 8; step++) {
        lt_quantized_encode(w->format, x, ELEMENTS, memory, false, by_draw(step));
        lt_quantized_decode(w->format, memory, ELEMENTS, true, once);
        for (int64_t i = 0; i < ELEMENTS; i++)
            assert_near(x[i], once[i], 2.01 * w->bound * largest(x));
        lt_quantized_encode(w->format, once, ELEMENTS, memory, false, by_draw(step + 20));
        lt_quantized_decode(w->format, memory, ELEMENTS, true, twice);
        assert_memory_equal(once, twice, sizeof once);
    }
}

enum { MEANS = 1024 };

/* The largest error of a mean over MEANS steps, over half a level. */
static double furthest_mean(const format_row *w, const float *x, bool stochastic)
{
    static double sum[ELEMENTS];
    static float back[ELEMENTS];
    static unsigned char memory[4 * ELEMENTS + 4 * SIDE];
    double most = 0;
    memset(sum, 0, sizeof sum);
    for (int64_t step = 1; step <= MEANS; step++) {
        lt_quantized_encode(w->format, x, ELEMENTS, memory, false,
                            stochastic ? by_draw(step) : nearest);
        lt_quantized_decode(w->format, memory, ELEMENTS, true, back);
        for (int64_t i = 0; i < ELEMENTS; i++)
            sum[i] += (double)back[i] - (double)x[i];
    }
    for (int64_t i = 0; i < ELEMENTS; i++)
        most = fmax(most, fabs(sum[i]) / MEANS);
    return most / (w->bound * largest(x));
}

/* Stochastic rounding deviates by half a level at most, in mean over both, so the mean's deviation is 1/32
 * of that: of 1369 one beyond 6.5 deviations occurs once in ten million runs, and the draws are fixed. To
 * nearest half a level remains. */
static void test_mean(void **state)
{
    const format_row *w = *state;
    static float x[ELEMENTS];
    for (int64_t i = 0; i < ELEMENTS; i++)
        x[i] = (float)(1.5 + sin(12.9898 * (double)(i + 1))); /* levels are furthest apart here */
    const double drawn = furthest_mean(w, x, true), to_nearest = furthest_mean(w, x, false);
    print_message("%s: off by %g of half a level, to nearest %g\n", w->name, drawn, to_nearest);
    assert_true(drawn < 6.5 / sqrt(MEANS));
    assert_true(to_nearest > 0.5);
}

static void test_bytes(void **state)
{
    (void)state;
    const int64_t n = 1024, half = n * (n - 1) / 2;
#define BYTES(kind, dtype) \
    lt_quantized_bytes((lt_quantized_format){LT_QUANTIZED_##kind, LT_STATE_##dtype}, n *n)
    assert_int_equal(BYTES(SYMMETRIC, F32), 4 * (half + n));
    assert_int_equal(BYTES(SYMMETRIC, INT8), 4 * n + half + 2 * (half / 64));
    assert_int_equal(BYTES(CHOLESKY, INT4), 4 * n + 2 * (half / 2 + 2 * (half / 64)));
    assert_int_equal(BYTES(CHOLESKY, INT8), 4 * n + half + half / 2 + 2 * 2 * (half / 64));
    assert_int_equal(BYTES(MATRIX, INT4), n * n / 2 + 2 * n * n / 64);
    assert_int_equal(BYTES(MOMENT, INT8), n * n + 4 * n * n / 128);
    assert_int_equal(BYTES(NONNEGATIVE, BF16), 2 * n * n);
#undef BYTES
}

static void test_not_finite(void **state)
{
    (void)state;
    enum { COUNT = 300, BAD = 130 };
    const lt_quantized_format f = {LT_QUANTIZED_MOMENT, LT_STATE_INT8};
    float x[COUNT], y[COUNT];
    unsigned char memory[2 * COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = i == BAD ? INFINITY : (float)i;
    lt_quantized_encode(f, x, COUNT, memory, false, nearest);
    lt_quantized_decode(f, memory, COUNT, true, y);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(isnan(y[i]), i / 128 == BAD / 128);
}

static void test_positive(void **state)
{
    (void)state;
    const lt_quantized_format f = {LT_QUANTIZED_NONNEGATIVE, LT_STATE_INT8};
    const float x[4] = {1, 1e-20F, 0, 0.5F};
    float y[4];
    unsigned char memory[8];
    lt_quantized_encode(f, x, 4, memory, false, nearest);
    lt_quantized_decode(f, memory, 4, true, y);
    assert_true(y[1] > 0 && y[2] == 0 && y[0] == 1);
}

/* --- Cholesky factors --- */

/* F of rank `rank`, its trace about SIDE / 2; each t another one around the same. */
static void make_factor(double *f, int rank, int t)
{
    memset(f, 0, ELEMENTS * sizeof *f);
    for (int k = 0; k < rank; k++)
        for (int r = 0; r < SIDE; r++)
            for (int c = 0; c < SIDE; c++)
                f[r * SIDE + c] += (1 + sin(t * (k + 0.7))) * sin(r * (k + 1.3) + k)
                                   * sin(c * (k + 1.3) + k) / rank;
}

static void test_cholesky(void **state)
{
    const int rank = *(const int *)*state;
    static double f[ELEMENTS];
    static float c[ELEMENTS];
    make_factor(f, rank, 0);
    for (int i = 0; i < ELEMENTS; i++)
        c[i] = (float)f[i];
    lt_quantized_cholesky(c, SIDE);
    for (int r = 0; r < SIDE; r++)
        for (int j = 0; j <= r; j++) {
            double sum = 0;
            for (int k = 0; k <= j; k++)
                sum += (double)c[r * SIDE + k] * (double)c[j * SIDE + k];
            assert_near(sum, f[r * SIDE + j], 5e-5);
        }
}

/* Returns the error of a slowly moving factor's norm after many stores, over the norm. */
static double track(lt_device *device, lt_state_dtype dtype, bool errors)
{
    static double f[ELEMENTS], g[ELEMENTS];
    lt_quantized *q = NULL;
    const int64_t stride[LT_MAX_DIMS] = {SIDE, 1};
    const lt_quantized_format format = {LT_QUANTIZED_CHOLESKY, dtype};
    const lt_quantized_format plain = {LT_QUANTIZED_MATRIX, dtype};
    const int64_t codes = SIDE * 4 + lt_quantized_bytes(plain, SIDE * (SIDE - 1) / 2);
    double error = 0, norm = 0;
    assert_ok(lt_quantized_new(&q, device, format, LT_SHAPE(SIDE, SIDE), stride, 1));
    memset(f, 0, sizeof f);
    for (int t = 0; t < 120; t++) {
        lt_tensor *open = NULL;
        make_factor(g, SIDE + 3, t);
        assert_ok(lt_quantized_dequantize(q, &open));
        float *x = lt_tensor_view(open).data;
        for (int i = 0; i < ELEMENTS; i++) {
            f[i] = 0.95 * f[i] + 0.05 * g[i];
            x[i] = (float)(0.95 * (double)x[i] + 0.05 * g[i]);
        }
        lt_quantized_requantize(q, open, t + 1);
        lt_tensor_free(&open);
        unsigned char *memory = lt_tensor_view(q->memory).data;
        if (!errors)
            memset(memory + codes, 0, lt_tensor_bytes(q->memory) - (size_t)codes);
    }
    lt_tensor *open = NULL;
    assert_ok(lt_quantized_dequantize(q, &open));
    const float *x = lt_tensor_view(open).data;
    for (int i = 0; i < ELEMENTS; i++) {
        error += ((double)x[i] - f[i]) * ((double)x[i] - f[i]);
        norm += f[i] * f[i];
    }
    lt_tensor_free(&open);
    lt_quantized_free(&q);
    return sqrt(error / norm);
}

/* The control keeps the codes alone. */
static void test_errors(void **state)
{
    (void)state;
    lt_device *device = NULL;
    assert_ok(lt_device_open(&device, "cpu", &(lt_device_config){.threads = 1}));
    const double bf16 = track(device, LT_STATE_BF16, true);
    const double int8 = track(device, LT_STATE_INT8, true);
    const double int8_alone = track(device, LT_STATE_INT8, false);
    const double int4 = track(device, LT_STATE_INT4, true);
    const double int4_alone = track(device, LT_STATE_INT4, false);
    print_message("int4 %g, without errors %g; int8 %g, %g; bf16 %g\n", int4, int4_alone, int8,
                  int8_alone, bf16);
    assert_true(int4 < 0.06 && int4 < 0.3 * int4_alone);
    assert_true(int8 < 0.004 && int8 < 0.3 * int8_alone);
    lt_device_close(&device);
}

/* Reading a checkpoint with another dtype gives the dequantized matrix. */
static void test_converted(void **state)
{
    (void)state;
    lt_device *device = NULL;
    const int64_t stride[LT_MAX_DIMS] = {SIDE, 1};
    assert_ok(lt_device_open(&device, "cpu", &(lt_device_config){.threads = 1}));
    for (int dtype = LT_STATE_BF16; dtype <= LT_STATE_INT4; dtype++) {
        const lt_quantized_format format = {LT_QUANTIZED_CHOLESKY, (lt_state_dtype)dtype};
        static double f[ELEMENTS];
        lt_quantized *q = NULL;
        lt_tensor *open = NULL, *shown = NULL;
        bool converted = false;
        make_factor(f, SIDE + 3, 1);
        assert_ok(lt_quantized_new(&q, device, format, LT_SHAPE(SIDE, SIDE), stride, 7));
        assert_ok(lt_quantized_dequantize(q, &open));
        for (int i = 0; i < ELEMENTS; i++)
            ((float *)lt_tensor_view(open).data)[i] = (float)f[i];
        lt_quantized_requantize(q, open, 3);
        lt_tensor_free(&open);
        assert_ok(lt_quantized_dequantize(q, &open));
        assert_ok(lt_quantized_to_checkpoint(q, &shown));
        assert_ok(lt_quantized_expand_cholesky(shown, &converted));
        assert_true(converted);
        assert_memory_equal(lt_tensor_view(open).data, lt_tensor_view(shown).data,
                            ELEMENTS * sizeof(float));
        lt_tensor_free(&open);
        lt_tensor_free(&shown);
        lt_quantized_free(&q);
    }
    lt_device_close(&device);
}

/* --- Averages that move slowly --- */

typedef struct average_row {
    const char *name;
    lt_quantized_format format;
    double bound; /* bound of the distance from the average in f64, over its norm */
} average_row;

/* Squares of the gradients of step t, which shrink, those of each row and column at another rate and those
 * of the first not at all: an average's memory of the first steps is an error, and scales are unchanged. */
static void make_squares(double *g, int t)
{
    static double part[2][ELEMENTS];
    double scale[SIDE];
    for (int k = 0; k < 2 && t == 1; k++) {
        make_factor(part[k], SIDE + 3, k);
        for (int i = 0; i < SIDE; i++)
            part[k][i * (SIDE + 1)] += 0.1;
    }
    for (int i = 0; i < SIDE; i++)
        scale[i] = i ? 0.1 + exp(-t / (100.0 + 10 * i)) : 1;
    for (int i = 0; i < ELEMENTS; i++)
        g[i] = scale[i / SIDE] * scale[i % SIDE]
               * ((1 + sin(0.9 * t)) * part[0][i] + (1 - sin(0.9 * t)) * part[1][i]);
}

/* Without the first row and column. */
static double distance(const float *x, const double *f)
{
    double error = 0, norm = 0;
    for (int i = SIDE; i < ELEMENTS; i++)
        if (i % SIDE) {
            error += ((double)x[i] - f[i]) * ((double)x[i] - f[i]);
            norm += f[i] * f[i];
        }
    return sqrt(error / norm);
}

static double average(lt_device *device, lt_quantized_format format, bool stochastic)
{
    enum { STEPS = 3000 };
    const double beta = 0.999;
    const bool positive = format.kind == LT_QUANTIZED_NONNEGATIVE;
    static double f[ELEMENTS], g[ELEMENTS];
    lt_quantized *q = NULL;
    lt_tensor *open = NULL;
    const int64_t stride[LT_MAX_DIMS] = {SIDE, 1};
    assert_ok(lt_quantized_new(&q, device, format, LT_SHAPE(SIDE, SIDE), stride, 7));
    memset(f, 0, sizeof f);
    for (int t = 1; t <= STEPS; t++) {
        make_squares(g, t);
        for (int i = 0; i < ELEMENTS && positive; i++)
            g[i] = fabs(g[i]);
        assert_ok(lt_quantized_dequantize(q, &open));
        float *x = lt_tensor_view(open).data;
        for (int i = 0; i < ELEMENTS; i++) {
            f[i] = beta * f[i] + (1 - beta) * g[i];
            x[i] = (float)(beta * (double)x[i] + (1 - beta) * g[i]);
        }
        lt_quantized_requantize(q, open, stochastic ? t : 0);
        lt_tensor_free(&open);
    }
    assert_ok(lt_quantized_dequantize(q, &open));
    const double off = distance(lt_tensor_view(open).data, f);
    lt_tensor_free(&open);
    lt_quantized_free(&q);
    return off;
}

/* A step's rounding deviates by half a level at most, and its remainder shrinks by beta per step: the
 * deviation of their sum, in levels, is 1/2 / sqrt(1 - beta^2). Where quantization errors are kept, levels
 * are theirs, at most 13/49 of the largest error. */
static const double walk = 11.19;

static void test_average(void **state)
{
    const average_row *w = *state;
    lt_device *device = NULL;
    assert_ok(lt_device_open(&device, "cpu", &(lt_device_config){.threads = 1}));
    const double off = average(device, w->format, true),
                 stalled = average(device, w->format, false);
    print_message("%s: off by %g, to nearest %g\n", w->name, off, stalled);
    assert_true(off < w->bound);
    assert_true(stalled > 3 * w->bound);
    lt_device_close(&device);
}

/* Roots and bases are new each time, not averages: the attempt changes nothing. */
static void test_roots_to_nearest(void **state)
{
    (void)state;
    enum { KINDS = LT_QUANTIZED_CHOLESKY + 1 };
    lt_device *device = NULL;
    const int64_t stride[LT_MAX_DIMS] = {SIDE, 1};
    assert_ok(lt_device_open(&device, "cpu", &(lt_device_config){.threads = 1}));
    for (int kind = 0; kind < KINDS; kind++) {
        const lt_quantized_format format = {(lt_quantized_kind)kind, LT_STATE_INT8};
        const bool average = kind != LT_QUANTIZED_MATRIX && kind != LT_QUANTIZED_SYMMETRIC;
        static double f[ELEMENTS];
        lt_quantized *q[2] = {0};
        make_factor(f, SIDE + 3, 1);
        for (int k = 0; k < 2; k++) {
            lt_tensor *open = NULL;
            assert_ok(lt_quantized_new(&q[k], device, format, LT_SHAPE(SIDE, SIDE), stride, 7));
            assert_ok(lt_quantized_dequantize(q[k], &open));
            float *x = lt_tensor_view(open).data;
            for (int i = 0; i < ELEMENTS; i++)
                x[i] = (float)f[i];
            lt_quantized_requantize(q[k], open, 3 * k);
            lt_tensor_free(&open);
        }
        const int differ = memcmp(lt_tensor_view(q[0]->memory).data,
                                  lt_tensor_view(q[1]->memory).data, lt_tensor_bytes(q[0]->memory));
        assert_int_equal(differ != 0, average);
        for (int k = 0; k < 2; k++)
            lt_quantized_free(&q[k]);
    }
    lt_device_close(&device);
}

static void test_keys(void **state)
{
    (void)state;
    const uint64_t keys[] = {
        lt_quantized_random_key("conv1.weight", "m", -1),
        lt_quantized_random_key("conv1.weight", "m", 0),
        lt_quantized_random_key("conv1.weight", "m", 1),
        lt_quantized_random_key("conv1.weight", "factor.0", 0),
        lt_quantized_random_key("conv1.weight", "factor.1", 0),
        lt_quantized_random_key("conv2.weight", "m", 0),
    };
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        for (size_t k = 0; k < i; k++)
            assert_true(keys[i] != keys[k]);
}

#define FORMAT(text, k, d, ...)                             \
    {                                                       \
        text, {LT_QUANTIZED_##k, LT_STATE_##d}, __VA_ARGS__ \
    }

int main(void)
{
    static format_row formats[] = {
        FORMAT("a packed triangle is exact", SYMMETRIC, F32, 0),
        FORMAT("bf16 moments", MOMENT, BF16, 0x1p-8),
        FORMAT("int8 moments", MOMENT, INT8, tree),
        FORMAT("int8 moments of one sign", NONNEGATIVE, INT8, tree_positive),
        FORMAT("bf16 matrices", MATRIX, BF16, 0x1p-8),
        FORMAT("int8 matrices", MATRIX, INT8, even),
        FORMAT("int4 matrices", MATRIX, INT4, quarter),
        FORMAT("int8 symmetric matrices", SYMMETRIC, INT8, even),
        FORMAT("int4 symmetric matrices", SYMMETRIC, INT4, quarter),
    };
    static int ranks[] = {SIDE + 3, 5, 1};
    static format_row drawn[] = {
        FORMAT("bf16 moments by draws", MOMENT, BF16, 0x1p-8),
        FORMAT("int8 moments by draws", MOMENT, INT8, tree),
        FORMAT("int8 moments of one sign by draws", NONNEGATIVE, INT8, tree_positive),
        FORMAT("int8 matrices by draws", MATRIX, INT8, even + 0x1p-9),
        FORMAT("int4 matrices by draws", MATRIX, INT4, quarter + 0x1p-9),
    };
    static average_row averages[] = {
        FORMAT("bf16: beta2 of 0.999", NONNEGATIVE, BF16, 0x1p-7 * walk),
        FORMAT("int8: beta2 of 0.999", NONNEGATIVE, INT8, 0.9 / 128 * walk),
        FORMAT("factors in bf16: beta2 of 0.999", CHOLESKY, BF16, 0x1p-7 * walk),
        FORMAT("factors in int8: beta2 of 0.999", CHOLESKY, INT8, even * 13 / 49 * walk),
        FORMAT("factors in int4: beta2 of 0.999", CHOLESKY, INT4, 0.1),
    };
    struct CMUnitTest
        tests[COUNT_OF(formats) + 2 * COUNT_OF(drawn) + COUNT_OF(averages) + COUNT_OF(ranks) + 9];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        tests[n++] = row_test(formats[i].name, test_format, &formats[i]);
    for (size_t i = 0; i < COUNT_OF(drawn); i++) {
        tests[n++] = row_test(drawn[i].name, test_draws, &drawn[i]);
        tests[n++] = row_test(drawn[i].name, test_mean, &drawn[i]);
    }
    for (size_t i = 0; i < COUNT_OF(averages); i++)
        tests[n++] = row_test(averages[i].name, test_average, &averages[i]);
    tests[n++] = row_test("roots and bases are rounded to nearest", test_roots_to_nearest, NULL);
    tests[n++] = row_test("every state has its own random draws", test_keys, NULL);
    tests[n++] = row_test("bytes by hand", test_bytes, NULL);
    tests[n++] = row_test("an infinity makes its block NaN, and no other", test_not_finite, NULL);
    tests[n++] = row_test("a positive second moment remains positive", test_positive, NULL);
    static const char *const names[] = {"Cholesky, full rank", "Cholesky, rank 5",
                                        "Cholesky, rank 1"};
    for (size_t i = 0; i < COUNT_OF(ranks); i++)
        tests[n++] = row_test(names[i], test_cholesky, &ranks[i]);
    tests[n++] = row_test("with the errors of its codes a factor is followed", test_errors, NULL);
    tests[n++] =
        row_test("a checkpoint's factor is the one that the run opens", test_converted, NULL);
    return _cmocka_run_group_tests("quantized state", tests, n, NULL, NULL);
}
