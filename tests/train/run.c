/* The run folder: files, their keys, resuming, the event file, and progress output. */

#include "lather/detail/run.h"

#include "base/encoding/crc32c.h"
#include "base/encoding/json.h"
#include "base/os.h"
#include "temp_folder.h"
#include "train/run/metrics.h"
#include "train/run/progress.h"

#include <dirent.h>

static void step(lt_run *run, int64_t number)
{
    const lt_metric metric[] = {{"loss", 2.5}, {"top1", 12.5}};
    const lt_metric extra[] = {{"gradient_norm", 1.5}, {"unknown", (double)NAN}};
    const lt_run_step_record record = {.step = number,
                                       .epoch = (number - 1) / 2,
                                       .metric = metric,
                                       .metrics = 2,
                                       .lr = 0.1,
                                       .samples = 64,
                                       .seconds = 0.5,
                                       .data_seconds = 0.125,
                                       .extra = extra,
                                       .extra_count = 2};
    assert_ok(lt_run_step(run, &record));
}

static void epoch(lt_run *run, int64_t number)
{
    const lt_metric metric[] = {{"train_loss", 2},
                                {"train_top1", 25},
                                {"val_loss", 3},
                                {"val_top1", (double)NAN},
                                {"val_top5", 50}};
    const lt_run_epoch_record record = {.epoch = number,
                                        .step = 2 * number + 2,
                                        .metric = metric,
                                        .metrics = COUNT_OF(metric),
                                        .seconds = 61,
                                        .eval_seconds = 1};
    assert_ok(lt_run_epoch(run, &record));
}

/* Parses the lines of metrics.jsonl; returns their number. */
static size_t read_metrics(lt_json **lines, size_t most)
{
    char path[TEMP_PATH];
    char *text = temp_read(temp_path(path, folder, "run/metrics.jsonl"), NULL);
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line && count < most; line = strtok(NULL, "\n"))
        assert_ok(lt_json_parse(&lines[count++], line, strlen(line), "metrics", 4));
    free(text);
    return count;
}

static lt_run *open_run_at(int64_t resume_step, bool redo_epoch)
{
    char path[TEMP_PATH];
    lt_run *run = NULL;
    const lt_run_config config = {.progress = LT_PROGRESS_OFF,
                                  .unit = "images",
                                  .resume_step = resume_step,
                                  .redo_epoch = redo_epoch};
    assert_ok(lt_run_open(&run, temp_path(path, folder, "run"), &config));
    return run;
}

static lt_run *open_run(int64_t resume_step)
{
    return open_run_at(resume_step, false);
}

static void test_metrics(void **state)
{
    (void)state;
    static const char *const step_keys[] = {
        "event",        "step",    "epoch",        "loss", "top1", "lr", "images_per_second",
        "data_seconds", "seconds", "gradient_norm"};
    static const char *const epoch_keys[] = {"event",      "epoch",      "step",
                                             "train_loss", "train_top1", "val_loss",
                                             "val_top5",   "seconds",    "eval_seconds"};
    lt_json *line[2] = {NULL};
    double rate;
    lt_run *run = open_run(0);
    step(run, 1);
    epoch(run, 0);
    lt_run_close(&run);
    assert_null(run);
    assert_int_equal(read_metrics(line, 2), 2);
    const lt_json_value *first = lt_json_root(line[0]), *second = lt_json_root(line[1]);
    assert_int_equal(first->count, COUNT_OF(step_keys)); /* NaN values are omitted */
    for (size_t i = 0; i < COUNT_OF(step_keys); i++)
        assert_non_null(lt_json_member(first, step_keys[i]));
    assert_int_equal(second->count, COUNT_OF(epoch_keys));
    for (size_t i = 0; i < COUNT_OF(epoch_keys); i++)
        assert_non_null(lt_json_member(second, epoch_keys[i]));
    assert_ok(lt_json_number(first, "images_per_second", &rate));
    assert_near(rate, 128, 0);
    for (int i = 0; i < 2; i++)
        lt_json_free(&line[i]);
}

