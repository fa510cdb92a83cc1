/* When the cuda backend asks cuDNN, chooses, and keeps: its plugin with stand-ins for the libraries, which
 * count. */

#include "near.h"
#include "temp.h"
#include "tensor/tensor.h"

#include "lather/ext/backend.h"
#include "lather/ext/fail.h"

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
    char folder[TEMP_PATH];
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

/* What another setting may not use is not found under its name either. */
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

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_cache, close_cache)
    static const struct CMUnitTest tests[] = {
        ROW(a_shape_is_asked_for_once),
        ROW(a_plan_is_read_from_disk),
        ROW(a_cut_file_counts_as_absent),
        ROW(settings_have_plans_of_their_own),
        ROW(deterministic_results_have_the_same_bits),
        ROW(deterministic_choice_does_not_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
