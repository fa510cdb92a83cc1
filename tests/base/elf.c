/* src/base/plugins/elf.c on the library's own shared object: symbols are found, damaged files are rejected or harmless. */

#include "base/plugins/elf.h"

#include "base/os.h"
#include "near.h"

#include "lather/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *file;
static size_t bytes;

/* argv of main: a plugin's shared object. */
static const char *path;

static int read_file(void **state)
{
    FILE *f = fopen(path, "rb");
    (void)state;
    if (!f || fseek(f, 0, SEEK_END))
        return -1;
    bytes = (size_t)ftell(f);
    rewind(f);
    file = malloc(bytes);
    const size_t got = file ? fread(file, 1, bytes, f) : 0;
    fclose(f);
    return got == bytes ? 0 : -1;
}

static int free_file(void **state)
{
    (void)state;
    free(file);
    return 0;
}

static void symbols_are_found(void **state)
{
    const char *text = NULL, *none = "";
    (void)state;
    assert_int_equal(lt_elf_check(file, bytes), LT_OK);
    assert_true(lt_elf_find_symbol(file, bytes, "lt_plugin_version", &text));
    assert_string_equal(text, lt_version());
    assert_true(lt_elf_find_symbol(file, bytes, "lt_plugin", &none));
    assert_false(lt_elf_find_symbol(file, bytes, "lt_plugin_versio", &none));
    assert_null(none);
    assert_false(lt_elf_find_symbol(file, bytes, "lt_optim_register", &none)); /* undefined there */
}

/* A copy of just the bytes that are given, so that a sanitizer sees reads past them. */
static bool finds(const char *from, size_t count)
{
    const char *text = NULL;
    char *copy = malloc(count + !count);
    assert_non_null(copy);
    memcpy(copy, from, count);
    const bool is_whole = !lt_elf_check(copy, count);
    const bool found = lt_elf_find_symbol(copy, count, "lt_plugin_version", &text);
    const bool same = found && text && !strcmp(text, lt_version());
    free(copy);
    return is_whole && same;
}

static void truncated_files_are_rejected(void **state)
{
    (void)state;
    assert_true(finds(file, bytes)); /* control */
    for (size_t count = 0; count < bytes; count += count < 128 ? 1 : 97)
        assert_false(finds(file, count));
}

/* Bytes of headers and tables are random; most of such files have no symbol, none is read outside. */
static void damaged_files_are_harmless(void **state)
{
    enum { ROUNDS = 3000, HEADER = 64 };
    unsigned random = 42;
    int found = 0;
    char *copy = malloc(bytes);
    (void)state;
    assert_non_null(copy);
    for (int i = 0; i < ROUNDS; i++) {
        memcpy(copy, file, bytes);
        for (int k = 0; k < 4; k++) {
            const size_t limit = k & 1 ? HEADER : bytes;
            const size_t tail = k & 2 && bytes > 4096 ? bytes - 2048 : 0; /* section headers */
            const size_t at =
                tail ? tail + (size_t)rand_r(&random) % 2048 : (size_t)rand_r(&random) % limit;
            copy[at] = (char)rand_r(&random);
        }
        found += finds(copy, bytes);
    }
    assert_true(found < ROUNDS);
    free(copy);
}

/* The loader opens a plugin by its path, after the file that was checked. */
static void a_deleted_plugin_is_an_error(void **state)
{
    char copy[] = "/tmp/lather-plugin-XXXXXX", name[64], says[96];
    const int fd = mkstemp(copy);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file, bytes), bytes);
    assert_int_equal(unlink(copy), 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    snprintf(says, sizeof says, "plugin %s: No such file", name);
    assert_fails(lt_plugin_load(name, "test"), LT_E_IO, says);
    close(fd);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols_are_found),
        cmocka_unit_test(a_deleted_plugin_is_an_error),
        cmocka_unit_test(truncated_files_are_rejected),
        cmocka_unit_test(damaged_files_are_harmless),
    };
    if (!LT_LINUX) {
        printf("SKIP: the portable form reads no ELF files\n");
        return 77;
    }
    path = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, read_file, free_file);
}
