/* Learning-rate schedules at chosen updates, and those of torch, transformers and timm (tests/golden/schedules.py). */

#include "near.h"

#include "lather/schedule.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct point {
    int64_t attempt;
    double lr;
} point;

typedef struct row {
    const char *name;
    lt_schedule schedule;
    point at[6];
} row;

#define SPE .steps_per_epoch = 10

/* Source: the formulas in schedule.h by hand; cosines of multiples of 60 and 45 degrees. */
static const row rows[] = {
    {"constant", {.lr = 0.5, SPE}, {{1, 0.5}, {1000, 0.5}}},
    {"constant with a warm-up of 0.5 epochs from 0.1",
     {.lr = 0.6, .warmup_epochs = 0.5, .warmup_lr = 0.1, SPE},
     {{1, 0.1}, {2, 0.2}, {5, 0.5}, {6, 0.6}, {7, 0.6}}},
    {"a warm-up of 0.25 epochs ends between two updates",
     {.lr = 1, .warmup_epochs = 0.25, SPE},
     {{1, 0}, {2, 0.4}, {3, 0.8}, {4, 1}}},
    {"step: a tenth every 2 epochs",
     {LT_SCHEDULE_STEP, .lr = 1, .gamma = 0.1, .step_epochs = 2, SPE},
     {{1, 1}, {20, 1}, {21, 0.1}, {40, 0.1}, {41, 0.01}}},
    {"step: every 2.4 epochs is every 24 updates",
     {LT_SCHEDULE_STEP, .lr = 1, .gamma = 0.5, .step_epochs = 2.4, SPE},
     {{24, 1}, {25, 0.5}, {72, 0.25}, {73, 0.125}}},
    {"multistep: epochs count from the start of the warm-up",
     {LT_SCHEDULE_MULTISTEP, .lr = 1, .gamma = 0.1, .milestone = {3, 6}, .milestones = 2,
      .warmup_epochs = 1, SPE},
     {{1, 0}, {6, 0.5}, {11, 1}, {30, 1}, {31, 0.1}, {61, 0.01}}},
    {"cosine to 0",
     {LT_SCHEDULE_COSINE, .lr = 2, .epochs = 6, SPE},
     {{1, 2}, {21, 1.5}, {31, 1}, {41, 0.5}, {61, 0}, {100, 0}}},
    {"cosine after a warm-up, to a smallest rate",
     {LT_SCHEDULE_COSINE, .lr = 1.1, .min_lr = 0.1, .epochs = 5, .warmup_epochs = 1, SPE},
     {{1, 0}, {6, 0.55}, {11, 1.1}, {21, 0.95355339059327378}, {31, 0.6}, {51, 0.1}}},
    {"poly: a square root",
     {LT_SCHEDULE_POLY, .lr = 1, .power = 0.5, .epochs = 10, SPE},
     {{1, 1}, {20, 0.9}, {37, 0.8}, {52, 0.7}, {101, 0}}},
};

static void gives_these_rates(void **state)
{
    const row *r = *state;
    assert_ok(lt_schedule_check(&r->schedule));
    for (size_t i = 0; i < COUNT_OF(r->at) && r->at[i].attempt; i++)
        assert_near(lt_schedule_lr(&r->schedule, r->at[i].attempt), r->at[i].lr, 1e-15);
}

