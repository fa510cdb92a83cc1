/* When the cuda backend asks cuDNN, chooses, and keeps: its plugin with stand-ins for the libraries, which
 * count. */

#include "near.h"
#include "temp.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONDETERMINISTIC = 0, EXACT = 3, SIDE = 6, CHANNELS = 16, BATCH = 2, RUNS = 6 };

typedef struct counts {
    long heuristics, made, loaded, runs, engine;
} counts;

typedef struct fixture {
    const lt_backend *be;
    void *ctx;
    lt_view x, w, y;
    char folder[TEMP_PATH], plans[TEMP_PATH];
} fixture;

static counts count(void)
{
    static void (*read)(counts *);
    counts c;
    if (!read) {
        char path[512];
        const char *folder = getenv("LATHER_PLUGIN_PATH");
        snprintf(path, sizeof path, "%s/liblather-cuda.so", folder);
        void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        assert_non_null(plugin);
        void *found = dlsym(plugin, "standin_dnn_counts");
        assert_non_null(found);
        memcpy(&read, &found, sizeof read);
    }
    read(&c);
    return c;
}

static lt_view tensor(const fixture *f, int64_t n, int64_t c, int64_t side)
{
    lt_view v = {.dtype = LT_F32, .shape = LT_SHAPE(n, c, side, side)};
    const int64_t stride[] = {c * side * side, 1, side * c, c};
    float *host = calloc((size_t)(n * c * side * side), sizeof *host);
    const size_t bytes = (size_t)(n * c * side * side) * sizeof *host;
    memcpy(v.stride, stride, sizeof stride);
    for (int64_t i = 0; i < n * c * side * side; i++)
        host[i] = (float)(i * 37 % 101 - 50) / 64;
    assert_ok(f->be->alloc(f->ctx, bytes, &v.data));
    assert_ok(f->be->copy(f->ctx, v.data, host, bytes, LT_COPY_IN));
    assert_ok(f->be->sync(f->ctx));
    free(host);
    return v;
}

static size_t bytes_of(const lt_view *v)
{
    const int64_t *d = v->shape.dim;
    return (size_t)(d[0] * d[1] * d[2] * d[3]) * sizeof(float);
}

static void open_device(fixture *f, lt_device_config config)
{
    assert_ok(lt_backend_find("cuda", &f->be));
    assert_ok(f->be->open(&f->ctx, 0, &config));
    f->x = tensor(f, BATCH, CHANNELS, SIDE);
    f->w = tensor(f, CHANNELS, CHANNELS, 3);
    f->y = tensor(f, BATCH, CHANNELS, SIDE);
}

static void close_device(fixture *f)
{
    lt_view *const all[] = {&f->x, &f->w, &f->y};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        f->be->free(f->ctx, all[i]->data, bytes_of(all[i]));
    f->be->close(f->ctx);
}

static const lt_conv2d_config config = {1, 1, 1, 1, 1, 1, 1};

static void forward(fixture *f)
{
    assert_ok(f->be->conv2d(f->ctx, &config, &f->x, &f->w, NULL, &f->y));
    assert_ok(f->be->sync(f->ctx));
}

static void gradient_w(fixture *f)
{
    assert_ok(f->be->conv2d_grad_w(f->ctx, &config, &f->y, &f->x, &f->w));
    assert_ok(f->be->sync(f->ctx));
}

static int open_cache(void **state)
{
    static fixture f;
    f = (fixture){0};
    temp_make(f.folder);
    setenv("XDG_CACHE_HOME", f.folder, 1);
    *state = &f;
    return 0;
}

static int close_cache(void **state)
{
    fixture *f = *state;
    temp_remove(f->folder);
    return 0;
}

static void a_shape_is_asked_for_once(void **state)
{
    fixture *f = *state;
    open_device(f, (lt_device_config){0});
    const counts before = count();
    forward(f);
    const counts first = count();
    assert_int_equal(first.heuristics, before.heuristics + 1);
    assert_true(first.made > before.made);
    forward(f);
    const counts second = count();
    assert_int_equal(second.heuristics, first.heuristics);
    assert_int_equal(second.made, first.made);
    assert_int_equal(second.runs, first.runs + 1);
    close_device(f);
}

static void a_plan_is_read_from_disk(void **state)
{
    fixture *f = *state;
    open_device(f, (lt_device_config){0});
    forward(f);
    close_device(f);
    const counts before = count();
    open_device(f, (lt_device_config){0});
    forward(f);
    const counts after = count();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.loaded, before.loaded + 1);
    assert_int_equal(after.runs, before.runs + 1);
    close_device(f);
}

static void count_warnings(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)area;
    *(int *)context += level == LT_LOG_WARN && strstr(text, "does not describe the device");
}

/* A plan's name on disk has the device's description: without one the device works, and keeps its plans
 * in memory alone. */
