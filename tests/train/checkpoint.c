/* Checkpoints: a loaded checkpoint is bitwise identical to the saved one, damage is detected, saving is atomic. */

#include "base/alloc.h"
#include "temp_folder.h"
#include "tiny.h"

#include "lather/log.h"
#include "lather/safetensors.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char logged[4096];

static void assert_same(const lt_tensor *a, const lt_tensor *b)
{
    unsigned char x[512], y[512];
    size_t bytes = lt_tensor_bytes(a);
    assert_true(bytes <= sizeof x);
    assert_ok(lt_tensor_read(a, x, bytes));
    assert_ok(lt_tensor_read(b, y, bytes));
    assert_memory_equal(x, y, bytes);
}

static void assert_same_runs(const run *a, const run *b)
{
    for (int i = 0; i < PARAMS; i++)
        assert_same(a->param[i].value, b->param[i].value);
    assert_same(a->ema, b->ema);
}

static void keep_log(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)context;
    (void)level;
    (void)area;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

static int setup(void **state)
{
    temp_setup(state);
    logged[0] = 0;
    lt_log_set(keep_log, NULL);
    return 0;
}

static int teardown(void **state)
{
    lt_log_set(NULL, NULL);
    return temp_teardown(state);
}

static void save(run *r, int keep, bool is_best)
{
    const lt_checkpoint_policy policy = {.keep = keep, .is_best = is_best};
    assert_ok(lt_checkpoint_save(folder, &r->parts, &r->state, &policy));
}

/* Six steps give the same result as three steps, a save, a load, and three more. */
static void test_resume(void **state)
{
    const char *optim = *state;
    char path[TEMP_PATH];
    run a, b;
    run_open(&a, optim, 5);
    run_open(&b, optim, 5);
    for (int i = 0; i < 3; i++)
        run_step(&a);
    a.state.sum[0].value = 0.1 + 0.2;
    a.state.best = -(double)INFINITY;
    save(&a, 0, false);
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_ok(lt_checkpoint_load(path, &b.parts, &b.state));
    assert_memory_equal(&a.state, &b.state, sizeof a.state);
    assert_same_runs(&a, &b);
    for (int i = 0; i < 3; i++) {
        run_step(&a);
        run_step(&b);
    }
    assert_same_runs(&a, &b);
    run_close(&b);
    run_open(&b, optim, 5); /* control: without the state the runs diverge */
    for (int i = 0; i < PARAMS; i++)
        assert_ok(lt_tensor_copy(b.param[i].value, a.param[i].value));
    b.state.step = 6;
    run_step(&a);
    run_step(&b);
    float x[20], y[20];
    assert_ok(lt_tensor_read(a.param[3].value, x, sizeof x));
    assert_ok(lt_tensor_read(b.param[3].value, y, sizeof y));
    assert_memory_not_equal(x, y, sizeof x);
    run_close(&a);
    run_close(&b);
}

/* Threads, ranks and mode of the run that saves and of the one that loads; 0: unknown. */
static void test_differences(void **state)
{
    static const struct {
        int threads[2], ranks[2];
        bool reproducible[2];
        const char *says; /* NULL: nothing */
    } rows[] = {
        {{4, 4}, {2, 2}, {false, false}, NULL},
        {{4, 0}, {2, 0}, {false, false}, NULL},
        {{4, 8}, {2, 2}, {true, true}, NULL},
        {{4, 4}, {2, 3}, {true, true}, NULL},
        {{4, 8}, {2, 2}, {false, false}, "saved with 4 threads, this run has 8\n"},
        {{4, 4}, {2, 1}, {false, false}, "saved with 2 ranks, this run has 1\n"},
        {{4, 4}, {2, 2}, {true, false}, "saved with --reproducible, this run is without it: "},
        {{4, 4}, {2, 2}, {false, true}, "saved without --reproducible, this run is with it: "},
        {{4, 8}, {2, 2}, {true, false}, "saved with 4 threads, this run has 8\n"},
    };
    char path[TEMP_PATH];
    run r;
    (void)state;
    run_open(&r, "adam", 5);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (int loads = 0; loads < 2; loads++) {
            r.state.threads = rows[i].threads[loads];
            r.state.ranks = rows[i].ranks[loads];
            r.state.reproducible = rows[i].reproducible[loads];
            logged[0] = 0;
            if (!loads)
                save(&r, 0, false);
            assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
        }
        assert_ok(lt_checkpoint_load(path, &r.parts, &r.state));
        if (rows[i].says ? !strstr(logged, rows[i].says) : strstr(logged, "this run") != NULL)
            fail_msg("row %zu: '%s'", i, logged);
    }
    run_close(&r);
}

