/* Graphs of cuDNN against their formulas, on whatever cuDNN this is linked with: here the stand-in for
 * it. Numbers are small multiples of powers of two, so that every sum is exact and results must be
 * equal. Formulas: lt_conv2d(), lt_batchnorm2d(). */

#include "../graphs.h"
#include "near.h"
#include "tensor/backend/dtype.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N, C, H, W, BATCH = 2, MOST_WORKSPACE = 64 << 20 };

/* A tensor of a graph: its numbers by rows of NCHW, and its memory. */
typedef struct operand {
    int64_t dim[4], count;
    lt_dtype dtype;
    bool between; /* only between operations: no memory */
    double *value;
    char *device;
} operand;

typedef struct fixture {
    lt_dnn_graph g;
    conv_graph kind;
    conv_shape shape;
    operand t[LT_DNN_TENSORS];
    cudaStream_t stream;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
    char *workspace;
} fixture;

static lt_dtype dtype_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF ? LT_F16 : type == CUDNN_DATA_BFLOAT16 ? LT_BF16 : LT_F32;
}

static double rounded(double x, lt_dtype dtype)
{
    const float f = (float)x;
    if (dtype == LT_F16)
        return (double)lt_f32_from_f16(lt_f16_from_f32(f));
    return dtype == LT_BF16 ? (double)lt_f32_from_bf16(lt_bf16_from_f32(f)) : (double)f;
}

static void get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t most, void *out)
{
    int64_t count = 0;
    assert_int_equal(cudnnBackendGetAttribute(d, name, type, most, &count, out), 0);
    assert_int_equal(count, most);
}

static int64_t channel(const operand *o, int64_t i)
{
    return i / o->dim[W] / o->dim[H] % o->dim[C];
}

/* Where NCHW is in memory that is channels-last. */
static int64_t place(const operand *o, int64_t i)
{
    const int64_t w = i % o->dim[W], h = i / o->dim[W] % o->dim[H];
    const int64_t n = i / o->dim[W] / o->dim[H] / o->dim[C];
    return ((n * o->dim[H] + h) * o->dim[W] + w) * o->dim[C] + channel(o, i);
}

static void store(char *to, lt_dtype dtype, int64_t i, double x)
{
    const float f = (float)x;
    const uint16_t half = dtype == LT_F16 ? lt_f16_from_f32(f) : lt_bf16_from_f32(f);
    if (dtype == LT_F32)
        memcpy(to + i * 4, &f, sizeof f);
    else
        memcpy(to + i * 2, &half, sizeof half);
}

static double load(const char *from, lt_dtype dtype, int64_t i)
{
    float f;
    uint16_t half;
    memcpy(&f, from + i * (dtype == LT_F32 ? 4 : 0), sizeof f);
    memcpy(&half, from + i * (dtype == LT_F32 ? 0 : 2), sizeof half);
    return (double)(dtype == LT_F32   ? f
                    : dtype == LT_F16 ? lt_f32_from_f16(half)
                                      : lt_f32_from_bf16(half));
}

static void copy(const fixture *f, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind)
{
    assert_false(cudaMemcpyAsync(to, from, bytes, kind, f->stream)
                 || cudaStreamSynchronize(f->stream));
}

static size_t bytes_of(const operand *o)
{
    return (size_t)o->count * lt_dtype_size(o->dtype) + 4; /* load() may look at four */
}

/* Vectors are powers of two or halves, others quarters. */
static double number(const operand *o, int64_t i, int which)
{
    const int64_t mixed = (i * 7 + which * 5 + i / 11) % 9;
    if (o->dim[H] == 1 && o->dim[N] == 1)
        return which % 2 ? 0.5 : 1 + (double)(i % 2);
    return (double)(mixed - 4) / 4;
}

static void open_operand(fixture *f, int i)
{
    operand *o = &f->t[i];
    cudnnDataType_t type;
    const cudnnBackendDescriptor_t d = f->g.tensor[i];
    int64_t count = 0;
    get(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, o->dim);
    get(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &count,
                                 &o->between))
        o->between = false;
    o->dtype = dtype_of(type);
    o->count = o->dim[N] * o->dim[C] * o->dim[H] * o->dim[W];
    o->value = calloc((size_t)o->count, sizeof *o->value);
    char *host = calloc(bytes_of(o), 1);
    for (int64_t e = 0; e < o->count; e++) {
        o->value[e] = number(o, e, i);
        store(host, o->dtype, place(o, e), o->value[e]);
    }
    if (!o->between) {
        assert_int_equal(cudaMalloc((void **)&o->device, bytes_of(o)), 0);
        copy(f, o->device, host, bytes_of(o), cudaMemcpyHostToDevice);
    }
    free(host);
}

