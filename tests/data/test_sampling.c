/* Sampling compared with the probabilities of a simple reference, which sorts. */

#include "base/rng.h"
#include "near.h"

#include "lather/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 257, DRAWS = 20000 };

typedef struct row {
    const char *name;
    lt_sampling config;
    int count;  /* number of logits */
    int levels; /* number of possible values */
} row;

static row rows[] = {
    {"all ids", {.temperature = 1}, IDS, 1 << 20},
    {"all ids, cold", {.temperature = 0.1}, IDS, 1 << 20},
    {"the top 10", {.temperature = 1, .top_k = 10}, IDS, 1 << 20},
    {"the top 10, many equal", {.temperature = 0.8, .top_k = 10}, IDS, 5},
    {"the top 1000 of fewer", {.temperature = 1, .top_k = 1000}, 31, 1 << 20},
    {"the top 1", {.temperature = 2, .top_k = 1}, IDS, 1 << 20},
    {"90 %", {.temperature = 1, .top_p = 0.9}, IDS, 1 << 20},
    {"0.1 % is one id", {.temperature = 1, .top_p = 0.001}, IDS, 1 << 20},
    {"50 %, all equal", {.temperature = 1, .top_p = 0.5}, 8, 1},
    {"the top 40, and 80 % of them", {.temperature = 1.3, .top_k = 40, .top_p = 0.8}, IDS, 1 << 20},
    {"one id", {.temperature = 1, .top_k = 3, .top_p = 0.3}, 1, 1},
};

typedef struct item {
    float logit;
    int32_t id;
} item;

static int by_logit(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void make_logits(float *logits, int count, int levels, uint64_t seed)
{
    lt_rng rng = {.key = seed};
    for (int i = 0; i < count; i++)
        logits[i] = (float)lt_rng_below(&rng, (uint32_t)levels) * 8 / (float)levels;
    if (count > 20)
        logits[count / 2] = -INFINITY;
}

/* Computes the probability of each id by sorting. Returns the number of possible ids. */
static int probabilities(const float *logits, int count, const lt_sampling *s, double *p)
{
    item *sorted = malloc((size_t)count * sizeof *sorted);
    double all = 0, sum = 0, kept = 0;
    assert_non_null(sorted);
    for (int i = 0; i < count; i++)
        sorted[i] = (item){logits[i], i};
    qsort(sorted, (size_t)count, sizeof *sorted, by_logit);
    const int k = s->top_k && s->top_k < count ? s->top_k : count;
    for (int i = 0; i < count; i++)
        p[i] = 0;
    for (int i = 0; i < k; i++)
        all += exp(((double)sorted[i].logit - (double)sorted[0].logit) / s->temperature);
    int left = 0;
    while (left < k && (!left || s->top_p == 0 || sum < s->top_p * all * (1 - 1e-12))) {
        const item *it = &sorted[left++];
        p[it->id] = exp(((double)it->logit - (double)sorted[0].logit) / s->temperature);
        sum += p[it->id];
    }
    for (int i = 0; i < count; i++)
        kept += p[i];
    for (int i = 0; i < count; i++)
        p[i] /= kept;
    free(sorted);
    return left;
}

/* Returns the chi-square statistic of the draws; bins with few expected draws are merged. */
static double chi_square(const int *seen, const double *p, int count, int *bins)
{
    double sum = 0, rest = 0, rest_seen = 0;
    *bins = 0;
    for (int i = 0; i < count; i++) {
        const double want = p[i] * DRAWS;
        if (want < 10) {
            rest += want;
            rest_seen += seen[i];
            continue;
        }
        sum += (seen[i] - want) * (seen[i] - want) / want;
        ++*bins;
    }
    if (rest > 1) {
        sum += (rest_seen - rest) * (rest_seen - rest) / rest;
        ++*bins;
    }
    return sum;
}

static void check_row(void **state)
{
    const row *r = *state;
    float logits[IDS];
    double p[IDS];
    int seen[IDS] = {0}, bins;
    lt_sampling config = r->config;
    config.seed = 3;
    make_logits(logits, r->count, r->levels, 9);
    const int left = probabilities(logits, r->count, &config, p);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = -1, again = -1;
        assert_ok(lt_sample_id(&id, logits, r->count, &config, i % 7, i));
        assert_in_range(id, 0, r->count - 1);
        assert_true(p[id] > 0); /* selected by top_k and top_p */
        seen[id]++;
        if (i % 100)
            continue;
        assert_ok(lt_sample_id(&again, logits, r->count, &config, i % 7, i));
        assert_int_equal(again, id);
    }
    const double got = chi_square(seen, p, r->count, &bins);
    const double most = bins + 5 * sqrt(2.0 * bins); /* mean bins - 1, deviation sqrt(2 bins) */
    if (!(got <= most))
        fail_msg("chi-square %g of %d bins, allowed %g", got, bins, most);
    if (left < 2)
        return;
    double wrong[IDS]; /* control: a higher temperature, and the first id 20 % more likely */
    config.temperature *= 1.3;
    (void)probabilities(logits, r->count, &config, wrong);
    int first = 0;
    while (wrong[first] == 0)
        first++;
    wrong[first] *= 1.2;
    assert_true(chi_square(seen, wrong, r->count, &bins) > most);
}

