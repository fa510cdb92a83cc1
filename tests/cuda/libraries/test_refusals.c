/* Calls that cuDNN refuses: wrong attributes, shapes and orders of calls. Built twice, with the stand-in and with the
 * real library, whose statuses must agree; rows that only the stand-in refuses are marked. No device is needed. */

#include "near.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef REAL_CUDNN
static const bool real = true;
#else
static const bool real = false;
#endif

#define INT CUDNN_TYPE_INT64
#define REF CUDNN_TYPE_BACKEND_DESCRIPTOR

typedef cudnnBackendDescriptor_t descriptor;

enum { MOST = 32, CATEGORY = 1000 };
static descriptor made[MOST];
static int count;

static descriptor make(cudnnBackendDescriptorType_t type)
{
    assert_true(count < MOST);
    assert_int_equal(cudnnBackendCreateDescriptor(type, &made[count]), 0);
    return made[count++];
}

static int destroy_all(void **state)
{
    (void)state;
    while (count > 0)
        assert_int_equal(cudnnBackendDestroyDescriptor(made[--count]), 0);
    return 0;
}

static cudnnStatus_t set(descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t elements, const void *from)
{
    return cudnnBackendSetAttribute(d, name, type, elements, from);
}

static void must(cudnnStatus_t status)
{
    char words[256] = "";
    if (status)
        cudnnGetLastErrorString(words, sizeof words);
    if (status)
        fail_msg("%s: %s", cudnnGetErrorString(status), words);
}

/* [n,c,h,w] of f16, channels-last, not finalized. */
static descriptor open_tensor(int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t dim[] = {n, c, h, w}, stride[] = {c * h * w, 1, w * c, c}, alignment = 16;
    const cudnnDataType_t type = CUDNN_DATA_HALF;
    descriptor d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    must(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, INT, 1, &uid));
    must(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    must(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, INT, 1, &alignment));
    must(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, INT, 4, dim));
    must(set(d, CUDNN_ATTR_TENSOR_STRIDES, INT, 4, stride));
    return d;
}

static descriptor tensor(int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w)
{
    descriptor d = open_tensor(uid, n, c, h, w);
    must(cudnnBackendFinalize(d));
    return d;
}

/* 3x3, stride 1, pad 1, not finalized. */
static descriptor open_convolution(void)
{
    const int64_t one[] = {1, 1}, two = 2;
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    descriptor d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    must(set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math));
    must(set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    must(set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, INT, 1, &two));
    must(set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, INT, 2, one));
    must(set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, INT, 2, one));
    must(set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, INT, 2, one));
    must(set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, INT, 2, one));
    return d;
}

/* An operation of those tensors, not finalized. */
static descriptor forward(descriptor x, descriptor w, descriptor y)
{
    descriptor c = open_convolution(),
               op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    must(cudnnBackendFinalize(c));
    must(set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, REF, 1, &c));
    must(set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, REF, 1, &x));
    must(set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, REF, 1, &w));
    must(set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, REF, 1, &y));
    return op;
}

static cudnnStatus_t a_good_graph(void)
{
    descriptor op = forward(tensor(1, 2, 8, 5, 5), tensor(2, 16, 8, 3, 3), tensor(3, 2, 16, 5, 5));
    must(cudnnBackendFinalize(op));
    descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    must(set(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, REF, 1, &op));
    return cudnnBackendFinalize(g);
}

