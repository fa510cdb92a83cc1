/* Deferred roots (--refresh async): the same as in a single-threaded loop, through checkpoints too. */

#include "optim/shampoo/shampoo.h"
#include "refreshes.h"
#include "snapshot.h"
#include "temp.h"

#include "lather/checkpoint.h"

enum { F = 3, STEPS = 16 };

/* --- A single-threaded loop that defers its roots by f steps --- */

/* Roots, bases and powers of all blocks, in the order of a visit. */
typedef struct roots {
    double value[1024];
    size_t used;
    bool write;
} roots;

static lt_status move_root(void *context, const lt_state_entry *entry)
{
    roots *r = context;
    const size_t count = (size_t)lt_shape_count(entry->extent);
    if (strncmp(entry->name, "root.", 5) != 0 && strncmp(entry->name, "basis.", 6) != 0
        && strncmp(entry->name, "power.", 6) != 0)
        return LT_OK;
    assert_true(r->used + count <= COUNT_OF(r->value));
    if (r->write)
        put(entry->tensor, r->value + r->used);
    else
        get(entry->tensor, r->value + r->used);
    r->used += count;
    return LT_OK;
}

static void move_roots(roots *r, lt_optim *optim, bool write)
{
    lt_state_visitor visitor = {move_root, ignore_number, r};
    r->used = 0;
    r->write = write;
    assert_ok(lt_optim_visit(optim, &visitor));
}

static void open_on(fixture *f, const char *device, bool f64, const lt_shampoo_config *config)
{
    *f = (fixture){0};
    assert_ok(lt_device_open(&f->device, device, &(lt_device_config){.f64 = f64, .threads = 1}));
    fixture_add(f, "large", LT_SHAPE(7, 6));
    fixture_add(f, "vector", LT_SHAPE(13));
    fixture_add(f, "small", LT_SHAPE(3, 2));
    assert_ok(lt_optim_shampoo(&f->optim, &f->list, config));
}

/* "shadow" has the same factors and computes the roots; "late" gets them f steps later and computes none:
 * its steps are numbered so that none is due. */
static values put_off(const char *device, bool f64, const lt_shampoo_config *config)
{
    enum { NEVER = 1000 };
    static roots made[STEPS + 1];
    lt_shampoo_config c = *config;
    fixture shadow, late;
    c.refresh_timing = LT_REFRESH_REFERENCE;
    open_on(&shadow, device, f64, &c);
    c.precondition_frequency = c.start_preconditioning_step = NEVER;
    open_on(&late, device, f64, &c);
    ((lt_shampoo *)late.optim)->begun = true; /* the first refresh is not late */
    for (int t = 1; t <= STEPS; t++) {
        late.attempt = shadow.attempt;
        step_blocks(&shadow);
        move_roots(&made[t], shadow.optim, false);
        if (t == F)
            move_roots(&made[t], late.optim, true);
        else if (t % F == 0 && t > 2 * F)
            move_roots(&made[t - F], late.optim, true);
        for (size_t k = 0; k < late.list.count; k++) {
            assert_ok(lt_tensor_copy(late.param[k].grad, shadow.param[k].grad));
            late.param[k].has_grad = true;
        }
        const lt_step step = {.lr = 0.05, .attempt = NEVER + t};
        assert_ok(lt_optim_step(late.optim, &step));
    }
    const values v = values_of(&late);
    fixture_close(&shadow);
    fixture_close(&late);
    return v;
}

typedef struct variant {
    const char *name, *device;
    bool f64;
    lt_preconditioner preconditioner;
    lt_refresh_timing timing;
    int threads;
    bool same;
} variant;

static const variant variants[] = {
    {"roots, f64", "ref", true, LT_PRECONDITIONER_ROOT, LT_REFRESH_ASYNC, 0, true},
    {"roots, f32, two threads", "cpu", false, LT_PRECONDITIONER_ROOT, LT_REFRESH_ASYNC, 2, true},
    {"eigenvectors", "ref", true, LT_PRECONDITIONER_EIGENDECOMPOSED, LT_REFRESH_ASYNC, 1, true},
    {"second moment in the eigenbasis", "ref", true, LT_PRECONDITIONER_CORRECTED, LT_REFRESH_ASYNC,
     1, true},
    {"control: roots used at once", "ref", true, LT_PRECONDITIONER_ROOT, LT_REFRESH_REFERENCE, 1,
     false},
};

