/* Permutes indices by a Feistel network over the next power of four, applied until the result is in the range (cycle
 * walking). Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, sections 3 and 4; the round function
 * is Philox. */

#include "data/loader/sampler.h"

#include "base/alloc.h"
#include "base/rng.h"

#include "lather/ext/dataset.h"

enum { ROUNDS = 8 };

/* Feistel network on two halves of `half` bits each. */
static uint64_t feistel(uint64_t x, int half, uint64_t key)
{
    uint64_t mask = (UINT64_C(1) << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t word[4];
        lt_philox(key, round, right, word);
        uint64_t mixed = left ^ (((uint64_t)word[1] << 32 | word[0]) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t lt_sampler_permute(int64_t count, uint64_t seed, int64_t epoch, int64_t position)
{
    LT_ASSERT(position >= 0 && position < count); /* otherwise the cycle may not reach the range */
    uint64_t key = lt_rng_key(seed, LT_STREAM_ORDER, (uint64_t)epoch, 0);
    int half = 1;
    while (half < 31 && UINT64_C(1) << (2 * half) < (uint64_t)count)
        half++;
    uint64_t x = (uint64_t)position;
    do
        x = feistel(x, half, key);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}

/* Returns the number of consecutive positions of a rank. */
static int64_t run_length(const lt_sampler *s)
{
    return s->batch ? s->batch * s->accum : 1;
}

int64_t lt_sampler_rank_samples(const lt_sampler *s)
{
    const int64_t run = run_length(s), whole = s->count / (run * s->size) * run;
    const int64_t rest = s->count % (run * s->size) - s->rank * run;
    if (s->drop_last || rest < 0)
        return whole;
    return whole + (rest < run ? rest : run);
}

/* Returns the epoch's position of this rank's i-th sample. */
static int64_t sample_position(const lt_sampler *s, int64_t i)
{
    const int64_t run = run_length(s);
    return (i / run * s->size + s->rank) * run + i % run;
}

static int repeat_count(const lt_sampler *s)
{
    return s->repeats > 1 ? s->repeats : 1;
}

/* Reads the labels once: without a list of labels each takes the reading of a sample. */
static lt_status read_labels(int *label, const lt_dataset *d)
{
    for (int64_t i = 0; i < d->count; i++)
        LT_TRY(lt_dataset_label(d, i, &label[i]));
    return LT_OK;
}

static void list_by_class(lt_sampler *s, int64_t *memory, const lt_dataset *d, const int *label)
{
    const int classes = lt_dataset_classes(d);
    s->first = memory; /* after counting and summing, first[k + 1] is the begin of class k */
    s->index = memory + classes + 2;
    for (int64_t i = 0; i < d->count; i++)
        s->first[label[i] + 2]++;
    for (int k = 2; k < classes + 2; k++)
        s->first[k] += s->first[k - 1];
    for (int64_t i = 0; i < d->count; i++)
        s->index[s->first[label[i] + 1]++] = i; /* at last the begin of the next class */
    for (int k = 0; k < classes; k++)
        if (s->first[k + 1] > s->first[s->classes])
            s->first[++s->classes] = s->first[k + 1];
}

lt_status lt_sampler_balance(lt_sampler *s, int64_t **memory, const lt_dataset *d)
{
    int *label = NULL;
    LT_TRY(LT_ALLOC(memory, lt_dataset_classes(d) + 2 + d->count));
    LT_TRY(LT_ALLOC(&label, d->count));
    const lt_status st = read_labels(label, d);
    if (!st)
        list_by_class(s, *memory, d, label);
    lt_free(label);
    return st;
}

/* Draws a class, then one of its samples. */
static int64_t draw_sample(const lt_sampler *s, int64_t epoch, int64_t position)
{
    uint32_t word[4];
    lt_philox(lt_rng_key(s->seed, LT_STREAM_ORDER, (uint64_t)epoch, 2), 0, (uint64_t)position,
              word);
    const int64_t *first = s->first + ((uint64_t)word[0] * (uint64_t)s->classes >> 32);
    const uint64_t bits = (uint64_t)word[2] << 32 | word[1];
    return s->index[first[0] + (int64_t)(bits % (uint64_t)(first[1] - first[0]))];
}

uint64_t lt_sampler_sample_key(const lt_sampler *s, int64_t epoch, int64_t i, int64_t index)
{
    int64_t repeat = sample_position(s, i) % repeat_count(s);
    if (s->classes) /* a sample that is drawn twice has two augmentations */
        index = sample_position(s, i) / repeat_count(s);
    uint64_t key = lt_rng_key(s->seed, LT_STREAM_AUGMENT, (uint64_t)epoch, (uint64_t)index);
    return repeat ? lt_rng_key(key, LT_STREAM_AUGMENT, (uint64_t)repeat, 0) : key;
}

uint64_t lt_sampler_epoch_key(const lt_sampler *s, int64_t epoch)
{
    return s->shuffle ? lt_rng_key(s->seed, LT_STREAM_ORDER, (uint64_t)epoch, 1) : 0;
}

int64_t lt_sampler_index(const lt_sampler *s, int64_t epoch, int64_t i)
{
    int64_t position = sample_position(s, i) / repeat_count(s);
    if (s->classes)
        return draw_sample(s, epoch, position);
    if (s->shuffle)
        return lt_sampler_permute(s->count, s->seed, epoch, position);
    const int64_t step = s->spread / s->count, rest = s->spread % s->count;
    return s->spread ? position * step + position * rest / s->count : position;
}