/* Settings of the lines of schedules.txt; 44 updates in the run unless epochs says otherwise. */
#define RUN(k) LT_SCHEDULE_##k, .lr = 0.8, .steps_per_epoch = 4
#define WARMUP .warmup_steps = 8, .warmup_lr = 0.1
/* clang-format off */
static const row peers[] = {
    {"linear_warmup", {RUN(LINEAR), .min_lr = 0.1, .epochs = 10, WARMUP}, {{0}}},
    {"cosine_warmup", {RUN(COSINE), .min_lr = 0.1, .epochs = 11, WARMUP}, {{0}}},
    {"poly", {RUN(POLY), .power = 3, .epochs = 10}, {{0}}},
    {"wsd_linear", {RUN(WSD), .min_lr = 0.1, .epochs = 11, .decay_ratio = 10 / 44.0, WARMUP}, {{0}}},
    {"wsd_cosine", {RUN(WSD), .epochs = 11, .decay_ratio = 10 / 44.0, .decay = LT_DECAY_COSINE, .warmup_epochs = 2}, {{0}}},
    {"wsd_sqrt", {RUN(WSD), .min_lr = 0.1, .epochs = 10, .decay_ratio = 1, .decay = LT_DECAY_SQRT}, {{0}}},
    {"one_cycle", {RUN(ONE_CYCLE), .epochs = 11, .pct_start = 0.3, .div_factor = 25, .final_div_factor = 1e4}, {{0}}},
    {"one_cycle_steep", {RUN(ONE_CYCLE), .epochs = 11, .pct_start = 0.7, .div_factor = 4, .final_div_factor = 2}, {{0}}},
    {"restarts", {RUN(COSINE_RESTARTS), .min_lr = 0.1, .cycle_epochs = 1.25, .cycle_mul = 2, .cycle_decay = 1}, {{0}}},
    {"restarts_warmup", {RUN(COSINE_RESTARTS), .cycle_epochs = 3, .cycle_mul = 1, .cycle_decay = 1, WARMUP}, {{0}}},
    {"restarts_decay", {RUN(COSINE_RESTARTS), .min_lr = 0.05, .cycle_epochs = 2, .cycle_mul = 1.5, .cycle_decay = 0.5}, {{0}}},
};

/* The rate falls by gamma for each reduction, down to min_lr; a warm-up comes first. */
static const row reductions[] = {
    {"plateau: no reduction", {RUN(PLATEAU), .gamma = 0.1, .warmup_steps = 8}, {{5, 0.4}, {99, 0.8}}},
    {"plateau: two reductions", {RUN(PLATEAU), .gamma = 0.5, .reductions = 2}, {{1, 0.2}}},
    {"plateau: the smallest rate", {RUN(PLATEAU), .gamma = 0.1, .min_lr = 0.01, .reductions = 2}, {{1, 0.01}}},
};

static const row bad_kinds[] = {
    {"a warm-up in epochs and in updates", {.lr = 1, .warmup_epochs = 1, .warmup_steps = 1, SPE}, {{0}}},
    {"no decay", {LT_SCHEDULE_WSD, .lr = 1, .epochs = 2, SPE}, {{0}}},
    {"a decay that begins within the warm-up", {LT_SCHEDULE_WSD, .lr = 1, .epochs = 2, .decay_ratio = 0.6, .warmup_steps = 9, SPE}, {{0}}},
    {"one cycle after a warm-up", {RUN(ONE_CYCLE), .epochs = 2, .div_factor = 1, .final_div_factor = 1, .warmup_steps = 1}, {{0}}},
    {"one cycle that starts above its highest rate", {RUN(ONE_CYCLE), .epochs = 2, .div_factor = 0.5, .final_div_factor = 1}, {{0}}},
    {"a cycle shorter than an update", {RUN(COSINE_RESTARTS), .cycle_epochs = 0.2, .cycle_mul = 1, .cycle_decay = 1}, {{0}}},
    {"cycles that become shorter", {RUN(COSINE_RESTARTS), .cycle_epochs = 1, .cycle_mul = 0.9, .cycle_decay = 1}, {{0}}},
    {"cycles that become infinite", {RUN(COSINE_RESTARTS), .cycle_epochs = 1, .cycle_mul = (double)INFINITY, .cycle_decay = 1}, {{0}}},
    {"a warm-up of fewer than no updates", {.lr = 1, .warmup_steps = -1, SPE}, {{0}}},
    {"a decay of more than the run", {LT_SCHEDULE_WSD, .lr = 1, .epochs = 2, .decay_ratio = 1.01, SPE}, {{0}}},
    {"one cycle that ends above its first rate", {RUN(ONE_CYCLE), .epochs = 2, .div_factor = 1, .final_div_factor = 0.5}, {{0}}},
    {"a plateau that raises the rate", {RUN(PLATEAU), .gamma = 1.01}, {{0}}},
    {"the first unknown schedule", {(lt_schedule_kind)(LT_SCHEDULE_PLATEAU + 1), .lr = 1, SPE}, {{0}}},
    {"an unknown schedule", {(lt_schedule_kind)99, .lr = 1, SPE}, {{0}}},
};
/* clang-format on */

