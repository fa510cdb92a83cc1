/* Weight files: dtypes, missing and unexpected names, the head, NaN. */

#include "temp_folder.h"

#include "lather/checkpoint.h"
#include "lather/ext/fail.h"
#include "lather/safetensors.h"

#include <math.h>

static char path[TEMP_PATH];

typedef struct model {
    lt_device *device;
    lt_param param[3];
    lt_params params;
} model;

static int setup(void **state)
{
    temp_setup(state);
    temp_path(path, folder, "w.safetensors");
    return 0;
}

static void model_open(model *m, bool f64)
{
    memset(m, 0, sizeof *m);
    const lt_device_config config = {.f64 = f64};
    assert_ok(lt_device_open(&m->device, "ref", &config));
    assert_ok(lt_param_init(&m->param[0], m->device, "", "fc.bias", LT_SHAPE(4), 7));
    assert_ok(lt_param_init(&m->param[1], m->device, "", "w", LT_SHAPE(2), 7));
    assert_ok(lt_param_init_kind(&m->param[2], m->device, "bn", "num_batches_tracked", LT_SCALAR, 7,
                                 LT_PARAM_COUNT));
    for (int i = 0; i < 3; i++)
        assert_ok(lt_params_add(&m->params, &m->param[i]));
}

static void model_close(model *m)
{
    lt_params_clear(&m->params);
    for (int i = 0; i < 3; i++)
        lt_param_clear(&m->param[i]);
    lt_device_close(&m->device);
}

typedef struct file_row {
    const char *name;
    lt_dtype dtype;
    lt_shape shape; /* shape of fc.bias */
    const void *data;
    const char *second; /* name of the other tensor, f32 [2], or NULL */
    const char *skip;
    lt_status status;
    const char *message;
} file_row;

static const float f32[] = {1, -2, 0.5F, 65504}, nan32[] = {1, NAN, 0, 0};
static const double f64[] = {1, -2, 0.5, 65504};
static const uint16_t f16[] = {0x3c00, 0xc000, 0x3800, 0x7bff};
static const uint16_t bf16[] = {0x3f80, 0xc000, 0x3f00, 0x4780}; /* the last one: 65536 */
static const int64_t i64[] = {1, 2, 3, 4};

static const file_row rows[] = {
    {"f32", LT_F32, {1, {4}}, f32, "w", NULL, LT_OK, NULL},
    {"f64", LT_F64, {1, {4}}, f64, "w", NULL, LT_OK, NULL},
    {"f16", LT_F16, {1, {4}}, f16, "w", NULL, LT_OK, NULL},
    {"bf16", LT_BF16, {1, {4}}, bf16, "w", NULL, LT_OK, NULL},
    {"integers for a weight",
     LT_I64,
     {1, {4}},
     i64,
     "w",
     NULL,
     LT_E_FORMAT,
     "'fc.bias' is i64, but the model needs f32"},
    {"a wrong shape",
     LT_F32,
     {2, {2, 2}},
     f32,
     "w",
     NULL,
     LT_E_SHAPE,
     "'fc.bias' is [2,2], but the model needs [4]"},
    {"a wrong shape of a skipped tensor", LT_F32, {2, {2, 2}}, f32, "w", "fc.", LT_OK, NULL},
    {"a NaN", LT_F32, {1, {4}}, nan32, "w", NULL, LT_E_FORMAT, "'fc.bias' has a NaN at element 1"},
    {"a missing tensor", LT_F32, {1, {4}}, f32, NULL, NULL, LT_E_FORMAT, "'w' is missing"},
    {"an unexpected name", LT_F32, {1, {4}}, f32, "v", "w", LT_E_FORMAT, "'v' is not in the model"},
};

