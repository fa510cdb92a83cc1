/* Values of operations against their formulas, written once more on row-major arrays. */

#include "bench.h"

enum { MOST = 512 };

/* 1, 2, 3, ... times a sign pattern, in row-major order. */
static lt_tensor *numbers(bench *b, lt_shape shape, double *values)
{
    for (int64_t i = 0; i < lt_shape_count(shape); i++)
        values[i] = (double)(i + 1) * (i % 3 == 1 ? -1 : 1);
    return tensor(b, LT_F64, shape, values);
}

static void assert_values(const lt_tensor *t, const double *want, int64_t count)
{
    double got[MOST];
    assert_non_null(t);
    assert_int_equal(lt_tensor_count(t), count);
    assert_ok(lt_tensor_read(t, got, (size_t)count * sizeof *got));
    for (int64_t i = 0; i < count; i++)
        if (!(isnan(want[i]) && isnan(got[i])))
            assert_near(got[i], want[i], 1e-13 * (1 + fabs(want[i])));
}

static void add_and_mul_broadcast_from_the_right(void **state)
{
    double a[MOST], c[MOST], sum[MOST], product[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 2, 2), a), *y = numbers(b, LT_SHAPE(3, 1, 2), c);
    for (int i = 0; i < 24; i++) {
        int from = i / 4 % 3 * 2 + i % 2;
        sum[i] = a[i] + c[from];
        product[i] = a[i] * c[from];
    }
    assert_values(lt_add(b->tape, x, y), sum, 24);
    assert_values(lt_mul(b->tape, x, y), product, 24);
}

static void relu_keeps_nan(void **state)
{
    bench *b = *state;
    double v[] = {-1, 0, 2, (double)NAN, (double)-INFINITY, (double)INFINITY};
    double want[] = {0, 0, 2, (double)NAN, 0, (double)INFINITY};
    double got[6];
    assert_ok(lt_tensor_read(lt_relu(b->tape, tensor(b, LT_F64, LT_SHAPE(6), v)), got, sizeof got));
    for (int i = 0; i < 6; i++)
        assert_true(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
}

static void sums_run_over_the_chosen_dimensions(void **state)
{
    double v[MOST], rows[2] = {0}, middle[8] = {0}, all = 0;
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 4), v);
    for (int i = 0; i < 24; i++) {
        rows[i / 12] += v[i];
        middle[i / 12 * 4 + i % 4] += v[i] / 3;
        all += v[i];
    }
    assert_values(lt_sum(b->tape, x, (lt_reduce_config){.dims = 2 | 4}), rows, 2);
    assert_values(lt_sum(b->tape, x, (lt_reduce_config){.dims = 0}), &all, 1);
    lt_tensor *mean = lt_mean(b->tape, x, (lt_reduce_config){.dims = 2, .keep = true});
    assert_values(mean, middle, 8);
    assert_true(lt_shape_equal(lt_tensor_shape(mean), LT_SHAPE(2, 1, 4)));
}

static void reshape_goes_by_logical_order(void **state)
{
    double v[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 2, 4), v); /* stored channels-last */
    lt_tensor *flat = lt_flatten(b->tape, x);
    assert_true(lt_shape_equal(lt_tensor_shape(flat), LT_SHAPE(2, 24)));
    assert_values(flat, v, 48);
    assert_values(lt_reshape(b->tape, flat, LT_SHAPE(3, 4, -1, 2)), v, 48);
}

/* Row-major [rows, columns], or its transpose. */
static double element(const double *m, int rows, int columns, int i, int j, bool transpose)
{
    return transpose ? m[j * rows + i] : m[i * columns + j];
}

static void check_matmul(bench *b, bool ta, bool tb)
{
    enum { BATCH = 2, M = 3, K = 4, COLUMNS = 5 };
    double a[MOST], c[MOST], want[MOST] = {0};
    lt_tensor *x = numbers(b, ta ? LT_SHAPE(BATCH, K, M) : LT_SHAPE(BATCH, M, K), a);
    lt_tensor *y = numbers(b, tb ? LT_SHAPE(COLUMNS, K) : LT_SHAPE(K, COLUMNS), c);
    for (int i = 0; i < BATCH * M * COLUMNS * K; i++) {
        int k = i % K, n = i / K % COLUMNS, m = i / K / COLUMNS % M, batch = i / K / COLUMNS / M;
        want[i / K] +=
            element(a + batch * M * K, M, K, m, k, ta) * element(c, K, COLUMNS, k, n, tb);
    }
    lt_matmul_config config = {.transpose_a = ta, .transpose_b = tb};
    assert_values(lt_matmul(b->tape, x, y, config), want, BATCH * M * COLUMNS);
}

static void matmul_in_all_transposes(void **state)
{
    for (int i = 0; i < 4; i++)
        check_matmul(*state, i & 1, i & 2);
}

