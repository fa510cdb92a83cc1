/* A share of the time for new roots, and the interval that is chosen by it. */

#include "optim/shampoo/budget.h"
#include "optim/shampoo/reference.h"
#include "players.h"
#include "refreshes.h"
#include "snapshot.h"
#include "temp_folder.h"

#include "lather/checkpoint.h"
#include "lather/log.h"

static const double nearly_all = 0.999999, nearly_nothing = 1e-9;

static void intervals_by_hand(void **state)
{
    (void)state;
    /* 2 s of roots, 1 s a step: every 38 steps they are 2 / 40 = 5 % of the time. */
    assert_int_equal(lt_budget_interval(2, 1, 0.05, 1), 38);
    assert_int_equal(lt_budget_interval(2, 1, 0.0499, 1), 39);
    assert_int_equal(lt_budget_interval(2, 1, 0.05, 20), 40);
    assert_int_equal(lt_budget_interval(1, 1, 0.5, 1), 1);
    assert_int_equal(lt_budget_interval(1e-6, 1, 0.5, 1), 1);
    assert_int_equal(lt_budget_interval(1e-6, 1, 0.5, 3), 3);
    assert_int_equal(lt_budget_interval(0, 1, 0.5, 1), 1);
    assert_int_equal(lt_budget_interval(2, 1, 1e-6, 1), 1000);
    assert_int_equal(lt_budget_interval(2, 1, 1e-6, 300), 900);
    assert_int_equal(lt_budget_interval(2, 1, 1e-6, 3000), 3000);
    assert_int_equal(lt_budget_interval(1, 0, 0.5, 1), 1000);
}

static void a_long_step_does_not_count(void **state)
{
    (void)state;
    double odd[] = {3, 100, 1, 2, 2.5}, one[] = {7};
    assert_near(lt_budget_median(odd, 5), 2.5, 0);
    assert_near(lt_budget_median(one, 1), 7, 0);
}

static lt_shampoo_config of_budget(lt_refresh_timing timing, int64_t f, double budget)
{
    lt_shampoo_config c = small_blocks(timing, f);
    c.precondition_budget = budget;
    return c;
}

typedef struct heard {
    char warned[2 * TEXT];
    int choices; /* lines whose share is that of the seconds they give */
} heard;

static void listen(void *context, lt_log_level level, const char *area, const char *text)
{
    heard *h = context;
    double every, percent, roots, update;
    (void)area;
    if (level == LT_LOG_WARN)
        snprintf(h->warned, sizeof h->warned, "%s", text);
    if (sscanf(text,
               "shampoo: new roots every %lf updates are %lf %% of the time: all of them take "
               "%lf s, an update without them %lf s;",
               &every, &percent, &roots, &update)
        != 4)
        return;
    const double want = 100 * roots / (every * update + roots);
    assert_near(percent, want, 0.02 * want); /* of numbers with three digits */
    h->choices++;
}

/* The first roots are in step 3, so steps 4 to 6 are timed; a budget that nothing meets says what it can do. */
static void the_interval_behind_the_first_roots_is_timed(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const bool least = k & 1;
        const lt_refresh_timing timing = k & 2 ? LT_REFRESH_STAGGERED : LT_REFRESH_REFERENCE;
        const lt_shampoo_config c = of_budget(timing, 3, least ? nearly_nothing : nearly_all);
        heard h = {0};
        fixture f;
        lt_log_set(listen, &h);
        open_blocks(&f, &c);
        for (int t = 1; t <= 8; t++) {
            step_blocks(&f);
            const int64_t want = t <= 6 ? 3 : least ? 1000 : 1;
            assert_int_equal(lt_shampoo_statistics(f.optim).interval, want);
            assert_int_equal(lt_shampoo_settings(f.optim)->precondition_frequency, want);
        }
        assert_int_equal(strstr(h.warned, "least that it can do") != NULL, least);
        assert_int_equal(h.choices, 1);
        fixture_close(&f);
        lt_log_set(NULL, NULL);
    }
}

