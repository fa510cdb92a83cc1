/* Builds every execution plan that cuDNN proposes for ResNet-50 and for attention on an H100 and an H200, writes it
 * as text, reads it and writes it again; damaged text is rejected. No device is needed, as in planning.c.
 *
 *     every_plan [--all] [--only PATTERN]     PATTERN: of a row's name, as "H100, bf16*"
 *
 * Without --all it tests a sample: batch 16, some shapes, the first proposals. A kernel compiled at run time takes a
 * second, so the sample has one for all convolutions, and one per attention graph, where all kernels are compiled;
 * --all tests every one. driver.c stands in for the CUDA driver and only loads kernels. The table after the rows
 * counts graphs, graphs without an engine, proposals, plans, compiled plans, Hopper kernels and rejections. */

#include "attention_shapes.h"
#include "graphs.h"
#include "near.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORKSPACE_MIB = 512, SAMPLED_PROPOSALS = 3, SAMPLED_SHAPES = 5 };

static const lt_dnn_rules usual = {false, true, (size_t)MOST_WORKSPACE_MIB << 20};
/* As attention.c has them. */
static const lt_dnn_rules of_attention = {true, true, (size_t)MOST_WORKSPACE_MIB << 20};
static const int batches[] = {16, 64, 256};
static bool all;
static bool has_compiled; /* a sample has one */

/* An H100 in its SXM form, as its driver describes it. */
static const char h100_text[] =
    "{\"deviceName\":\"NVIDIA H100 80GB HBM3\",\"deviceVer\":900,\"driverVer\":13000,"
    "\"cudaDeviceId\":0,\"pciDeviceId\":0,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,"
    "\"totalGlobalMem\":85029158912,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerSM\":2048,\"maxThreadsPerBlock\":1024,"
    "\"maxBlockSize\":[1024,1024,64],\"maxGridSize\":[2147483647,65535,65535],"
    "\"supportCoopLaunch\":1,\"isTccDriver\":0,\"memoryBusWidth\":5120,"
    "\"smCountOrigin\":0,\"oversizedSharedMemoryPerBlock\":0}";

static struct device {
    const char *name;
    cudnnBackendDescriptor_t cudnn;
} devices[] = {{"H100", NULL}, {"H200", NULL}};

/* With the sequences that one plan takes: of a gradient as many as attention.c gives it. */
static const attention_shape attention_shapes[] = {
    {true, true, 8, 12, 12, 1024, 1024, 64},  /* GPT-2 */
    {false, true, 256, 6, 6, 197, 197, 64},   /* ViT-S */
    {false, true, 64, 12, 12, 197, 197, 64},  /* ViT-B */
    {true, true, 4, 12, 4, 256, 256, 128},    /* heads that share keys */
    {true, false, 8, 12, 12, 1024, 1024, 64}, /* rotary positions: q, k and v are three tensors */
    {false, false, 256, 6, 6, 1, 197, 64}, /* the last block of ViT-S, for the class token alone */
    {true, false, 2, 4, 4, 33, 70, 64},    /* more keys than queries */
    {false, true, 64, 16, 16, 257, 257, 80}, /* ViT-H */
};

typedef enum attention_pass { NO_ATTENTION, FORWARD, BACKWARD } attention_pass;

/* A graph and its range of shapes, first..end-1. */
typedef struct form {
    const char *name;
    conv_graph kind;
    int first, end;
    bool f32;
    attention_pass attention; /* if set, the shapes are attention's and kind is unused */
} form;

