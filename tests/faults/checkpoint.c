/* Saving and loading of checkpoints in which one call for memory, a file or a kernel fails: the earlier checkpoint
 * is kept, no partial file is left, and the next attempt works. */

#include "base/atomic_dir.h"
#include "base/encoding/json.h"
#include "faults.h"
#include "temp_folder.h"
#include "tiny.h"

typedef struct row {
    const char *name, *optim, *survives;
    unsigned kinds;
} row;

typedef struct scene {
    const row *row;
    run saved, loaded;
} scene;

static const char *checkpoints(char *path)
{
    return temp_path(path, folder, "checkpoints");
}

static lt_status save(void *context)
{
    scene *s = context;
    const lt_checkpoint_policy policy = {.keep = 1, .is_best = s->saved.state.step == 1};
    return lt_checkpoint_save(folder, &s->saved.parts, &s->saved.state, &policy);
}

static void begin_save(void *context)
{
    scene *s = context;
    char path[TEMP_PATH];
    run_open(&s->saved, s->row->optim, 5);
    assert_ok(lt_remove_tree(checkpoints(path)));
    run_step(&s->saved);
    assert_ok(save(s));
    run_step(&s->saved);
    faults_attach(s->saved.device);
}

static int64_t newest_step(void)
{
    char path[TEMP_PATH];
    lt_checkpoint_state found = {0};
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_ok(lt_checkpoint_verify(path, &found));
    return found.step;
}

static void after_save(void *context, lt_status st)
{
    if (st) {
        assert_in_range(newest_step(), 1, 2);
        assert_ok(save(context));
    }
    assert_int_equal(newest_step(), 2);
    assert_int_equal(temp_count(folder, "checkpoints"), 4); /* the best, the latest, two links */
}

static void end_save(void *context)
{
    scene *s = context;
    run_close(&s->saved);
}

static void assert_same(const lt_tensor *a, const lt_tensor *b)
{
    unsigned char x[512], y[512];
    const size_t bytes = lt_tensor_bytes(a);
    assert_true(bytes <= sizeof x);
    assert_ok(lt_tensor_read(a, x, bytes));
    assert_ok(lt_tensor_read(b, y, bytes));
    assert_memory_equal(x, y, bytes);
}

static lt_status load(void *context)
{
    scene *s = context;
    char path[TEMP_PATH];
    temp_path(path, folder, "checkpoints/step-2");
    if (s->row->kinds & FAULT_MEMORY) /* a file that cannot be read is a damaged one */
        LT_TRY(lt_checkpoint_newest(folder, path, sizeof path));
    return lt_checkpoint_load(path, &s->loaded.parts, &s->loaded.state);
}

static void begin_load(void *context)
{
    scene *s = context;
    run_open(&s->loaded, s->row->optim, 5);
    faults_attach(s->loaded.device);
}

static void after_load(void *context, lt_status st)
{
    scene *s = context;
    if (st)
        assert_ok(load(s));
    assert_int_equal(s->loaded.state.step, 2);
    for (int i = 0; i < PARAMS; i++)
        assert_same(s->saved.param[i].value, s->loaded.param[i].value);
    assert_same(s->saved.ema, s->loaded.ema);
    run_step(&s->loaded);
}

static void end_load(void *context)
{
    scene *s = context;
    run_close(&s->loaded);
}

/* A processor that /proc does not name is unknown; an earlier checkpoint that cannot be read is of no known run. */
static const row rows[] = {
    {"adam: memory and kernels", "adam", NULL, FAULT_MEMORY | FAULT_KERNEL},
    {"adam: files", "adam", " fopen64 opendir open64 fstat64 fdopen fread ", FAULT_FILE},
    {"shampoo: memory and kernels", "shampoo", NULL, FAULT_MEMORY | FAULT_KERNEL},
    {"shampoo: files", "shampoo", " fopen64 opendir open64 fstat64 fdopen fread ", FAULT_FILE},
};

static void a_save_that_fails_leaves_the_earlier_one(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .survives = s.row->survives,
                          .kinds = s.row->kinds,
                          .open = begin_save,
                          .act = save,
                          .after = after_save,
                          .close = end_save,
                          .context = &s,
                          .least = 10};
    (void)faults_each(&c);
}

static void a_load_that_fails_is_repeated(void **state)
{
    scene s = {.row = *state};
    begin_save(&s);
    assert_ok(save(&s));
    const fault_case c = {.name = s.row->name,
                          .survives = s.row->survives,
                          .kinds = s.row->kinds,
                          .open = begin_load,
                          .act = load,
                          .after = after_load,
                          .close = end_load,
                          .context = &s,
                          .least = 10};
    (void)faults_each(&c);
    end_save(&s);
}

static lt_status parse_many_values(void *context)
{
    enum { VALUES = 1000 };
    char text[2 * VALUES + 2] = "[0";
    lt_json *json = NULL;
    (void)context;
    for (int i = 1; i < VALUES; i++)
        memcpy(text + 2 * i, ",0", 2);
    text[2 * VALUES] = ']';
    LT_TRY(lt_json_parse(&json, text, 2 * VALUES + 1, "values", 1));
    assert_int_equal(lt_json_root(json)->count, VALUES);
    lt_json_free(&json);
    return LT_OK;
}

static void all_values_of_a_text_are_freed(void **state)
{
    (void)state;
    const fault_case c = {
        .name = "values", .kinds = FAULT_MEMORY, .act = parse_many_values, .least = 4};
    (void)faults_each(&c);
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows) };
    static char name[2 * ROWS][64];
    struct CMUnitTest tests[2 * ROWS + 1] = {cmocka_unit_test(all_values_of_a_text_are_freed)};
    for (size_t i = 0; i < 2 * ROWS; i++) {
        const row *r = &rows[i % ROWS];
        snprintf(name[i], sizeof name[i], "%s: %s", i < ROWS ? "saved" : "loaded", r->name);
        tests[i + 1] = (struct CMUnitTest){name[i],
                                           i < ROWS ? a_save_that_fails_leaves_the_earlier_one
                                                    : a_load_that_fails_is_repeated,
                                           temp_setup, temp_teardown, (void *)(uintptr_t)r};
    }
    return faults_run("faults in a checkpoint", tests, COUNT_OF(tests), NULL, NULL);
}