static void open_fixture(fixture *f, conv_graph kind, conv_shape shape, lt_dtype dtype)
{
    *f = (fixture){.kind = kind, .shape = shape};
    assert_ok(build_graph(&f->g, kind, &shape, BATCH, dtype));
    assert_int_equal(cudaStreamCreateWithPriority(&f->stream, cudaStreamNonBlocking, 0), 0);
    assert_false(cudnnCreate(&f->handle) || cudnnSetStream(f->handle, f->stream));
    assert_ok(lt_dnn_device(&f->device, NULL, f->handle));
    assert_int_equal(cudaMalloc((void **)&f->workspace, MOST_WORKSPACE), 0);
    for (int i = 0; i < f->g.tensors; i++)
        open_operand(f, i);
}

static void close_fixture(fixture *f)
{
    for (int i = 0; i < f->g.tensors; i++) {
        free(f->t[i].value);
        if (f->t[i].device)
            cudaFree(f->t[i].device);
    }
    cudaFree(f->workspace);
    cudnnBackendDestroyDescriptor(f->device);
    cudnnDestroy(f->handle);
    cudaStreamDestroy(f->stream);
    lt_dnn_reset(&f->g);
}

static double *at(const operand *o, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return &o->value[((n * o->dim[C] + c) * o->dim[H] + h) * o->dim[W] + w];
}

/* y += x w, or dx += w dy, or dw += x dy: all three from the same walk. */
static void convolve(const fixture *f, lt_dnn_conv_kind kind, operand *x, operand *w, operand *y)
{
    const int pad = f->shape.size / 2, s = f->shape.stride;
    operand *out = kind == LT_DNN_FORWARD ? y : kind == LT_DNN_GRAD_X ? x : w;
    memset(out->value, 0, (size_t)out->count * sizeof *out->value);
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t q = i % y->dim[W], p = i / y->dim[W] % y->dim[H];
        const int64_t k = channel(y, i), n = i / y->dim[W] / y->dim[H] / y->dim[C];
        for (int64_t e = 0; e < w->count / w->dim[N]; e++) {
            const int64_t v = e % w->dim[W], u = e / w->dim[W] % w->dim[H];
            const int64_t c = e / w->dim[W] / w->dim[H], h = p * s + u - pad, g = q * s + v - pad;
            if (h < 0 || g < 0 || h >= x->dim[H] || g >= x->dim[W])
                continue;
            double *xe = at(x, n, c, h, g), *we = at(w, k, c, u, v), *ye = &y->value[i];
            *(kind == LT_DNN_FORWARD  ? ye
              : kind == LT_DNN_GRAD_X ? xe
                                      : we) += kind == LT_DNN_FORWARD  ? *xe * *we
                                               : kind == LT_DNN_GRAD_X ? *we * *ye
                                                                       : *xe * *ye;
        }
    }
    for (int64_t i = 0; i < out->count; i++)
        out->value[i] = rounded(out->value[i], out->dtype);
}

static void sums(const operand *y, operand *sum, operand *squares)
{
    memset(sum->value, 0, (size_t)sum->count * sizeof *sum->value);
    memset(squares->value, 0, (size_t)squares->count * sizeof *squares->value);
    for (int64_t i = 0; i < y->count; i++) {
        sum->value[channel(y, i)] += y->value[i];
        squares->value[channel(y, i)] += y->value[i] * y->value[i];
    }
}

static void apply(const operand *x, const operand *scale, const operand *shift, operand *act)
{
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t c = channel(x, i);
        const double v = x->value[i] * scale->value[c] + shift->value[c];
        act->value[i] = v > 0 ? v : 0;
    }
}