/* A kill after an epoch's record; the checkpoint is older. Unfinished files are removed too. */
static void test_redo(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    lt_json *line[8] = {NULL};
    lt_run *run = open_run(0);
    step(run, 1);
    step(run, 2);
    epoch(run, 0);
    lt_run_close(&run);
    temp_write(temp_path(path, folder, "run/model.safetensors.tmp-999999999"), "x", 1);
    char run_path[TEMP_PATH];
    const lt_run_config append = {.progress = LT_PROGRESS_OFF, .append = true};
    assert_ok(lt_run_open(&run, temp_path(run_path, folder, "run"), &append));
    lt_run_close(&run);
    assert_int_equal(access(path, F_OK), 0); /* may belong to a run on another machine */
    for (int redo = 0; redo < 2; redo++) {
        run = open_run_at(2, redo);
        lt_run_close(&run);
        size_t count = read_metrics(line, COUNT_OF(line));
        assert_int_equal(count, 3 - redo);
        for (size_t i = 0; i < count; i++)
            lt_json_free(&line[i]);
    }
    assert_int_equal(access(path, F_OK), -1);
}

/* Resuming removes records after the checkpoint, and a truncated last line. */
static void test_resume(void **state)
{
    (void)state;
    lt_json *line[8] = {NULL};
    char path[TEMP_PATH];
    int64_t last;
    lt_run *run = open_run(0);
    for (int64_t i = 1; i <= 4; i++) {
        step(run, i);
        if (i % 2 == 0)
            epoch(run, i / 2 - 1);
    }
    lt_run_close(&run);
    FILE *file = fopen(temp_path(path, folder, "run/metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"event\":\"step\",\"st", file);
    fclose(file);
    run = open_run(2);
    step(run, 3);
    lt_run_close(&run);
    size_t count = read_metrics(line, COUNT_OF(line));
    assert_int_equal(count, 4); /* steps 1, 2, epoch 0, step 3 */
    assert_ok(lt_json_integer(lt_json_root(line[3]), "step", &last));
    assert_int_equal(last, 3);
    for (size_t i = 0; i < count; i++)
        lt_json_free(&line[i]);
    const lt_run_config append = {.progress = LT_PROGRESS_OFF, .append = true};
    assert_ok(lt_run_open(&run, temp_path(path, folder, "run"), &append));
    epoch(run, 1);
    lt_run_close(&run);
    count = read_metrics(line, COUNT_OF(line));
    assert_int_equal(count, 5); /* nothing was removed */
    for (size_t i = 0; i < count; i++)
        lt_json_free(&line[i]);
    run = open_run(0); /* a new run empties the file */
    lt_run_close(&run);
    assert_int_equal(read_metrics(line, COUNT_OF(line)), 0);
}

static void test_env(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "started", "version",     "build_id",  "compiler",    "build", "cpu",      "cpu_model",
        "cpu_isa", "cpu_kernels", "cpu_flags", "cpu_threads", "os",    "arguments"};
    char path[TEMP_PATH];
    lt_json *json = NULL;
    lt_run *run = open_run(0);
    assert_ok(lt_run_bad_image(run, "a.jpg: truncated"));
    assert_ok(lt_run_bad_image(run, "b.jpg: empty"));
    assert_ok(lt_run_bad_image(run, "a.jpg: truncated")); /* listed once */
    lt_run_close(&run);
    assert_ok(lt_json_load(&json, temp_path(path, folder, "run/env.json")));
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (!lt_json_member(lt_json_root(json), keys[i]))
            fail_msg("env.json has no %s", keys[i]);
#if LT_LINUX
    assert_int_equal(strlen(lt_json_member(lt_json_root(json), "build_id")->string), 16);
#endif
    lt_json_free(&json);
    char *text = temp_read(temp_path(path, folder, "run/bad_images.txt"), NULL);
    assert_string_equal(text, "a.jpg: truncated\nb.jpg: empty\n");
    free(text);
}

