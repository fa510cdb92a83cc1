/* safetensors: invalid files are rejected, and the round trip. */

#include "lather/safetensors.h"

#include "base/alloc.h"
#include "temp.h"
#include "tensor/safetensors.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[TEMP_PATH];

static int make_folder(void **state)
{
    (void)state;
    temp_make(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

/* Writes a file with this header followed by `data` zero bytes. */
static void write_raw(const char *path, const char *header, uint64_t length, size_t data)
{
    static unsigned char bytes[4096];
    memset(bytes, 0, sizeof bytes);
    size_t text = strlen(header);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(bytes + 8, header, text + 1);
    temp_write(path, bytes, 8 + text + data);
}

typedef struct refused {
    const char *name, *header;
    size_t data;
    const char *message;
} refused;

#define F32(name, shape, offsets) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static const refused bad[] = {
    {"an unknown dtype", "{\"a\":{\"dtype\":\"F8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "'a': unknown dtype 'F8'"},
    {"no dtype", "{\"a\":{\"typ\":\"F8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "dtype is missing"},
    {"a member too many", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}",
     1, "exactly dtype"},
    {"a name twice", "{" F32("a", "1", "0,4") "," F32("a", "1", "4,8") "}", 8, "duplicate key 'a'"},
    {"overlapping tensors", "{" F32("a", "2", "0,8") "," F32("b", "1", "4,8") "}", 8,
     "'b': its bytes overlap"},
    {"the same bytes twice", "{" F32("a", "1", "0,4") "," F32("b", "1", "0,4") "}", 4, "overlap"},
    {"a gap", "{" F32("a", "1", "0,4") "," F32("b", "1", "8,12") "}", 12, "'b': bytes before it"},
    {"bytes at the end", "{" F32("a", "1", "0,4") "}", 5, "1 bytes at the end"},
    {"data cut off", "{" F32("a", "2", "0,8") "}", 7, "'a': data_offsets are outside"},
    {"offsets that go backwards", "{" F32("a", "0", "4,0") "}", 4, "outside"},
    {"a negative offset", "{" F32("a", "1", "-4,0") "}", 4, "outside"},
    {"a huge offset", "{" F32("a", "1", "0,9223372036854775807") "}", 4, "outside"},
    {"an offset beyond int64", "{" F32("a", "1", "0,18446744073709551616") "}", 4, "outside"},
    {"three offsets", "{" F32("a", "1", "0,4,8") "}", 4, "data_offsets are not two numbers"},
    {"a shape that needs more bytes", "{" F32("a", "2", "0,4") "}", 4,
     "4 bytes, but its shape needs 8"},
    {"a shape whose size overflows", "{" F32("a", "4294967296,4294967296,4", "0,4") "}", 4,
     "the size in bytes overflows"},
    {"a negative size", "{" F32("a", "-1", "0,4") "}", 4, "a size is not a non-negative integer"},
    {"a size with a decimal point", "{" F32("a", "1.0", "0,4") "}", 4,
     "a size is not a non-negative integer"},
    {"six dimensions", "{" F32("a", "1,1,1,1,1,1", "0,4") "}", 4, "6 dimensions"},
    {"arrays inside arrays", "{\"a\":{\"dtype\":\"U8\",\"shape\":[[[1]]]}}", 0, "too deeply"},
    {"metadata that is no text", "{\"__metadata__\":{\"a\":1}}", 0, "'a' is not a string"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{\"a\":\"b\"}}", 0,
     "duplicate key '__metadata__'"},
    {"metadata that is no object", "{\"__metadata__\":[]}", 0, "is not an object"},
    {"a tensor that is no object", "{\"a\":3}", 0, "'a': is not an object"},
    {"a header that is an array", "[]", 0, "does not begin with '{'"},
    {"a header of spaces", "  {}", 0, "does not begin with '{'"},
    {"broken JSON", "{\"a\":", 0, "unexpected end of the text"},
    {"text after the object", "{}x", 0, "unexpected text after the value"},
    {"an empty header", "", 0, "does not begin with '{'"},
};

static void check_refused(const char *path, const char *message)
{
    lt_safetensors *file = NULL;
    assert_status(lt_safetensors_open(&file, path), LT_E_FORMAT);
    assert_null(file);
    if (!strstr(lt_error_message(), message) || !strstr(lt_error_message(), path))
        fail_msg("'%s' does not contain '%s' and the path", lt_error_message(), message);
}

static void test_refused(void **state)
{
    const refused *row = *state;
    char path[TEMP_PATH];
    write_raw(temp_path(path, folder, "bad"), row->header, strlen(row->header), row->data);
    check_refused(path, row->message);
}

static void test_lengths(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    temp_path(path, folder, "lengths");
    write_raw(path, "{}", UINT64_MAX, 0);
    check_refused(path, "header of 18446744073709551615 bytes");
    write_raw(path, "{}", 100000001, 0);
    check_refused(path, "at most 100000000");
    write_raw(path, "{}", 3, 0);
    check_refused(path, "truncated");
    temp_write(path, "1234567", 7);
    check_refused(path, "truncated");
    temp_write(path, "", 0);
    check_refused(path, "truncated");
    lt_safetensors *file = NULL;
    assert_status(lt_safetensors_open(&file, temp_path(path, folder, "none")), LT_E_IO);
    assert_status(lt_safetensors_open(&file, folder), LT_E_IO);
}

/* Tensors that a model does not need may have any dtype: sizes are checked, values are not read. */
static void test_other_dtypes(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    static const char header[] =
        "{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"short\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[3,7]}," F32("a", "",
                                                                                  "7,11") "}",
                      wrong[] =
                          "{\"mask\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    write_raw(temp_path(path, folder, "masks"), header, strlen(header), 11);
    lt_safetensors *file = NULL;
    assert_ok(lt_safetensors_open(&file, path));
    assert_string_equal(lt_safetensors_find(file, "mask")->unsupported, "BOOL");
    assert_string_equal(lt_safetensors_find(file, "short")->unsupported, "I16");
    assert_int_equal(lt_safetensors_find(file, "short")->bytes, 4);
    assert_null(lt_safetensors_find(file, "a")->unsupported);
    lt_safetensors_close(&file);
    write_raw(path, wrong, strlen(wrong), 3);
    check_refused(path, "'mask': 3 bytes, but its shape needs 6");
}

/* Values of other dtypes are not written. */
static void test_join_other_dtypes(void **state)
{
    (void)state;
    char path[TEMP_PATH], out[TEMP_PATH];
    static const char header[] =
        "{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    write_raw(temp_path(path, folder, "mask"), header, strlen(header), 3);
    assert_fails(lt_safetensors_join(path, temp_path(out, folder, "joined")), LT_E_UNSUPPORTED,
                 "mask: tensor 'mask' has dtype BOOL, which this build cannot write");
    assert_int_not_equal(access(out, F_OK), 0);
}

/* An index of one file, 'part', with this metadata of the checkpoint. */
static void write_index(const char *path, const char *metadata)
{
    char text[512], part[TEMP_PATH];
    static const char header[] = "{" F32("a", "", "0,4") "}";
    write_raw(temp_path(part, folder, "part"), header, strlen(header), 4);
    const int bytes = snprintf(text, sizeof text,
                               "{\"metadata\":{%s},\"weight_map\":{\"a\":\"part\"}}", metadata);
    temp_write(path, text, (size_t)bytes);
}

static void test_index_metadata(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    temp_path(path, folder, "model.safetensors.index.json");
    write_index(path, "");
    assert_ok(lt_safetensors_open(&file, path));
    lt_safetensors_close(&file);
    write_index(path, "\"checkpoint.step\":7,\"checkpoint.run\":\"r\"");
    check_refused(path, "'checkpoint.step' is not a string");
    write_index(path, "\"checkpoint.step\":\"7\"");
    check_refused(path, "'checkpoint.run'");
    write_index(path, "\"checkpoint.step\":\"7\",\"checkpoint.run\":\"r\"");
    check_refused(path, "part: belongs to step (none) of run '(none)', but ");
    check_refused(path, "needs the part of step 7 of run 'r'");
    write_index(path, "\"checkpoint.files\":{\"part\":{\"bytes\":\"many\"}}");
    check_refused(path, "'bytes' is not an integer");
}

/* Control: the valid file from which all of the above derive. */
static void test_good(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    static const char header[] = "{" F32("b", "1", "4,8") "," F32("empty", "0", "4,4") "," F32(
        "a", "", "0,4") ",\"__metadata__\":{\"k\":\"v\"}}  ";
    write_raw(temp_path(path, folder, "good"), header, strlen(header), 8);
    lt_safetensors *file = NULL;
    assert_ok(lt_safetensors_open(&file, path));
    assert_int_equal(lt_safetensors_count(file), 3);
    assert_string_equal(lt_safetensors_at(file, 0)->name, "b");
    assert_int_equal(lt_safetensors_find(file, "a")->shape.ndim, 0);
    assert_null(lt_safetensors_find(file, "c"));
    assert_string_equal(lt_safetensors_metadata(file, "k"), "v");
    assert_null(lt_safetensors_metadata(file, "x"));
    lt_safetensors_close(&file);
    write_raw(path, "{}", 2, 0);
    assert_ok(lt_safetensors_open(&file, path));
    assert_int_equal(lt_safetensors_count(file), 0);
    assert_null(lt_safetensors_find(file, "a"));
    lt_safetensors_close(&file);
}

/* 640 is 0x80 0x02, as a pickle begins. */
static void test_length_like_a_pickle(void **state)
{
    (void)state;
    char path[TEMP_PATH], header[641];
    lt_safetensors *file = NULL;
    snprintf(header, sizeof header, "%-640s", "{" F32("a", "1", "0,4") "}");
    write_raw(temp_path(path, folder, "pickle"), header, strlen(header), 4);
    assert_ok(lt_safetensors_open(&file, path));
    assert_non_null(lt_safetensors_find(file, "a"));
    lt_safetensors_close(&file);
}

/* A 4-D tensor is stored channels-last, and written in logical order. */
static void test_round_trip(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    float values[2 * 3 * 2 * 2], back[2 * 3 * 2 * 2];
    const int64_t count = 7;
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = (float)i * 0.5F - 3;
    lt_device *device = NULL;
    lt_tensor *tensor = NULL;
    lt_safetensors_writer *w = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_tensor_new(&tensor, device, LT_F32, LT_SHAPE(2, 3, 2, 2)));
    assert_ok(lt_tensor_write(tensor, values, sizeof values));
    assert_ok(lt_safetensors_create(&w, temp_path(path, folder, "trip")));
    assert_ok(lt_safetensors_add_metadata(w, "quote\"", "line\n\xc3\xa4"));
    assert_status(lt_safetensors_add_metadata(w, "quote\"", ""), LT_E_ARG);
    assert_ok(lt_safetensors_add(w, "conv.weight", tensor));
    assert_status(lt_safetensors_add(w, "conv.weight", tensor), LT_E_ARG);
    assert_status(lt_safetensors_add(w, "__metadata__", tensor), LT_E_ARG);
    assert_ok(lt_safetensors_add_host(w, "count", LT_I64, LT_SCALAR, &count));
    assert_fails(lt_safetensors_add_host(w, "count", LT_I64, LT_SCALAR, &count), LT_E_ARG,
                 "trip: duplicate tensor 'count'");
    assert_fails(lt_safetensors_add_source(w, "conv.weight", LT_F32, LT_SCALAR, NULL, NULL),
                 LT_E_ARG, "trip: duplicate tensor 'conv.weight'");
    assert_ok(lt_safetensors_finish(&w));
    assert_null(w);

    lt_safetensors *file = NULL;
    assert_ok(lt_safetensors_open(&file, path));
    const lt_safetensors_entry *e = lt_safetensors_find(file, "conv.weight");
    assert_non_null(e);
    assert_int_equal((uintptr_t)e->data % 8, 0);
    memcpy(back, e->data, e->bytes);
    assert_memory_equal(back, values, sizeof values);
    assert_true(lt_shape_equal(e->shape, LT_SHAPE(2, 3, 2, 2)));
    e = lt_safetensors_find(file, "count");
    assert_int_equal(e->dtype, LT_I64);
    assert_memory_equal(e->data, &count, sizeof count);
    assert_string_equal(lt_safetensors_metadata(file, "quote\""), "line\n\xc3\xa4");
    lt_safetensors_close(&file);
    lt_tensor_free(&tensor);
    lt_device_close(&device);
}