static void equals_a_loop_that_puts_its_roots_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(variants); i++) {
        const variant *v = &variants[i];
        lt_shampoo_config c = small_blocks(v->timing, F);
        fixture f;
        c.preconditioner = v->preconditioner;
        c.refresh_threads = v->threads;
        c.beta2 = 0.9;
        open_on(&f, v->device, v->f64, &c);
        for (int t = 1; t <= STEPS; t++)
            step_blocks(&f);
        const values got = values_of(&f), want = put_off(v->device, v->f64, &c);
        bool same = true;
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < 64; j++)
                same &= fabs(got.value[k][j] - want.value[k][j]) <= 0;
        if (same != v->same)
            fail_msg("%s: %s", v->name, same ? "the same" : "different");
        fixture_close(&f);
    }
}

/* --- Checkpoints --- */

static void continue_from(const lt_shampoo_config *config, snapshot *middle, int64_t step,
                          const snapshot *end)
{
    static snapshot again;
    fixture f;
    open_blocks(&f, config);
    take(middle, &f, true);
    f.attempt = step;
    while (f.attempt < STEPS)
        step_blocks(&f);
    take(&again, &f, false);
    assert_int_equal(again.used, end->used);
    assert_memory_equal(again.bytes, end->bytes, end->used);
    fixture_close(&f);
}

/* The second solver starts from the previous basis, the one in use. */
static void saved_in_any_step_continues_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        lt_preconditioner kind;
        lt_root_solver solver;
    } ways[] = {{LT_PRECONDITIONER_ROOT, LT_ROOT_EIGH}, {LT_PRECONDITIONER_CORRECTED, LT_ROOT_QR}};
    static snapshot middle[STEPS + 1];
    for (size_t k = 0; k < COUNT_OF(ways); k++) {
        lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
        fixture f;
        c.preconditioner = ways[k].kind;
        c.root_solver = ways[k].solver;
        open_blocks(&f, &c);
        while (f.attempt < STEPS) {
            step_blocks(&f);
            take(&middle[f.attempt], &f, false);
        }
        fixture_close(&f);
        assert_true(middle[2 * F].used > middle[2 * F - 1].used); /* now something is pending */
        for (int t = 1; t < STEPS; t++)
            continue_from(&c, &middle[t], t, &middle[STEPS]);
    }
}

/* Saving waits for the thread; it changes nothing in an uninterrupted run. */
static void a_checkpoint_waits_and_changes_nothing(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    static snapshot saved;
    values got[2];
    for (int k = 0; k < 2; k++) {
        fixture f;
        open_blocks(&f, &c);
        while (f.attempt < STEPS) {
            step_blocks(&f);
            if (k)
                take(&saved, &f, false);
        }
        got[k] = values_of(&f);
        fixture_close(&f);
    }
    assert_memory_equal(&got[0], &got[1], sizeof got[0]);
}

static lt_status add_bytes(void *context, const lt_state_entry *entry)
{
    *(size_t *)context += lt_tensor_bytes(entry->tensor);
    return LT_OK;
}

/* Counted before training, when nothing is pending yet. */
static void state_bytes_count_what_will_be_pending(void **state)
{
    (void)state;
    static const lt_preconditioner kinds[] = {LT_PRECONDITIONER_ROOT,
                                              LT_PRECONDITIONER_EIGENDECOMPOSED};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
        size_t bytes = 0;
        fixture f;
        c.preconditioner = kinds[k];
        open_blocks(&f, &c);
        const size_t told = lt_optim_state_bytes(f.optim);
        while (f.attempt < 2 * F)
            step_blocks(&f);
        lt_state_visitor visitor = {add_bytes, ignore_number, &bytes};
        assert_ok(lt_optim_visit(f.optim, &visitor));
        assert_int_equal(told, bytes);
        assert_int_equal(lt_optim_state_bytes(f.optim), bytes);
        fixture_close(&f);
    }
}

/* The step of the swap is skipped: the next one swaps the roots in. */
static void a_skipped_step_swaps_nothing(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    const double bad[6] = {(double)NAN};
    seen s = {0};
    fixture f;
    open_blocks(&f, &c);
    while (f.attempt < 3 * F - 1)
        step_blocks(&f);
    look(&s, f.optim);
    put_grad(&f.param[2], bad);
    fixture_step(&f, 0.05);
    look(&s, f.optim);
    for (int i = 0; i < s.count; i++)
        assert_false(s.block[i].changed);
    step_blocks(&f);
    look(&s, f.optim);
    for (int i = 0; i < s.count; i++)
        assert_true(s.block[i].changed);
    assert_int_equal(lt_shampoo_statistics(f.optim).root_age, F + 1);
    fixture_close(&f);
}