/* Returns the rates that differ from a line "NAME RATE RATE ..." of schedules.txt, or -1 if it has no such line. */
static int count_differences(const char *name, const lt_schedule *s)
{
    char path[1024], line[2048];
    snprintf(path, sizeof path, "%s/tests/golden/schedules.txt", getenv("LATHER_TEST_SOURCE"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int different = -1;
    const size_t bytes = strlen(name);
    while (different < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, bytes) != 0 || line[bytes] != ' ')
            continue;
        char *at = line + bytes;
        different = 0;
        for (int64_t attempt = 1; *at && *at != '\n'; attempt++)
            different += !(fabs(lt_schedule_lr(s, attempt) - strtod(at, &at)) <= 1e-14);
    }
    fclose(file);
    return different;
}

static void gives_the_rates_of_others(void **state)
{
    const row *r = *state;
    assert_ok(lt_schedule_check(&r->schedule));
    assert_int_equal(count_differences(r->name, &r->schedule), 0);
}

static void another_power_is_found(void **state)
{
    (void)state;
    const lt_schedule wrong = {RUN(POLY), .power = 3.01, .epochs = 10};
    assert_true(count_differences("poly", &wrong) > 30);
}

/* Accepted limits; those of bad are next to them. */
static const row edges[] = {
    {"a rate of 0, and a smallest one equal to it", {.lr = 0, .min_lr = 0, SPE}, {{1, 0}}},
    {"a smallest rate equal to the rate", {.lr = 1, .min_lr = 1, SPE}, {{1, 1}}},
    {"one update in an epoch", {.lr = 1, .steps_per_epoch = 1}, {{1, 1}}},
    {"a run just longer than its warm-up",
     {LT_SCHEDULE_COSINE, .lr = 1, .epochs = 2.001, .warmup_epochs = 2, SPE},
     {{1, 0}}},
    {"a gamma of 0", {LT_SCHEDULE_STEP, .lr = 1, .step_epochs = 1, SPE}, {{10, 1}, {11, 0}}},
    {"a gamma of 1", {LT_SCHEDULE_STEP, .lr = 1, .gamma = 1, .step_epochs = 1, SPE}, {{11, 1}}},
    {"all milestones, the first soon",
     {LT_SCHEDULE_MULTISTEP, .lr = 1, .gamma = 1, .milestone = {1e-9, 2, 3, 4, 5, 6, 7, 8},
      .milestones = LT_MAX_MILESTONES, SPE},
     {{99, 1}}},
    {"a decay that begins when the warm-up ends",
     {LT_SCHEDULE_WSD, .lr = 1, .epochs = 2, .decay_ratio = 0.5, .warmup_epochs = 1, SPE},
     {{1, 0}, {10, 0.9}, {11, 1}, {16, 0.5}}},
    {"one cycle from and to its highest rate",
     {LT_SCHEDULE_ONE_CYCLE, .lr = 1, .epochs = 1, .div_factor = 1, .final_div_factor = 1, SPE},
     {{1, 1}, {10, 1}}},
    {"cycles of one update",
     {LT_SCHEDULE_COSINE_RESTARTS, .lr = 1, .cycle_epochs = 0.1, .cycle_mul = 1, .cycle_decay = 1,
      SPE},
     {{1, 1}, {2, 1}, {9, 1}}},
    {"a small power", {LT_SCHEDULE_POLY, .lr = 1, .epochs = 2, .power = 1e-9, SPE}, {{1, 1}}},
};

