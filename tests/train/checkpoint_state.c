/* The task's fields of state.json: the program names them, and files of earlier versions load. */

#include "base/machine.h"
#include "temp_folder.h"
#include "tiny.h"
#include "train/checkpoint/watch.h"
#include "train/loop/state.h"
#include "train/run/processor.h"

#include "lather/detail/json.h"

/* Fields of a language model: no images, no classes; the lowest perplexity is the best. */
static void become_language_model(lt_checkpoint_state *s)
{
    *s = (lt_checkpoint_state){.unit = "tokens",
                               .samples = 4096,
                               .loss_scale = 1,
                               .best_name = "perplexity",
                               .best = (double)INFINITY,
                               .epoch_samples = 512,
                               .sum = {{"loss", 12.5}, {"bits", (double)INFINITY}},
                               .sums = 2,
                               .optim = "adam",
                               .fact = {{.key = "tokenizer", .text = "bytes"},
                                        {.key = "vocabulary", .is_number = true, .number = 256},
                                        {.key = "layers", .text = "2 x 64", .later = true}},
                               .facts = 3};
}

static char *save_state(run *r, char path[TEMP_PATH])
{
    char file[TEMP_PATH];
    assert_ok(lt_checkpoint_save(folder, &r->parts, &r->state, NULL));
    assert_ok(lt_checkpoint_newest(folder, path, TEMP_PATH));
    return temp_read(temp_path(file, path, "state.json"), NULL);
}

static void test_another_task(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    run a, b;
    run_open(&a, "adam", 5);
    run_open(&b, "adam", 5);
    become_language_model(&a.state);
    char *text = save_state(&a, path);
    static const char *const has[] = {
        "\"tokens\":4096,",       "\"epoch_tokens\":512,", "\"best_perplexity\":\"inf\"",
        "\"epoch_bits\":\"inf\"", "\"vocabulary\":256",    "\"unit\":\"tokens\""};
    for (size_t i = 0; i < COUNT_OF(has); i++)
        if (!strstr(text, has[i]))
            fail_msg("'%s' has no %s", text, has[i]);
    assert_null(strstr(text, "images"));
    assert_ok(lt_checkpoint_load(path, &b.parts, &b.state));
    assert_memory_equal(&a.state, &b.state, sizeof a.state);
    assert_int_equal(lt_checkpoint_find_fact(&b.state, "vocabulary")->number, 256);
    assert_null(lt_checkpoint_find_fact(&b.state, "classes"));
    free(text);
    run_close(&a);
    run_close(&b);
}

/* The fields of an image classifier's file, in order, unchanged since version 0.1.0. */
static void test_fields(void **state)
{
    (void)state;
    static const char *const keys[] = {"format",
                                       "step",
                                       "epoch",
                                       "batch",
                                       "images",
                                       "seed",
                                       "loss_scale",
                                       "best_top1",
                                       "best_step",
                                       "seconds",
                                       "epoch_loss",
                                       "epoch_correct",
                                       "epoch_seconds",
                                       "epoch_images",
                                       "ema_updates",
                                       "arch",
                                       "optim",
                                       "classes",
                                       "ranks",
                                       "threads",
                                       "global_batch",
                                       "loss_good_steps",
                                       "epoch_recorded",
                                       "run",
                                       "network",
                                       "version",
                                       "cpu",
                                       "cpu_model",
                                       "cpu_isa",
                                       "cpu_kernels",
                                       "numbers",
                                       "files",
                                       "crc32c"};
    char path[TEMP_PATH], file[TEMP_PATH];
    lt_json *json = NULL;
    run r;
    run_open(&r, "adam", 5);
    free(save_state(&r, path));
    assert_ok(lt_json_load(&json, temp_path(file, path, "state.json")));
    const lt_json_value *v = lt_json_root(json)->child;
    for (size_t i = 0; i < COUNT_OF(keys); i++, v = v->next) {
        assert_non_null(v);
        assert_string_equal(v->key, keys[i]);
    }
    assert_null(v);
    lt_json_free(&json);
    run_close(&r);
}