static cudnnStatus_t a_tensor_of_nothing(void)
{
    return cudnnBackendFinalize(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
}

static cudnnStatus_t an_id_as_a_float(void)
{
    const float one = 1;
    return set(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT,
               1, &one);
}

static cudnnStatus_t two_ids(void)
{
    const int64_t two[] = {1, 2};
    return set(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, INT, 2, two);
}

static cudnnStatus_t an_attribute_of_others(void)
{
    const int64_t two = 2;
    return set(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, INT, 1,
               &two);
}

static cudnnStatus_t three_strides(void)
{
    const int64_t stride[] = {200, 1, 40};
    descriptor d = open_tensor(1, 2, 8, 5, 5);
    must(set(d, CUDNN_ATTR_TENSOR_STRIDES, INT, 3, stride));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t an_odd_alignment(void)
{
    const int64_t three = 3;
    descriptor d = open_tensor(1, 2, 8, 5, 5);
    must(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, INT, 1, &three));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t an_extent_of_nothing(void)
{
    const int64_t dim[] = {2, 0, 5, 5};
    descriptor d = open_tensor(1, 2, 8, 5, 5);
    must(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, INT, 4, dim));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t read_too_early(void)
{
    int64_t dim[4], got;
    return cudnnBackendGetAttribute(open_tensor(1, 2, 8, 5, 5), CUDNN_ATTR_TENSOR_DIMENSIONS, INT,
                                    4, &got, dim);
}

static cudnnStatus_t read_as_floats(void)
{
    float dim[8];
    int64_t got;
    return cudnnBackendGetAttribute(tensor(1, 2, 8, 5, 5), CUDNN_ATTR_TENSOR_DIMENSIONS,
                                    CUDNN_TYPE_FLOAT, 4, &got, dim);
}

static cudnnStatus_t finalized_twice(void)
{
    return cudnnBackendFinalize(tensor(1, 2, 8, 5, 5));
}

static cudnnStatus_t set_too_late(void)
{
    const int64_t one = 1;
    return set(tensor(1, 2, 8, 5, 5), CUDNN_ATTR_TENSOR_UNIQUE_ID, INT, 1, &one);
}

static cudnnStatus_t strides_of_three_dimensions(void)
{
    const int64_t three[] = {1, 1, 1};
    descriptor d = open_convolution();
    must(set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, INT, 3, three));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t a_stride_of_nothing(void)
{
    const int64_t zeros[] = {0, 0};
    descriptor d = open_convolution();
    must(set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, INT, 2, zeros));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t a_negative_pad(void)
{
    const int64_t pad[] = {-1, 1};
    descriptor d = open_convolution();
    must(set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, INT, 2, pad));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t a_mode_as_a_number(void)
{
    const int64_t mode = CUDNN_CROSS_CORRELATION;
    return set(open_convolution(), CUDNN_ATTR_CONVOLUTION_CONV_MODE, INT, 1, &mode);
}

static cudnnStatus_t a_result_too_tall(void)
{
    return cudnnBackendFinalize(
        forward(tensor(1, 2, 8, 5, 5), tensor(2, 16, 8, 3, 3), tensor(3, 2, 16, 6, 5)));
}

static cudnnStatus_t a_filter_too_deep(void)
{
    return cudnnBackendFinalize(
        forward(tensor(1, 2, 8, 5, 5), tensor(2, 16, 16, 3, 3), tensor(3, 2, 16, 5, 5)));
}

static cudnnStatus_t an_operation_without_y(void)
{
    descriptor x = tensor(1, 2, 8, 5, 5),
               op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    must(set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, REF, 1, &x));
    return cudnnBackendFinalize(op);
}

/* The library finds this when the operation is finalized. */
static cudnnStatus_t a_tensor_not_finalized(void)
{
    descriptor x = open_tensor(1, 2, 8, 5, 5),
               op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    return set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, REF, 1, &x);
}

static cudnnStatus_t a_tensor_as_a_convolution(void)
{
    descriptor x = tensor(1, 2, 8, 5, 5),
               op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    return set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, REF, 1, &x);
}

static cudnnStatus_t one_id_for_two_tensors(void)
{
    descriptor op = forward(tensor(1, 2, 8, 5, 5), tensor(2, 16, 8, 3, 3), tensor(2, 2, 16, 5, 5));
    descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    must(cudnnBackendFinalize(op));
    must(set(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, REF, 1, &op));
    return cudnnBackendFinalize(g);
}

static cudnnStatus_t a_graph_of_nothing(void)
{
    return cudnnBackendFinalize(make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
}

static cudnnStatus_t a_plan_of_nothing(void)
{
    return cudnnBackendFinalize(make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
}

static cudnnStatus_t fewer_pointers_than_ids(void)
{
    const int64_t uid[] = {1, 2, 3};
    void *const pointer[] = {made, made};
    descriptor d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    must(set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, INT, 3, uid));
    must(set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 2, pointer));
    return cudnnBackendFinalize(d);
}

static cudnnStatus_t a_device_without_numbers(void)
{
    static const char text[] = "{\"deviceVer\":900}";
    descriptor d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    must(set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof text - 1, text));
    return cudnnBackendFinalize(d);
}

/* A product of matrices, finalized. */
static cudnnStatus_t product(descriptor a, descriptor b, descriptor y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    descriptor d = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
               op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    must(set(d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math));
    must(cudnnBackendFinalize(d));
    must(set(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, REF, 1, &d));
    must(set(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, REF, 1, &a));
    must(set(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, REF, 1, &b));
    must(set(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, REF, 1, &y));
    return cudnnBackendFinalize(op);
}

static cudnnStatus_t a_good_product(void)
{
    return product(tensor(1, 2, 4, 5, 8), tensor(2, 2, 2, 8, 7), tensor(3, 2, 4, 5, 7));
}

static cudnnStatus_t a_product_that_does_not_fit(void)
{
    return product(tensor(1, 2, 4, 5, 8), tensor(2, 2, 4, 9, 7), tensor(3, 2, 4, 5, 7));
}

static cudnnStatus_t a_product_of_too_many_columns(void)
{
    return product(tensor(1, 2, 4, 5, 8), tensor(2, 2, 4, 8, 7), tensor(3, 2, 4, 5, 8));
}

