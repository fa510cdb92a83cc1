/* Ownership of a run folder: lock, id, renaming an earlier run; checkpoints of other runs are not touched. */

#include "lather/detail/run_folder.h"

#include "base/os.h"
#include "temp_folder.h"
#include "train/run/metrics.h"

#include "lather/checkpoint.h"
#include "lather/detail/run.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void write_text(const char *name, const char *text)
{
    char path[TEMP_PATH];
    temp_write(temp_path(path, folder, name), text, strlen(text));
}

static void test_id(void **state)
{
    (void)state;
    char a[LT_RUN_ID], b[LT_RUN_ID], got[LT_RUN_ID];
    assert_ok(lt_run_new_id(a));
    assert_ok(lt_run_new_id(b));
    assert_int_equal(strspn(a, "0123456789abcdef"), LT_RUN_ID - 1);
    assert_string_not_equal(a, b);
    lt_run *run = NULL;
    const lt_run_config c = {.progress = LT_PROGRESS_OFF, .no_tensorboard = true, .id = a};
    assert_ok(lt_run_open(&run, folder, &c));
    assert_ok(lt_run_event(run, "resume", 7, "changed", "lr \"0.1\""));
    lt_run_close(&run);
    lt_run_read_id(folder, got);
    assert_string_equal(a, got);
    char path[TEMP_PATH], want[256];
    char *text = temp_read(temp_path(path, folder, "metrics.jsonl"), NULL);
    snprintf(want, sizeof want,
             "{\"event\":\"resume\",\"step\":7,\"changed\":\"lr \\\"0.1\\\"\",\"run\":\"%s\"}\n",
             a);
    assert_string_equal(text, want);
    free(text);
    write_text("env.json",
               "{\"run\":\"..\\u001b[2J\"}"); /* invalid id with terminal control characters */
    lt_run_read_id(folder, got);
    assert_string_equal(got, "");
    write_text("env.json",
               "{\"run\":\"0123456789abcdef0123456789abcdefg\"}"); /* one digit too many */
    lt_run_read_id(folder, got);
    assert_string_equal(got, "");
    assert_int_equal(unlink(temp_path(path, folder, "env.json")), 0);
    lt_run_read_id(folder, got);
    assert_string_equal(got, "");
}

/* The portable form's locks exclude processes only. */
static void skip_without_thread_locks(void)
{
    if (LT_LINUX)
        return;
    print_message("SKIP: the portable form's locks do not exclude threads of one process\n");
    skip();
}

static void test_lock(void **state)
{
    (void)state;
    skip_without_thread_locks();
    char run[TEMP_PATH], other[TEMP_PATH], says[64];
    lt_run_lock *a = NULL, *b = NULL, *c = NULL;
    temp_path(run, folder, "run");
    assert_ok(lt_run_lock_open(&a, run, NULL));
    assert_status(lt_run_lock_open(&b, run, NULL), LT_E_IO);
    assert_null(b);
    snprintf(says, sizeof says, "is being written by pid %ld on ", (long)getpid());
    assert_non_null(strstr(lt_error_message(), says));
    assert_ok(lt_run_lock_open(&c, temp_path(other, folder, "other"), NULL)); /* control */
    assert_true(temp_exists("run/lock"));
    lt_run_lock_close(&a);
    assert_null(a);
    assert_false(temp_exists("run")); /* it was created only for the lock */
    assert_ok(lt_run_lock_open(&b, run, NULL));
    write_text("run/metrics.jsonl", "{}\n");
    lt_run_lock_close(&b);
    assert_true(temp_exists("run/metrics.jsonl") && !temp_exists("run/lock"));
    const lt_run_lock_config is_new = {.is_new = true};
    assert_status(lt_run_lock_open(&a, run, &is_new), LT_E_ARG);
    assert_false(temp_exists("run/lock"));
    lt_run_lock_close(&c);
}

/* A second lock on the same folder, with a different name; and asking who holds the first. */
static void test_named_lock(void **state)
{
    (void)state;
    skip_without_thread_locks();
    char run[TEMP_PATH];
    lt_run_lock *writer = NULL, *reader = NULL, *second = NULL;
    const lt_run_lock_config named = {.name = "lock-eval", .doing = "evaluated"};
    temp_path(run, folder, "named");
    assert_false(lt_run_lock_is_held(run));
    assert_ok(lt_run_lock_open(&reader, run, &named));
    assert_false(lt_run_lock_is_held(run));
    assert_ok(lt_run_lock_open(&writer, run, NULL));
    assert_true(lt_run_lock_is_held(run) && lt_run_lock_is_held(run));
    assert_status(lt_run_lock_open(&second, run, &named), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "is being evaluated by pid"));
    lt_run_lock_close(&writer);
    assert_false(lt_run_lock_is_held(run));
    write_text("named/lock", "pid 1 on nowhere\n"); /* left by a killed process */
    assert_false(lt_run_lock_is_held(run));
    lt_run_lock_close(&reader);
}

