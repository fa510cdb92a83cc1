/* Which kernels cuDNN has for ResNet-50 on an H200. Asked without a device: the library plans for one
 * that is only described. */

#include "graphs.h"
#include "near.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORKSPACE_MIB = 256, MANY = 8 };

static cudnnBackendDescriptor_t h200;
static bool
    has_driver; /* or the toolkit's stub of it: for kernels that are compiled when asked for */

typedef struct counts {
    int hopper, older, compiled;
    size_t workspace; /* workspace of the first one, the heuristic's best */
} counts;

static void count_config(counts *c, const lt_dnn_config *config)
{
    lt_dnn_plan plan;
    char *text;
    if (config->compiled) {
        c->compiled++;
        return;
    }
    if (lt_dnn_plan_new(&plan, config, h200))
        return;
    if (!c->hopper && !c->older)
        c->workspace = plan.workspace;
    assert_ok(lt_dnn_plan_text(&plan, &text));
    if (lt_dnn_classify_plan(text) == LT_DNN_HOPPER)
        c->hopper++;
    else
        c->older++;
    free(text);
    lt_dnn_plan_clear(&plan);
}

/* At most `most` of each graph's configs are made plans of. */
static lt_status count_engines(counts *c, conv_graph kind, const conv_shape *shape, int batch,
                               lt_dtype dtype, const lt_dnn_rules *rules, int most)
{
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    *c = (counts){0};
    lt_status st = build_graph(&g, kind, shape, batch, dtype);
    if (!st)
        st = lt_dnn_propose_configs(&configs, &g, h200, rules);
    for (int i = 0; !st && i < configs.count && i < most; i++)
        count_config(c, &configs.item[i]);
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
    return st;
}

static const lt_dnn_rules usual = {true, true, (size_t)MOST_WORKSPACE_MIB << 20};

typedef struct row {
    const char *name;
    conv_graph kind;
    lt_dtype dtype;
    int batch;
    int first;          /* index in conv_shapes */
    int hopper, others; /* lower bounds on the first proposals; others: older or compiled */
    bool none;          /* no engine at all */
    bool needs_driver;
} row;

static void say_shape(char *text, size_t bytes, const conv_shape *s)
{
    snprintf(text, bytes, "%d -> %d, %dx%d, stride %d, side %d", s->channels, s->filters, s->size,
             s->size, s->stride, s->side);
}

static void check_row(void **state)
{
    const row *r = *state;
    if (r->needs_driver && !has_driver)
        skip();
    for (int i = r->first; i < CONV_SHAPES; i++) {
        counts c;
        char shape[96];
        say_shape(shape, sizeof shape, &conv_shapes[i]);
        lt_status st =
            count_engines(&c, r->kind, &conv_shapes[i], r->batch, r->dtype, &usual, MANY);
        if (r->none && st != LT_E_UNSUPPORTED)
            fail_msg("%s: %s", shape, st ? lt_error_message() : "there is an engine");
        if (!r->none && st)
            fail_msg("%s: %s", shape, lt_error_message());
        if (c.hopper < r->hopper || c.older + c.compiled < r->others)
            fail_msg("%s: %d Hopper kernels, %d older, %d compiled", shape, c.hopper, c.older,
                     c.compiled);
        if (c.workspace > usual.workspace)
            fail_msg("%s: %zu bytes of workspace", shape, c.workspace);
    }
}

