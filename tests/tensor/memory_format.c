/* Memory formats: they depend on the operation that made a tensor, not on its number of dimensions; values
 * depend on the logical order only. */

#include "near.h"
#include "temp.h"
#include "tensor/tensor.h"

#include "lather/detail/view.h"
#include "lather/ops.h"
#include "lather/param.h"
#include "lather/safetensors.h"

#include <string.h>

enum { N = 2, C = 3, H = 4, W = 5, K = 3, COUNT = N * C * H * W, MOST = 512 };

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *rows, *last; /* the same numbers in both formats */
    lt_param filter;
    lt_tensor *vector[4]; /* vectors of batch norm */
} scene;

static lt_tensor *numbers(lt_device *d, lt_shape shape, lt_memory_format format)
{
    lt_tensor *t = NULL;
    float x[MOST];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)(i * 37 % 101) / 50 - 1;
    assert_ok(lt_tensor_new_as(&t, d, LT_F32, shape, format));
    assert_ok(lt_tensor_write(t, x, lt_tensor_bytes(t)));
    return t;
}

static int open_scene(void **state)
{
    static scene s;
    const lt_shape shape = LT_SHAPE(N, C, H, W), filter = LT_SHAPE(K, C, 3, 3);
    *state = memset(&s, 0, sizeof s);
    assert_ok(lt_device_open(&s.device, "ref", NULL));
    assert_ok(lt_tape_new(&s.tape, s.device));
    lt_tape_reset(s.tape, LT_PASS_TRAIN);
    s.rows = numbers(s.device, shape, LT_FORMAT_CONTIGUOUS);
    s.last = numbers(s.device, shape, LT_FORMAT_CHANNELS_LAST);
    assert_ok(lt_param_init_filter(&s.filter, s.device, "", "filter", filter));
    lt_tensor *w = numbers(s.device, filter, LT_FORMAT_CONTIGUOUS);
    assert_ok(lt_tensor_copy(s.filter.value, w));
    lt_tensor_free(&w);
    for (int i = 0; i < 4; i++)
        s.vector[i] = numbers(s.device, LT_SHAPE(C), LT_FORMAT_CONTIGUOUS);
    return 0;
}

static int close_scene(void **state)
{
    scene *s = *state;
    lt_tape_free(&s->tape);
    lt_tensor_free(&s->rows);
    lt_tensor_free(&s->last);
    lt_param_clear(&s->filter);
    for (int i = 0; i < 4; i++)
        lt_tensor_free(&s->vector[i]);
    lt_device_close(&s->device);
    return 0;
}

static void assert_format(const lt_tensor *t, lt_memory_format format)
{
    assert_non_null(t);
    const lt_view v = lt_tensor_view(t);
    assert_int_equal(lt_view_is_channels_last(&v), format == LT_FORMAT_CHANNELS_LAST);
    assert_int_equal(lt_view_is_contiguous(&v), format == LT_FORMAT_CONTIGUOUS);
}

static void assert_same_values(const lt_tensor *a, const lt_tensor *b)
{
    float x[MOST], y[MOST];
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(lt_tensor_bytes(a), lt_tensor_bytes(b));
    assert_ok(lt_tensor_read(a, x, lt_tensor_bytes(a)));
    assert_ok(lt_tensor_read(b, y, lt_tensor_bytes(b)));
    assert_memory_equal(x, y, lt_tensor_bytes(a));
}