/* A step between them that was skipped: its time is not known, and the interval begins anew. */
static void a_skipped_step_begins_anew(void **state)
{
    (void)state;
    const lt_shampoo_config c = of_budget(LT_REFRESH_REFERENCE, 3, nearly_all);
    fixture f;
    open_blocks(&f, &c);
    for (int t = 1; t <= 10; t++) {
        if (t == 6)
            f.attempt++;
        step_blocks(&f);
        /* roots in step 3; timed are 4 and, without 6, not 5, but 7, 8 and 9 */
        assert_int_equal(lt_shampoo_statistics(f.optim).interval, f.attempt <= 9 ? 3 : 1);
    }
    fixture_close(&f);
}

static lt_status set_interval(void *context, const char *name, int64_t *value)
{
    if (!strcmp(name, "precondition_interval"))
        *value = *(const int64_t *)context;
    return LT_OK;
}

static lt_status no_entry(void *context, const lt_state_entry *entry)
{
    (void)context;
    (void)entry;
    return LT_OK;
}

/* An interval that was chosen: each block has its turn once in so many steps. */
static void each_block_has_its_turn(void **state)
{
    (void)state;
    int64_t interval = 7;
    const lt_shampoo_config c = of_budget(LT_REFRESH_STAGGERED, 3, nearly_all);
    static seen s;
    int turns[MAX_BLOCKS] = {0};
    fixture f;
    lt_state_visitor visitor = {no_entry, set_interval, &interval};
    open_blocks(&f, &c);
    for (int t = 1; t <= 3; t++)
        step_blocks(&f);
    assert_ok(lt_optim_visit(f.optim, &visitor));
    look(&s, f.optim);
    for (int t = 0; t < 14; t++) {
        step_blocks(&f);
        look(&s, f.optim);
        int now = 0;
        for (int i = 0; i < s.count; i++) {
            turns[i] += s.block[i].changed;
            now += s.block[i].changed;
        }
        assert_true(now > 0); /* dealt out to all steps of the interval */
    }
    assert_true(s.count > 7);
    for (int i = 0; i < s.count; i++)
        assert_int_equal(turns[i], 2);
    fixture_close(&f);
}

/* The choice is state: nothing is timed again. */
static void saved_behind_the_choice_continues_bit_for_bit(void **state)
{
    (void)state;
    enum { LAST = 16 };
    static snapshot middle[LAST + 1], again;
    const lt_shampoo_config c = of_budget(LT_REFRESH_STAGGERED, 4, nearly_all);
    fixture f;
    open_blocks(&f, &c);
    while (f.attempt < LAST) {
        step_blocks(&f);
        take(&middle[f.attempt], &f, false);
    }
    fixture_close(&f);
    for (int t = 9; t < LAST; t++) {
        open_blocks(&f, &c);
        take(&middle[t], &f, true);
        for (f.attempt = t; f.attempt < LAST;)
            step_blocks(&f);
        take(&again, &f, false);
        assert_memory_equal(again.bytes, middle[LAST].bytes, again.used);
        fixture_close(&f);
    }
}

static lt_status count_interval(void *context, const char *name, int64_t *value)
{
    (void)value;
    *(int *)context += !strcmp(name, "precondition_interval");
    return LT_OK;
}

static void without_a_budget_nothing_is_saved(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        const lt_shampoo_config c = of_budget(LT_REFRESH_REFERENCE, 2, with ? nearly_all : 0);
        int count = 0;
        fixture f;
        lt_state_visitor visitor = {no_entry, count_interval, &count};
        open_blocks(&f, &c);
        for (int t = 1; t <= 6; t++)
            step_blocks(&f);
        assert_ok(lt_optim_visit(f.optim, &visitor));
        assert_int_equal(count, with);
        assert_int_equal(lt_shampoo_settings(f.optim)->precondition_frequency, with ? 1 : 2);
        fixture_close(&f);
    }
}