static void test_keep(void **state)
{
    (void)state;
    run r;
    run_open(&r, "adam", 5);
    for (int i = 0; i < 5; i++) {
        run_step(&r);
        save(&r, 2, i == 1);
    }
    assert_false(temp_exists("checkpoints/step-1"));
    assert_true(temp_exists("checkpoints/step-2")); /* best */
    assert_false(temp_exists("checkpoints/step-3"));
    assert_true(temp_exists("checkpoints/step-4"));
    char path[TEMP_PATH];
    lt_checkpoint_state got = {0};
    assert_ok(lt_checkpoint_verify(temp_path(path, folder, "checkpoints/latest"), &got));
    assert_int_equal(got.step, 5);
    assert_ok(lt_checkpoint_verify(temp_path(path, folder, "checkpoints/best"), &got));
    assert_int_equal(got.step, 2);
    save(&r, 2, false); /* saving the same step again replaces it */
    assert_ok(lt_checkpoint_verify(temp_path(path, folder, "checkpoints/latest"), &got));
    run_close(&r);
}

/* Flips one bit, or truncates, each file at many offsets; verification detects each. */
static void test_damage(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "optim.safetensors", "state.json"};
    char path[TEMP_PATH], file[TEMP_PATH];
    run r;
    lt_checkpoint_state got = {0};
    run_open(&r, "adam", 5);
    run_step(&r);
    save(&r, 0, false);
    temp_path(path, folder, "checkpoints/step-1");
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        size_t bytes;
        char *data = temp_read(temp_path(file, path, names[n]), &bytes);
        for (size_t at = 0; at < bytes; at += bytes / 61 + 1) {
            data[at] ^= 4;
            temp_write(file, data, bytes);
            assert_status(lt_checkpoint_verify(path, &got), LT_E_FORMAT);
            data[at] ^= 4;
            temp_write(file, data, at);
            assert_status(lt_checkpoint_verify(path, &got), LT_E_FORMAT);
        }
        temp_write(file, data, bytes);
        assert_ok(lt_checkpoint_verify(path, &got)); /* the control */
        assert_int_equal(unlink(file), 0);
        assert_status(lt_checkpoint_verify(path, &got), LT_E_IO);
        temp_write(file, data, bytes);
        free(data);
    }
    run_close(&r);
}

static void test_fall_back(void **state)
{
    (void)state;
    char path[TEMP_PATH], file[TEMP_PATH];
    run r;
    run_open(&r, "adam", 5);
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_END);
    for (int i = 0; i < 2; i++) {
        run_step(&r);
        save(&r, 0, false);
    }
    temp_write(temp_path(file, folder, "checkpoints/step-2/model.safetensors"), "x", 1);
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_non_null(strstr(path, "step-1"));
    assert_non_null(strstr(logged, "DAMAGED CHECKPOINT"));
    temp_write(temp_path(file, folder, "checkpoints/step-1/state.json"), "x", 1);
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    temp_write(file, "twenty-one characters", 21); /* a byte less than a checksum has */
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    assert_non_null(strstr(logged, "21 bytes: truncated"));
    temp_write(file, "twenty-two characters.", 22);
    assert_status(lt_checkpoint_newest(folder, path, sizeof path), LT_E_FORMAT);
    assert_non_null(strstr(logged, "its checksum does not match"));
    run_close(&r);
}

/* Checks the errors, and that a failed load changes nothing. */
static void test_another_model(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    run a, b, c;
    run_open(&a, "adam", 5);
    run_open(&b, "adam", 7);
    run_open(&c, "shampoo", 5);
    run_step(&a);
    save(&a, 0, false);
    temp_path(path, folder, "checkpoints/latest");
    assert_status(lt_checkpoint_load(path, &b.parts, &b.state), LT_E_SHAPE);
    assert_non_null(strstr(lt_error_message(), "'fc.weight' is [5,4], but the model needs [7,4]"));
    double value;
    assert_ok(lt_tensor_item(b.param[2].value, &value));
    assert_near(value, 0, 0.5); /* still the initial value, 0.25 * 2 as a count */
    assert_status(lt_checkpoint_load(path, &c.parts, &c.state), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "state of optimizer adam, this run uses shampoo"));
    a.parts.extra_count = 0; /* the file has state that the run does not read */
    assert_status(lt_checkpoint_load(path, &a.parts, &a.state), LT_E_FORMAT);
    run_close(&a);
    run_close(&b);
    run_close(&c);
}

/* RLIMIT_FSIZE gives EFBIG, which is handled like ENOSPC. */
static void test_full_disk(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    struct rlimit old, small;
    run r;
    run_open(&r, "adam", 5);
    run_step(&r);
    save(&r, 0, false);
    run_step(&r);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < 700; limit += 100) {
        small = old;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        lt_status st = lt_checkpoint_save(folder, &r.parts, &r.state, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_status(st, LT_E_IO);
        assert_int_equal(temp_count(folder, "checkpoints"), 2); /* step-1 and latest */
    }
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_non_null(strstr(path, "step-1"));
    save(&r, 0, false); /* the disk has space again */
    assert_true(temp_exists("checkpoints/step-2"));
    run_close(&r);
}