/* Replaces the text of state.json from `from` up to `to` by `instead`. */
static void cut(const char *file, const char *from, const char *to, const char *instead)
{
    char *whole = temp_read(file, NULL);
    const char *begin = strstr(whole, from), *end = begin ? strstr(begin, to) : NULL;
    assert_non_null(end);
    forge(file, whole, (size_t)(begin - whole), (size_t)(end - whole), instead);
    free(whole);
}

/* A file of a version without run id and network, and one of a version with unknown fields. */
static void test_other_versions(void **state)
{
    (void)state;
    char path[TEMP_PATH], file[TEMP_PATH];
    lt_checkpoint_state got = {0};
    run r;
    run_open(&r, "adam", 5);
    free(save_state(&r, path));
    temp_path(file, path, "state.json");
    cut(file, ",\"loss_good_steps\"", ",\"version\"", ",\"planet\":{\"x\":[1]},\"moon\":true");
    assert_ok(lt_checkpoint_verify(path, &got));
    assert_int_equal(got.epoch_recorded, -1);
    assert_int_equal(got.facts, 2);
    assert_string_equal(lt_checkpoint_find_fact(&got, "arch")->text, "tiny");
    assert_string_equal(got.unit, "images");
    assert_ok(lt_checkpoint_check_task(path, &got, &r.state));
    cut(file, "\"format\":1", ",\"step\"", "\"format\":3");
    cut(file, "\"version\":\"", "\",\"cpu\"", "\"version\":\"9.8.7");
    assert_status(lt_checkpoint_verify(path, &got), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "state.json: format 3, written by lather 9.8.7; "));
    assert_non_null(strstr(lt_error_message(), "resume with the version that wrote it"));
    run_close(&r);
}

/* A unit that is another field's name, numbers that are no integers, and a list that is too long. */
#define ONE  "{\"step\":1,\"value\":2}"
#define FOUR ONE "," ONE "," ONE "," ONE
static void test_forged_fields(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *instead, *message;
    } rows[] = {
        {"\"format\":1", ",\"step\"", "\"format\":1,\"unit\":\"step\"",
         "'unit' is no name of samples"},
        {"\"classes\":", ",\"ranks\"", "\"classes\":2.5", "'classes' is no integer of 64 bits"},
        {"\"format\":1", ",\"step\"",
         "\"format\":1,\"top\":[" FOUR "," FOUR "," FOUR "," FOUR "," ONE "]",
         "'top' has more than 16 checkpoints"},
        {"\"files\":{\"", "model.safetensors", "\"files\":{\"../a\":{},\"", "file name '../a'"},
        {"\"files\":", "},\"crc32c\"", "\"files\":{\"other\":{}",
         "the checksums of both files are missing"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char path[TEMP_PATH], file[TEMP_PATH];
        lt_checkpoint_state got = {0};
        run r;
        run_open(&r, "adam", 5);
        free(save_state(&r, path));
        temp_path(file, path, "state.json");
        cut(file, rows[i].from, rows[i].to, rows[i].instead);
        assert_fails(lt_checkpoint_verify(path, &got), LT_E_FORMAT, rows[i].message);
        run_close(&r);
    }
}

