/* The cache of execution plans: which plans are loaded again, and which are rejected. */

#include "tensor/backend/cuda/plan_cache.h"

#include "temp.h"

#include <dirent.h>
#include <sys/stat.h>

static int released;

static void release(void *plan)
{
    released++;
    free(plan);
}

static void *number(int value)
{
    int *plan = malloc(sizeof *plan);
    assert_non_null(plan);
    *plan = value;
    return plan;
}

/* The only file of the folder. */
static void find_file(const char *folder, char *path)
{
    int files = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            temp_path(path, folder, e->d_name);
            files++;
        }
    closedir(dir);
    assert_int_equal(files, 1);
}

static void memory_finds_equal_keys_only(void **state)
{
    lt_plan_cache *c;
    char key[32];
    (void)state;
    released = 0;
    assert_ok(lt_plan_cache_new(&c, "", release));
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "plan %d", i);
        assert_null(lt_plan_cache_find(c, key));
        assert_ok(lt_plan_cache_add(c, key, number(i)));
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "plan %d", i);
        assert_int_equal(*(int *)lt_plan_cache_find(c, key), i);
    }
    assert_null(lt_plan_cache_find(c, "plan"));
    lt_plan_cache_free(&c);
    assert_int_equal(released, 1000);
    assert_null(c);
}

static void text_outlives_the_process(void **state)
{
    lt_plan_cache *c;
    char folder[TEMP_PATH], inner[TEMP_PATH];
    (void)state;
    temp_make(folder);
    temp_path(inner, folder, "deep/lather");
    assert_ok(lt_plan_cache_new(&c, inner, release));
    assert_null(lt_plan_cache_read(c, "a"));
    assert_true(lt_plan_cache_write(c, "a", "{\"plan\": 1}\n"));
    assert_true(lt_plan_cache_write(c, "b", "{\"plan\": 2}\n"));
    assert_true(lt_plan_cache_write(c, "a", "{\"plan\": 3}\n"));
    lt_plan_cache_free(&c);
    assert_ok(lt_plan_cache_new(&c, inner, release));
    char *a = lt_plan_cache_read(c, "a"), *b = lt_plan_cache_read(c, "b");
    assert_string_equal(a, "{\"plan\": 3}\n");
    assert_string_equal(b, "{\"plan\": 2}\n");
    assert_null(lt_plan_cache_read(c, "another version"));
    free(a);
    free(b);
    lt_plan_cache_free(&c);
    temp_remove(folder);
}

/* Every cut and every flipped bit of a file is found. */
static void damaged_files_are_no_plans(void **state)
{
    lt_plan_cache *c;
    char folder[TEMP_PATH], path[TEMP_PATH];
    size_t bytes;
    (void)state;
    temp_make(folder);
    assert_ok(lt_plan_cache_new(&c, folder, release));
    assert_true(lt_plan_cache_write(c, "key", "a text"));
    find_file(folder, path);
    char *good = temp_read(path, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        temp_write(path, good, cut);
        assert_null(lt_plan_cache_read(c, "key"));
    }
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        char *bad = temp_read(path, NULL);
        free(bad);
        good[bit / 8] = (char)(good[bit / 8] ^ 1 << bit % 8);
        temp_write(path, good, bytes);
        char *text = lt_plan_cache_read(c, "key");
        if (text) /* leading blanks of a number may be another blank */
            assert_string_equal(text, "a text");
        free(text);
        good[bit / 8] = (char)(good[bit / 8] ^ 1 << bit % 8);
    }
    temp_write(path, good, bytes); /* the control: whole again, it is one */
    char *text = lt_plan_cache_read(c, "key");
    assert_string_equal(text, "a text");
    free(text);
    free(good);
    lt_plan_cache_free(&c);
    temp_remove(folder);
}

/* A file that another key left under this one's name. */
static void another_keys_file_is_no_plan(void **state)
{
    lt_plan_cache *c;
    char folder[TEMP_PATH], path[TEMP_PATH], mine[TEMP_PATH];
    size_t bytes;
    (void)state;
    temp_make(folder);
    assert_ok(lt_plan_cache_new(&c, folder, release));
    assert_true(lt_plan_cache_write(c, "mine", "m"));
    find_file(folder, mine);
    assert_int_equal(unlink(mine), 0);
    assert_true(lt_plan_cache_write(c, "other", "o"));
    find_file(folder, path);
    char *other = temp_read(path, &bytes);
    temp_write(mine, other, bytes);
    free(other);
    assert_null(lt_plan_cache_read(c, "mine"));
    lt_plan_cache_free(&c);
    temp_remove(folder);
}

static void folder_that_cannot_be_made_is_told(void **state)
{
    lt_plan_cache *c;
    char folder[TEMP_PATH], path[TEMP_PATH], inner[TEMP_PATH];
    (void)state;
    temp_make(folder);
    temp_write(temp_path(path, folder, "file"), "", 0);
    assert_ok(lt_plan_cache_new(&c, temp_path(inner, path, "lather"), release));
    assert_false(lt_plan_cache_write(c, "key", "text"));
    assert_non_null(strstr(lt_error_message(), inner));
    lt_plan_cache_free(&c);
    temp_remove(folder);
}

static void folder_is_the_users_cache(void **state)
{
    lt_plan_cache *c;
    char folder[TEMP_PATH], want[TEMP_PATH];
    (void)state;
    temp_make(folder);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    assert_ok(lt_plan_cache_new(&c, NULL, release));
    assert_string_equal(lt_plan_cache_folder(c), temp_path(want, folder, "lather"));
    lt_plan_cache_free(&c);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    assert_int_equal(setenv("HOME", folder, 1), 0);
    assert_ok(lt_plan_cache_new(&c, NULL, release));
    assert_string_equal(lt_plan_cache_folder(c), temp_path(want, folder, ".cache/lather"));
    lt_plan_cache_free(&c);
    temp_remove(folder);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_finds_equal_keys_only),
        cmocka_unit_test(text_outlives_the_process),
        cmocka_unit_test(damaged_files_are_no_plans),
        cmocka_unit_test(another_keys_file_is_no_plan),
        cmocka_unit_test(folder_that_cannot_be_made_is_told),
        cmocka_unit_test(folder_is_the_users_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