static void write_row(const file_row *row)
{
    static const float second[] = {3, 4};
    lt_safetensors_writer *w = NULL;
    assert_ok(lt_safetensors_create(&w, path));
    assert_ok(lt_safetensors_add_host(w, "fc.bias", row->dtype, row->shape, row->data));
    if (row->second)
        assert_ok(lt_safetensors_add_host(w, row->second, LT_F32, LT_SHAPE(2), second));
    assert_ok(lt_safetensors_finish(&w));
}

static void test_load(void **state)
{
    const file_row *row = *state;
    model m;
    model_open(&m, false);
    write_row(row);
    assert_status(lt_weights_load(path, &m.params, &(lt_weights_config){.skip = row->skip}),
                  row->status);
    float bias[4], w[2];
    assert_ok(lt_tensor_read(m.param[0].value, bias, sizeof bias));
    assert_ok(lt_tensor_read(m.param[1].value, w, sizeof w));
    if (row->status && !strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not contain '%s'", lt_error_message(), row->message);
    for (int i = 0; i < 4; i++) {
        double want = row->dtype == LT_BF16 && i == 3 ? 65536 : (double)f32[i];
        assert_near(bias[i], row->status || row->skip ? 7 : want, 0);
    }
    assert_near(w[1], row->status ? 7 : 4, 0); /* all or nothing */
    model_close(&m);
}

/* Resizes vectors: their first elements, then -1; fails for length 3. */
static lt_status fit(const void *context, const char *name, lt_shape have, const double *from,
                     lt_shape want, double *to)
{
    assert_ptr_equal(context, path);
    assert_string_equal(name, "fc.bias");
    if (have.dim[0] == 3)
        return lt_fail(LT_E_SHAPE, "fc.bias cannot have 3 elements");
    for (int64_t i = 0; to && i < want.dim[0]; i++)
        to[i] = i < have.dim[0] ? from[i] : -1;
    return LT_OK;
}

static const file_row fitted[] = {
    {"a longer one is fitted", LT_F32, {1, {2}}, f32, "w", NULL, LT_OK, NULL},
    {"a tensor that cannot be resized",
     LT_F32,
     {1, {3}},
     f32,
     "w",
     NULL,
     LT_E_SHAPE,
     "w.safetensors: fc.bias cannot have 3 elements"},
    {"integers are not resized",
     LT_I64,
     {1, {2}},
     i64,
     "w",
     NULL,
     LT_E_FORMAT,
     "is i64, but the model needs f32"},
};

static void test_fit(void **state)
{
    const file_row *row = *state;
    const lt_weights_config config = {.fit = fit, .fit_context = path};
    const float want[] = {1, -2, -1, -1};
    float bias[4], w[2];
    model m;
    model_open(&m, false);
    write_row(row);
    assert_status(lt_weights_load(path, &m.params, &config), row->status);
    if (row->status)
        assert_non_null(strstr(lt_error_message(), row->message));
    assert_ok(lt_tensor_read(m.param[0].value, bias, sizeof bias));
    assert_ok(lt_tensor_read(m.param[1].value, w, sizeof w));
    for (int i = 0; i < 4; i++)
        assert_near(bias[i], row->status ? 7 : (double)want[i], 0);
    assert_near(w[0], row->status ? 7 : 3, 0);
    model_close(&m);
}

/* Saves f64 master weights as f32, too. */
static void test_save(void **state)
{
    model m, n;
    model_open(&m, *state != NULL);
    model_open(&n, false);
    assert_ok(lt_tensor_fill(m.param[0].value, 1.5));
    assert_ok(lt_tensor_fill(m.param[2].value, 12345));
    assert_ok(lt_weights_save(path, &m.params));
    lt_safetensors *file = NULL;
    assert_ok(lt_safetensors_open(&file, path));
    const lt_safetensors_entry *e = lt_safetensors_find(file, "bn.num_batches_tracked");
    assert_non_null(e);
    assert_int_equal(e->dtype, LT_I64);
    assert_int_equal(e->shape.ndim, 0);
    assert_int_equal(lt_safetensors_find(file, "w")->dtype, LT_F32);
    lt_safetensors_close(&file);
    assert_ok(lt_weights_load(path, &n.params, NULL));
    float bias[4];
    double count;
    assert_ok(lt_tensor_read(n.param[0].value, bias, sizeof bias));
    assert_near(bias[3], 1.5, 0);
    assert_ok(lt_tensor_item(n.param[2].value, &count));
    assert_near(count, 12345, 0);
    model_close(&m);
    model_close(&n);
}

/* Names of other versions, and counts that became floats, which may be infinite. */
static void test_other_files(void **state)
{
    (void)state;
    static const lt_weights_alias alias[] = {{"fc.", "head.old."}, {NULL, NULL}};
    static const uint16_t infinite = 0x7c00;
    lt_safetensors_writer *w = NULL;
    model m;
    float bias[4];
    double count;
    model_open(&m, false);
    assert_ok(lt_safetensors_create(&w, path));
    assert_ok(lt_safetensors_add_host(w, "head.old.bias", LT_F32, LT_SHAPE(4), f32));
    assert_ok(lt_safetensors_add_host(w, "w", LT_F32, LT_SHAPE(2), f32));
    assert_ok(lt_safetensors_add_host(w, "bn.num_batches_tracked", LT_F16, LT_SCALAR, &infinite));
    assert_ok(lt_safetensors_finish(&w));
    assert_status(lt_weights_load(path, &m.params, NULL), LT_E_FORMAT);
    assert_ok(lt_weights_load(path, &m.params, &(lt_weights_config){.alias = alias}));
    assert_ok(lt_tensor_read(m.param[0].value, bias, sizeof bias));
    assert_near(bias[1], -2, 0);
    assert_ok(lt_tensor_item(m.param[2].value, &count));
    assert_near(count, 7, 0);
    model_close(&m);
}

static void test_notes(void **state)
{
    (void)state;
    static const lt_metadata notes[] = {{"class_names", "cat\nd\"o\"g"}, {"mean", "0.5"}};
    static const lt_metadata twice[] = {{"mean", "0.5"}, {"mean", "0.5"}}, format = {"format", ""};
    model m;
    model_open(&m, false);
    assert_ok(lt_weights_save_with(path, &m.params, notes, COUNT_OF(notes)));
    lt_safetensors *file = NULL;
    assert_ok(lt_safetensors_open(&file, path));
    assert_string_equal(lt_safetensors_metadata(file, "format"), "pt");
    for (size_t i = 0; i < COUNT_OF(notes); i++)
        assert_string_equal(lt_safetensors_metadata(file, notes[i].key), notes[i].value);
    assert_null(lt_safetensors_metadata(file, "std"));
    lt_safetensors_close(&file);
    assert_ok(lt_weights_load(path, &m.params, NULL));
    assert_status(lt_weights_save_with(path, &m.params, twice, 2), LT_E_ARG);
    assert_status(lt_weights_save_with(path, &m.params, &format, 1), LT_E_ARG);
    model_close(&m);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(fitted) + 4];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = (struct CMUnitTest){rows[i].name, test_load, setup, temp_teardown,
                                         (void *)(uintptr_t)&rows[i]};
    for (size_t i = 0; i < COUNT_OF(fitted); i++)
        tests[n++] = (struct CMUnitTest){fitted[i].name, test_fit, setup, temp_teardown,
                                         (void *)(uintptr_t)&fitted[i]};
    tests[n++] = (struct CMUnitTest){"saved and loaded", test_save, setup, temp_teardown, NULL};
    tests[n++] = (struct CMUnitTest){"saved from f64 masters", test_save, setup, temp_teardown,
                                     (char[]){"f64"}};
    tests[n++] = (struct CMUnitTest){"names of other versions, and counts that became floats",
                                     test_other_files, setup, temp_teardown, NULL};
    tests[n++] = (struct CMUnitTest){"metadata is kept", test_notes, setup, temp_teardown, NULL};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