/* Fields of the wrong type, and text that is too long. */
static void test_processor(void **state)
{
    (void)state;
    static const struct {
        const char *json, *want;
        bool reproducible;
    } rows[] = {
        {"{\"cpu_model\":\"family 0, model 0\"}", "cpu_model family 0, model 0 -> ", false},
        {"{\"cpu\":\"abacus\",\"cpu_model\":\"beads\"}", "cpu abacus -> ", false},
        {"{\"cpu_isa\":7,\"cpu_model\":\"\",\"cpu\":null}", "", false},
        {"{}", "", false},
        {"{\"cpu\":\"abacus\",\"reproducible\":true}", "cpu abacus -> ", false},
        {"{\"cpu\":\"abacus\"}", "cpu abacus -> ", true},
        {"{\"cpu\":\"abacus\",\"reproducible\":true}", "", true},
    };
    char text[LT_PROCESSOR_TEXT], is[64], tiny[12];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_json *json = NULL;
        assert_ok(lt_json_parse(&json, rows[i].json, strlen(rows[i].json), "row", 8));
        lt_processor_compare(lt_json_root(json), rows[i].reproducible, text, sizeof text);
        lt_processor_compare(lt_json_root(json), rows[i].reproducible, tiny, sizeof tiny);
        lt_json_free(&json);
        if (!*lt_machine_cpu_model(is, sizeof is) && i == 0)
            continue; /* not x86: unknown, so not reported */
        assert_true(*rows[i].want ? !strncmp(text, rows[i].want, strlen(rows[i].want)) : !*text);
        assert_true(strlen(tiny) < sizeof tiny);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *fact, *sum, *message;
    } rows[] = {
        {"seed", NULL, "a fact cannot be named 'seed'"},
        {"cpu_isa", NULL, "a fact cannot be named 'cpu_isa'"},
        {"best_of", NULL, "a fact cannot be named 'best_of'"},
        {"images", NULL, "a fact cannot be named 'images'"},
        {"classes", NULL, "a fact cannot be named 'classes'"}, /* is a field already */
        {NULL, "seconds", "a sum cannot be named 'seconds'"},
        {NULL, "images", "a sum cannot be named 'images'"},
    };
    run r;
    run_open(&r, "adam", 5);
    const lt_checkpoint_state good = r.state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        r.state = good;
        lt_checkpoint_fact *f = &r.state.fact[r.state.facts];
        if (rows[i].fact)
            snprintf(f->key, sizeof f->key, "%s", rows[i].fact), r.state.facts++;
        else
            snprintf(r.state.sum[0].name, sizeof r.state.sum[0].name, "%s", rows[i].sum);
        assert_status(lt_checkpoint_save(folder, &r.parts, &r.state, NULL), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), rows[i].message));
    }
    assert_ok(lt_checkpoint_save(folder, &r.parts, &good, NULL)); /* the control */
    run_close(&r);
}

/* Numbers of hooks: any double, and files that are not ours. */
static void test_hook_numbers(void **state)
{
    (void)state;
    static const double values[] = {1.0 / 3, -HUGE_VAL, (double)NAN, 0, 0x1p-1074};
    static const struct {
        const char *hooks, *message;
    } rows[] = {{"{\"a\":\"x\"}", "'a'"},
                {"{\"a\":{}}", "'a'"},
                {"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":1,"
                 "\"k\":2,\"l\":3,\"m\":4,\"n\":5,\"o\":6,\"p\":7,\"q\":8}",
                 "more than 16"}};
    char path[TEMP_PATH], file[TEMP_PATH], forged[512];
    lt_checkpoint_state got = {0};
    run r;
    run_open(&r, "adam", 5);
    for (r.state.numbers = 0; r.state.numbers < (int)COUNT_OF(values); r.state.numbers++) {
        lt_checkpoint_sum *n = &r.state.number[r.state.numbers];
        snprintf(n->name, sizeof n->name, "hook.%d", r.state.numbers);
        n->value = values[r.state.numbers];
    }
    snprintf(r.state.ended_by, sizeof r.state.ended_by, "hook \"\n");
    char *whole = save_state(&r, path);
    free(whole);
    assert_ok(lt_checkpoint_verify(path, &got));
    assert_int_equal(got.numbers, r.state.numbers);
    for (int i = 0; i < got.numbers; i++) {
        assert_string_equal(got.number[i].name, r.state.number[i].name);
        assert_true(isnan(values[i]) ? isnan(got.number[i].value)
                                     : got.number[i].value == values[i]);
    }
    assert_string_equal(got.ended_by, r.state.ended_by);
    temp_path(file, path, "state.json");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        snprintf(forged, sizeof forged, "\"hooks\":%s", rows[i].hooks);
        cut(file, "\"hooks\":", ",\"version\"", forged);
        assert_fails(lt_checkpoint_verify(path, &got), LT_E_FORMAT, rows[i].message);
    }
    cut(file, "\"hooks\":", ",\"version\"", "\"hooks\":7");
    assert_ok(lt_checkpoint_verify(path, &got));
    run_close(&r);
}

