/* The reference backend against independent computations: IEEE 754's rules for 16-bit types, the headers'
 * formulas written once more element by element, worked examples. */

#include "near.h"
#include "tensor/backend/dtype.h"
#include "tensor/shape.h"

#include "lather/detail/backend.h"

#include <string.h>

/* 16-bit floats. */

static void every_f16_converts_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        float x = lt_f32_from_f16((uint16_t)bits);
        uint16_t back = lt_f16_from_f32(x);
        if ((bits & 0x7C00) == 0x7C00 && bits & 0x3FF)
            assert_true(x != x && (back & 0x7C00) == 0x7C00 && back & 0x3FF);
        else
            assert_int_equal(back, bits);
    }
}

static void every_bf16_converts_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        float x = lt_f32_from_bf16((uint16_t)bits);
        uint16_t back = lt_bf16_from_f32(x);
        if (x != x)
            assert_true(lt_f32_from_bf16(back) != lt_f32_from_bf16(back));
        else
            assert_int_equal(back, bits);
    }
}

/* Between two adjacent numbers: below the middle down, above it up, in the middle to the even one. */
static void check_rounding(float low, float high, uint16_t low_bits, uint16_t (*round)(float))
{
    float middle = low + (high - low) / 2;
    uint16_t even = (uint16_t)(low_bits & 1 ? low_bits + 1 : low_bits);
    assert_int_equal(round(nextafterf(middle, low)), low_bits);
    assert_int_equal(round(nextafterf(middle, high)), low_bits + 1);
    assert_int_equal(round(middle), even);
    assert_int_equal(round(-middle), even | 0x8000);
}

static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint16_t bits = 0; bits < 0x7BFF; bits++)
        check_rounding(lt_f32_from_f16(bits), lt_f32_from_f16((uint16_t)(bits + 1)), bits,
                       lt_f16_from_f32);
    assert_int_equal(lt_f16_from_f32(65519.996F), 0x7BFF);
    assert_int_equal(lt_f16_from_f32(65520), 0x7C00);
    assert_int_equal(lt_f16_from_f32(-INFINITY), 0xFC00);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint16_t bits = 0x0080; bits < 0x7F7F; bits++)
        check_rounding(lt_f32_from_bf16(bits), lt_f32_from_bf16((uint16_t)(bits + 1)), bits,
                       lt_bf16_from_f32);
    assert_int_equal(lt_bf16_from_f32(3.4e38F), 0x7F80);
}

/* 1 + 2^-8 + 2^-40 is above the middle of two bf16 numbers, and in f32 exactly on it. */
static void f64_is_rounded_once(void **state)
{
    (void)state;
    double x = 1 + 0x1p-8 + 0x1p-40;
    assert_int_equal(lt_bf16_from_f32((float)x), 0x3F80); /* control: rounding twice is wrong */
    assert_int_equal(lt_bf16_from_f32(lt_f32_odd_from_f64(x)), 0x3F81);
    assert_int_equal(lt_bf16_from_f32(lt_f32_odd_from_f64(-x)), 0xBF81);
    assert_int_equal(lt_bf16_from_f32(lt_f32_odd_from_f64(1 + 0x1p-8)), 0x3F80);
    assert_int_equal(lt_bf16_from_f32(lt_f32_odd_from_f64(1e300)), 0x7F80);
}

/* A view of a host array. */
static lt_view view_of(void *data, lt_dtype dtype, lt_shape shape)
{
    lt_view v = {.data = data, .dtype = dtype, .shape = shape};
    lt_channels_last_strides(shape, v.stride);
    return v;
}

static double *at(const lt_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (double *)v->data + a * v->stride[0] + b * v->stride[1] + c * v->stride[2]
           + d * v->stride[3];
}

/* A convolution with stride, padding, dilation, groups and bias. */

enum { N = 2, C = 4, H = 7, W = 6, K = 6, R = 3, S = 2, GROUPS = 2, P = 3, Q = 4 };

static const lt_conv2d_config conv = {2, 1, 1, 0, 2, 2, GROUPS};

typedef struct arrays {
    double x[N * C * H * W], w[K * (C / GROUPS) * R * S], b[K], y[N * K * P * Q];
} arrays;

static void fill(double *to, size_t count, double phase)
{
    for (size_t i = 0; i < count; i++)
        to[i] = sin(phase + 1.7 * (double)i);
}

/* Input row or column that tap r of output p reads. */
static int64_t row_of(int64_t p, int64_t r)
{
    return p * conv.stride_h - conv.pad_h + r * conv.dilation_h;
}

static int64_t column_of(int64_t q, int64_t s)
{
    return q * conv.stride_w - conv.pad_w + s * conv.dilation_w;
}