/* Reads env.json of a run that is opened in the working folder `in`. */
static lt_json *env_of(const char *in)
{
    char path[TEMP_PATH];
    lt_json *json = NULL;
    lt_run *run = NULL;
    const lt_run_config config = {.progress = LT_PROGRESS_OFF, .ranks = 3};
    assert_int_equal(chdir(in), 0);
    assert_ok(lt_run_open(&run, temp_path(path, folder, "env"), &config));
    lt_run_close(&run);
    assert_ok(lt_json_load(&json, temp_path(path, folder, "env/env.json")));
    assert_int_equal(unlink(path), 0);
    return json;
}

static void make_folder(const char *name)
{
    char path[TEMP_PATH];
    assert_int_equal(mkdir(temp_path(path, folder, name), 0700), 0);
}

/* .git/HEAD of the working folder or one above it has the commit or a reference to it. */
static void test_env_of_a_repository(void **state)
{
    static const struct {
        const char *head, *commit; /* commit NULL: unknown */
    } rows[] = {{"ref: refs/heads/main\n", "0123abcd"},
                {"cdef0123\n", "cdef0123"},
                {"ref: refs/heads/packed\n", NULL}};
    char path[TEMP_PATH], old[TEMP_PATH];
    const char *found = NULL;
    int64_t number = 0;
    (void)state;
    assert_non_null(getcwd(old, sizeof old));
    static const char *const folders[] = {"repo", "repo/.git", "repo/.git/refs",
                                          "repo/.git/refs/heads", "repo/a"};
    for (size_t i = 0; i < COUNT_OF(folders); i++)
        make_folder(folders[i]);
    temp_write(temp_path(path, folder, "repo/.git/refs/heads/main"), "0123abcd\n", 9);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        temp_write(temp_path(path, folder, "repo/.git/HEAD"), rows[i].head, strlen(rows[i].head));
        for (int below = 0; below < 2; below++) {
            lt_json *env = env_of(temp_path(path, folder, below ? "repo/a" : "repo"));
            const lt_json_value *root = lt_json_root(env);
            if (rows[i].commit) {
                assert_ok(lt_json_string(root, "git_commit", &found));
                assert_string_equal(found, rows[i].commit);
            } else {
                assert_null(lt_json_member(root, "git_commit"));
            }
            assert_ok(lt_json_integer(root, "ranks", &number));
            assert_int_equal(number, 3);
            assert_ok(lt_json_integer(root, "memory_bytes", &number));
            assert_int_equal(number, (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
            lt_json_free(&env);
        }
    }
    make_folder("gone");
    assert_int_equal(chdir(temp_path(path, folder, "gone")), 0);
    assert_int_equal(rmdir(path), 0);
    lt_json *env = env_of("."); /* a working folder without a name */
    assert_null(lt_json_member(lt_json_root(env), "git_commit"));
    lt_json_free(&env);
    assert_int_equal(chdir(old), 0);
}

static uint32_t masked(const void *data, size_t bytes)
{
    uint32_t crc = lt_crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/* Frames and checksums of the event file; the first record names its version. */
static void test_events(void **state)
{
    (void)state;
    char path[3 * TEMP_PATH], name[TEMP_PATH] = "";
    lt_run *run = open_run(0);
    step(run, 1);
    lt_run_close(&run);
    DIR *dir = opendir(temp_path(path, folder, "run"));
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, "tfevents"))
            snprintf(name, sizeof name, "%s", entry->d_name);
    closedir(dir);
    snprintf(path, sizeof path, "%s/run/%s", folder, name);
    size_t bytes, records = 0;
    char *data = temp_read(path, &bytes);
    for (size_t at = 0; at < bytes; records++) {
        uint64_t length;
        uint32_t crc;
        assert_true(bytes - at >= 16);
        memcpy(&length, data + at, 8);
        memcpy(&crc, data + at + 8, 4);
        assert_int_equal(crc, masked(data + at, 8));
        assert_true(length <= bytes - at - 16);
        memcpy(&crc, data + at + 12 + length, 4);
        assert_int_equal(crc, masked(data + at + 12, length));
        at += length + 16;
    }
    assert_int_equal(records, 1 + 6); /* version; loss, top1, lr, speed, data, gradient norm */
    assert_non_null(memmem(data, bytes, "brain.Event:2", 13));
    assert_non_null(memmem(data, bytes, "train/loss", 10));
    free(data);
}