/* clang-format off */
static const row rows[] = {
    {"f16 forward has Hopper kernels at batch 16", PLAIN_FORWARD, LT_F16, 16, 1, 1, 0, false, false},
    {"f16 forward has Hopper kernels at batch 64", PLAIN_FORWARD, LT_F16, 64, 1, 1, 0, false, false},
    {"f16 forward has Hopper kernels at batch 256", PLAIN_FORWARD, LT_F16, 256, 1, 1, 0, false, false},
    {"f16 gradient of the input has Hopper kernels at batch 16", PLAIN_GRAD_X, LT_F16, 16, 1, 1, 0, false, false},
    {"f16 gradient of the input has Hopper kernels at batch 64", PLAIN_GRAD_X, LT_F16, 64, 1, 1, 0, false, false},
    {"f16 gradient of the input has Hopper kernels at batch 256", PLAIN_GRAD_X, LT_F16, 256, 1, 1, 0, false, false},
    {"f16 gradient of the weight has Hopper kernels at batch 16", PLAIN_GRAD_W, LT_F16, 16, 1, 1, 0, false, false},
    {"f16 gradient of the weight has Hopper kernels at batch 64", PLAIN_GRAD_W, LT_F16, 64, 1, 1, 0, false, false},
    {"f16 gradient of the weight has Hopper kernels at batch 256", PLAIN_GRAD_W, LT_F16, 256, 1, 1, 0, false, false},
    {"bf16 forward has Hopper kernels at batch 16", PLAIN_FORWARD, LT_BF16, 16, 1, 1, 0, false, false},
    {"bf16 forward has Hopper kernels at batch 64", PLAIN_FORWARD, LT_BF16, 64, 1, 1, 0, false, false},
    {"bf16 forward has Hopper kernels at batch 256", PLAIN_FORWARD, LT_BF16, 256, 1, 1, 0, false, false},
    {"bf16 gradient of the input has Hopper kernels at batch 16", PLAIN_GRAD_X, LT_BF16, 16, 1, 1, 0, false, false},
    {"bf16 gradient of the input has Hopper kernels at batch 64", PLAIN_GRAD_X, LT_BF16, 64, 1, 1, 0, false, false},
    {"bf16 gradient of the input has Hopper kernels at batch 256", PLAIN_GRAD_X, LT_BF16, 256, 1, 1, 0, false, false},
    {"bf16 gradient of the weight has Hopper kernels at batch 16", PLAIN_GRAD_W, LT_BF16, 16, 1, 1, 0, false, false},
    {"bf16 gradient of the weight has Hopper kernels at batch 64", PLAIN_GRAD_W, LT_BF16, 64, 1, 1, 0, false, false},
    {"bf16 gradient of the weight has Hopper kernels at batch 256", PLAIN_GRAD_W, LT_BF16, 256, 1, 1, 0, false, false},
    {"tf32 forward has Hopper kernels at batch 16", PLAIN_FORWARD, LT_F32, 16, 1, 1, 0, false, false},
    {"tf32 forward has Hopper kernels at batch 256", PLAIN_FORWARD, LT_F32, 256, 1, 1, 0, false, false},
    {"tf32 gradient of the input has Hopper kernels at batch 16", PLAIN_GRAD_X, LT_F32, 16, 1, 1, 0, false, false},
    {"tf32 gradient of the input has Hopper kernels at batch 256", PLAIN_GRAD_X, LT_F32, 256, 1, 1, 0, false, false},
    {"tf32 gradient of the weight has Hopper kernels at batch 16", PLAIN_GRAD_W, LT_F32, 16, 1, 1, 0, false, false},
    {"tf32 gradient of the weight has Hopper kernels at batch 256", PLAIN_GRAD_W, LT_F32, 256, 1, 1, 0, false, false},
    {"f16 forward + statistics has Hopper kernels", WITH_STATISTICS, LT_F16, 256, 1, 1, 0, false, false},
    {"f16 scale, shift, relu + forward + statistics has Hopper kernels", APPLY_WITH_STATISTICS, LT_F16, 256, 1, 1, 0, false, false},
    {"f16 scale, shift, relu + gradient of the weight has Hopper kernels", APPLY_GRAD_W, LT_F16, 256, 1, 1, 0, false, false},
    {"f16 gradient of the input + relu + sums of batch norm has Hopper kernels", GRAD_X_NORM, LT_F16, 256, 1, 1, 0, false, false},
    {"bf16 forward + statistics is only compiled", WITH_STATISTICS, LT_BF16, 256, 1, 0, 1, false, true},
    {"bf16 scale, shift, relu + gradient of the weight has no engine", APPLY_GRAD_W, LT_BF16, 256, 1, 0, 0, true, false},
    {"bf16 gradient of the input + relu + sums of batch norm has no engine", GRAD_X_NORM, LT_BF16, 256, 1, 0, 0, true, false},
    {"f16 first convolution on blocks of pixels has Hopper kernels", BLOCKS_FORWARD, LT_F16, 256, CONV_SHAPES - 1, 1, 0, false, false},
    {"f16 first convolution on blocks + statistics has Hopper kernels", BLOCKS_WITH_STATISTICS, LT_F16, 256, CONV_SHAPES - 1, 1, 0, false, false},
    {"f16 first convolution on blocks, gradient of the weight, has Hopper kernels", BLOCKS_GRAD_W, LT_F16, 256, CONV_SHAPES - 1, 1, 0, false, false},
    {"bf16 first convolution on blocks of pixels has Hopper kernels", BLOCKS_FORWARD, LT_BF16, 256, CONV_SHAPES - 1, 1, 0, false, false},
    {"bf16 first convolution on blocks, gradient of the weight, has Hopper kernels", BLOCKS_GRAD_W, LT_BF16, 256, CONV_SHAPES - 1, 1, 0, false, false},
    {"control: batch norm's gradient before the gradient of the input has no engine", NORM_GRAD_X, LT_F16, 256, 1, 0, 0, true, false},
};
/* clang-format on */

static void stem_has_engines(void **state)
{
    static const lt_dtype dtypes[] = {LT_F16, LT_BF16, LT_F32};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(dtypes); i++)
        for (conv_graph kind = PLAIN_FORWARD; kind <= PLAIN_GRAD_W; kind++) {
            counts c;
            assert_ok(count_engines(&c, kind, &conv_shapes[0], 64, dtypes[i], &usual, MANY));
            assert_true(c.hopper + c.older > 0);
        }
}