static void test_tasks_differ(void **state)
{
    (void)state;
    run r;
    run_open(&r, "adam", 5);
    lt_checkpoint_state other = r.state;
    assert_ok(lt_checkpoint_check_task("step-1", &other, &r.state)); /* the control */
    snprintf(other.sum[1].name, sizeof other.sum[1].name, "bits");
    assert_status(lt_checkpoint_check_task("step-1", &other, &r.state), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "step-1: has no sum 'epoch_correct' in place 2"));
    snprintf(other.best_name, sizeof other.best_name, "perplexity");
    assert_status(lt_checkpoint_check_task("step-1", &other, &r.state), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "is by 'perplexity', this run's by 'top1'"));
    other.unit[0] = 0;
    assert_status(lt_checkpoint_check_task("step-1", &other, &r.state), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "step-1: counts samples, this run images"));
    run_close(&r);
}

static void test_numbers(void **state)
{
    (void)state;
    char path[TEMP_PATH], file[TEMP_PATH];
    run a, b;
    run_open(&a, "shampoo", 5);
    run_open(&b, "shampoo", 5);
    free(save_state(&a, path));
    temp_path(file, path, "state.json");
    assert_ok(lt_checkpoint_load(path, &b.parts, &b.state)); /* the control */
    assert_fails(lt_watch_load_averages(path, &b.params), LT_E_FORMAT,
                 "optim.safetensors: state 'ema.conv.weight' is missing");
    cut(file, "{\"attempt\"", "\"attempt\"", "{\"other\":1,");
    assert_status(lt_checkpoint_load(path, &b.parts, &b.state), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "numbers belong to another optimizer"));
    cut(file, "{\"other\"", "\"attempt\"", "{\"precondition_interval\":7,");
    assert_status(lt_checkpoint_load(path, &b.parts, &b.state), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "--precondition-budget, which is gone since 0.2"));
    cut(file, "\"attempt\"", ":", "\"attempts\"");
    assert_status(lt_checkpoint_load(path, &b.parts, &b.state), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "the optimizer's number 'attempt' is missing"));
    run_close(&a);
    run_close(&b);
}

/* Compares number, names and contents; sizes only if both sides have them. */
static void test_data(void **state)
{
    static const struct {
        int64_t samples, hash, bytes;
        bool is_same;
    } rows[] = {{8, 5, 100, true},  {9, 5, 100, false}, {8, 6, 100, false},
                {8, 5, 101, false}, {8, 5, 0, true},    {0, 0, 0, true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lt_train_state s = {.now = {.data_samples = 8, .data_hash = 5, .data_bytes = 100}};
        s.found = (lt_checkpoint_state){.data_samples = rows[i].samples,
                                        .data_hash = rows[i].hash,
                                        .data_bytes = rows[i].bytes,
                                        .batch = 1};
        assert_status(lt_train_state_check_data(&s, false), rows[i].is_same ? LT_OK : LT_E_ARG);
        assert_ok(lt_train_state_check_data(&s, true));
        assert_int_equal(s.data_changed, !rows[i].is_same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"the state of a task without images and top-1 is loaded", test_another_task, temp_setup,
         temp_teardown, NULL},
        {"a missing number and an unknown one fail", test_numbers, temp_setup, temp_teardown, NULL},
        {"the fields of an image classifier's file keep their order", test_fields, temp_setup,
         temp_teardown, NULL},
        {"an earlier file loads; another format names its writer", test_other_versions, temp_setup,
         temp_teardown, NULL},
        {"processors are compared by fields known on both sides", test_processor, NULL, NULL, NULL},
        {"ambiguous names are rejected", test_names, temp_setup, temp_teardown, NULL},
        {"different data is detected", test_data, NULL, NULL, NULL},
        {"forged fields are named", test_forged_fields, temp_setup, temp_teardown, NULL},
        {"numbers of hooks are kept exactly, and others rejected", test_hook_numbers, temp_setup,
         temp_teardown, NULL},
        {"another task's checkpoint is rejected by name", test_tasks_differ, temp_setup,
         temp_teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
