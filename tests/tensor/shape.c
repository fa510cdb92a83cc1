/* src/tensor/shape.c: strides, reshapes and broadcasts against visiting every element. */

#include "tensor/shape.h"

#include "near.h"

#include "lather/ext/broadcast.h"

#include <string.h>

typedef struct reshape_row {
    const char *name;
    lt_shape from;
    bool channels_last; /* storage of from; else row-major */
    lt_shape to;
    bool is_view;
} reshape_row;

static const reshape_row reshapes[] = {
    {"row-major to a vector", {3, {2, 3, 4}}, false, {1, {24}}, true},
    {"a vector to row-major", {1, {24}}, false, {3, {2, 3, 4}}, true},
    {"regrouped extents", {2, {6, 4}}, false, {3, {3, 2, 4}}, true},
    {"extents of 1 come and go", {4, {1, 6, 1, 4}}, false, {3, {6, 1, 4}}, true},
    {"to a scalar", {2, {1, 1}}, false, {0, {0}}, true},
    {"a scalar to a matrix", {0, {0}}, false, {2, {1, 1}}, true},
    {"channels-last, channels to the end", {4, {2, 3, 4, 5}}, true, {2, {2, 60}}, false},
    {"channels-last with one pixel", {4, {2, 3, 1, 1}}, true, {2, {2, 3}}, true},
    {"channels-last, pixels merged", {4, {2, 3, 4, 5}}, true, {3, {2, 3, 20}}, true},
    {"channels-last with one channel", {4, {2, 1, 4, 5}}, true, {2, {2, 20}}, true},
    {"control: another count", {2, {2, 3}}, false, {1, {5}}, false},
    {"control: an extra trailing dimension", {1, {4}}, false, {2, {4, 2}}, false},
};

static int64_t offset_of(const lt_view *view, int64_t rank)
{
    int64_t offset = 0;
    for (int d = view->shape.ndim - 1; d >= 0; d--) {
        offset += rank % view->shape.dim[d] * view->stride[d];
        rank /= view->shape.dim[d];
    }
    return offset;
}

static void check_reshape(void **state)
{
    const reshape_row *row = *state;
    lt_view from = {.shape = row->from}, to = {.shape = row->to};
    if (row->channels_last)
        lt_channels_last_strides(row->from, from.stride);
    else
        lt_row_major_strides(row->from, from.stride);
    assert_int_equal(lt_view_reshape(&from, row->to, to.stride), row->is_view);
    for (int64_t i = 0; row->is_view && i < lt_shape_count(row->from); i++)
        assert_int_equal(offset_of(&from, i), offset_of(&to, i));
}

static void broadcast_aligns_right(void **state)
{
    (void)state;
    lt_view small = {.shape = LT_SHAPE(3, 1), .stride = {1, 1}}, out;
    assert_true(lt_view_broadcast(&small, LT_SHAPE(2, 3, 4), &out));
    assert_int_equal(out.stride[0], 0);
    assert_int_equal(out.stride[1], 1);
    assert_int_equal(out.stride[2], 0);
    assert_false(lt_view_broadcast(&small, LT_SHAPE(2, 4, 4), &out));
    assert_false(lt_view_broadcast(&small, LT_SHAPE(3), &out));
}

static void layouts_are_distinguished(void **state)
{
    (void)state;
    lt_view v = {.shape = LT_SHAPE(2, 3, 4, 5)};
    lt_channels_last_strides(v.shape, v.stride);
    assert_true(lt_view_is_channels_last(&v));
    assert_true(lt_view_is_dense(&v));
    assert_false(lt_view_is_contiguous(&v));
    lt_format_strides(v.shape, LT_FORMAT_CONTIGUOUS, v.stride);
    assert_true(lt_view_is_contiguous(&v));
    assert_false(lt_view_is_channels_last(&v));
    lt_format_strides(v.shape, LT_FORMAT_CHANNELS_LAST, v.stride);
    v.stride[0] += 3; /* a gap between images */
    assert_false(lt_view_is_channels_last(&v));
    assert_false(lt_view_is_dense(&v));
}

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t bytes;
    assert_ok(lt_shape_bytes(LT_SHAPE(2, 3), LT_F64, &bytes));
    assert_int_equal(bytes, 48);
    assert_status(lt_shape_bytes(LT_SHAPE(2, 0), LT_F32, &bytes), LT_E_ARG);
    assert_status(lt_shape_bytes(LT_SHAPE(INT64_MAX / 4, 3), LT_F32, &bytes), LT_E_NOMEM);
    lt_shape deep = {.ndim = LT_MAX_DIMS + 1};
    assert_status(lt_shape_bytes(deep, LT_F32, &bytes), LT_E_ARG);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(reshapes) + 3];
    size_t n = 0;
    for (; n < COUNT_OF(reshapes); n++) {
        union {
            const void *in;
            void *out;
        } row = {&reshapes[n]};
        tests[n] = (struct CMUnitTest){reshapes[n].name, check_reshape, NULL, NULL, row.out};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(broadcast_aligns_right);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(layouts_are_distinguished);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(sizes_are_checked);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