static void a_device_without_description_keeps_nothing_on_disk(void **state)
{
    fixture *f = *state;
    char folder[TEMP_PATH];
    int warnings = 0;
    lt_log_set(count_warnings, &warnings);
    setenv("LATHER_STANDIN_UNDESCRIBED", "1", 1);
    open_device(f, (lt_device_config){0});
    const counts before = count();
    forward(f);
    forward(f);
    const counts after = count();
    close_device(f);
    unsetenv("LATHER_STANDIN_UNDESCRIBED");
    lt_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_int_equal(after.heuristics, before.heuristics + 1);
    assert_int_not_equal(access(temp_path(folder, f->folder, "lather"), F_OK), 0);
}

/* Cuts each file in the folder to half its size; how many. */
static int cut_files(const char *folder)
{
    char path[1024];
    int found = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *file = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        fseek(file, 0, SEEK_END);
        assert_int_equal(truncate(path, ftell(file) / 2), 0);
        fclose(file);
        found++;
    }
    closedir(d);
    return found;
}

static void a_cut_file_counts_as_absent(void **state)
{
    fixture *f = *state;
    char folder[TEMP_PATH + 16];
    open_device(f, (lt_device_config){0});
    forward(f);
    close_device(f);
    snprintf(folder, sizeof folder, "%s/lather", f->folder);
    assert_true(cut_files(folder) > 0);
    const counts before = count();
    open_device(f, (lt_device_config){0});
    forward(f);
    const counts after = count();
    assert_int_equal(after.heuristics, before.heuristics + 1);
    assert_int_equal(after.loaded, before.loaded);
    close_device(f);
}

/* Plans of another setting are not found under this one's name. */
static void settings_have_plans_of_their_own(void **state)
{
    fixture *f = *state;
    open_device(f, (lt_device_config){.tf32 = true});
    forward(f);
    assert_int_not_equal(count().engine, NONDETERMINISTIC);
    close_device(f);
    const counts before = count();
    open_device(f, (lt_device_config){0});
    forward(f);
    const counts after = count();
    assert_int_equal(after.heuristics, before.heuristics + 1);
    assert_int_equal(after.engine, EXACT); /* no tensor cores, no transforms */
    close_device(f);
}

static void deterministic_results_have_the_same_bits(void **state)
{
    fixture *f = *state;
    const size_t bytes = CHANNELS * CHANNELS * 3 * 3 * sizeof(float);
    float *first = malloc(bytes), *again = malloc(bytes);
    open_device(f, (lt_device_config){.deterministic = true});
    for (int i = 0; i < RUNS; i++) {
        gradient_w(f);
        assert_int_not_equal(count().engine, NONDETERMINISTIC);
        assert_ok(f->be->copy(f->ctx, i ? again : first, f->w.data, bytes, LT_COPY_OUT));
        assert_ok(f->be->sync(f->ctx));
        assert_true(!i || !memcmp(first, again, bytes));
    }
    free(first);
    free(again);
    close_device(f);
}

/* Nothing is timed then: the first that runs, and the run itself. */
static void deterministic_choice_does_not_time(void **state)
{
    fixture *f = *state;
    open_device(f, (lt_device_config){.deterministic = true});
    const counts before = count();
    gradient_w(f);
    assert_int_equal(count().runs, before.runs + 2);
    close_device(f);
}

/* --- Plans that can be made and do not run --- */

/* Those on disk, and the table of them. */
static void reset_plans(const fixture *f)
{
    char folder[TEMP_PATH];
    temp_remove(temp_path(folder, f->folder, "lather"));
    assert_int_equal(unlink(f->plans), 0);
}

/* How many lines of the table of plans have the text. */
static int lines_with(const char *path, const char *text)
{
    char line[8192];
    int found = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        found += strstr(line, text) != NULL;
    fclose(file);
    return found;
}

static int open_log(void **state)
{
    open_cache(state);
    fixture *f = *state;
    temp_path(f->plans, f->folder, "plans.tsv");
    setenv("LATHER_PLAN_LOG", f->plans, 1);
    return 0;
}

static int close_log(void **state)
{
    unsetenv("LATHER_PLAN_LOG");
    unsetenv("LATHER_STANDIN_PLANS");
    unsetenv("LATHER_STANDIN_BROKEN");
    return close_cache(state);
}

/* Result of the convolution without a fault. */
static void result_of(fixture *f, float *y)
{
    assert_ok(f->be->copy(f->ctx, y, f->y.data, bytes_of(&f->y), LT_COPY_OUT));
    assert_ok(f->be->sync(f->ctx));
}

static void compare_with_the_usual_way(fixture *f, const char *way, const char *note)
{
    enum { COUNT = BATCH * CHANNELS * SIDE * SIDE };
    float want[COUNT], got[COUNT];
    const lt_device_config same = {.deterministic = true};
    open_device(f, same);
    forward(f);
    result_of(f, want);
    close_device(f);
    reset_plans(f);
    setenv("LATHER_STANDIN_PLANS", way, 1);
    open_device(f, same);
    forward(f);
    result_of(f, got);
    forward(f); /* and the next one has the plan */
    close_device(f);
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(lines_with(f->plans, note), 1);
}