static void check_greedy(void **state)
{
    (void)state;
    const float logits[] = {-INFINITY, 1, 3, 3, -2};
    const lt_sampling s = {.top_k = 2, .top_p = 0.5};
    int32_t id = -1;
    for (int i = 0; i < 100; i++) {
        assert_ok(lt_sample_id(&id, logits, COUNT_OF(logits), &s, 0, i));
        assert_int_equal(id, 2);
    }
}

/* Draws with another place, text or seed differ. */
static void check_stream(void **state)
{
    (void)state;
    float logits[IDS] = {0};
    int same[3] = {0};
    for (int i = 0; i < 1000; i++) {
        int32_t id[4];
        for (int k = 0; k < 4; k++) {
            const lt_sampling s = {.temperature = 1, .seed = k == 3};
            assert_ok(lt_sample_id(&id[k], logits, IDS, &s, k == 1, k == 2 ? i + 1 : i));
        }
        for (int k = 0; k < 3; k++)
            same[k] += id[k + 1] == id[0];
    }
    for (int k = 0; k < 3; k++)
        assert_in_range(same[k], 0, 20);
}

static void check_wrong(void **state)
{
    (void)state;
    float logits[4] = {0, 1, 2, 3};
    int32_t id;
    lt_sampling s = {.temperature = -1};
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "temperature is -1");
    s.temperature = (double)NAN;
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "temperature is nan");
    s = (lt_sampling){.top_p = 1.5};
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "top_p is 1.5, want 0 .. 1");
    s = (lt_sampling){.top_k = -1};
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "top_k is -1, 4 logits");
    s = (lt_sampling){0};
    assert_fails(lt_sample_id(&id, logits, 0, &s, 0, 0), LT_E_ARG, "0 logits; want");
    logits[2] = NAN;
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "the logit of id 2 is nan");
    logits[2] = INFINITY;
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "the logit of id 2 is inf");
    for (int i = 0; i < 4; i++)
        logits[i] = -INFINITY;
    assert_fails(lt_sample_id(&id, logits, 4, &s, 0, 0), LT_E_ARG, "all 4 logits are -inf");
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"temperature 0 selects the first largest logit", check_greedy, 0, 0, 0},
        {"seed, text and place give independent draws", check_stream, 0, 0, 0},
        {"invalid arguments are rejected", check_wrong, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(rows)];
    size_t n = COUNT_OF(more);
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = row_test(rows[i].name, check_row, &rows[i]);
    return _cmocka_run_group_tests("sampling", tests, n, NULL, NULL);
}
