/* tools/inspect on good files, damaged ones, and wrong command lines. */

#include "base/encoding/json.h"
#include "temp_folder.h"

#include "lather/checkpoint.h"
#include "lather/safetensors.h"

#include <math.h>
#include <sys/wait.h>

/* Runs the tool with its output in FOLDER/out and FOLDER/err; returns the exit status. */
static int inspect(const char *arguments)
{
    char command[3 * TEMP_PATH];
    const char *build = getenv("LATHER_TEST_BUILD");
    assert_non_null(build);
    snprintf(command, sizeof command, "cd '%s' && '%s/tools/inspect' %s >out 2>err", folder, build,
             arguments);
    int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void write_file(const char *name)
{
    static const float values[] = {1, 2, 3, NAN};
    static const uint16_t bf16[] = {0x3f80, 0xff80}; /* 1, -infinity */
    char path[TEMP_PATH];
    lt_safetensors_writer *w = NULL;
    assert_ok(lt_safetensors_create(&w, temp_path(path, folder, name)));
    assert_ok(lt_safetensors_add_host(w, "w", LT_F32, LT_SHAPE(2, 2), values));
    assert_ok(lt_safetensors_add_host(w, "b\"", LT_BF16, LT_SHAPE(2), bf16));
    assert_ok(lt_safetensors_finish(&w));
}

static void test_json(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    write_file("f");
    assert_int_equal(inspect("--json f"), 0);
    lt_json *json = NULL;
    assert_ok(lt_json_load(&json, temp_path(path, folder, "out")));
    const lt_json_value *file = lt_json_member(lt_json_root(json), "files")->child;
    const lt_json_value *w = lt_json_member(file, "tensors")->child;
    double min, max, mean, std;
    int64_t nan;
    assert_ok(lt_json_number(w, "min", &min));
    assert_ok(lt_json_number(w, "max", &max));
    assert_ok(lt_json_number(w, "mean", &mean));
    assert_ok(lt_json_number(w, "std", &std));
    assert_ok(lt_json_integer(w, "nan", &nan));
    assert_near(min, 1, 0);
    assert_near(max, 3, 0);
    assert_near(mean, 2, 0);
    assert_near(std, sqrt(2.0 / 3), 1e-8); /* nine digits are printed */
    assert_int_equal(nan, 1);
    const char *name;
    assert_ok(lt_json_string(w->next, "name", &name));
    assert_string_equal(name, "b\"");
    assert_int_equal(lt_json_member(w->next, "min")->type, LT_JSON_NULL);
    lt_json_free(&json);
}

static void test_table(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    write_file("f");
    assert_int_equal(inspect("f"), 0);
    char *text = temp_read(temp_path(path, folder, "out"), NULL);
    assert_non_null(strstr(text, "[2,2]"));
    assert_non_null(strstr(text, "2 tensors, 6 elements, 20 bytes"));
    free(text);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *message;
        int status;
    } rows[] = {{"", "is wanted", 2},
                {"--jso f", "the nearest is --json", 2},
                {"none", "none: No such file", 1},
                {"--join out.one f f", "2 files, want one", 2},
                {"--join out.one none", "none: No such file", 1},
                {"cut", "cut: ", 1},
                {"--json cut", "cut: ", 1},
                {"--json .", ".: neither a checkpoint", 1}};
    char path[TEMP_PATH];
    temp_write(temp_path(path, folder, "cut"), "\x08\0\0\0\0\0\0\0{", 9);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(inspect(rows[i].arguments), rows[i].status);
        char *text = temp_read(temp_path(path, folder, "err"), NULL);
        if (!strstr(text, rows[i].message) || strchr(text, '\n') != strrchr(text, '\n'))
            fail_msg("'%s' is not one line that says '%s'", text, rows[i].message);
        free(text);
    }
}

/* A file and an index of it list the same; the joined file has its bytes. */
static void test_parts(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"w\":\"f\",\"b\\\"\":\"f\"}}";
    char path[TEMP_PATH];
    write_file("f");
    temp_write(temp_path(path, folder, "m.safetensors.index.json"), index, sizeof index - 1);
    assert_int_equal(inspect("m.safetensors"), 0);
    char *text = temp_read(temp_path(path, folder, "out"), NULL);
    assert_non_null(strstr(text, "2 tensors, 6 elements, 20 bytes"));
    free(text);
    assert_int_equal(inspect("--join one m.safetensors"), 0);
    temp_assert_same(folder, "f", "one");
}

/* A language model's: its own names, and no classes. */
static void test_checkpoint(void **state)
{
    (void)state;
    const lt_params none = {0};
    const lt_checkpoint_contents parts = {.params = &none};
    const lt_checkpoint_state s = {.step = 3,
                                   .unit = "tokens",
                                   .loss_scale = 1,
                                   .best_name = "perplexity",
                                   .best = 12.5,
                                   .best_step = 2,
                                   .optim = "adam",
                                   .ended_by = "early_stop",
                                   .fact = {{.key = "tokenizer", .text = "bytes"},
                                            {.key = "words", .is_number = true, .number = 256},
                                            {.key = "hidden", .text = "x", .later = true}},
                                   .facts = 3};
    char path[TEMP_PATH];
    assert_ok(lt_checkpoint_save(folder, &parts, &s, NULL));
    assert_int_equal(inspect("checkpoints/step-3"), 0);
    char *text = temp_read(temp_path(path, folder, "out"), NULL);
    assert_non_null(strstr(text, "\nbytes, 256 words, optimizer adam, step 3, "));
    assert_non_null(strstr(text, "\nbest perplexity 12.5 at step 2\nended by early_stop\n"));
    free(text);
    assert_int_equal(inspect("--json checkpoints/step-3"), 0);
    text = temp_read(path, NULL);
    assert_non_null(strstr(text, "\"tokenizer\":\"bytes\",\"optim\":\"adam\",\"words\":256,"));
    assert_non_null(strstr(text, "\"best_perplexity\":12.5,\"ended_by\":\"early_stop\""));
    assert_null(strstr(text, "classes"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"values in JSON", test_json, temp_setup, temp_teardown, NULL},
        {"values in a table", test_table, temp_setup, temp_teardown, NULL},
        {"parts are listed and joined", test_parts, temp_setup, temp_teardown, NULL},
        {"a checkpoint in its task's names", test_checkpoint, temp_setup, temp_teardown, NULL},
        {"one line for each error", test_errors, temp_setup, temp_teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