static bool inside(int64_t h, int64_t w)
{
    return h >= 0 && h < H && w >= 0 && w < W;
}

static double conv_at(const lt_view *x, const lt_view *w, const double *b, const int64_t nkpq[4])
{
    double sum = b[nkpq[1]];
    for (int64_t i = 0; i < C / GROUPS * R * S; i++) {
        int64_t c = i / (R * S), r = i / S % R, s = i % S;
        int64_t h = row_of(nkpq[2], r), column = column_of(nkpq[3], s);
        int64_t channel = nkpq[1] / (K / GROUPS) * (C / GROUPS) + c;
        if (inside(h, column))
            sum += *at(x, nkpq[0], channel, h, column) * *at(w, nkpq[1], c, r, s);
    }
    return sum;
}

static void conv2d_equals_its_formula(void **state)
{
    (void)state;
    arrays a;
    fill(a.x, COUNT_OF(a.x), 0);
    fill(a.w, COUNT_OF(a.w), 1);
    fill(a.b, COUNT_OF(a.b), 2);
    lt_view x = view_of(a.x, LT_F64, LT_SHAPE(N, C, H, W));
    lt_view w = view_of(a.w, LT_F64, LT_SHAPE(K, C / GROUPS, R, S));
    lt_view b = view_of(a.b, LT_F64, LT_SHAPE(K)), y = view_of(a.y, LT_F64, LT_SHAPE(N, K, P, Q));
    assert_ok(lt_backend_ref()->conv2d(NULL, &conv, &x, &w, &b, &y));
    for (int64_t i = 0; i < N * K * P * Q; i++) {
        int64_t nkpq[4] = {i / (K * P * Q), i / (P * Q) % K, i / Q % P, i % Q};
        assert_near(*at(&y, nkpq[0], nkpq[1], nkpq[2], nkpq[3]), conv_at(&x, &w, a.b, nkpq), 1e-14);
    }
}

/* The moments of 1, 2, 3, 4 and of 10, 10, 10, 10, and the results of batch norm. */
static void batch_norm_of_a_worked_example(void **state)
{
    (void)state;
    double values[] = {1, 10, 2, 10, 3, 10, 4, 10}, stats[6], coef[8], y[8];
    double gamma[] = {2, 3}, beta[] = {0.5, -1}, mean[] = {0, 0}, var[] = {1, 1};
    lt_view x = view_of(values, LT_F64, LT_SHAPE(1, 2, 2, 2));
    lt_view s = view_of(stats, LT_F64, LT_SHAPE(3, 2)), c = view_of(coef, LT_F64, LT_SHAPE(4, 2));
    lt_view g = view_of(gamma, LT_F64, LT_SHAPE(2)), b = view_of(beta, LT_F64, LT_SHAPE(2));
    lt_view m = view_of(mean, LT_F64, LT_SHAPE(2)), v = view_of(var, LT_F64, LT_SHAPE(2));
    lt_view out = view_of(y, LT_F64, LT_SHAPE(1, 2, 2, 2));
    lt_batchnorm2d_config config = {.eps = 0.75, .momentum = 0.1};
    const lt_backend *be = lt_backend_ref();
    const lt_batchnorm_parts parts = {
        .stats = &s, .gamma = &g, .beta = &b, .mean = &m, .var = &v, .coef = &c};
    assert_ok(be->batchnorm_stats(NULL, &x, &s));
    const double want_stats[] = {4, 4, 2.5, 10, 5, 0};
    for (int i = 0; i < 6; i++)
        assert_near(stats[i], want_stats[i], 0);
    assert_ok(be->batchnorm_finish(NULL, &config, &parts));
    assert_near(mean[0], 0.25, 1e-16);
    assert_near(var[0], 0.9 + 0.1 * 5 / 3, 1e-15); /* unbiased: 5 / (4 - 1) */
    assert_near(coef[2], 1 / sqrt(2.0), 1e-15);    /* biased: 5 / 4, + 0.75 */
    assert_ok(be->batchnorm_apply(NULL, &config, &x, &c, NULL, &out, NULL));
    for (int i = 0; i < 4; i++) {
        assert_near(y[2 * i], 0.5 + 2 * (i + 1 - 2.5) / sqrt(2.0), 1e-15);
        assert_near(y[2 * i + 1], -1, 1e-14);
    }
}