/* In bf16 the gradient of one b for a batch is rounded once, not once for each matrix of the batch. */
static void the_gradient_of_a_shared_matrix_is_one_sum(void **state)
{
    enum { BATCH = 43, N = 2 }; /* each matrix has sums of 2 + 3/128, in bf16 2 + 4/128 */
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++) {
        bench b = {0};
        double a[BATCH * N * N], ones[N * N] = {1, 1, 1, 1}, got[N * N];
        assert_ok(lt_device_open(&b.device, "cpu", &(lt_device_config){.threads = 1}));
        assert_ok(lt_tape_new(&b.tape, b.device));
        lt_tape_reset(b.tape, LT_PASS_TRAIN);
        for (int i = 0; i < BATCH * N * N; i++)
            a[i] = 1 + (i % 4 == 1 || i % 4 == 2 ? 2 : 1) / 128.0;
        lt_tensor *in[2] = {tensor(&b, LT_F64, LT_SHAPE(BATCH, N, N), a),
                            tensor(&b, LT_F64, LT_SHAPE(N, N), ones)};
        for (int i = 0; i < 2; i++) {
            lt_tensor **narrow = &b.made[b.count++];
            assert_ok(lt_tensor_new(narrow, b.device, LT_BF16, lt_tensor_shape(in[i])));
            assert_ok(lt_tensor_copy(*narrow, in[i]));
            in[i] = lt_tape_variable(b.tape, *narrow);
        }
        lt_tensor *y =
            lt_matmul(b.tape, in[0], in[1], (lt_matmul_config){.transpose_a = transposed});
        lt_tensor *loss = lt_sum(b.tape, y, (lt_reduce_config){.dims = 0});
        assert_ok(lt_tape_backward(b.tape, loss, 1));
        lt_tensor *wide = tensor(&b, LT_F64, LT_SHAPE(N, N), ones);
        assert_ok(lt_tensor_copy(wide, lt_tape_gradient(b.tape, in[1])));
        assert_ok(lt_tensor_read(wide, got, sizeof got));
        for (int k = 0; k < N; k++) {
            double want = 0;
            for (int i = 0; i < BATCH * N; i++) /* op(a)^T times ones */
                want += transposed ? a[i / N * N * N + k * N + i % N] : a[i * N + k];
            assert_near(got[k * N], want, want / 256);
        }
        bench *p = &b;
        bench_close((void **)&p);
    }
}

static void linear_is_x_wt_plus_b(void **state)
{
    double x[MOST], w[MOST], bias[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *tx = numbers(b, LT_SHAPE(2, 3), x), *tw = numbers(b, LT_SHAPE(4, 3), w);
    lt_tensor *tb = numbers(b, LT_SHAPE(4), bias);
    for (int i = 0; i < 8; i++) {
        want[i] = bias[i % 4];
        for (int c = 0; c < 3; c++)
            want[i] += x[i / 4 * 3 + c] * w[i % 4 * 3 + c];
    }
    assert_values(lt_linear(b->tape, tx, tw, tb), want, 8);
}

static void a_delta_filter_shifts_the_image(void **state)
{
    double v[MOST], want[MOST] = {0};
    double delta[9] = {[2] = 1}; /* row 0, column 2: the pixel above to the right */
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(1, 1, 4, 5), v);
    lt_tensor *w = tensor(b, LT_F64, LT_SHAPE(1, 1, 3, 3), delta);
    for (int i = 5; i < 20; i++)
        want[i] = i % 5 == 4 ? 0 : v[i - 5 + 1];
    assert_values(lt_conv2d(b->tape, x, w, NULL, (lt_conv2d_config){.pad_h = 1, .pad_w = 1}), want,
                  20);
}

static void average_counts_padding_as_zeros(void **state)
{
    bench *b = *state;
    double v[] = {1, 2, 3, 4}, want[4] = {10.0 / 9, 10.0 / 9, 10.0 / 9, 10.0 / 9}, mean = 2.5;
    lt_tensor *x = tensor(b, LT_F64, LT_SHAPE(1, 1, 2, 2), v);
    assert_values(lt_avgpool2d(b->tape, x, (lt_pool2d_config){3, 3, 1, 1, 1, 1}), want, 4);
    assert_values(lt_avgpool2d(b->tape, x, (lt_pool2d_config){.kernel_h = 0}), &mean, 1);
}

static void padding_never_wins_and_nan_always_does(void **state)
{
    bench *b = *state;
    double v[] = {-1, -2, -3, (double)NAN}, want[] = {-1, -2, -3, (double)NAN};
    lt_tensor *x = tensor(b, LT_F64, LT_SHAPE(1, 1, 2, 2), v);
    assert_values(lt_maxpool2d(b->tape, x, (lt_pool2d_config){2, 2, 2, 2, 1, 1}), want, 4);
    double nan = (double)NAN;
    assert_values(lt_maxpool2d(b->tape, x, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2}), &nan,
                  1);
}

static void the_gradient_goes_to_the_first_of_equals(void **state)
{
    bench *b = *state;
    double v[] = {5, 7, 7, 7}, want[] = {0, 1, 0, 0};
    lt_tensor *x = lt_tape_variable(b->tape, tensor(b, LT_F64, LT_SHAPE(1, 1, 2, 2), v));
    lt_tensor *y = lt_maxpool2d(b->tape, x, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2});
    assert_ok(lt_tape_backward(b->tape, y, 1));
    assert_values(lt_tape_gradient(b->tape, x), want, 4);
}