/* The temporary folders of a killed save are removed by the next one, and never loaded as checkpoints. */
static void test_stale(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    run r;
    run_open(&r, "adam", 5);
    run_step(&r);
    save(&r, 0, false);
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints/step-9.tmp-999999999"), 0777), 0);
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints/step-9.old.tmp-1"), 0777), 0);
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints/mine.tmp-999999999"), 0777), 0);
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_non_null(strstr(path, "step-1"));
    lt_checkpoint_clean(folder);
    assert_false(temp_exists("checkpoints/step-9.tmp-999999999"));
    assert_false(
        temp_exists("checkpoints/step-9.old.tmp-1")); /* PID 1 belongs to a running process */
    assert_true(temp_exists("checkpoints/mine.tmp-999999999"));
    run_close(&r);
}

/* A process killed before it made the links, or while it removed the checkpoint that it replaces. */
static void test_mend(void **state)
{
    (void)state;
    char path[TEMP_PATH], target[TEMP_PATH];
    run r;
    run_open(&r, "adam", 5);
    for (int i = 0; i < 3; i++) {
        run_step(&r);
        save(&r, 0, i == 0);
    }
    r.state.best = 50;
    r.state.best_step = 3;
    assert_int_equal(unlink(temp_path(path, folder, "checkpoints/latest")), 0);
    assert_int_equal(mkdir(temp_path(path, folder, "checkpoints/step-3.tmp-999999999"), 0777), 0);
    assert_ok(lt_checkpoint_repair(folder, &r.state));
    assert_false(temp_exists("checkpoints/step-3.tmp-999999999"));
    for (int i = 0; i < 2; i++) {
        temp_path(path, folder, i ? "checkpoints/best" : "checkpoints/latest");
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        assert_int_equal(bytes, 6);
        assert_memory_equal(target, "step-3", 6);
    }
    r.state.best_step = 9; /* does not exist: the link is unchanged */
    assert_ok(lt_checkpoint_repair(folder, &r.state));
    assert_int_equal(readlink(path, target, sizeof target), 6);
    assert_memory_equal(target, "step-3", 6);
    run_close(&r);
}

/* Fails each allocation once: saving and loading return the error, leave no partial files, and then succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    enum { MOST = 10000 };
    char path[TEMP_PATH];
    run a, b;
    run_open(&a, "adam", 5);
    run_open(&b, "adam", 5);
    run_step(&a);
    lt_status st = LT_E_NOMEM;
    int64_t n;
    for (n = 1; st && n < MOST; n++) {
        lt_alloc_fail_at(n);
        st = lt_checkpoint_save(folder, &a.parts, &a.state, NULL);
        lt_alloc_fail_at(0);
        if (st)
            assert_status(st, LT_E_NOMEM);
    }
    assert_in_range(n, 20, MOST - 1);
    assert_int_equal(temp_count(folder, "checkpoints"), 2); /* step-1 and latest */
    temp_path(path, folder, "checkpoints/latest");
    for (st = LT_E_NOMEM, n = 1; st && n < MOST; n++) {
        lt_alloc_fail_at(n);
        st = lt_checkpoint_load(path, &b.parts, &b.state);
        lt_alloc_fail_at(0);
        if (st)
            assert_status(st, LT_E_NOMEM);
    }
    assert_in_range(n, 20, MOST - 1);
    assert_same_runs(&a, &b);
    run_close(&a);
    run_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a resumed run is bitwise identical: adam", test_resume, setup, teardown,
         (char[]){"adam"}},
        {"a resumed run is bitwise identical: shampoo", test_resume, setup, teardown,
         (char[]){"shampoo"}},
        {"another number of threads or ranks, or another mode, is logged", test_differences, setup,
         teardown, NULL},
        {"the newest and the best checkpoint are kept", test_keep, setup, teardown, NULL},
        {"a flipped bit or a truncation is detected anywhere", test_damage, setup, teardown, NULL},
        {"a damaged checkpoint is skipped with a warning", test_fall_back, setup, teardown, NULL},
        {"a different class count, optimizer or set of state fails", test_another_model, setup,
         teardown, NULL},
        {"a full disk leaves the last checkpoint intact", test_full_disk, setup, teardown, NULL},
        {"leftovers of a killed save are removed", test_stale, setup, teardown, NULL},
        {"links missing after a kill are restored", test_mend, setup, teardown, NULL},
        {"each allocation fails once", test_no_memory, setup, teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
