/* Opening the device cuda where the plugin, or a library that it needs, is missing, broken or of another
 * build: each is a message that names the file. */

#include "near.h"
#include "temp.h"
#include "tensor/backend/kernel_stubs.h"

#include "lather/device.h"

#include <stdlib.h>
#include <string.h>

/* Makes a file of the fixtures' folder the plugin; NULL: no plugin exists. */
typedef struct plugin_row {
    const char *name, *file;
    const char *says[2];
} plugin_row;

static const plugin_row rows[] = {
    {"no plugin", NULL, {"liblather-cuda.so", "not found"}},
    {"a text instead of a plugin", "text", {"cannot be loaded", "liblather-cuda.so"}},
    {"a library of the plugin is missing", "needs", {"cannot be loaded", "libcudnn_gone.so"}},
    {"a library of the plugin is another", "symbol", {"cannot be loaded", "cudnn_of_tomorrow"}},
    {"something else of that name", "empty", {"has no lt_plugin_cuda", "liblather-cuda.so"}},
    {"a plugin of another version",
     "version",
     {"plugin version 0.0.9 does not match", "library version"}},
    {"a plugin of an older table",
     "table",
     {"the plugin's kernel table has 8 bytes", "older build"}},
};

static void put_plugin(const char *folder, const char *file)
{
    static const char text[] = "this is no library";
    char from[TEMP_PATH], to[TEMP_PATH];
    size_t bytes;
    temp_path(to, folder, "liblather-cuda.so");
    if (!strcmp(file, "text")) {
        temp_write(to, text, sizeof text);
        return;
    }
    snprintf(from, sizeof from, "%s/tests/cuda/libbroken_%s.so", getenv("LATHER_TEST_BUILD"), file);
    char *plugin = temp_read(from, &bytes);
    temp_write(to, plugin, bytes);
    free(plugin);
}

static void opening_fails(void **state)
{
    const plugin_row *row = *state;
    lt_device *device = NULL;
    char folder[TEMP_PATH];
    temp_make(folder);
    if (row->file)
        put_plugin(folder, row->file);
    setenv("LATHER_PLUGIN_PATH", folder, 1);
    assert_status(lt_device_open(&device, "cuda", NULL), LT_E_UNSUPPORTED);
    assert_null(device);
    for (size_t i = 0; i < COUNT_OF(row->says); i++)
        if (!strstr(lt_error_message(), row->says[i]))
            fail_msg("\"%s\" does not say \"%s\"", lt_error_message(), row->says[i]);
    unsetenv("LATHER_PLUGIN_PATH");
    temp_remove(folder);
}

/* An entry that a backend does not implement returns an error that names it. */
static void a_missing_entry_has_a_name(void **state)
{
    (void)state;
    lt_backend table = {.name = "sparse", .relu = lt_backend_ref()->relu};
    lt_backend_stub_missing_kernels(&table);
    assert_ptr_equal(table.relu, lt_backend_ref()->relu);
    assert_null(table.vec_lists); /* fused: absent is an answer */
    assert_status(table.conv2d(NULL, NULL, NULL, NULL, NULL, NULL), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "conv2d"));
    assert_status(table.lerp(NULL, 0, NULL, 0, NULL), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "lerp"));
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1] = {cmocka_unit_test(a_missing_entry_has_a_name)};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i + 1] = row_test(rows[i].name, opening_fails, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