/* The gradient of relu(batchnorm(x)), and batch norm's sums and coefficients. */
static void norm_sums(fixture *f)
{
    operand *const t = f->t, *g = &t[LT_CONV_X], *x = &t[LT_CONV_NORM_X];
    const int64_t of_channel = x->count / x->dim[C];
    const double count = (double)of_channel;
    for (int64_t c = 0; c < x->dim[C]; c++)
        t[LT_CONV_DGAMMA].value[c] = t[LT_CONV_DBETA].value[c] = 0;
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t c = channel(x, i);
        const double unit = (x->value[i] - t[LT_CONV_MEAN].value[c]) * t[LT_CONV_RSTD].value[c];
        if (!(unit * t[LT_CONV_GAMMA].value[c] + t[LT_CONV_BETA].value[c] > 0))
            g->value[i] = 0;
        t[LT_CONV_DGAMMA].value[c] += g->value[i] * unit;
        t[LT_CONV_DBETA].value[c] += g->value[i];
    }
    for (int64_t c = 0; c < x->dim[C]; c++) {
        const double a = t[LT_CONV_GAMMA].value[c] * t[LT_CONV_RSTD].value[c];
        const double b = -a * t[LT_CONV_RSTD].value[c] * t[LT_CONV_DGAMMA].value[c] / count;
        t[LT_CONV_A].value[c] = a;
        t[LT_CONV_B].value[c] = b;
        t[LT_CONV_C].value[c] =
            -a * t[LT_CONV_DBETA].value[c] / count - b * t[LT_CONV_MEAN].value[c];
    }
}

/* Results in the place of what was in them. */
static void expect(fixture *f)
{
    operand *const t = f->t;
    switch (f->kind) {
    case WITH_STATISTICS:
    case PLAIN_FORWARD:
        convolve(f, LT_DNN_FORWARD, &t[LT_CONV_X], &t[LT_CONV_W], &t[LT_CONV_Y]);
        if (f->kind == WITH_STATISTICS)
            sums(&t[LT_CONV_Y], &t[LT_CONV_SUM], &t[LT_CONV_SQUARES]);
        break;
    case PLAIN_GRAD_X:
    case GRAD_X_NORM:
        convolve(f, LT_DNN_GRAD_X, &t[LT_CONV_X], &t[LT_CONV_W], &t[LT_CONV_Y]);
        if (f->kind == GRAD_X_NORM)
            norm_sums(f);
        break;
    case PLAIN_GRAD_W:
        convolve(f, LT_DNN_GRAD_W, &t[LT_CONV_X], &t[LT_CONV_W], &t[LT_CONV_Y]);
        break;
    case APPLY_WITH_STATISTICS: /* and three between; so behind it */
        apply(&t[LT_CONV_X], &t[LT_CONV_SCALE], &t[LT_CONV_SHIFT], &t[LT_CONV_NORM_SQUARES + 3]);
        convolve(f, LT_DNN_FORWARD, &t[LT_CONV_NORM_SQUARES + 3], &t[LT_CONV_W], &t[LT_CONV_Y]);
        sums(&t[LT_CONV_Y], &t[LT_CONV_NORM_SUM], &t[LT_CONV_NORM_SQUARES]);
        break;
    case APPLY_GRAD_W:
        apply(&t[LT_CONV_X], &t[LT_CONV_SCALE], &t[LT_CONV_SHIFT], &t[LT_CONV_SHIFT + 3]);
        convolve(f, LT_DNN_GRAD_W, &t[LT_CONV_SHIFT + 3], &t[LT_CONV_W], &t[LT_CONV_Y]);
        break;
    case BLOCKS_FORWARD:
    case BLOCKS_WITH_STATISTICS:
    case BLOCKS_GRAD_W:
    case NORM_GRAD_X:
    case ADD_WITH_STATISTICS:
        fail_msg("no row asks for it");
    }
}

/* How many elements in memory are not as expected: what is read may not change either. */
static int64_t differences(const fixture *f)
{
    int64_t different = 0;
    for (int i = 0; i < f->g.tensors; i++) {
        const operand *o = &f->t[i];
        if (o->between)
            continue;
        char *host = calloc(bytes_of(o), 1);
        copy(f, host, o->device, bytes_of(o), cudaMemcpyDeviceToHost);
        for (int64_t e = 0; e < o->count; e++) {
            const double got = load(host, o->dtype, place(o, e)), want = o->value[e];
            different += !(fabs(got - want) <= 1e-6 * fabs(want));
        }
        free(host);
    }
    return different;
}

/* False: no plan can be made of it. */
static bool run_choice(fixture *f, const lt_dnn_choice *choice)
{
    lt_dnn_plan plan;
    int tensor[LT_DNN_TENSORS], count = 0;
    void *memory[LT_DNN_TENSORS];
    if (lt_dnn_plan_new(&plan, choice, f->device))
        return false;
    for (int i = 0; i < f->g.tensors; i++)
        if (f->t[i].device) {
            tensor[count] = i;
            memory[count++] = f->t[i].device;
        }
    assert_true(plan.workspace <= MOST_WORKSPACE);
    assert_ok(lt_dnn_plan_run(&plan, f->handle, tensor, memory, count, f->workspace));
    lt_dnn_plan_clear(&plan);
    return true;
}