static const form forms[] = {
    {"forward", PLAIN_FORWARD, 0, CONV_SHAPES, true, NO_ATTENTION},
    {"gradient of x", PLAIN_GRAD_X, 0, CONV_SHAPES, true, NO_ATTENTION},
    {"gradient of w", PLAIN_GRAD_W, 0, CONV_SHAPES, true, NO_ATTENTION},
    {"forward + statistics", WITH_STATISTICS, 1, CONV_SHAPES, false, NO_ATTENTION},
    {"apply + forward + statistics", APPLY_WITH_STATISTICS, 1, CONV_SHAPES, false, NO_ATTENTION},
    {"apply + gradient of w", APPLY_GRAD_W, 1, CONV_SHAPES, false, NO_ATTENTION},
    {"gradient of x + relu + sums", GRAD_X_NORM, 1, CONV_SHAPES, false, NO_ATTENTION},
    {"blocks, forward", BLOCKS_FORWARD, 0, 1, false, NO_ATTENTION},
    {"blocks, forward + statistics", BLOCKS_WITH_STATISTICS, 0, 1, false, NO_ATTENTION},
    {"blocks, gradient of w", BLOCKS_GRAD_W, 0, 1, false, NO_ATTENTION},
    {"attention", PLAIN_FORWARD, 0, COUNT_OF(attention_shapes), false, FORWARD},
    {"attention, gradients", PLAIN_FORWARD, 0, COUNT_OF(attention_shapes), false, BACKWARD},
};

static const struct {
    const char *name;
    lt_dtype dtype;
} dtypes[] = {{"f16", LT_F16}, {"bf16", LT_BF16}, {"f32", LT_F32}};

typedef struct row {
    char name[96];
    const struct device *device;
    const form *form;
    lt_dtype dtype;
    int graphs, none, proposed, compiled, plans, refused, hopper;
} row;

enum { ROWS = COUNT_OF(devices) * COUNT_OF(forms) * COUNT_OF(dtypes) };
static row rows[ROWS];
static int row_count;

/* Another version's text, half of one, and none of JSON. */
static void damaged_texts_are_refused(const char *text, cudnnBackendDescriptor_t device)
{
    const size_t length = strlen(text);
    static const char key[] = "\"cudnnVersion\":";
    for (int damage = 0; damage < 3; damage++) {
        lt_dnn_plan plan;
        char *copy = malloc(length + 1);
        assert_non_null(copy);
        memcpy(copy, text, length + 1);
        char *version = strstr(copy, key);
        assert_non_null(version);
        if (damage == 0)
            version[sizeof key - 1] = '8';
        else
            copy[damage == 1 ? length / 2 : 0] = damage == 1 ? 0 : 'x';
        const lt_status st = lt_dnn_plan_load(&plan, copy, device);
        free(copy);
        assert_int_not_equal(st, LT_OK);
    }
}

/* The plan's text as a plan again, whose text is the same. */
static void round_trip(const lt_dnn_plan *plan, char *text, cudnnBackendDescriptor_t device)
{
    lt_dnn_plan again;
    char *second;
    assert_ok(lt_dnn_plan_load(&again, text, device));
    assert_ok(lt_dnn_plan_text(&again, &second));
    assert_int_equal(again.workspace, plan->workspace);
    assert_int_equal(again.engine, plan->engine);
    assert_string_equal(text, second);
    free(second);
    lt_dnn_plan_clear(&again);
}

static void try_config(row *r, const lt_dnn_config *config, bool damage)
{
    lt_dnn_plan plan;
    char *text;
    if (lt_dnn_plan_new(&plan, config, r->device->cudnn)) {
        r->refused++;
        fail_msg("engine %d: %s", (int)config->number, lt_error_message());
    }
    r->plans++;
    r->compiled += config->compiled;
    if (plan.workspace > usual.workspace)
        fail_msg("engine %d: %zu bytes of workspace", (int)config->number, plan.workspace);
    assert_ok(lt_dnn_plan_text(&plan, &text));
    r->hopper += !config->compiled && lt_dnn_classify_plan(text) == LT_DNN_HOPPER;
    round_trip(&plan, text, r->device->cudnn);
    if (damage)
        damaged_texts_are_refused(text, r->device->cudnn);
    free(text);
    lt_dnn_plan_clear(&plan);
}

