/* Selection by indices and masks, reductions and losses of classes at ties, NaN and ignored labels, on ref and on cpu, and
 * inputs that do not fit. */

#include "bench.h"

#define INF ((float)INFINITY)
#define NOT ((float)NAN)

/* Opens the device whose name is the test's initial state. */
static int open_device(void **state)
{
    const char *device = *state;
    static bench b;
    memset(&b, 0, sizeof b);
    *state = &b;
    if (lt_device_open(&b.device, device, NULL) || lt_tape_new(&b.tape, b.device))
        return -1;
    lt_tape_reset(b.tape, LT_PASS_TRAIN);
    return 0;
}

static lt_tensor *floats(bench *b, lt_shape shape, const float *values)
{
    return lt_tape_variable(b->tape, tensor(b, LT_F32, shape, values));
}

static void assert_floats(const lt_tensor *t, const float *want)
{
    float got[64];
    assert_non_null(t);
    assert_ok(lt_tensor_read(t, got, lt_tensor_bytes(t)));
    for (int64_t i = 0; i < lt_tensor_count(t); i++)
        if (!(got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))
              || fabsf(got[i] - want[i]) <= 1e-6F * fabsf(want[i])))
            fail_msg("element %lld: %.9g, want %.9g", (long long)i, (double)got[i],
                     (double)want[i]);
}

static void assert_indices(const lt_tensor *t, const int32_t *want)
{
    int32_t got[64];
    assert_non_null(t);
    assert_ok(lt_tensor_read(t, got, lt_tensor_bytes(t)));
    for (int64_t i = 0; i < lt_tensor_count(t); i++)
        assert_int_equal(got[i], want[i]);
}