/* Runs in a child process: holds the lock until killed, or until the test exits. */
static void hold(const char *run, int ready, int parent)
{
    char byte;
    lt_run_lock *lock = NULL;
    if (!lt_run_lock_open(&lock, run, NULL) && write(ready, "x", 1) == 1)
        (void)!read(parent, &byte, 1);
    _exit(1);
}

static void test_stale(void **state)
{
    (void)state;
    char run[TEMP_PATH], byte;
    lt_run_lock *lock = NULL;
    int ready[2], parent[2];
    temp_path(run, folder, "run");
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(parent), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        close(parent[1]);
        hold(run, ready[1], parent[0]);
    }
    close(ready[1]); /* so that a failing child ends the wait */
    close(parent[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_status(lt_run_lock_open(&lock, run, NULL), LT_E_IO);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(temp_exists("run/lock"));
    assert_ok(lt_run_lock_open(&lock, run, NULL));
    lt_run_lock_close(&lock);
    close(ready[0]);
    close(parent[1]);
}

static void test_used(void **state)
{
    (void)state;
    char path[TEMP_PATH], to[TEMP_PATH];
    assert_false(lt_run_is_used(folder));
    assert_false(lt_run_is_used(temp_path(path, folder, "none")));
    write_text("config.yaml", "lr: 1\n"); /* could be the user's */
    write_text("metrics.jsonl", "");      /* killed before its first step */
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints"), 0777), 0);
    assert_false(lt_run_is_used(folder));
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints/step-3"), 0777), 0);
    assert_true(lt_run_is_used(folder));
    write_text("mine.txt", "x");
    write_text("events.out.tfevents.1.host.2", "x");
    assert_int_equal(mkdir(temp_path(path, folder, "old-1"), 0777), 0);
    assert_fails(lt_run_rename_old(folder, to, 8), LT_E_ARG, "run: a path of 8 bytes is too small");
    assert_ok(lt_run_rename_old(folder, to, sizeof to));
    assert_string_equal(to, temp_path(path, folder, "old-2"));
    assert_true(temp_exists("mine.txt") && temp_exists("old-2/config.yaml")
                && temp_exists("old-2/metrics.jsonl"));
    assert_true(temp_exists("old-2/checkpoints/step-3")
                && temp_exists("old-2/events.out.tfevents.1.host.2"));
    assert_false(lt_run_is_used(folder) || temp_exists("config.yaml"));
    assert_ok(lt_run_rename_old(folder, to, sizeof to)); /* nothing left to move */
    assert_string_equal(to, "");
    assert_false(temp_exists("old-3"));
}

/* Saves a checkpoint of a run without parameters. */
static void save(const char *run, int64_t step, int keep)
{
    const lt_params none = {0};
    const lt_checkpoint_contents parts = {.params = &none};
    const lt_checkpoint_policy policy = {.keep = keep};
    lt_checkpoint_state state = {.step = step, .loss_scale = 1, .best = -1};
    snprintf(state.run, sizeof state.run, "%s", run);
    assert_ok(lt_checkpoint_save(folder, &parts, &state, &policy));
}

static void assert_newest(const char *want)
{
    char path[TEMP_PATH], is[TEMP_PATH];
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_string_equal(path, temp_path(is, folder, want));
}

static void test_other_runs(void **state)
{
    (void)state;
    char a[LT_RUN_ID], b[LT_RUN_ID], path[TEMP_PATH];
    assert_ok(lt_run_new_id(a));
    assert_ok(lt_run_new_id(b));
    for (int64_t step = 40; step <= 120; step += 40)
        save(a, step, 0);
    save(b, 30, 0);
    save(b, 50, 2);
    assert_newest("checkpoints/step-50"); /* not the other's 120 */
    save(b, 60, 2);
    assert_false(temp_exists("checkpoints/step-30"));
    assert_true(temp_exists("checkpoints/step-40") && temp_exists("checkpoints/step-120"));
    temp_write(temp_path(path, folder, "checkpoints/step-60/optim.safetensors"), "x", 1);
    assert_newest("checkpoints/step-50"); /* its newest valid one */
    temp_write(temp_path(path, folder, "checkpoints/step-50/optim.safetensors"), "x", 1);
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    assert_int_equal(unlink(temp_path(path, folder, "checkpoints/latest")), 0);
    assert_newest("checkpoints/step-120"); /* the folder's owner is unknown */
    snprintf(path, sizeof path, "{\"run\":\"%s\"}", b);
    write_text("env.json", path);
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    write_text("env.json", "{\"run\":\"0123456789abcdef0123456789abcdef\"}");
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "none is of run 0123456789abcdef"));
}