static void what_a_user_makes_is_row_major(void **state)
{
    scene *s = *state;
    lt_tensor *t = NULL, *like = NULL;
    assert_ok(lt_tensor_new(&t, s->device, LT_F32, LT_SHAPE(N, C, H, W)));
    assert_format(t, LT_FORMAT_CONTIGUOUS);
    lt_tensor_free(&t);
    assert_same_values(s->rows, s->last);
    assert_ok(lt_tensor_new_like(&like, s->last, LT_F64));
    assert_format(like, LT_FORMAT_CHANNELS_LAST);
    assert_int_equal(lt_tensor_dtype(like), LT_F64);
    assert_format(s->filter.value, LT_FORMAT_CHANNELS_LAST);
    assert_format(s->filter.grad, LT_FORMAT_CHANNELS_LAST);
    lt_tensor_free(&like);
    assert_status(lt_tensor_new_as(&t, s->device, LT_F32, LT_SHAPE(2, 3), LT_FORMAT_CHANNELS_LAST),
                  LT_E_SHAPE);
    assert_null(t);
}

static void elementwise_results_lie_as_their_input(void **state)
{
    scene *s = *state;
    lt_tensor *channel = lt_reshape(s->tape, s->vector[0], LT_SHAPE(C, 1, 1));
    for (int last = 0; last < 2; last++) {
        lt_tensor *x = last ? s->last : s->rows, *other = last ? s->rows : s->last;
        const lt_memory_format format = last ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS;
        assert_format(lt_relu(s->tape, x), format);
        assert_format(lt_cast(s->tape, x, LT_BF16), format);
        assert_format(lt_add(s->tape, x, channel), format);
        assert_format(lt_add(s->tape, channel, x), format);
        /* The first input decides. */
        assert_format(lt_mul(s->tape, lt_silu(s->tape, x), other), format);
        assert_same_values(lt_mul(s->tape, x, other), lt_mul(s->tape, s->rows, s->rows));
    }
    assert_ok(lt_tape_status(s->tape));
}

/* Both are broadcast: neither has the output's shape. */
static void broadcasting_both_keeps_channels_last(void **state)
{
    scene *s = *state;
    const lt_reduce_config rows = {.dims = 1U << 0, .keep = true};
    lt_tensor *batch = numbers(s->device, LT_SHAPE(N, 1, 1, 1), LT_FORMAT_CONTIGUOUS);
    assert_format(lt_add(s->tape, batch, lt_sum(s->tape, s->last, rows)), LT_FORMAT_CHANNELS_LAST);
    assert_format(lt_add(s->tape, batch, lt_sum(s->tape, s->rows, rows)), LT_FORMAT_CONTIGUOUS);
    lt_tensor_free(&batch);
}

static lt_tensor *convolve(scene *s, lt_tensor *x)
{
    return lt_conv2d(s->tape, x, lt_tape_param(s->tape, &s->filter), NULL,
                     (lt_conv2d_config){.pad_h = 1, .pad_w = 1});
}

static lt_tensor *max_pool(scene *s, lt_tensor *x)
{
    return lt_maxpool2d(s->tape, x, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2});
}

static lt_tensor *mean_pool(scene *s, lt_tensor *x)
{
    return lt_avgpool2d(s->tape, x, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2});
}

static lt_tensor *batch_norm(scene *s, lt_tensor *x)
{
    const lt_batchnorm2d_args args = {s->vector[0], s->vector[1], s->vector[2], s->vector[3], x,
                                      NULL};
    return lt_batchnorm2d(s->tape, x, args, (lt_batchnorm2d_config){.eps = 1e-5, .frozen = true});
}

static lt_tensor *group_norm(scene *s, lt_tensor *x)
{
    return lt_group_norm(s->tape, x, NULL, NULL, (lt_group_norm_config){.groups = 1, .eps = 1e-5});
}

static lt_tensor *transposed(scene *s, lt_tensor *x)
{
    return lt_conv_transpose2d(s->tape, x, lt_tape_param(s->tape, &s->filter), NULL,
                               (lt_conv_transpose2d_config){{0}, 0, 0});
}

typedef lt_tensor *image_fn(scene *s, lt_tensor *x);
static image_fn *const of_images[] = {convolve,   max_pool,   mean_pool,
                                      batch_norm, group_norm, transposed};

