/* Samples the next id. top_k and top_p take the most likely ids from a heap one by one, without sorting the
 * vocabulary. */

#include "lather/sampling.h"

#include "base/alloc.h"
#include "base/rng.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdbool.h>

static lt_status check_config(const lt_sampling *c, int count)
{
    if (!(c->temperature >= 0) || !isfinite(c->temperature))
        return lt_fail(LT_E_ARG, "sampling: temperature is %g, want 0 or more", c->temperature);
    if (!(c->top_p >= 0 && c->top_p <= 1))
        return lt_fail(LT_E_ARG, "sampling: top_p is %g, want 0 .. 1", c->top_p);
    if (c->top_k < 0 || count < 1)
        return lt_fail(LT_E_ARG, "sampling: top_k is %d, %d logits; want 0 or more, at least 1",
                       c->top_k, count);
    return LT_OK;
}

/* Sets *best to the id with the largest logit, the lowest one if several are equal. */
static lt_status find_best(const float *logits, int count, int32_t *best)
{
    *best = 0;
    for (int32_t id = 0; id < count; id++) {
        if (isnan(logits[id]) || (isinf(logits[id]) && logits[id] > 0))
            return lt_fail(LT_E_ARG, "sampling: the logit of id %d is %g", id, (double)logits[id]);
        if (logits[id] > logits[*best])
            *best = id;
    }
    return isinf(logits[*best]) ? lt_fail(LT_E_ARG, "sampling: all %d logits are -inf", count)
                                : LT_OK;
}

/* --- Heap of ids, the most likely on top --- */

static bool is_likelier(const float *logits, int32_t a, int32_t b)
{
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

/* Sifts down the id at `at`. */
static void sift_down(int32_t *heap, int count, int at, const float *logits)
{
    const int32_t id = heap[at];
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_likelier(logits, heap[child + 1], heap[child]))
            child++;
        if (!is_likelier(logits, heap[child], id))
            break;
        heap[at] = heap[child];
    }
    heap[at] = id;
}

static void make_heap(int32_t *heap, int count, const float *logits)
{
    for (int32_t id = 0; id < count; id++)
        heap[id] = id;
    for (int at = count / 2 - 1; at >= 0; at--)
        sift_down(heap, count, at, logits);
}

/* --- Drawing --- */

/* Ids to sample from, with weights exp((logit - largest) / temperature). */
typedef struct candidates {
    const float *logits;
    float largest;
    double temperature;
    int32_t *id; /* NULL means 0 .. count-1 */
    int count;
} candidates;

static int32_t id_at(const candidates *c, int i)
{
    return c->id ? c->id[i] : i;
}

static double candidate_weight(const candidates *c, int i)
{
    return lt_f64_exp(((double)c->logits[id_at(c, i)] - (double)c->largest) / c->temperature);
}

static double sum_of_weights(const candidates *c)
{
    double sum = 0;
    for (int i = 0; i < c->count; i++)
        sum += candidate_weight(c, i);
    return sum;
}

/* Returns the first id at which the sum of weights exceeds the fraction u of the total, 0 <= u < 1. If rounding
 * prevents that, the last id with a positive weight. */
static int32_t draw_id(const candidates *c, double u)
{
    const double want = u * sum_of_weights(c);
    double sum = 0;
    int last = 0;
    for (int i = 0; i < c->count; i++) {
        const double w = candidate_weight(c, i);
        sum += w;
        last = w > 0 ? i : last;
        if (sum > want)
            return id_at(c, i);
    }
    return id_at(c, last);
}

/* Stores the most likely ids in id, the most likely first, until there are `most` or their weights sum to `enough`.
 * heap: workspace for all ids. Returns the number of ids. */
static int select_top(const candidates *all, int most, double enough, int32_t *heap, int32_t *id)
{
    int count = 0;
    double sum = 0;
    make_heap(heap, all->count, all->logits);
    while (count < most && sum < enough) {
        id[count] = heap[0];
        sum += candidate_weight(all, id[count++]);
        heap[0] = heap[all->count - count];
        sift_down(heap, all->count - count, 0, all->logits);
    }
    return count;
}

/* Returns how many ids at the beginning of c->id, the most likely first, have the fraction top_p of the total
 * weight. */
static int count_top_p(const candidates *c, double top_p)
{
    const double want = top_p * sum_of_weights(c);
    double sum = 0;
    for (int i = 0; i < c->count; i++) {
        sum += candidate_weight(c, i);
        if (sum >= want)
            return i + 1;
    }
    return c->count;
}

static bool is_top_p_active(double top_p)
{
    return top_p > 0 && top_p < 1;
}

/* Draws from the ids that top_k and top_p permit. */
static lt_status draw_from_top(const candidates *all, const lt_sampling *s, double u, int32_t *id)
{
    const int most = s->top_k && s->top_k < all->count ? s->top_k : all->count;
    const double enough = s->top_k ? (double)INFINITY : s->top_p * sum_of_weights(all);
    int32_t *heap = lt_alloc((size_t)all->count, 2 * sizeof *heap);
    if (!heap)
        return LT_E_NOMEM;
    candidates c = *all;
    c.id = heap + all->count;
    c.count = select_top(all, most, enough, heap, c.id);
    if (s->top_k && is_top_p_active(s->top_p))
        c.count = count_top_p(&c, s->top_p);
    *id = draw_id(&c, u);
    lt_free(heap);
    return LT_OK;
}

lt_status lt_sample_id(int32_t *id, const float *logits, int count, const lt_sampling *config,
                       int64_t text, int64_t place)
{
    int32_t best;
    LT_TRY(check_config(config, count));
    LT_TRY(find_best(logits, count, &best));
    *id = best;
    if (config->temperature == 0)
        return LT_OK;
    const candidates all = {.logits = logits,
                            .largest = logits[best],
                            .temperature = config->temperature,
                            .count = count};
    lt_rng rng = {.key =
                      lt_rng_key(config->seed, LT_STREAM_SAMPLE, (uint64_t)text, (uint64_t)place)};
    const double u = lt_rng_uniform(&rng);
    if (config->top_k || is_top_p_active(config->top_p))
        return draw_from_top(&all, config, u, id);
    *id = draw_id(&all, u);
    return LT_OK;
}
