/* Learning-rate schedules at chosen updates. */

#include "near.h"

#include "lather/schedule.h"

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

int main(void)
{
    enum { G = COUNT_OF(rows), B = COUNT_OF(bad), E = COUNT_OF(edges) };
    struct CMUnitTest tests[G + B + E];
    for (size_t i = 0; i < G; i++)
        tests[i] = row_test(rows[i].name, gives_these_rates, &rows[i]);
    for (size_t i = 0; i < B; i++)
        tests[G + i] = row_test(bad[i].name, is_refused, &bad[i]);
    for (size_t i = 0; i < E; i++)
        tests[G + B + i] = row_test(edges[i].name, gives_these_rates, &edges[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