/* Resumed from step 4 when steps 6 and 8 exist: those are ignored but kept. */
static void test_went_back(void **state)
{
    (void)state;
    char a[LT_RUN_ID];
    assert_ok(lt_run_new_id(a));
    for (int64_t step = 2; step <= 8; step += 2)
        save(a, step, 0);
    save(a, 5, 2);
    assert_newest("checkpoints/step-5");
    assert_true(temp_exists("checkpoints/step-4") && temp_exists("checkpoints/step-8"));
    assert_false(temp_exists("checkpoints/step-2"));
    save("", 9, 2); /* written by an earlier version */
    assert_newest("checkpoints/step-9");
}

/* Each file of a run is a symbolic link, planted before the run. */
static void test_links(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        lt_status lock, open, image;
    } rows[] = {
        {"lock", LT_E_IO, LT_OK, LT_OK},           {"env.json", LT_OK, LT_OK, LT_OK},
        {"metrics.jsonl", LT_OK, LT_OK, LT_OK},    {"metrics-eval.jsonl", LT_OK, LT_OK, LT_OK},
        {"bad_images.txt", LT_OK, LT_OK, LT_E_IO},
    };
    char victim[TEMP_PATH], path[TEMP_PATH];
    temp_write(temp_path(victim, folder, "victim"), "broken\n", 7);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_run_config c = {.progress = LT_PROGRESS_OFF, .no_tensorboard = true};
        lt_run_lock *lock = NULL;
        lt_run *run = NULL;
        unlink(temp_path(path, folder, rows[i].name));
        assert_int_equal(symlink(victim, path), 0);
        assert_status(lt_run_lock_open(&lock, folder, NULL), rows[i].lock);
        lt_run_lock_close(&lock);
        assert_status(lt_run_open(&run, folder, &c), rows[i].open);
        assert_status(lt_run_bad_image(run, "broken"),
                      rows[i].image); /* not read from the link's target */
        assert_ok(lt_run_event(run, "resume", 7, NULL, NULL));
        lt_run_close(&run);
        char *text = temp_read(victim, NULL);
        assert_string_equal(text, "broken\n");
        free(text);
        unlink(path);
    }
}

static void test_pipes(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    lt_run_lock *lock = NULL;
    bool found;
    assert_int_equal(mkfifo(temp_path(path, folder, "lock"), 0666), 0);
    assert_false(lt_run_lock_is_held(folder));
    assert_status(lt_run_lock_open(&lock, folder, NULL), LT_E_IO);
    assert_int_equal(mkfifo(temp_path(path, folder, "metrics.jsonl"), 0666), 0);
    assert_status(lt_metrics_rewind(path, 3, false, NULL), LT_E_IO);
    assert_status(lt_metrics_has_evaluation(path, "", 3, &found), LT_E_IO);
}

/* Folders with names that saving never produces are not checkpoints. */
static void test_stray_names(void **state)
{
    (void)state;
    static const char *const names[] = {"step-01", "step-+1", "step-1x",
                                        "step-99999999999999999999"};
    char a[LT_RUN_ID], path[TEMP_PATH], name[64];
    assert_ok(lt_run_new_id(a));
    for (int64_t step = 1; step <= 5; step++) {
        save(a, step, 2);
        for (size_t i = 0; i < COUNT_OF(names) && step == 1; i++) {
            snprintf(name, sizeof name, "checkpoints/%s", names[i]);
            assert_int_equal(mkdir(temp_path(path, folder, name), 0777), 0);
        }
    }
    assert_newest("checkpoints/step-5");
    assert_true(temp_exists("checkpoints/step-4") && temp_exists("checkpoints/step-01"));
    assert_false(temp_exists("checkpoints/step-3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a run's id is random, and written to env.json and records", test_id, temp_setup,
         temp_teardown, NULL},
        {"a lock with another name, and who holds the first", test_named_lock, temp_setup,
         temp_teardown, NULL},
        {"a second lock fails and names the holder", test_lock, temp_setup, temp_teardown, NULL},
        {"the lock of a killed process is acquired", test_stale, temp_setup, temp_teardown, NULL},
        {"an earlier run is renamed, other files are not moved", test_used, temp_setup,
         temp_teardown, NULL},
        {"checkpoints of another run are neither loaded nor removed", test_other_runs, temp_setup,
         temp_teardown, NULL},
        {"symbolic links in place of a run's files are not followed", test_links, temp_setup,
         temp_teardown, NULL},
        {"pipes in place of a run's files do not block", test_pipes, temp_setup, temp_teardown,
         NULL},
        {"a folder with an invalid checkpoint name is kept", test_stray_names, temp_setup,
         temp_teardown, NULL},
        {"checkpoints newer than the latest link are kept", test_went_back, temp_setup,
         temp_teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