/* Without TF32, no engine that is proposed may round the factors. */
static void f32_is_exact_when_asked(void **state)
{
    const lt_dnn_rules exact = {true, false, usual.workspace};
    (void)state;
    for (int i = 0; i < CONV_SHAPES; i++)
        for (conv_graph kind = PLAIN_FORWARD; kind <= PLAIN_GRAD_W; kind++) {
            lt_dnn_graph g = {0};
            lt_dnn_configs configs = {0};
            assert_ok(build_graph(&g, kind, &conv_shapes[i], 16, LT_F32));
            assert_ok(lt_dnn_propose_configs(&configs, &g, h200, &exact));
            assert_true(configs.count > 0);
            for (int c = 0; c < configs.count; c++)
                assert_false(configs.item[c].tensor_core || configs.item[c].compiled);
            lt_dnn_configs_clear(&configs);
            lt_dnn_reset_graph(&g);
        }
}

static void rules_are_kept(void **state)
{
    const lt_dnn_rules tight = {true, true, 0};
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    (void)state;
    assert_ok(build_graph(&g, PLAIN_GRAD_W, &conv_shapes[2], 256, LT_F16));
    assert_ok(lt_dnn_propose_configs(&configs, &g, h200, &tight));
    for (int c = 0; c < configs.count; c++) {
        assert_int_equal(configs.item[c].workspace, 0);
        assert_false(configs.item[c].nondeterministic);
    }
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
}

static void texts_differ_as_graphs_do(void **state)
{
    lt_dnn_graph g[3] = {0};
    (void)state;
    assert_ok(build_graph(&g[0], PLAIN_FORWARD, &conv_shapes[2], 16, LT_F16));
    assert_ok(build_graph(&g[1], PLAIN_FORWARD, &conv_shapes[2], 16, LT_F16));
    assert_ok(build_graph(&g[2], PLAIN_GRAD_X, &conv_shapes[2], 16, LT_F16));
    assert_string_equal(g[0].text, g[1].text);
    assert_string_not_equal(g[0].text, g[2].text);
    for (int i = 0; i < 3; i++)
        lt_dnn_reset_graph(&g[i]);
}

static void refusals_say_why(void **state)
{
    lt_dnn_graph g = {0};
    const int64_t x[] = {1, 8, 4, 4}, w[] = {8, 16, 3, 3}, y[] = {1, 8, 4, 4};
    const lt_conv2d_config config = {1, 1, 1, 1, 1, 1, 1};
    (void)state;
    const int xi = lt_dnn_tensor(&g, LT_F16, x, LT_DNN_MEMORY);
    const int wi = lt_dnn_tensor(&g, LT_F16, w, LT_DNN_MEMORY);
    const int yi = lt_dnn_tensor(&g, LT_F16, y, LT_DNN_MEMORY);
    lt_dnn_conv(&g, LT_DNN_FORWARD, &config, xi, wi, yi);
    assert_true(lt_dnn_finalize_graph(&g)
                != LT_OK); /* more channels in the filter than in the image */
    assert_non_null(strstr(lt_error_message(), "cudnn: "));
    lt_dnn_reset_graph(&g);
    assert_true(lt_dnn_device_properties(&h200, "{\"deviceVer\":900}", NULL) != LT_OK);
}

/* Opens a GPU's driver or the toolkit's stub of it: engines that are compiled at run time need one. */
static void find_driver(const char *stub)
{
    has_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL;
    if (!has_driver && stub && *stub)
        has_driver = dlopen(stub, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

/* docs/adr/0020: sums fused into the convolution that begins a block. */
static void sums_in_front_have_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < CONV_SHAPES; i++) {
        const conv_shape *s = &conv_shapes[i];
        counts c;
        if (s->size > 1 || s->stride > 1 || s->channels < s->filters)
            continue;
        assert_ok(count_engines(&c, ADD_WITH_STATISTICS, s, 256, LT_F16, &usual, MANY));
        assert_true(c.hopper > 0);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(stem_has_engines),          cmocka_unit_test(sums_in_front_have_kernels),
        cmocka_unit_test(f32_is_exact_when_asked),   cmocka_unit_test(rules_are_kept),
        cmocka_unit_test(texts_differ_as_graphs_do), cmocka_unit_test(refusals_say_why),
    };
    struct CMUnitTest tests[COUNT_OF(rows)];
    find_driver(argc > 1 ? argv[1] : NULL);
    if (lt_dnn_device_properties(&h200, h200_text, NULL)) {
        fprintf(stderr, "no planning here: %s\n", lt_error_message());
        return 77;
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = row_test(rows[i].name, check_row, &rows[i]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += cmocka_run_group_tests(others, NULL, NULL);
    cudnnBackendDestroyDescriptor(h200);
    return failed;
}