static void listen_to_train(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level;
    if (!strcmp(area, "train"))
        snprintf(context, 2 * TEXT, "%s", text);
}

/* A budget is added, or dropped, where a run goes on: intervals are then those of a run that has it, or not. */
static void a_run_goes_on_with_a_budget_or_without(void **state)
{
    (void)state;
    enum { SAVED = 9, F = 4 };
    for (int with = 0; with < 2; with++) { /* the run that is saved */
        char path[TEMP_PATH], said[2 * TEXT] = "";
        fixture a, b;
        lt_checkpoint_state now = {.step = SAVED, .optim = "shampoo", .global_batch = 1};
        const lt_shampoo_config of_a = of_budget(LT_REFRESH_STAGGERED, F, with ? nearly_all : 0);
        const lt_shampoo_config of_b = of_budget(LT_REFRESH_STAGGERED, F, with ? 0 : nearly_all);
        open_blocks(&a, &of_a);
        open_blocks(&b, &of_b);
        const lt_checkpoint_parts from = {.params = &a.list, .optim = a.optim};
        const lt_checkpoint_parts to = {.params = &b.list, .optim = b.optim};
        for (int t = 0; t < SAVED; t++)
            step_blocks(&a);
        assert_int_equal(lt_shampoo_settings(a.optim)->precondition_frequency, with ? 1 : F);
        assert_ok(lt_checkpoint_save(folder, &from, &now, NULL));
        assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
        lt_log_set(listen_to_train, said);
        assert_ok(lt_checkpoint_load(path, &to, &now));
        lt_log_set(NULL, NULL);
        assert_non_null(strstr(said, with ? "new roots every 1 updates; this run has none, and new "
                                            "roots every 4"
                                          : "saved without precondition_budget"));
        for (b.attempt = SAVED; b.attempt < SAVED + F + 1;) { /* the first begins the clock */
            assert_int_equal(lt_shampoo_settings(b.optim)->precondition_frequency, F);
            step_blocks(&b);
        }
        assert_int_equal(lt_shampoo_settings(b.optim)->precondition_frequency, with ? F : 1);
        fixture_close(&a);
        fixture_close(&b);
    }
}

/* --- Ranks --- */

static lt_status make_with_budget(lt_optim **out, const lt_params *params)
{
    const lt_shampoo_config c = of_budget(LT_REFRESH_REFERENCE, 1, nearly_all);
    return lt_optim_shampoo(out, params, &c);
}

/* As if this rank's roots took longer. */
static lt_status slow_one_down(fixture *f, int rank)
{
    if (rank == 1)
        ((lt_shampoo *)f->optim)->config.precondition_budget = nearly_nothing;
    return LT_OK;
}

/* In step 4; the first roots are in step 1, step 2 is timed. */
static lt_status compare(fixture *f, int rank)
{
    const int64_t interval = lt_shampoo_settings(f->optim)->precondition_frequency;
    return interval == 1000
               ? LT_OK
               : lt_fail(LT_E_ARG, "rank %d has an interval of %lld", rank, (long long)interval);
}

static void the_slowest_rank_chooses_for_all(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    static player p[COUNT];
    const scenario s = {.make = make_with_budget, .before = slow_one_down, .between = compare};
    play_all(p, COUNT, &s);
    for (int r = 0; r < COUNT; r++)
        if (p[r].status)
            fail_msg("%s", p[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_by_hand),
        cmocka_unit_test(a_long_step_does_not_count),
        cmocka_unit_test(the_interval_behind_the_first_roots_is_timed),
        cmocka_unit_test(a_skipped_step_begins_anew),
        cmocka_unit_test(each_block_has_its_turn),
        cmocka_unit_test(saved_behind_the_choice_continues_bit_for_bit),
        cmocka_unit_test(without_a_budget_nothing_is_saved),
        cmocka_unit_test_setup_teardown(a_run_goes_on_with_a_budget_or_without, temp_setup,
                                        temp_teardown),
        cmocka_unit_test(the_slowest_rank_chooses_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
