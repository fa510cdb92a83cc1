/* The files of a run in which one call for a file fails: the error names the file, and the next attempt works. */

#include "lather/detail/run.h"

#include "base/atomic_dir.h"
#include "faults.h"
#include "temp_folder.h"
#include "train/run/metrics.h"
#include "train/run/stats_file.h"

#include "lather/detail/run_folder.h"

FAULT_WRAP(FAULT_FILE, -1, int, unlink, (const char *p), (p));
FAULT_WRAP(FAULT_FILE, -1, int, truncate64, (const char *p, int64_t bytes), (p, bytes));
FAULT_WRAP(FAULT_FILE, -1, int, fseek, (FILE * f, long at, int from), (f, at, from));
FAULT_WRAP(FAULT_FILE, -1, int, stat64, (const char *p, void *info), (p, info));
FAULT_WRAP(FAULT_FILE, -1 + fault_broke(f), ssize_t, __getdelim,
           (char **to, size_t *size, int end, FILE *f), (to, size, end, f));

static char path[TEMP_PATH]; /* the run */

static lt_status write_steps(int64_t from, int64_t to)
{
    char id[] = "0123456789abcdef0123456789abcdef";
    lt_run *run = NULL;
    lt_run_lock *lock = NULL;
    const lt_run_config c = {.progress = LT_PROGRESS_OFF, .resume_step = from, .id = id};
    const lt_metric loss = {"loss", 1};
    LT_TRY(lt_run_lock_open(&lock, path, NULL));
    lt_status st = lt_run_open(&run, path, &c);
    for (int64_t i = from + 1; i <= to && !st; i++)
        st = lt_run_step(run, &(lt_run_step_record){.step = i, .metric = &loss, .metrics = 1});
    lt_run_close(&run);
    lt_run_lock_close(&lock);
    return st;
}

/* The header is the number of columns. */
static lt_status write_statistics(int columns, int64_t step)
{
    char json[96];
    FILE *file = NULL;
    const float value[] = {1, 2};
    snprintf(json, sizeof json, "{\"tables\":[{\"columns\":[%s],\"rows\":[\"r\"]}]}",
             columns == 1 ? "\"a\"" : "\"a\",\"b\"");
    lt_status st = lt_stats_file_open(&file, path, json);
    if (!st)
        st = lt_stats_file_write(file, step, value, (size_t)columns);
    if (file)
        fclose(file);
    return st;
}

static void begin(void *context)
{
    (void)context;
    assert_ok(lt_remove_tree(path));
    assert_ok(write_steps(0, 2));
    assert_ok(write_statistics(1, 1));
    assert_ok(write_statistics(1, 2));
}

static lt_status resume(void *context)
{
    bool found;
    char records[2 * TEMP_PATH];
    (void)context;
    LT_TRY(write_steps(1, 3));
    LT_TRY(write_statistics(2, 2));
    snprintf(records, sizeof records, "%s/metrics.jsonl", path);
    return lt_metrics_has_evaluation(records, "", 1, &found);
}

static lt_status start_again(void *context)
{
    char old[2 * TEMP_PATH];
    (void)context;
    LT_TRY(lt_run_rename_old(path, old, sizeof old));
    return write_steps(0, 1);
}

static void after(void *context, lt_status st)
{
    const fault_case *c = fault_running;
    if (st && *lt_error_message() != '/' && !strstr(lt_error_message(), "optim_stats.bin: "))
        fail_msg("%s: '%s', without the file", c->name, lt_error_message());
    assert_ok(c->act(context));
}

static void an_error_names_the_file(void **state)
{
    fault_case c = *(const fault_case *)*state;
    temp_path(path, folder, "run");
    c.kinds = FAULT_FILE;
    c.open = begin;
    c.after = after;
    c.frees_others = true; /* the line of getline() */
    c.least = 10;
    (void)faults_each(&c);
}

int main(void)
{
    /* A description of the machine may be absent, a temporary file or a lock may remain, and lines are flushed earlier. */
    static const char survives[] = " fclose fopen64 fstat64 opendir stat64 unlink ";
    static fault_case rows[] = {
        {.name = "resumed", .act = resume, .survives = survives},
        {.name = "started again", .act = start_again, .survives = survives},
    };
    const struct CMUnitTest tests[] = {
        {"a resumed run", an_error_names_the_file, temp_setup, temp_teardown, &rows[0]},
        {"a new run", an_error_names_the_file, temp_setup, temp_teardown, &rows[1]},
    };
    return faults_run("faults in the files of a run", tests, COUNT_OF(tests), NULL, NULL);
}