static void test_folder(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    lt_run *run = NULL;
    const lt_run_config off = {.progress = LT_PROGRESS_OFF};
    const lt_run_config other = {.progress = LT_PROGRESS_LINES, .rank = 1};
    temp_write(temp_path(path, folder, "file"), "x", 1);
    assert_status(lt_run_open(&run, path, &off), LT_E_IO);
    assert_null(run);
    assert_ok(lt_run_open(&run, NULL, &off)); /* no folder: only progress */
    step(run, 1);
    lt_run_close(&run);
    assert_ok(lt_run_open(&run, temp_path(path, folder, "rank1"), &other));
    step(run, 1);
    lt_run_close(&run);
    assert_int_not_equal(access(path, F_OK), 0); /* rank 1 writes nothing */
}

/* Output of the progress bar and lines, read from a file instead of a terminal. */
static void test_progress(void **state)
{
    static const lt_metric_label labels[] = {{"top1", "top-1", "%"}};
    const lt_metric metric[] = {{"loss", 2.5}, {"top1", 10}};
    const lt_metric skipped[] = {{"loss", (double)INFINITY}, {"top1", 10}};
    const char *form = *state;
    const bool is_bar = !strcmp(form, "bar"), is_named = strcmp(form, "plain") != 0;
    char path[TEMP_PATH];
    lt_bar bar;
    const lt_run_config config = {.progress = is_bar ? LT_PROGRESS_BAR : LT_PROGRESS_LINES,
                                  .unit = is_named ? "images" : NULL,
                                  .unit_short = is_named ? "img" : NULL,
                                  .label = labels,
                                  .labels = is_named ? COUNT_OF(labels) : 0,
                                  .log_every = 2,
                                  .total_steps = 3,
                                  .steps_per_epoch = 3,
                                  .total_epochs = 1};
    FILE *out = fopen(temp_path(path, folder, "shown"), "w");
    assert_non_null(out);
    setenv("COLUMNS", is_bar ? "50" : "200", 1);
    lt_bar_begin(&bar, out, &config);
    for (int64_t i = 1; i <= 3; i++)
        lt_bar_step(&bar, &(lt_run_step_record){.step = i,
                                                .metric = i == 2 ? skipped : metric,
                                                .metrics = 2,
                                                .samples = 64,
                                                .seconds = 90,
                                                .data_seconds = 9});
    lt_bar_line(&bar, "a note");
    lt_bar_end(&bar);
    fclose(out);
    unsetenv("COLUMNS");
    char *text = temp_read(path, NULL);
    if (is_bar) {
        assert_non_null(strstr(text, "epoch 1/1 [####################] 100 %  loss"));
        assert_non_null(strstr(text, "\r\033[Ka note\n")); /* above the bar */
        for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
            assert_true(strlen(line) <= 50 + 3);
        assert_null(strstr(text, "\033[36m")); /* no colours in a file */
    } else {
        assert_non_null(strstr(text, is_named ? "epoch 1/1  step 1/3  loss 2.5000  top-1 10.00 %  "
                                                "0.7 img/s  data 10 %  eta 3:00\n"
                                              : "epoch 1/1  step 1/3  loss 2.5000  top1 10.0000  "
                                                "0.7 samples/s  data 10 %  eta 3:00\n"));
        assert_non_null(strstr(text, "step 3/3  loss 2.5000"));
        assert_null(strchr(text, '\r'));
    }
    free(text);
}