/* Kernels that cuDNN compiles take half a second each: of a sample the first of them, and one of each graph of
 * attention, whose kernels are all compiled. */
static void try_configs(row *r, const lt_dnn_configs *configs)
{
    bool compiles = all || !has_compiled || r->form->attention != NO_ATTENTION;
    for (int i = 0; i < configs->count && (all || i < SAMPLED_PROPOSALS); i++) {
        const bool compiled = configs->item[i].compiled;
        if (compiled && !compiles)
            continue;
        compiles = compiles && (!compiled || all);
        has_compiled = has_compiled || compiled;
        try_config(r, &configs->item[i], i == 0);
    }
}

/* Graphs that no engine of cuDNN 9 supports. */
static bool may_lack_engines(const row *r)
{
    return r->dtype == LT_BF16 && (r->form->kind == APPLY_GRAD_W || r->form->kind == GRAD_X_NORM);
}

static lt_status build(lt_dnn_graph *g, const row *r, int shape, int batch)
{
    if (!r->form->attention)
        return build_graph(g, r->form->kind, &conv_shapes[shape], batch, r->dtype);
    const lt_attention_problem p =
        attention_problem(&attention_shapes[shape], r->dtype, r->form->attention == BACKWARD);
    return lt_attention_build_graph(g, &p);
}

static void try_graph(row *r, int shape, int batch)
{
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    assert_ok(build(&g, r, shape, batch));
    const lt_status st = lt_dnn_propose_configs(&configs, &g, r->device->cudnn,
                                                r->form->attention ? &of_attention : &usual);
    if (st && (st != LT_E_UNSUPPORTED || !may_lack_engines(r)))
        fail_msg("%s", lt_error_message());
    r->graphs++;
    r->none += st != LT_OK;
    r->proposed += configs.count;
    try_configs(r, &configs);
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
}

static void check_row(void **state)
{
    row *r = *state;
    const bool one_batch = !all || r->form->attention;
    for (size_t b = 0; b < (one_batch ? 1 : COUNT_OF(batches)); b++)
        for (int i = r->form->first; i < r->form->end; i += all ? 1 : SAMPLED_SHAPES)
            try_graph(r, i, batches[b]);
}

static void fill_rows(void)
{
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (size_t t = 0; t < COUNT_OF(dtypes); t++)
            for (size_t f = 0; f < COUNT_OF(forms); f++) {
                if (dtypes[t].dtype == LT_F32 && !forms[f].f32)
                    continue;
                row *r = &rows[row_count++];
                *r = (row){.device = &devices[d], .form = &forms[f], .dtype = dtypes[t].dtype};
                snprintf(r->name, sizeof r->name, "%s, %s, %s", devices[d].name, dtypes[t].name,
                         forms[f].name);
            }
}

static void print_table(void)
{
    printf(
        "| device, dtype, form | graphs | no engine | proposed | plans | compiled | Hopper | refused |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (const row *r = rows; r < rows + row_count; r++)
        if (r->graphs)
            printf("| %s | %d | %d | %d | %d | %d | %d | %d |\n", r->name, r->graphs, r->none,
                   r->proposed, r->plans, r->compiled, r->hopper, r->refused);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[ROWS];
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--all") == 0)
            all = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            cmocka_set_test_filter(argv[++i]);
    if (!dlopen(LT_CUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL)
        || lt_dnn_device_properties(&devices[0].cudnn, h100_text, NULL)
        || lt_dnn_device_properties(&devices[1].cudnn, h200_text, NULL)) {
        fprintf(stderr, "no planning here: %s\n", lt_error_message());
        return 77;
    }
    fill_rows();
    for (int i = 0; i < row_count; i++)
        tests[i] = (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, &rows[i]};
    const int failed = _cmocka_run_group_tests("every plan", tests, (size_t)row_count, NULL, NULL);
    print_table();
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        cudnnBackendDestroyDescriptor(devices[d].cudnn);
    return failed;
}