static void cross_entropy_by_its_formula(void **state)
{
    enum { ROWS = 2, CLASSES = 3 };
    bench *b = *state;
    const double smoothing = 0.3;
    double z[] = {0.5, -1, 2, 0, 0.25, -0.5}, q[] = {0.2, 0.3, 0.5, 1, 0, 0}, loss = 0;
    for (int n = 0; n < ROWS; n++) {
        double sum = 0;
        for (int k = 0; k < CLASSES; k++)
            sum += exp(z[n * CLASSES + k]);
        for (int k = 0; k < CLASSES; k++) {
            double target = (1 - smoothing) * q[n * CLASSES + k] + smoothing / CLASSES;
            loss -= target * log(exp(z[n * CLASSES + k]) / sum) / ROWS;
        }
    }
    lt_tensor *logits = tensor(b, LT_F64, LT_SHAPE(ROWS, CLASSES), z);
    lt_tensor *targets = tensor(b, LT_F64, LT_SHAPE(ROWS, CLASSES), q);
    assert_values(lt_softmax_xent(b->tape, logits, targets, smoothing), &loss, 1);
}

static void pixels_are_normalised_per_channel(void **state)
{
    bench *b = *state;
    uint8_t pixels[] = {0, 255, 128, 7};
    lt_normalize_config config = {.mean = {100, 50}, .deviation = {50, 25}};
    double want[] = {-2, 3.1, 3.12, -1.72};
    lt_tensor *x = tensor(b, LT_U8, LT_SHAPE(1, 2, 1, 2), pixels);
    assert_values(lt_normalize(b->tape, x, &config), want, 4);
}

static void top_k_counts_ranks_and_adds_up(void **state)
{
    enum { CLASSES = 7 };
    bench *b = *state;
    double z[] = {9, 8, 7, 6, 5, 4, 3, /* label 0: first */
                  9, 8, 7, 6, 5, 4, 3, /* label 4: fifth */
                  9, 8, 7, 6, 5, 4, 3, /* label 5: sixth */
                  1, 1, 1, 1, 1, 1, 1, /* label 1: second, the index decides */
                  /* Label 0: wrong, whatever the other logits are. */
                  0, 0, 0, 0, 0, 0, (double)NAN};
    int32_t labels[] = {0, 4, 5, 1, 0};
    int64_t hits[] = {10, 20};
    lt_tensor *logits = tensor(b, LT_F64, LT_SHAPE(5, CLASSES), z);
    lt_tensor *l = tensor(b, LT_I32, LT_SHAPE(5), labels),
              *h = tensor(b, LT_I64, LT_SHAPE(2), hits);
    assert_ok(lt_topk_hits(logits, l, h));
    assert_ok(lt_tensor_read(h, hits, sizeof hits));
    assert_int_equal(hits[0], 11);
    assert_int_equal(hits[1], 23);
}

static void ignored_labels_are_no_hits(void **state)
{
    enum { CLASSES = 6 };
    bench *b = *state;
    double z[2 * 2 * CLASSES];
    int32_t labels[] = {5, LT_IGNORED_LABEL, 0, CLASSES}; /* the last is not a class, and counts */
    int64_t hits[] = {0, 0, 0};
    for (int i = 0; i < 2 * 2 * CLASSES; i++)
        z[i] = i % CLASSES;
    lt_tensor *logits = tensor(b, LT_F64, LT_SHAPE(2, 2, CLASSES), z);
    lt_tensor *l = tensor(b, LT_I32, LT_SHAPE(2, 2), labels),
              *h = tensor(b, LT_I64, LT_SHAPE(3), hits);
    assert_ok(lt_topk_hits(logits, l, h));
    assert_ok(lt_tensor_read(h, hits, sizeof hits));
    assert_int_equal(hits[0], 1);
    assert_int_equal(hits[1], 1);
    assert_int_equal(hits[2], 3);
    lt_tensor *flat = tensor(b, LT_I32, LT_SHAPE(4), labels);
    assert_int_equal(lt_topk_hits(logits, flat, h), LT_E_SHAPE); /* control */
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, bench_open, bench_close)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ROW(add_and_mul_broadcast_from_the_right),
        ROW(relu_keeps_nan),
        ROW(sums_run_over_the_chosen_dimensions),
        ROW(reshape_goes_by_logical_order),
        ROW(matmul_in_all_transposes),
        cmocka_unit_test(the_gradient_of_a_shared_matrix_is_one_sum),
        ROW(linear_is_x_wt_plus_b),
        ROW(a_delta_filter_shifts_the_image),
        ROW(average_counts_padding_as_zeros),
        ROW(padding_never_wins_and_nan_always_does),
        ROW(the_gradient_goes_to_the_first_of_equals),
        ROW(cross_entropy_by_its_formula),
        ROW(pixels_are_normalised_per_channel),
        ROW(top_k_counts_ranks_and_adds_up),
        ROW(ignored_labels_are_no_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