static void save_as(const char *folder, fixture *f, lt_checkpoint_state *state,
                    const lt_checkpoint_tensor *extra)
{
    const lt_checkpoint_contents parts = {
        .params = &f->list, .optim = f->optim, .extra = extra, .extra_count = extra ? 1 : 0};
    state->step = f->attempt;
    snprintf(state->optim, sizeof state->optim, "shampoo");
    assert_ok(lt_checkpoint_save(folder, &parts, state, NULL));
}

static lt_status load_from(const char *folder, fixture *f, lt_checkpoint_state *state)
{
    const lt_checkpoint_contents parts = {.params = &f->list, .optim = f->optim};
    char path[TEMP_PATH];
    lt_status st = lt_checkpoint_load(temp_path(path, folder, "checkpoints/latest"), &parts, state);
    if (!st)
        f->attempt = state->step;
    return st;
}

static void a_checkpoint_file_holds_what_is_pending(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    char folder[TEMP_PATH];
    static snapshot want, got;
    lt_checkpoint_state saved = {0}, loaded = {0};
    fixture f, g;
    temp_make(folder);
    open_blocks(&f, &c);
    open_blocks(&g, &c);
    while (f.attempt < 2 * F + 1)
        step_blocks(&f);
    save_as(folder, &f, &saved, NULL);
    assert_ok(load_from(folder, &g, &loaded));
    assert_int_equal(g.attempt, 2 * F + 1);
    while (f.attempt < STEPS) {
        step_blocks(&f);
        step_blocks(&g);
    }
    take(&want, &f, false);
    take(&got, &g, false);
    assert_int_equal(want.used, got.used);
    assert_memory_equal(want.bytes, got.bytes, want.used);
    fixture_close(&f);
    fixture_close(&g);
    temp_remove(folder);
}

static void a_file_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    char folder[TEMP_PATH];
    static snapshot before, after;
    lt_checkpoint_state saved = {0}, loaded = {0};
    fixture f, g;
    temp_make(folder);
    open_blocks(&f, &c);
    open_blocks(&g, &c);
    while (f.attempt < 2 * F + 1)
        step_blocks(&f);
    step_blocks(&g);
    const lt_checkpoint_tensor extra = {.name = "of.another.run", .tensor = f.param[0].value};
    save_as(folder, &f, &saved, &extra);
    take(&before, &g, false);
    assert_status(load_from(folder, &g, &loaded), LT_E_FORMAT);
    take(&after, &g, false);
    assert_int_equal(before.used, after.used);
    assert_memory_equal(before.bytes, after.bytes, before.used);
    fixture_close(&f);
    fixture_close(&g);
    temp_remove(folder);
}

/* A run is resumed with another timing: pending roots are still swapped in in their step. */
static void another_timing_takes_what_is_pending(void **state)
{
    (void)state;
    static snapshot middle;
    lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    seen s = {0};
    fixture f;
    open_blocks(&f, &c);
    while (f.attempt < 2 * F + 1)
        step_blocks(&f);
    take(&middle, &f, false);
    fixture_close(&f);

    c.refresh_timing = LT_REFRESH_STAGGERED;
    c.precondition_frequency = c.start_preconditioning_step = 1000;
    open_blocks(&f, &c);
    take(&middle, &f, true);
    look(&s, f.optim);
    for (f.attempt = 2 * F + 1; f.attempt < 4 * F;) {
        step_blocks(&f);
        look(&s, f.optim);
        for (int i = 0; i < s.count; i++)
            assert_int_equal(s.block[i].changed, f.attempt == 3 * F);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_loop_that_puts_its_roots_off),
        cmocka_unit_test(saved_in_any_step_continues_bit_for_bit),
        cmocka_unit_test(a_checkpoint_waits_and_changes_nothing),
        cmocka_unit_test(state_bytes_count_what_will_be_pending),
        cmocka_unit_test(a_skipped_step_swaps_nothing),
        cmocka_unit_test(a_checkpoint_file_holds_what_is_pending),
        cmocka_unit_test(a_file_that_does_not_fit_changes_nothing),
        cmocka_unit_test(another_timing_takes_what_is_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