/* Two classes: loss = log(1 + exp(-difference)), its derivative -1 / (1 + exp(difference)). */
static void cross_entropy_of_two_classes(void **state)
{
    (void)state;
    double z[] = {0.3, 1.7}, lse, loss, one = 1, dz[2];
    int32_t label = 1;
    lt_view logits = view_of(z, LT_F64, LT_SHAPE(1, 2)), l = view_of(&label, LT_I32, LT_SHAPE(1));
    lt_view e = view_of(&lse, LT_F64, LT_SHAPE(1)), out = view_of(&loss, LT_F64, LT_SCALAR);
    lt_view up = view_of(&one, LT_F64, LT_SCALAR), d = view_of(dz, LT_F64, LT_SHAPE(1, 2));
    const lt_backend *be = lt_backend_ref();
    assert_ok(be->softmax_xent(NULL, 0, &logits, &l, &e, &out));
    assert_near(loss, log1p(exp(-1.4)), 1e-15);
    assert_near(lse, log(exp(0.3) + exp(1.7)), 1e-15);
    assert_ok(be->softmax_xent_grad(NULL, 0, &up, &logits, &l, &e, &d));
    assert_near(dz[1], -1 / (1 + exp(1.4)), 1e-15);
    assert_near(dz[0] + dz[1], 0, 1e-15);
    assert_ok(be->softmax_xent(NULL, 0.2, &logits, &l, &e, &out));
    assert_near(loss, log1p(exp(-1.4)) + 0.1 * 1.4, 1e-15); /* q = 0.1, 0.9 */
}

/* Four eigenvectors in closed form: the second-difference matrix of order n has eigenvalues 2 - 2 cos(k pi /
 * (n + 1)). Golub & Van Loan, "Matrix computations", 4th edition, section 4.8. */
static void eigh_of_the_second_difference_matrix(void **state)
{
    enum { ORDER = 40 };
    static double a[ORDER * ORDER], values[ORDER], vectors[ORDER * ORDER];
    (void)state;
    for (int i = 0; i < ORDER; i++) {
        a[i * ORDER + i] = 2;
        if (i)
            a[i * ORDER + i - 1] = a[(i - 1) * ORDER + i] = -1;
    }
    lt_eigh_job job = {.a = view_of(a, LT_F64, LT_SHAPE(ORDER, ORDER)),
                       .values = view_of(values, LT_F64, LT_SHAPE(ORDER)),
                       .vectors = view_of(vectors, LT_F64, LT_SHAPE(ORDER, ORDER))};
    assert_ok(lt_backend_ref()->eigh(NULL, &job, 1));
    assert_ok(job.status);
    const double pi = 3.141592653589793;
    for (int k = 0; k < ORDER; k++)
        assert_near(values[k], 2 - 2 * cos((k + 1) * pi / (ORDER + 1)), 1e-14);
    for (int i = 0; i < ORDER; i++) { /* the smallest one's eigenvector: a sine, up to its sign */
        double want = sqrt(2.0 / (ORDER + 1)) * sin((i + 1) * pi / (ORDER + 1));
        assert_near(fabs(vectors[i * ORDER]), want, 1e-13);
    }
}

/* Gram-Schmidt as the header defines it, from the largest diagonal element on. want: the result. */
static void orthonormalize(const double *a, const int *order, int64_t n, double *want)
{
    for (int64_t k = 0; k < n; k++) {
        const int c = order[k];
        double norm = 0;
        for (int64_t i = 0; i < n; i++)
            want[i * n + c] = a[i * n + c];
        for (int64_t before = 0; before < k; before++) {
            double product = 0;
            for (int64_t i = 0; i < n; i++)
                product += want[i * n + order[before]] * want[i * n + c];
            for (int64_t i = 0; i < n; i++)
                want[i * n + c] -= product * want[i * n + order[before]];
        }
        for (int64_t i = 0; i < n; i++)
            norm += want[i * n + c] * want[i * n + c];
        for (int64_t i = 0; i < n; i++)
            want[i * n + c] /= sqrt(norm);
    }
}

/* Also for a nearly diagonal matrix, for which a reflection of the other sign cancels. */
static void qr_is_gram_and_schmidts_by_falling_diagonal(void **state)
{
    enum { ROWS = 5 };
    static const int order[ROWS] = {3, 0, 4, 1, 2}; /* order of the diagonal 7, 2, 1, 9, 2.5 */
    static const double full[ROWS * ROWS] = {7,  1,    0.5,  -2,  3,    0.25, 2,  1.5, 1,
                                             -1, 0.75, -0.5, 1,   0.25, 2,    1,  3,   -3,
                                             9,  1,    -2,   0.5, 1,    1.25, 2.5};
    (void)state;
    for (int k = 0; k < 2; k++) {
        double a[ROWS * ROWS], q[ROWS * ROWS] = {0}, want[ROWS * ROWS];
        for (int i = 0; i < ROWS * ROWS; i++)
            a[i] = k && i % (ROWS + 1) ? 1e-7 * full[i] : full[i];
        const lt_qr_job job = {.a = view_of(a, LT_F64, LT_SHAPE(ROWS, ROWS)),
                               .q = view_of(q, LT_F64, LT_SHAPE(ROWS, ROWS))};
        assert_ok(lt_backend_ref()->qr(NULL, &job, 1));
        orthonormalize(a, order, ROWS, want);
        for (int i = 0; i < ROWS * ROWS; i++)
            assert_near(q[i], want[i], 1e-13);
    }
}