static cudnnStatus_t heads_that_do_not_divide(void)
{
    return product(tensor(1, 2, 6, 5, 8), tensor(2, 2, 4, 8, 7), tensor(3, 2, 6, 5, 7));
}

static cudnnStatus_t a_selection_without_flags(void)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_BINARY_SELECT;
    descriptor d = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
               op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    descriptor x = tensor(1, 2, 4, 5, 8), b = tensor(2, 2, 4, 5, 8), y = tensor(3, 2, 4, 5, 8);
    must(set(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    must(set(d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math));
    must(cudnnBackendFinalize(d));
    must(set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, REF, 1, &d));
    must(set(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, REF, 1, &x));
    must(set(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, REF, 1, &b));
    must(set(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, REF, 1, &y));
    return cudnnBackendFinalize(op);
}

static cudnnStatus_t reshape(descriptor x, descriptor y)
{
    descriptor op = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    must(set(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, REF, 1, &x));
    must(set(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, REF, 1, &y));
    return cudnnBackendFinalize(op);
}

static cudnnStatus_t a_good_reshape(void)
{
    return reshape(tensor(1, 2, 4, 5, 8), tensor(2, 2, 4, 8, 5));
}

static cudnnStatus_t a_reshape_to_more(void)
{
    return reshape(tensor(1, 2, 4, 5, 8), tensor(2, 2, 4, 8, 6));
}

typedef struct row {
    const char *name;
    cudnnStatus_t (*call)(void);
    int want;  /* or its category, if that is a multiple of CATEGORY */
    bool mine; /* the library lets it pass, or crashes on it later */
} row;

static void check_row(void **state)
{
    const row *r = *state;
    if (real && r->mine)
        skip();
    const int got = (int)r->call();
    if ((r->want % CATEGORY ? got : got / CATEGORY * CATEGORY) != r->want)
        fail_msg("status %d, wanted %d", got, r->want);
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    assert_true(!got || *words); /* and why */
}

#define BAD CUDNN_STATUS_BAD_PARAM
/* clang-format off */
static const row rows[] = {
    {"control: a graph with nothing wrong", a_good_graph, CUDNN_STATUS_SUCCESS, false},
    {"a tensor without extents", a_tensor_of_nothing, BAD, false},
    {"an id that is a float", an_id_as_a_float, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, false},
    {"two ids for one tensor", two_ids, BAD, false},
    {"an attribute of another type of descriptor", an_attribute_of_others, BAD, false},
    {"three strides for four extents", three_strides, BAD, false},
    {"an alignment that is no multiple of an element", an_odd_alignment, BAD, false},
    {"an extent of 0", an_extent_of_nothing, BAD, true},
    {"an attribute read before the descriptor is finalized", read_too_early, CUDNN_STATUS_NOT_INITIALIZED, false},
    {"an attribute read as another type", read_as_floats, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, false},
    {"a descriptor finalized twice", finalized_twice, BAD, false},
    {"an attribute set after that", set_too_late, BAD, false},
    {"strides of three dimensions in a convolution of two", strides_of_three_dimensions, BAD, false},
    {"a stride of 0", a_stride_of_nothing, BAD, false},
    {"a pad below 0", a_negative_pad, BAD, false},
    {"a mode that is a number", a_mode_as_a_number, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, false},
    {"a result taller than the convolution makes it", a_result_too_tall, BAD, false},
    {"a filter of more channels than the image has", a_filter_too_deep, BAD, false},
    {"an operation without its result", an_operation_without_y, BAD, false},
    {"an operation of a tensor that is not finalized", a_tensor_not_finalized, BAD, true},
    {"a tensor in the place of a convolution", a_tensor_as_a_convolution, BAD, true},
    {"one id for two tensors", one_id_for_two_tensors, BAD, true},
    {"a graph without operations", a_graph_of_nothing, BAD, false},
    {"a plan without a configuration", a_plan_of_nothing, BAD, false},
    {"fewer pointers than ids", fewer_pointers_than_ids, BAD, false},
    {"control: a product with nothing wrong, whose heads share a factor", a_good_product, CUDNN_STATUS_SUCCESS, false},
    {"a product of matrices that do not fit", a_product_that_does_not_fit, BAD, false},
    {"a product of more columns than it has", a_product_of_too_many_columns, BAD, false},
    {"heads that do not divide one another", heads_that_do_not_divide, BAD, false},
    {"a selection without flags", a_selection_without_flags, BAD, false},
    {"control: a reshape with nothing wrong", a_good_reshape, CUDNN_STATUS_SUCCESS, false},
    {"a reshape to more elements", a_reshape_to_more, BAD, false},
    {"a device without its numbers", a_device_without_numbers, BAD, false},
};
/* clang-format on */

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, check_row, NULL, destroy_all,
                                       (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
