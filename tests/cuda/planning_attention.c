/* Which kernels cuDNN has for attention on an H200. Asked without a device, as in planning.c: proposals alone; plans
 * of them are made in every_plan.c. */

#include "attention_shapes.h"
#include "graphs.h"
#include "near.h"
#include "tensor/backend/cuda/dnn/dnn_plan.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WORKSPACE_MIB = 512 };

static cudnnBackendDescriptor_t h200;

typedef struct row {
    const char *name;
    lt_dtype dtype;
    bool backward;
    attention_shape shape;
    bool none; /* no engine */
} row;

/* clang-format off */
static const row rows[] = {
    {"ViT-S, bf16, forward", LT_BF16, false, {false, true, 32, 6, 6, 197, 197, 64}, false},
    {"ViT-S, f16, forward", LT_F16, false, {false, true, 32, 6, 6, 197, 197, 64}, false},
    {"ViT-S, bf16, backward", LT_BF16, true, {false, true, 32, 6, 6, 197, 197, 64}, false},
    {"ViT-S, f16, backward", LT_F16, true, {false, true, 32, 6, 6, 197, 197, 64}, false},
    {"GPT-2, bf16, forward", LT_BF16, false, {true, true, 4, 12, 12, 1024, 1024, 64}, false},
    {"GPT-2, f16, forward", LT_F16, false, {true, true, 4, 12, 12, 1024, 1024, 64}, false},
    {"GPT-2, bf16, backward", LT_BF16, true, {true, true, 4, 12, 12, 1024, 1024, 64}, false},
    {"GPT-2, f16, backward", LT_F16, true, {true, true, 4, 12, 12, 1024, 1024, 64}, false},
    {"heads that share keys, forward", LT_BF16, false, {true, true, 4, 12, 4, 256, 256, 128}, false},
    {"heads that share keys, backward", LT_BF16, true, {true, true, 4, 12, 4, 256, 256, 128}, false},
    {"more keys than queries, forward", LT_BF16, false, {true, false, 2, 4, 4, 33, 70, 64}, false},
    {"more keys than queries, backward", LT_BF16, true, {true, false, 2, 4, 4, 33, 70, 64}, false},
    {"one query, forward", LT_BF16, false, {true, false, 1, 12, 12, 1, 256, 64}, false},
    {"one query, backward", LT_BF16, true, {true, false, 1, 12, 12, 1, 256, 64}, false},
    {"odd sizes, forward", LT_F16, false, {false, true, 3, 2, 1, 5, 5, 8}, false},
    {"odd sizes, backward", LT_F16, true, {false, true, 3, 2, 1, 5, 5, 8}, false},
    {"control: f32 has no engine backward", LT_F32, true, {false, true, 2, 4, 4, 64, 64, 64}, true},
    {"control: a width of 12 has no engine forward", LT_F16, false, {false, true, 2, 4, 4, 64, 64, 12}, true},
    {"control: a width of 12 has no engine backward", LT_F16, true, {false, true, 2, 4, 4, 64, 64, 12}, true},
    {"control: a width of 512 has no engine backward", LT_F16, true, {false, true, 2, 4, 4, 64, 64, 512}, true},
};
/* clang-format on */

static const lt_dnn_rules usual = {true, true, (size_t)MOST_WORKSPACE_MIB << 20};

/* All are deterministic: the rules ask for that. */
static void check_row(void **state)
{
    const row *r = *state;
    const lt_attention_problem p = attention_problem(&r->shape, r->dtype, r->backward);
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    lt_status st = lt_attention_build_graph(&g, &p);
    if (!st)
        st = lt_dnn_propose_configs(&configs, &g, h200, &usual);
    if (r->none && st != LT_E_UNSUPPORTED)
        fail_msg("%s", st ? lt_error_message() : "there is an engine");
    if (!r->none && st)
        fail_msg("%s", lt_error_message());
    for (int i = 0; i < configs.count; i++)
        assert_false(configs.item[i].nondeterministic);
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
}

/* The gradient's work memory grows with the batch, which the backend relies on where it takes some
 * sequences at a time. */
static size_t least_workspace(int batch)
{
    const row r = {"", LT_BF16, true, {true, true, batch, 12, 12, 1024, 1024, 64}, false};
    const lt_attention_problem p = attention_problem(&r.shape, r.dtype, r.backward);
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    assert_ok(lt_attention_build_graph(&g, &p));
    assert_ok(lt_dnn_propose_configs(&configs, &g, h200, &usual));
    size_t least = configs.item[0].workspace;
    for (int i = 1; i < configs.count; i++)
        least = configs.item[i].workspace < least ? configs.item[i].workspace : least;
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
    return least;
}

static void work_memory_grows_with_the_batch(void **state)
{
    (void)state;
    const size_t one = least_workspace(1);
    assert_true(one <= (size_t)12 * 1024 * 1024 * 2 + 4096);
    assert_true(least_workspace(8) <= 8 * one);
}

/* Engines that need more workspace than allowed are left out, and the message names the limit. */
static void too_long_a_sequence_is_refused(void **state)
{
    const row r = {"", LT_BF16, true, {true, true, 1, 12, 12, 65536, 65536, 64}, false};
    const lt_attention_problem p = attention_problem(&r.shape, r.dtype, r.backward);
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    (void)state;
    assert_ok(lt_attention_build_graph(&g, &p));
    assert_int_equal(lt_dnn_propose_configs(&configs, &g, h200, &usual), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "engines is allowed"));
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
}

static void texts_differ_as_strides_do(void **state)
{
    lt_dnn_graph g[2] = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        row r = rows[0];
        r.shape.joined = i == 1;
        const lt_attention_problem p = attention_problem(&r.shape, r.dtype, r.backward);
        assert_ok(lt_attention_build_graph(&g[i], &p));
    }
    assert_string_not_equal(g[0].text, g[1].text);
    for (int i = 0; i < 2; i++)
        lt_dnn_reset_graph(&g[i]);
}

static void heads_must_divide(void **state)
{
    row r = rows[0];
    lt_dnn_graph g = {0};
    (void)state;
    r.shape.kv_heads = 4;
    const lt_attention_problem p = attention_problem(&r.shape, r.dtype, r.backward);
    assert_true(lt_attention_build_graph(&g, &p) != LT_OK);
    assert_non_null(strstr(lt_error_message(), "cudnn: "));
    lt_dnn_reset_graph(&g);
}

/* A GPU's driver, or the stub of it that the toolkit has: without one there are no proposals of kernels
 * that are compiled. */
static bool find_driver(const char *stub)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)
           || (stub && *stub && dlopen(stub, RTLD_NOW | RTLD_GLOBAL));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(work_memory_grows_with_the_batch),
        cmocka_unit_test(too_long_a_sequence_is_refused),
        cmocka_unit_test(texts_differ_as_strides_do),
        cmocka_unit_test(heads_must_divide),
    };
    struct CMUnitTest tests[COUNT_OF(rows)];
    if (!find_driver(argc > 1 ? argv[1] : NULL)
        || lt_dnn_device_properties(&h200, h200_text, NULL)) {
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