typedef struct row {
    const char *name;
    conv_graph kind;
    lt_dtype dtype;
    conv_shape shape;
    int least; /* engines */
} row;

static void check_row(void **state)
{
    const row *r = *state;
    static const lt_dnn_rules rules = {false, true, MOST_WORKSPACE};
    fixture f;
    lt_dnn_choices choices = {0};
    open_fixture(&f, r->kind, r->shape, r->dtype);
    assert_ok(lt_dnn_propose(&choices, &f.g, f.device, &rules));
    assert_true(choices.count >= r->least);
    expect(&f);
    for (int i = 0; i < choices.count; i++)
        if (run_choice(&f, &choices.item[i]) && differences(&f))
            fail_msg("engine %d: %d elements differ", (int)choices.item[i].number,
                     (int)differences(&f));
    lt_dnn_choices_clear(&choices);
    close_fixture(&f);
}

/* clang-format off */
static const row rows[] = {
    {"f32 forward, 3x3", PLAIN_FORWARD, LT_F32, {8, 16, 5, 3, 1}, 2},
    {"f32 forward, 7x7 stride 2, 3 channels", PLAIN_FORWARD, LT_F32, {3, 8, 9, 7, 2}, 1},
    {"f16 forward, 1x1 stride 2", PLAIN_FORWARD, LT_F16, {16, 8, 5, 1, 2}, 2},
    {"bf16 forward, odd channels", PLAIN_FORWARD, LT_BF16, {5, 7, 6, 3, 1}, 2},
    {"f32 gradient of x, 3x3 stride 2", PLAIN_GRAD_X, LT_F32, {8, 8, 6, 3, 2}, 3},
    {"f16 gradient of x", PLAIN_GRAD_X, LT_F16, {8, 16, 5, 3, 1}, 3},
    {"bf16 gradient of x, 1x1", PLAIN_GRAD_X, LT_BF16, {16, 8, 4, 1, 1}, 3},
    {"f32 gradient of w, 7x7 stride 2", PLAIN_GRAD_W, LT_F32, {3, 8, 9, 7, 2}, 2},
    {"f16 gradient of w", PLAIN_GRAD_W, LT_F16, {8, 8, 5, 3, 1}, 3},
    {"bf16 gradient of w, stride 2", PLAIN_GRAD_W, LT_BF16, {8, 16, 6, 3, 2}, 3},
    {"f16 forward with statistics", WITH_STATISTICS, LT_F16, {8, 16, 5, 3, 1}, 3},
    {"bf16 forward with statistics, compiled", WITH_STATISTICS, LT_BF16, {8, 16, 5, 1, 1}, 1},
    {"f16 scale, shift, relu, forward, statistics", APPLY_WITH_STATISTICS, LT_F16, {8, 8, 4, 3, 1}, 3},
    {"f16 scale, shift, relu, gradient of w", APPLY_GRAD_W, LT_F16, {8, 16, 5, 1, 2}, 2},
    {"f16 gradient of x, relu's gradient, batch norm's sums", GRAD_X_NORM, LT_F16, {8, 16, 4, 3, 1}, 2},
};
/* clang-format on */

static void no_engine_is_said(void **state)
{
    static const lt_dnn_rules rules = {false, true, MOST_WORKSPACE};
    fixture f;
    lt_dnn_choices choices = {0};
    (void)state;
    open_fixture(&f, GRAD_X_NORM, (conv_shape){8, 8, 4, 1, 1}, LT_BF16);
    assert_status(lt_dnn_propose(&choices, &f.g, f.device, &rules), LT_E_UNSUPPORTED);
    close_fixture(&f);
}

static void control_one_element_is_seen(void **state)
{
    static const lt_dnn_rules rules = {true, false, MOST_WORKSPACE};
    fixture f;
    lt_dnn_choices choices = {0};
    (void)state;
    open_fixture(&f, PLAIN_FORWARD, (conv_shape){8, 8, 5, 3, 1}, LT_F32);
    assert_ok(lt_dnn_propose(&choices, &f.g, f.device, &rules));
    expect(&f);
    assert_true(differences(&f) > 0); /* before the run */
    assert_true(run_choice(&f, &choices.item[choices.count - 1]));
    assert_int_equal(differences(&f), 0);
    f.t[LT_CONV_Y].value[7] += 0.0625;
    assert_int_equal(differences(&f), 1);
    lt_dnn_choices_clear(&choices);
    close_fixture(&f);
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(no_engine_is_said),
        cmocka_unit_test(control_one_element_is_seen),
    };
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL) + cmocka_run_group_tests(others, NULL, NULL);
}
