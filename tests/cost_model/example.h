/* A small profile, a machine and one rank, whose costs tests compute by hand. */
#ifndef LT_TESTS_PLAN_EXAMPLE_H
#define LT_TESTS_PLAN_EXAMPLE_H

#include "near.h"

#include "lather/detail/plan.h"

/* Two buckets of 10^6 and 3 10^6 floats; the first is ready in the middle of backward. */
static const lt_cost_bucket buckets[] = {{.elements = 1000000, .ready = 0.5},
                                         {.elements = 3000000, .ready = 1}};
static const lt_plan_profile profile = {
    .fixed = 0.01,
    .per_sample = 0.005,
    .load_per_sample = 0.001,
    .bucket = buckets,
    .buckets = 2,
    .backward = 0.5,
    .update = 0.006,
    .refresh = 0.5,
    .state_bytes = 64e6,
    .parameter_bytes = 16e6,
    .activation_bytes = 1e6,
    .layers = 2,
    .hidden = 512,
    .tokens = 100,
};
/* Links of 10^8 bytes per second between nodes, without latency. */
static const lt_plan_machine machine = {
    .cluster = {.per_node = 1, .within = {.bandwidth = 1e10}, .between = {.bandwidth = 1e8}},
    .memory = 1e9,
};
static const lt_plan_setup alone = {.ranks = 1, .batch_size = 18, .frequency = 50};

static const double tiny = 1e-12;

static inline lt_plan_cost predict(const lt_plan_profile *p, const lt_plan_machine *m,
                                   const lt_plan_setup *s)
{
    lt_plan_cost c = {0};
    assert_ok(lt_plan_predict(&c, p, m, s));
    return c;
}

#endif