static void eigh_of_a_matrix_whose_squares_overflow_fails(void **state)
{
    (void)state;
    double huge[4] = {1e200, 0, 0, 1}, values[2], vectors[4];
    lt_eigh_job job = {.a = view_of(huge, LT_F64, LT_SHAPE(2, 2)),
                       .values = view_of(values, LT_F64, LT_SHAPE(2)),
                       .vectors = view_of(vectors, LT_F64, LT_SHAPE(2, 2))};
    (void)lt_fail(LT_E_ARG, "that of an earlier call");
    assert_ok(lt_backend_ref()->eigh(NULL, &job, 1));
    assert_failed(
        job.status, LT_E_ARG,
        "eigh: the 2 x 2 matrix has elements that are not finite, or whose squares overflow");
}

static void eigh_of_a_matrix_with_nan_fails_without_the_others(void **state)
{
    (void)state;
    double bad[] = {1, (double)NAN, (double)NAN, 1}, good[] = {2, 0, 0, 1}, values[2][2],
           vectors[2][4];
    lt_eigh_job job[2];
    for (int i = 0; i < 2; i++)
        job[i] = (lt_eigh_job){.a = view_of(i ? good : bad, LT_F64, LT_SHAPE(2, 2)),
                               .values = view_of(values[i], LT_F64, LT_SHAPE(2)),
                               .vectors = view_of(vectors[i], LT_F64, LT_SHAPE(2, 2))};
    assert_ok(lt_backend_ref()->eigh(NULL, job, 2));
    assert_int_equal(job[0].status, LT_E_ARG);
    assert_int_equal(job[1].status, LT_OK);
    assert_near(values[1][0], 1, 0);
    assert_near(values[1][1], 2, 0);
}

/* To integers: towards zero, saturating, NaN to 0; i64 unchanged. */
static void casts_to_integers(void **state)
{
    (void)state;
    double from[] = {2.9, -2.9, 300, -5, (double)NAN, 1e30};
    const int32_t want_i32[] = {2, -2, 300, -5, 0, INT32_MAX};
    const uint8_t want_u8[] = {2, 0, 255, 0, 0, 255};
    int32_t i32[6];
    uint8_t u8[6];
    int64_t big = INT64_C(9007199254740993), copy = 0;
    lt_view x = view_of(from, LT_F64, LT_SHAPE(6)), a = view_of(i32, LT_I32, LT_SHAPE(6));
    lt_view b = view_of(u8, LT_U8, LT_SHAPE(6)), c = view_of(&big, LT_I64, LT_SCALAR);
    lt_view d = view_of(&copy, LT_I64, LT_SCALAR);
    assert_ok(lt_backend_ref()->cast(NULL, &x, &a));
    assert_ok(lt_backend_ref()->cast(NULL, &x, &b));
    assert_ok(lt_backend_ref()->cast(NULL, &c, &d));
    assert_memory_equal(i32, want_i32, sizeof i32);
    assert_memory_equal(u8, want_u8, sizeof u8);
    assert_true(copy == big); /* not representable in f64 */
}

/* Fused kernels may be missing: operations compose them. */
static void no_basic_entry_is_missing(void **state)
{
    (void)state;
    const lt_backend *be = lt_backend_ref();
    int count = 0;
#define COUNT_BASIC(name)      count += be->name != NULL;
#define COUNT_HOST(name)       COUNT_BASIC(name)
#define COUNT_FUSED(name)      count++;
#define COUNT(name, kind, cpu) COUNT_##kind(name)
#define ONE(name, kind, cpu)   +1
    LT_BACKEND_ENTRIES(COUNT)
    assert_int_equal(count, 0 LT_BACKEND_ENTRIES(ONE));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_converts_to_f32_and_back),
        cmocka_unit_test(every_bf16_converts_to_f32_and_back),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f64_is_rounded_once),
        cmocka_unit_test(conv2d_equals_its_formula),
        cmocka_unit_test(batch_norm_of_a_worked_example),
        cmocka_unit_test(cross_entropy_of_two_classes),
        cmocka_unit_test(eigh_of_the_second_difference_matrix),
        cmocka_unit_test(qr_is_gram_and_schmidts_by_falling_diagonal),
        cmocka_unit_test(eigh_of_a_matrix_whose_squares_overflow_fails),
        cmocka_unit_test(eigh_of_a_matrix_with_nan_fails_without_the_others),
        cmocka_unit_test(casts_to_integers),
        cmocka_unit_test(no_basic_entry_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