/* Full disk: EFBIG takes the same path as ENOSPC. */
static void test_full_disk(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    static const float data[4096];
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 4096;
    lt_safetensors_writer *w = NULL;
    assert_ok(lt_safetensors_create(&w, temp_path(path, folder, "full")));
    assert_ok(lt_safetensors_add_host(w, "a", LT_F32, LT_SHAPE(4096), data));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    lt_status st = lt_safetensors_finish(&w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_status(st, LT_E_IO);
    assert_int_not_equal(access(path, F_OK), 0);
    char command[TEMP_PATH + 32];
    snprintf(command, sizeof command, "ls '%s' | grep -q full", folder);
    assert_int_not_equal(system(command), 0); /* no file remains under another name */
}

/* Each allocation fails once; the file is still rejected or read correctly. */
static void test_no_memory(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    static const char header[] = "{" F32("a", "1", "0,4") "," F32("b", "1", "4,8") "}";
    write_raw(temp_path(path, folder, "memory"), header, strlen(header), 8);
    lt_safetensors *file = NULL;
    int64_t n = 1;
    for (; n < 100; n++) {
        lt_alloc_fail_at(n);
        lt_status st = lt_safetensors_open(&file, path);
        lt_alloc_fail_at(0);
        if (!st)
            break;
        assert_status(st, LT_E_NOMEM);
        assert_null(file);
    }
    assert_in_range(n, 4, 99);
    lt_safetensors_close(&file);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(bad) + 9];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        tests[n++] = (struct CMUnitTest){.name = bad[i].name,
                                         .test_func = test_refused,
                                         .initial_state = (void *)(uintptr_t)&bad[i]};
    tests[n++] =
        (struct CMUnitTest){"wrong lengths of header and file", test_lengths, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest){"tensors of dtypes that are not read have sizes",
                                     test_other_dtypes, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_join_other_dtypes);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_index_metadata);
    tests[n++] = (struct CMUnitTest){"a good file is read", test_good, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest){"a header whose length begins like a pickle",
                                     test_length_like_a_pickle, NULL, NULL, NULL};
    tests[n++] =
        (struct CMUnitTest){"data written is read back", test_round_trip, NULL, NULL, NULL};
    tests[n++] =
        (struct CMUnitTest){"a full disk leaves no file", test_full_disk, NULL, NULL, NULL};
    tests[n++] =
        (struct CMUnitTest){"memory runs out at each allocation", test_no_memory, NULL, NULL, NULL};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