static const row bad[] = {
    {"an infinite rate", {.lr = (double)INFINITY, SPE}, {{0}}},
    {"a negative smallest rate", {.lr = 1, .min_lr = -0.1, SPE}, {{0}}},
    {"a negative rate of the warm-up", {.lr = 1, .warmup_lr = -0.1, SPE}, {{0}}},
    {"an infinite rate of the warm-up", {.lr = 1, .warmup_lr = (double)INFINITY, SPE}, {{0}}},
    {"a negative warm-up", {.lr = 1, .warmup_epochs = -0.1, SPE}, {{0}}},
    {"an infinite warm-up", {.lr = 1, .warmup_epochs = (double)INFINITY, SPE}, {{0}}},
    {"an infinite run", {LT_SCHEDULE_COSINE, .lr = 1, .epochs = (double)INFINITY, SPE}, {{0}}},
    {"a negative gamma", {LT_SCHEDULE_STEP, .lr = 1, .gamma = -0.1, .step_epochs = 1, SPE}, {{0}}},
    {"a gamma above 1", {LT_SCHEDULE_MULTISTEP, .lr = 1, .gamma = 1.01, SPE}, {{0}}},
    {"more milestones than there is space for",
     {LT_SCHEDULE_MULTISTEP, .lr = 1, .milestone = {1, 2, 3, 4, 5, 6, 7, 8},
      .milestones = LT_MAX_MILESTONES + 1, SPE},
     {{0}}},
    {"fewer than no milestones", {LT_SCHEDULE_MULTISTEP, .lr = 1, .milestones = -1, SPE}, {{0}}},
    {"a milestone at the start",
     {LT_SCHEDULE_MULTISTEP, .lr = 1, .milestone = {0}, .milestones = 1, SPE},
     {{0}}},
    {"a negative rate", {.lr = -1, SPE}, {{0}}},
    {"a rate that is not a number", {.lr = (double)NAN, SPE}, {{0}}},
    {"a smallest rate above the rate", {.lr = 1, .min_lr = 2, SPE}, {{0}}},
    {"no updates in an epoch", {.lr = 1}, {{0}}},
    {"a run no longer than its warm-up",
     {LT_SCHEDULE_COSINE, .lr = 1, .epochs = 2, .warmup_epochs = 2, SPE},
     {{0}}},
    {"steps of length 0", {LT_SCHEDULE_STEP, .lr = 1, .gamma = 0.1, SPE}, {{0}}},
    {"milestones that do not rise",
     {LT_SCHEDULE_MULTISTEP, .lr = 1, .gamma = 0.1, .milestone = {3, 3}, .milestones = 2, SPE},
     {{0}}},
    {"a power of 0", {LT_SCHEDULE_POLY, .lr = 1, .epochs = 2, SPE}, {{0}}},
};

static void is_refused(void **state)
{
    const row *r = *state;
    assert_status(lt_schedule_check(&r->schedule), LT_E_ARG);
}

static void numbers_out_of_range_are_named(void **state)
{
    (void)state;
    lt_schedule one = {
        LT_SCHEDULE_ONE_CYCLE,   .lr = 1, .epochs = 5, .pct_start = 1.25, .div_factor = 25,
        .final_div_factor = 1e4, SPE};
    assert_fails(lt_schedule_check(&one), LT_E_ARG, "schedule: pct_start 1.25 is not in [0,1]");
    one.pct_start = -0.5;
    assert_fails(lt_schedule_check(&one), LT_E_ARG, "schedule: pct_start -0.5 is not in [0,1]");
    one.pct_start = 1;
    assert_ok(lt_schedule_check(&one));
    lt_schedule cycles = {LT_SCHEDULE_COSINE_RESTARTS, .lr = 1, .cycle_epochs = 2, .cycle_mul = 1,
                          .cycle_decay = 1.5,          SPE};
    assert_fails(lt_schedule_check(&cycles), LT_E_ARG, "schedule: cycle_decay 1.5 is not in (0,1]");
    cycles.cycle_decay = 0;
    assert_fails(lt_schedule_check(&cycles), LT_E_ARG, "schedule: cycle_decay 0 is not in (0,1]");
    cycles.cycle_decay = 1;
    assert_ok(lt_schedule_check(&cycles));
}

enum { MOST = 80 };

static size_t add_rows(struct CMUnitTest *tests, size_t at, const row *list, size_t count,
                       CMUnitTestFunction test)
{
    assert(at + count < MOST);
    for (size_t i = 0; i < count; i++)
        tests[at++] = row_test(list[i].name, test, &list[i]);
    return at;
}

int main(void)
{
    static struct CMUnitTest tests[MOST] = {cmocka_unit_test(another_power_is_found),
                                            cmocka_unit_test(numbers_out_of_range_are_named)};
    size_t at = add_rows(tests, 2, rows, COUNT_OF(rows), gives_these_rates);
    at = add_rows(tests, at, edges, COUNT_OF(edges), gives_these_rates);
    at = add_rows(tests, at, reductions, COUNT_OF(reductions), gives_these_rates);
    at = add_rows(tests, at, peers, COUNT_OF(peers), gives_the_rates_of_others);
    at = add_rows(tests, at, bad, COUNT_OF(bad), is_refused);
    add_rows(tests, at, bad_kinds, COUNT_OF(bad_kinds), is_refused);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