/* Returns the output of a bar or of lines for steps from..to. */
static char *shown(const lt_run_config *config, int64_t from, int64_t to)
{
    char path[TEMP_PATH];
    const lt_metric metric[] = {{"loss", 2.5}};
    lt_bar bar;
    FILE *out = fopen(temp_path(path, folder, "shown"), "w");
    assert_non_null(out);
    setenv("COLUMNS", "200", 1);
    lt_bar_begin(&bar, out, config);
    for (int64_t i = from; i <= to; i++)
        lt_bar_step(&bar,
                    &(lt_run_step_record){
                        .step = i, .epoch = 2, .metric = metric, .metrics = 1, .samples = 64});
    lt_bar_draw_part(&bar, "validation", to, 4);
    lt_bar_end(&bar);
    fclose(out);
    unsetenv("COLUMNS");
    return temp_read(path, NULL);
}

static void test_share_of_epoch(void **state)
{
    static const struct {
        int64_t step, per_epoch, offset, total, epochs;
        const char *text;
    } rows[] = {
        {3, 4, 0, 9, 5, "epoch 3/5 [###############.....]  75 %  loss"},
        {4, 4, 0, 9, 5, "epoch 3/5 [####################] 100 %  loss"},
        {5, 4, 0, 9, 0, "epoch 3 [#####...............]  25 %  loss"},
        {5, 4, 2, 9, 5, "epoch 3/5 [###############.....]  75 %  loss"},
        {2, 0, 0, 8, 0, "epoch 3 [#####...............]  25 %  loss"},
        {2, 0, 0, 0, 0, "epoch 3 [....................]   0 %  loss"},
        {9, 0, 0, 8, 0, "epoch 3 [####################] 100 %  loss"},
        {4, 4, 0, 9, 5, "validation [####################] 100 %"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_run_config config = {.progress = LT_PROGRESS_BAR,
                                      .total_steps = rows[i].total,
                                      .steps_per_epoch = rows[i].per_epoch,
                                      .step_offset = rows[i].offset,
                                      .total_epochs = rows[i].epochs};
        char *text = shown(&config, rows[i].step, rows[i].step);
        if (!strstr(text, rows[i].text))
            fail_msg("'%s' has no '%s'", text, rows[i].text);
        free(text);
    }
}

static void test_lines_of_steps(void **state)
{
    const lt_run_config config = {.progress = LT_PROGRESS_LINES, .log_every = 3};
    (void)state;
    char *text = shown(&config, 1, 7);
    static const char *const want[] = {"step 1  loss", "step 3  loss", "step 6  loss"};
    for (size_t i = 0; i < COUNT_OF(want); i++)
        assert_non_null(strstr(text, want[i]));
    size_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, COUNT_OF(want));
    free(text);
}

static void test_durations(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(lt_duration_text(0, text), "0:00");
    assert_string_equal(lt_duration_text(59.6, text), "1:00");
    assert_string_equal(lt_duration_text(3723, text), "1:02:03");
    assert_string_equal(lt_duration_text((double)NAN, text), "0:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"metrics.jsonl has the documented keys", test_metrics, temp_setup, temp_teardown, NULL},
        {"a resumed run continues from its checkpoint", test_resume, temp_setup, temp_teardown,
         NULL},
        {"an epoch's record is replaced when resuming", test_redo, temp_setup, temp_teardown, NULL},
        {"env.json and bad_images.txt", test_env, temp_setup, temp_teardown, NULL},
        {"env.json names the commit of the working folder", test_env_of_a_repository, temp_setup,
         temp_teardown, NULL},
        {"frames and checksums of the event file", test_events, temp_setup, temp_teardown, NULL},
        {"invalid folders, and ranks above 0", test_folder, temp_setup, temp_teardown, NULL},
        {"progress in lines", test_progress, temp_setup, temp_teardown, (char[]){"lines"}},
        {"progress in lines, without labels", test_progress, temp_setup, temp_teardown,
         (char[]){"plain"}},
        {"progress as a bar", test_progress, temp_setup, temp_teardown, (char[]){"bar"}},
        {"the bar shows a step's share of its epoch", test_share_of_epoch, temp_setup,
         temp_teardown, NULL},
        {"the first and every n-th step has a line", test_lines_of_steps, temp_setup, temp_teardown,
         NULL},
        {"durations", test_durations, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