/* A row-major input is converted once, before the operation: results are channels-last, and values and
 * gradients equal those of a channels-last input. */
static void operations_on_images_convert_what_is_row_major(void **state)
{
    scene *s = *state;
    for (size_t i = 0; i < COUNT_OF(of_images); i++) {
        float dx[2][COUNT];
        for (int last = 0; last < 2; last++) {
            lt_tape_reset(s->tape, LT_PASS_TRAIN);
            lt_tensor *x = lt_tape_variable(s->tape, last ? s->last : s->rows);
            lt_tensor *y = of_images[i](s, x);
            assert_format(y, LT_FORMAT_CHANNELS_LAST);
            lt_tensor *loss = lt_sum(s->tape, lt_mul(s->tape, y, y), (lt_reduce_config){.dims = 0});
            assert_ok(lt_tape_backward(s->tape, loss, 1));
            lt_tensor *grad = lt_tape_gradient(s->tape, x);
            assert_format(grad, last ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS);
            assert_ok(lt_tensor_read(grad, dx[last], sizeof dx[last]));
        }
        assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    }
}

static void views_are_of_either_format(void **state)
{
    scene *s = *state;
    const void *rows = lt_tensor_view(s->rows).data, *last = lt_tensor_view(s->last).data;
    lt_tensor *heads = lt_reshape(s->tape, s->rows, LT_SHAPE(N, C * H, 1, W)); /* 4-D to 4-D */
    assert_ptr_equal(lt_tensor_view(heads).data, rows);
    lt_tensor *column = lt_reshape(s->tape, s->last, LT_SHAPE(N, C, H * W, 1));
    assert_ptr_equal(lt_tensor_view(column).data, last);
    assert_format(column, LT_FORMAT_CHANNELS_LAST);
    lt_tensor *flat = lt_flatten(s->tape, s->last);
    assert_ptr_not_equal(lt_tensor_view(flat).data, last);
    assert_same_values(flat, lt_flatten(s->tape, s->rows));
    assert_format(lt_reshape(s->tape, flat, LT_SHAPE(N, C, H, W)), LT_FORMAT_CONTIGUOUS);
}

/* A batch of matrices: nothing is copied. */
static void matrices_stay_row_major(void **state)
{
    scene *s = *state;
    lt_tensor *y = lt_matmul(s->tape, s->rows, s->rows, (lt_matmul_config){.transpose_b = true});
    assert_format(y, LT_FORMAT_CONTIGUOUS);
    lt_tensor *z = lt_matmul(s->tape, s->last, s->last, (lt_matmul_config){.transpose_b = true});
    assert_format(z, LT_FORMAT_CONTIGUOUS);
    assert_same_values(y, z);
}

static void conversion_is_by_name_and_only_if_needed(void **state)
{
    scene *s = *state;
    assert_ptr_equal(lt_to_format(s->tape, s->last, LT_FORMAT_CHANNELS_LAST), s->last);
    assert_ptr_equal(lt_to_format(s->tape, s->rows, LT_FORMAT_CONTIGUOUS), s->rows);
    lt_tensor *back = lt_to_format(s->tape, s->last, LT_FORMAT_CONTIGUOUS);
    assert_format(back, LT_FORMAT_CONTIGUOUS);
    assert_same_values(back, s->rows);
    assert_null(lt_to_format(s->tape, lt_flatten(s->tape, s->rows), LT_FORMAT_CHANNELS_LAST));
    assert_status(lt_tape_status(s->tape), LT_E_SHAPE);
    assert_non_null(strstr(lt_error_message(), "to_format: x [2,60], channels-last needs 4"));
}