static void a_plan_that_does_not_run_is_made_for_the_devices_number(void **state)
{
    compare_with_the_usual_way(*state, "ordinal", "\t1\tfor the device's number");
}

static void or_for_the_handle(void **state)
{
    compare_with_the_usual_way(*state, "handle", "\t1\tfor the handle\n");
}

/* The engine that a device chooses, which runs no more from now on; its plan is on disk. */
static long break_first_choice(fixture *f)
{
    char broken[32];
    open_device(f, (lt_device_config){.deterministic = true, .tf32 = true});
    forward(f);
    const long first = count().engine;
    close_device(f);
    snprintf(broken, sizeof broken, "%ld", first);
    setenv("LATHER_STANDIN_BROKEN", broken, 1);
    return first;
}

/* An engine that runs in no way leaves the choice to the others. */
static void an_engine_that_never_runs_is_passed_over(void **state)
{
    fixture *f = *state;
    const long first = break_first_choice(f);
    reset_plans(f);
    open_device(f, (lt_device_config){.deterministic = true, .tf32 = true});
    forward(f);
    assert_int_not_equal(count().engine, first);
    close_device(f);
    assert_int_equal(lines_with(f->plans, "\tfailed\t0\t"), 1 + lines_with(f->plans, "\tnone\t"));
    assert_int_equal(lines_with(f->plans, "\t1\tfor the handle's properties"), 1);
}

/* The plan on disk is of an engine that does not run any more: another one takes its place, on disk too. */
static void a_plan_from_disk_that_does_not_run_makes_place(void **state)
{
    fixture *f = *state;
    const long first = break_first_choice(f);
    for (int i = 0; i < 2; i++) {
        const counts before = count();
        open_device(f, (lt_device_config){.deterministic = true, .tf32 = true});
        forward(f);
        assert_int_not_equal(count().engine, first);
        assert_int_equal(count().heuristics, before.heuristics + !i);
        close_device(f);
    }
}

/* Each failure to run returns an error with cuDNN's message; the device is usable afterwards. */
static void where_nothing_runs_the_error_says_why(void **state)
{
    fixture *f = *state;
    open_device(f, (lt_device_config){0});
    setenv("LATHER_STANDIN_PLANS", "none", 1);
    assert_true(f->be->conv2d(f->ctx, &config, &f->x, &f->w, NULL, &f->y) != LT_OK);
    assert_non_null(strstr(lt_error_message(), "does not run here"));
    unsetenv("LATHER_STANDIN_PLANS");
    forward(f);
    close_device(f);
}

/* A line for each candidate, one of them chosen; then, from disk, one line that names the same engine. */
static void the_table_of_plans_has_every_candidate(void **state)
{
    fixture *f = *state;
    char engine[64];
    open_device(f, (lt_device_config){.tf32 = true});
    const counts before = count();
    forward(f);
    const long made = count().made - before.made;
    close_device(f);
    assert_int_equal(lines_with(f->plans, "device\tkey\tsettings\tcandidate\tkind\t"), 1);
    assert_int_equal(lines_with(f->plans, "# cuda:0 device: a stand-in on the host, compute"), 1);
    assert_int_equal(lines_with(f->plans, "# cuda:0 as cudnn describes it: {\"deviceName\""), 1);
    assert_int_equal(
        lines_with(f->plans, "\tconv2d f32 x 2 16 6 6 w 16 16 3 3 s 1 1 p 1 1 d 1 1\ttf32 1 "),
        made + lines_with(f->plans, "\tnone\t"));
    assert_int_equal(lines_with(f->plans, "\t1\tfor the handle's properties"), 1);
    open_device(f, (lt_device_config){.tf32 = true});
    forward(f);
    snprintf(engine, sizeof engine, "\tfrom disk\t%ld\t", count().engine);
    close_device(f);
    assert_int_equal(lines_with(f->plans, engine), 1);
}

static void a_table_that_cannot_be_written_is_no_failure(void **state)
{
    fixture *f = *state;
    setenv("LATHER_PLAN_LOG", "/nonexistent/plans.tsv", 1);
    open_device(f, (lt_device_config){0});
    forward(f);
    close_device(f);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_cache, close_cache)
    static const struct CMUnitTest tests[] = {
        ROW(a_shape_is_asked_for_once),
        ROW(a_plan_is_read_from_disk),
        ROW(a_device_without_description_keeps_nothing_on_disk),
        ROW(a_cut_file_counts_as_absent),
        ROW(settings_have_plans_of_their_own),
        ROW(deterministic_results_have_the_same_bits),
        ROW(deterministic_choice_does_not_time),
#define LOG(name) cmocka_unit_test_setup_teardown(name, open_log, close_log)
        LOG(a_plan_that_does_not_run_is_made_for_the_devices_number),
        LOG(or_for_the_handle),
        LOG(an_engine_that_never_runs_is_passed_over),
        LOG(a_plan_from_disk_that_does_not_run_makes_place),
        LOG(where_nothing_runs_the_error_says_why),
        LOG(the_table_of_plans_has_every_candidate),
        LOG(a_table_that_cannot_be_written_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
