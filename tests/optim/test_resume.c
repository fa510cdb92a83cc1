/* A resume from a checkpoint's files has the bits of an uninterrupted run, for every setting of every optimizer, with
 * parameters that have no gradient before the checkpoint, none after it, none at all, or none in its step. */

#include "option_runs.h"
#include "temp_folder.h"

#include "lather/checkpoint.h"

#include <math.h>
#include <stdio.h>

enum { SAVED = 4 }; /* step of the checkpoint */

/* Returns the parameters with a gradient in step t, as bits. */
static unsigned present(int64_t t)
{
    const unsigned before = t <= SAVED, always = 1 << 0 | 1 << 5;
    return always | !before << 1 | before << 2 | (t != SAVED && t != SAVED + 1) << 4; /* 3: never */
}

static lt_status make_steps(run *r, int64_t from, int64_t to, uint64_t *hash)
{
    for (int64_t t = from; t <= to; t++) {
        LT_TRY(make_step(r, t, present(t)));
        LT_TRY(t > SAVED ? add_values_to_hash(r, hash) : LT_OK);
    }
    return LT_OK;
}

/* The averages' other sequence of weights, under its names in checkpoints. */
typedef struct extras {
    char name[PARAMS][TEXT];
    lt_checkpoint_tensor item[PARAMS];
    size_t count;
} extras;

static lt_status add_extra(void *context, const lt_state_entry *entry)
{
    extras *e = context;
    snprintf(e->name[e->count], TEXT, "%s.%s", entry->name, entry->param);
    e->item[e->count] = (lt_checkpoint_tensor){e->name[e->count], entry->tensor, NULL};
    e->count++;
    return LT_OK;
}

/* Saves the run in the folder, or loads it. */
static lt_status save_or_load(run *r, bool save)
{
    extras extra = {0};
    lt_state_visitor visitor = {add_extra, ignore_number, &extra};
    lt_checkpoint_state state = {.step = SAVED, .loss_scale = 1, .best = -1};
    char path[TEMP_PATH];
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(r->optim));
    LT_TRY(lt_optim_eval(r->optim));
    LT_TRY(lt_optim_visit_iterates(r->optim, &visitor));
    const lt_checkpoint_contents parts = {
        .params = &r->list, .optim = r->optim, .extra = extra.item, .extra_count = extra.count};
    LT_TRY(save
               ? lt_checkpoint_save(folder, &parts, &state, NULL)
               : lt_checkpoint_load(temp_path(path, folder, "checkpoints/step-4"), &parts, &state));
    return lt_optim_train(r->optim);
}

/* Hashes the values after each step after SAVED; resumed: these steps are made by another optimizer from a checkpoint. */
static lt_status run_once(const lt_optim_family *f, const setting *s, bool resumed, uint64_t *hash)
{
    run r;
    const bool f64 = s && s->f64;
    *hash = 14695981039346656037U;
    open_run(&r, f64);
    lt_status st = make_optim(&r, f, &s, s != NULL);
    st = st ? st : make_steps(&r, 1, resumed ? SAVED : STEPS, hash);
    if (!st && resumed) {
        st = save_or_load(&r, true);
        close_run(&r);
        open_run(&r, f64);
        st = st ? st : make_optim(&r, f, &s, s != NULL);
        st = st ? st : save_or_load(&r, false);
        st = st ? st : make_steps(&r, SAVED + 1, STEPS, hash);
    }
    close_run(&r);
    return st;
}

/* Returns true if the setting is refused or resumes. */
static bool resumes(const lt_optim_family *f, const setting *s, size_t *runs)
{
    uint64_t whole, resumed;
    if (run_once(f, s, false, &whole))
        return true;
    const lt_status st = run_once(f, s, true, &resumed);
    ++*runs;
    if (st || whole != resumed)
        fprintf(stderr, "%s %s=%s: %s\n", f->name, s ? s->field : "defaults", s ? s->value : "",
                st ? lt_error_message() : "other bits after a resume");
    return !st && whole == resumed;
}

static void every_setting_resumes(void **state)
{
    const lt_optim_family *f;
    size_t runs = 0, failures = 0;
    (void)state;
    for (size_t i = 0; (f = lt_optim_family_at(i)); i++) {
        settings list = {0};
        if (is_replaced(f))
            continue;
        list_settings(&list, f);
        failures += !resumes(f, NULL, &runs);
        for (size_t k = 0; k < list.count; k++)
            failures += !resumes(f, &list.set[k], &runs);
    }
    assert_int_equal(failures, 0);
    assert_true(runs > 200);
}

int main(void)
{
    setenv("LATHER_LOG", "error", 1);
    register_replacements();
    assert_ok(lt_optim_flags_open(&flags));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_setting_resumes, temp_setup, temp_teardown),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lt_optim_flags_close(&flags);
    return failed;
}