static void files_are_the_same(void **state)
{
    scene *s = *state;
    char folder[TEMP_PATH], path[2][TEMP_PATH];
    size_t bytes[2];
    char *data[2];
    temp_make(folder);
    for (int last = 0; last < 2; last++) {
        lt_safetensors_writer *w = NULL;
        temp_path(path[last], folder, last ? "last" : "rows");
        assert_ok(lt_safetensors_create(&w, path[last]));
        assert_ok(lt_safetensors_add(w, "x", last ? s->last : s->rows));
        assert_ok(lt_safetensors_finish(&w));
        data[last] = temp_read(path[last], &bytes[last]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
    temp_remove(folder);
}

static void borrowed_memory_is_used_in_place(void **state)
{
    scene *s = *state;
    float memory[COUNT], before[COUNT], after[COUNT];
    lt_tensor *t = NULL;
    const lt_shape shape = LT_SHAPE(N, C, H, W);
    const size_t used = lt_device_memory(s->device).used;
    for (int i = 0; i < COUNT; i++)
        memory[i] = (float)i;
    assert_ok(
        lt_tensor_new_borrowed(&t, s->device, LT_F32, shape, LT_FORMAT_CHANNELS_LAST, memory));
    assert_int_equal(lt_device_memory(s->device).used, used);
    assert_ptr_equal(lt_tensor_view(t).data, memory);
    assert_ok(lt_tensor_read(t, before, sizeof before));
    assert_near(before[1], C, 0); /* the second column of the first channel */
    memory[C] = -5;
    assert_ok(lt_tensor_read(lt_relu(s->tape, t), after, sizeof after));
    assert_near(after[1], 0, 0);
    assert_ok(lt_tensor_fill(t, 7));
    assert_near(memory[COUNT - 1], 7, 0);
    lt_tape_reset(s->tape, LT_PASS_TRAIN);
    lt_tensor_free(&t);
    assert_near(memory[COUNT - 1], 7, 0);
    assert_int_equal(lt_device_memory(s->device).used, used);
}

static void memory_that_cannot_be_borrowed_is_an_error(void **state)
{
    scene *s = *state;
    float memory[COUNT + 1];
    lt_tensor *t = NULL;
    assert_status(lt_tensor_new_borrowed(&t, s->device, LT_F32, LT_SHAPE(N, C, H, W),
                                         LT_FORMAT_CONTIGUOUS, (char *)memory + 2),
                  LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "f32 begins 2 bytes after a multiple of 4"));
    assert_status(
        lt_tensor_new_borrowed(&t, s->device, LT_F32, LT_SHAPE(N), LT_FORMAT_CONTIGUOUS, NULL),
        LT_E_ARG);
    assert_status(lt_tensor_new_borrowed(&t, s->device, LT_F32, LT_SHAPE(N, C),
                                         LT_FORMAT_CHANNELS_LAST, memory),
                  LT_E_SHAPE);
    const lt_backend *host = s->device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    s->device->backend = &far;
    assert_fails(
        lt_tensor_new_borrowed(&t, s->device, LT_F32, LT_SHAPE(N), LT_FORMAT_CONTIGUOUS, memory),
        LT_E_UNSUPPORTED, " cannot borrow memory of the host");
    s->device->backend = host;
    assert_null(t);
    assert_ok(lt_tensor_new(&t, s->device, LT_F32, LT_SHAPE(N)));
    lt_tensor_free_memory(t);
    assert_fails(lt_tensor_read(t, memory, N * sizeof *memory), LT_E_ARG,
                 "tensor: this [2] has no memory on this rank");
    lt_tensor_free(&t);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
    const struct CMUnitTest tests[] = {
        ROW(what_a_user_makes_is_row_major),
        ROW(elementwise_results_lie_as_their_input),
        ROW(broadcasting_both_keeps_channels_last),
        ROW(operations_on_images_convert_what_is_row_major),
        ROW(views_are_of_either_format),
        ROW(matrices_stay_row_major),
        ROW(conversion_is_by_name_and_only_if_needed),
        ROW(files_are_the_same),
        ROW(borrowed_memory_is_used_in_place),
        ROW(memory_that_cannot_be_borrowed_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