static void assert_refused(const bench *b, const lt_tensor *y, lt_status st, const char *text)
{
    assert_null(y);
    assert_status(lt_tape_status(b->tape), st);
    if (!strstr(lt_error_message(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, lt_error_message());
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
}

static void largest_first_and_nan_before_all(void **state)
{
    bench *b = *state;
    const float v[] = {1, NOT, NOT, 5, 5, 2, 2, 2, -INF, 2};
    const int32_t index[] = {1, 2, 3, 4, 0, 1, 2, 4}, first[] = {1, 0};
    const float want[] = {NOT, NOT, 5, 5, 2, 2, 2, 2};
    lt_tensor *x = floats(b, LT_SHAPE(2, 5), v), *indices = NULL;
    lt_tensor *y = lt_topk(b->tape, x, 4, &indices);
    assert_floats(y, want);
    assert_indices(indices, index);
    lt_tensor *top = lt_argmax(b->tape, x);
    assert_true(lt_shape_equal(lt_tensor_shape(top), LT_SHAPE(2)));
    assert_indices(top, first);
}

static void equal_maxima_share_the_gradient(void **state)
{
    bench *b = *state;
    const float v[] = {3, 1, 3, 2}, want[] = {0.5F, 0, 0.5F, 0};
    lt_tensor *x = floats(b, LT_SHAPE(4), v);
    assert_ok(lt_tape_backward(b->tape, lt_amax(b->tape, x, (lt_reduce_config){.dims = 1}), 1));
    assert_floats(lt_tape_gradient(b->tape, x), want);
}

static void products_of_zeros_have_gradients(void **state)
{
    bench *b = *state;
    const float v[] = {0, 2, 3, 0, 4, 0}, want[] = {6, 0, 0, 0, 0, 0};
    lt_tensor *x = floats(b, LT_SHAPE(2, 3), v);
    lt_tensor *y = lt_prod(b->tape, x, (lt_reduce_config){.dims = 2});
    assert_ok(lt_tape_backward(b->tape, lt_sum(b->tape, y, (lt_reduce_config){.dims = 0}), 1));
    assert_floats(lt_tape_gradient(b->tape, x), want);
}

static void reductions_of_infinite_and_constant_rows(void **state)
{
    bench *b = *state;
    const float v[] = {-INF, -INF, INF, -INF, NOT, 1, 2, 2};
    const float sums[] = {-INF, INF, NOT, 2.69314718F}, spread[] = {NOT, NOT, NOT, 0};
    lt_tensor *x = floats(b, LT_SHAPE(4, 2), v);
    assert_floats(lt_logsumexp(b->tape, x, (lt_reduce_config){.dims = 2}), sums);
    lt_tensor *y = lt_std(b->tape, x, (lt_reduce_config){.dims = 2}, 1);
    assert_floats(y, spread);
    assert_ok(lt_tape_backward(b->tape, lt_sum(b->tape, y, (lt_reduce_config){.dims = 0}), 1));
    const float none[] = {NOT, NOT, NOT, NOT, NOT, NOT, 0, 0};
    assert_floats(lt_tape_gradient(b->tape, x), none);
}

/* Results of PyTorch 2. */
static void losses_of_classes(void **state)
{
    bench *b = *state;
    const float v[] = {1, 2, 0.5F, -1, 0, 3, 2, 2, 2}, w[] = {1, 2, 0.5F};
    const int32_t l[] = {1, 2, 0}, ignored[] = {1, LT_IGNORED_LABEL, LT_IGNORED_LABEL},
                  none[] = {LT_IGNORED_LABEL, LT_IGNORED_LABEL, LT_IGNORED_LABEL};
    lt_tensor *x = floats(b, LT_SHAPE(3, 3), v), *weight = tensor(b, LT_F32, LT_SHAPE(3), w);
    lt_tensor *labels = tensor(b, LT_I32, LT_SHAPE(3), l);
    const lt_cross_entropy_config plain = {.smoothing = 0}, smooth = {.smoothing = 0.1};
    const float mean = 0.588654803F, smoothed = 0.695989583F, one = 0.464368784F;
    assert_floats(lt_cross_entropy(b->tape, x, labels, weight, plain), &mean);
    assert_floats(lt_cross_entropy(b->tape, x, labels, weight, smooth), &smoothed);
    labels = tensor(b, LT_I32, LT_SHAPE(3), ignored);
    assert_floats(lt_cross_entropy(b->tape, x, labels, weight, plain), &one);
    labels = tensor(b, LT_I32, LT_SHAPE(3), none);
    assert_floats(lt_cross_entropy(b->tape, x, labels, weight, plain), &(float){NOT});
}

static void a_detached_tensor_is_a_constant(void **state)
{
    bench *b = *state;
    const float v[] = {3, -2}, want[] = {3, -2};
    lt_tensor *x = floats(b, LT_SHAPE(2), v);
    lt_tensor *y = lt_mul(b->tape, x, lt_detach(b->tape, x));
    assert_ok(lt_tape_backward(b->tape, lt_sum(b->tape, y, (lt_reduce_config){.dims = 0}), 1));
    assert_floats(lt_tape_gradient(b->tape, x), want);
}

static void indices_outside_are_named(void **state)
{
    bench *b = *state;
    const float v[] = {1, 2, 3, 4, 5, 6};
    const int32_t i[] = {0, 1, 2, 3, -1, 7};
    lt_tensor *x = tensor(b, LT_F32, LT_SHAPE(2, 3), v),
              *index = tensor(b, LT_I32, LT_SHAPE(2, 3), i);
    lt_tensor *list = tensor(b, LT_I32, LT_SHAPE(6), i),
              *two = tensor(b, LT_I32, LT_SHAPE(2), i + 3);
    assert_refused(b, lt_gather(b->tape, x, 1, index), LT_E_ARG,
                   "gather: index 3 at position 3, want 0..2");
    assert_refused(b, lt_gather(b->tape, x, 0, index), LT_E_ARG,
                   "gather: index 2 at position 2, want 0..1");
    assert_refused(b, lt_index_select(b->tape, x, 0, list), LT_E_ARG,
                   "index_select: index 2 at position 2, want 0..1");
    assert_refused(b, lt_scatter_add(b->tape, x, 1, index, x), LT_E_ARG,
                   "scatter_add: index 3 at position 3, want 0..2");
    assert_refused(b, lt_nll_loss(b->tape, x, two, NULL, LT_LOSS_MEAN), LT_E_ARG,
                   "labels of the loss: index 3 at position 0, want 0..2");
}

static void inputs_that_do_not_fit_are_errors(void **state)
{
    bench *b = *state;
    const float v[12] = {0};
    const int32_t i[] = {0, 0};
    lt_tape *t = b->tape;
    lt_tensor *x = tensor(b, LT_F32, LT_SHAPE(2, 3), v), *y = tensor(b, LT_F32, LT_SHAPE(4), v);
    lt_tensor *index = tensor(b, LT_I32, LT_SHAPE(2), i), *mask = tensor(b, LT_U8, LT_SHAPE(2), i);
    lt_tensor *image = tensor(b, LT_F32, LT_SHAPE(1, 3, 2, 2), v);
    const lt_cross_entropy_config c = {.smoothing = 0}, more = {.smoothing = 1.5};
    assert_refused(b, lt_gather(t, x, 2, index), LT_E_ARG, "gather: dimension 2 of x [2,3]");
    assert_refused(b, lt_gather(t, x, 0, index), LT_E_SHAPE, "gather: index [2] for x [2,3]");
    assert_refused(b, lt_gather(t, x, 0, x), LT_E_SHAPE, "gather: index is f32, want i32");
    assert_refused(b, lt_where(t, mask, x, x), LT_E_SHAPE, "where: mask [2], a [2,3] and b [2,3]");
    assert_refused(b, lt_where(t, x, x, x), LT_E_SHAPE, "where: mask is f32, want u8");
    assert_refused(b, lt_masked_fill(t, x, mask, 0), LT_E_SHAPE,
                   "masked_fill: mask [2] does not broadcast to x's shape [2,3]");
    assert_refused(b, lt_topk(t, x, 4, NULL), LT_E_ARG, "topk: 4 of the last dimension of x [2,3]");
    assert_refused(b, lt_amax(t, x, (lt_reduce_config){.dims = 4}), LT_E_ARG,
                   "amax: dimensions 0x4");
    assert_refused(b, lt_cumsum(t, x, -3), LT_E_ARG, "cumsum: dimension -3 of x [2,3]");
    assert_refused(b, lt_softplus(t, x, 0, 20), LT_E_ARG, "softplus: beta 0");
    assert_refused(b, lt_huber_loss(t, x, x, 0, LT_LOSS_MEAN), LT_E_ARG, "huber_loss: delta 0");
    assert_refused(b, lt_cross_entropy(t, x, index, y, c), LT_E_SHAPE,
                   "cross_entropy: weight [4] for 3 classes, want [3]");
    assert_refused(b, lt_cross_entropy(t, x, y, NULL, c), LT_E_SHAPE,
                   "cross_entropy: labels f32 [4] for x [2,3]");
    assert_refused(b, lt_cross_entropy(t, x, index, NULL, more), LT_E_ARG, "smoothing 1.5");
    assert_refused(b, lt_upsample(t, x, (lt_upsample_config){.h = 2, .w = 2}), LT_E_SHAPE,
                   "upsample: x [2,3], want [N,C,H,W]");
    assert_refused(b, lt_upsample(t, image, (lt_upsample_config){.h = 2}), LT_E_ARG,
                   "upsample: to 2 x 0 pixels");
    assert_refused(b, lt_pad(t, image, (lt_pad_config){.left = 2, .mode = LT_PAD_REFLECT}),
                   LT_E_ARG, "pad: 2 and 0 at the width of x [1,3,2,2]");
    assert_refused(b, lt_pad(t, y, (lt_pad_config){.top = 1}), LT_E_ARG,
                   "pad: 1 and 0 at the height");
    assert_refused(b, lt_pixel_shuffle(t, image, 2), LT_E_SHAPE, "pixel_shuffle: x [1,3,2,2] by 2");
    assert_refused(b, lt_conv1d(t, x, x, NULL, (lt_conv1d_config){0}), LT_E_SHAPE,
                   "conv1d: x [2,3]");
}

/* out[n, c, r h + i, r w + j] = x[n, c r^2 + r i + j, h, w] (PyTorch's torch.nn.PixelShuffle). */
static void pixels_are_shuffled(void **state)
{
    enum { N = 2, C = 1, R = 2, H = 2, W = 3, COUNT = N * C * R * R * H * W };
    bench *b = *state;
    float x[COUNT], want[COUNT];
    int k = 0;
    for (int n = 0; n < N; n++)
        for (int channel = 0; channel < C * R * R; channel++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++, k++) {
                    const int c = channel / (R * R), i = channel / R % R, j = channel % R;
                    x[k] = (float)k;
                    want[((n * C + c) * R * H + R * h + i) * R * W + R * w + j] = (float)k;
                }
    lt_tensor *y = lt_pixel_shuffle(b->tape, floats(b, LT_SHAPE(N, C * R * R, H, W), x), R);
    assert_floats(y, want);
    assert_true(lt_shape_equal(lt_tensor_shape(y), LT_SHAPE(N, C, R * H, R * W)));
}

int main(void)
{
#define ON(f, device)                                                            \
    {                                                                            \
#f " on " device, f, open_device, bench_close, (void *)(uintptr_t)device \
    }
#define ON_BOTH(f) ON(f, "ref"), ON(f, "cpu")
    static const struct CMUnitTest tests[] = {
        ON_BOTH(largest_first_and_nan_before_all),
        ON_BOTH(equal_maxima_share_the_gradient),
        ON_BOTH(products_of_zeros_have_gradients),
        ON_BOTH(reductions_of_infinite_and_constant_rows),
        ON_BOTH(losses_of_classes),
        ON_BOTH(a_detached_tensor_is_a_constant),
        ON_BOTH(pixels_are_shuffled),
        ON_BOTH(indices_outside_are_named),
        ON_BOTH(inputs_that_do_not_fit_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
