/* Files of torch.save(), written by tests/golden/make_torch_files.py: their tensors, and refusals by name. */

#include "base/alloc.h"
#include "temp.h"
#include "tensor/safetensors.h"

#include <string.h>
#include <unistd.h>

static const char *file_path(char out[TEMP_PATH], const char *name)
{
    const char *source = getenv("LATHER_TEST_SOURCE");
    snprintf(out, TEMP_PATH, "%s/tests/golden/torch/%s.pth", source ? source : ".", name);
    return out;
}

static void check_values(const lt_safetensors *file, const char *name, lt_shape shape,
                         const double *want)
{
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    assert_non_null(e);
    assert_true(lt_shape_equal(e->shape, shape));
    for (int64_t i = 0; i < lt_shape_count(shape); i++)
        assert_near(lt_safetensors_element(e, i), want[i], 0);
}

static void test_tensors(void **state)
{
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    static const char *const kinds[] = {"Float", "Double", "Half", "BFloat16",
                                        "Long",  "Int",    "Byte"};
    static const char *const others[] = {"Bool", "BOOL", "Char", "I8", "Short", "I16"};
    assert_ok(lt_safetensors_open(&file, file_path(path, *state)));
    assert_int_equal(lt_safetensors_count(file), 16);
    check_values(file, "a", LT_SHAPE(2, 3), (double[]){1, 2, 3, 4, 5, 6});
    check_values(file, "t", LT_SHAPE(3, 2), (double[]){1, 4, 2, 5, 3, 6});
    check_values(file, "row", LT_SHAPE(2), (double[]){4, 5});
    check_values(file, "column", LT_SHAPE(2), (double[]){2, 5});
    check_values(file, "scalar", LT_SCALAR, (double[]){6});
    check_values(file, "empty", LT_SHAPE(0, 3), NULL);
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        check_values(file, kinds[i], LT_SHAPE(3), (double[]){1, 0, 1});
    for (size_t i = 0; i < COUNT_OF(others); i += 2)
        assert_string_equal(lt_safetensors_find(file, others[i])->unsupported, others[i + 1]);
    const char *part = !strcmp(*state, "averaged")     ? "model_ema"
                       : !strcmp(*state, "checkpoint") ? "model"
                                                       : NULL;
    assert_true(part ? !strcmp(part, lt_safetensors_part(file)) : !lt_safetensors_part(file));
    lt_safetensors_close(&file);
}

static void test_view_and_heads(void **state)
{
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    (void)state;
    assert_ok(lt_safetensors_open(&file, file_path(path, "pickles-view")));
    check_values(file, "a", LT_SHAPE(3), (double[]){3, 4, 5});
    lt_safetensors_close(&file);
    assert_ok(lt_safetensors_open(&file, file_path(path, "nanogpt")));
    assert_int_equal(lt_safetensors_count(file), 1);
    assert_string_equal(lt_safetensors_metadata(file, "heads"), "6");
    lt_safetensors_close(&file);
}

typedef struct refused {
    const char *file, *message;
} refused;

static const refused bad[] = {
    {"runs-system", "refuses to run posix.system"},
    {"runs-exec", "refuses to run __builtin__.exec"},
    {"runs-getattr", "refuses to run __builtin__.getattr"},
    {"runs-open", "refuses to run io.open"},
    {"runs-import", "refuses to run __builtin__.__import__"},
    {"runs-legacy", "refuses to run posix.system"},
    {"runs-in-4", "refuses to run posix.system"},
    {"runs-plain", "refuses to run posix.system"},
    {"runs-module", "refuses to run torch.nn.Linear"},
    {"runs-object", "refuses to run os.system"},
    {"runs-build", "refuses to run os.system"},
    {"runs-instance", "pickle opcode 0x69"},
    {"runs-extension", "pickle opcode 0x82"},
    {"compressed", "'w/data.pkl' is compressed"},
    {"memo", "a memo index larger than the pickle"},
    {"empty-stack", "the stack is empty"},
    {"long", "truncated"},
    {"one-name", "duplicate key 'a'"},
    {"one-member", "two members have one name"},
    {"big-endian", "big-endian"},
    {"short-storage", "storage '0': 3 elements of 4 bytes in 8 bytes"},
    {"no-tensors", "holds no tensors by name"},
    {"itself", "holds no tensors by name"},
    {"single", "holds a single value"},
    {"torchscript", "a TorchScript archive"},
    {"not-torch", "without data.pkl"},
    {"tar", "a tar archive of PyTorch before 0.1.10"},
    {"outside", "elements 1 to 3 of a storage of 3"},
    {"negative", "elements -1 to 1 of a storage of 3"},
    {"stride", "its size overflows"},
    {"overflow", "its size overflows"},
    {"expanded", "an expanded view"},
    {"dimensions", "9 sizes"},
    {"truncated", "truncated"},
    {"truncated-pickles", "storage '0'"},
    {"storage-count", "a storage of -2 elements"},
    {"storage-missing", "the archive has no 'w/data/0'"},
    {"storage-unlisted", "invalid list of storages, or truncated"},
    {"storages-no-list", "its storages are not a list"},
    {"pickle", "a pickle, but not from torch.save()"},
    {"name", "the name of a tensor is not a text"},
    {"member-outside", "'w/data.pkl': 5000 bytes at "},
};

static void test_refused(void **state)
{
    const refused *row = *state;
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    const lt_status st = lt_safetensors_open(&file, file_path(path, row->file));
    assert_true(st == LT_E_FORMAT || st == LT_E_UNSUPPORTED);
    assert_null(file);
    if (!strstr(lt_error_message(), row->message) || !strstr(lt_error_message(), path))
        fail_msg("'%s' does not contain '%s' and the path", lt_error_message(), row->message);
    assert_int_not_equal(access("lather-was-here", F_OK), 0);
}

/* Each allocation fails once; the file is still read correctly afterwards. */
static void test_no_memory(void **state)
{
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    int64_t n = 1;
    for (; n < 100; n++) {
        lt_alloc_fail_at(n);
        lt_status st = lt_safetensors_open(&file, file_path(path, *state));
        lt_alloc_fail_at(0);
        if (!st)
            break;
        assert_status(st, LT_E_NOMEM);
        assert_null(file);
    }
    assert_in_range(n, 6, 99);
    lt_safetensors_close(&file);
}

int main(void)
{
    static const char *const good[] = {"zip",     "protocol-4", "protocol-5",
                                       "pickles", "checkpoint", "averaged"};
    struct CMUnitTest tests[COUNT_OF(bad) + COUNT_OF(good) + 3];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        tests[n++] =
            (struct CMUnitTest){good[i], test_tensors, NULL, NULL, (void *)(uintptr_t)good[i]};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        tests[n++] =
            (struct CMUnitTest){bad[i].file, test_refused, NULL, NULL, (void *)(uintptr_t)&bad[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_view_and_heads);
    tests[n++] = (struct CMUnitTest){"no memory, archive", test_no_memory, NULL, NULL,
                                     (void *)(uintptr_t) "zip"};
    tests[n++] = (struct CMUnitTest){"no memory, pickles", test_no_memory, NULL, NULL,
                                     (void *)(uintptr_t) "pickles"};
    return cmocka_run_group_tests_name("files of torch.save()", tests, NULL, NULL);
}
