/* The order of samples is a permutation for every count, differs by seed and epoch, and is divided completely among
 * ranks. */

#include "base/alloc.h"
#include "base/rng.h"
#include "data/loader/sampler.h"
#include "near.h"

#include "lather/ext/dataset.h"

#include <math.h>
#include <stdlib.h>

static bool is_permutation(int64_t count, int64_t (*at)(int64_t count, int64_t place))
{
    uint8_t *seen = calloc((size_t)count, 1);
    bool right = true;
    for (int64_t i = 0; i < count; i++) {
        int64_t x = at(count, i);
        right = right && x >= 0 && x < count && !seen[x];
        if (right)
            seen[x] = 1;
    }
    free(seen);
    return right;
}

static int64_t shuffled(int64_t count, int64_t place)
{
    return lt_sampler_permute(count, 42, 7, place);
}

static int64_t repeated(int64_t count, int64_t place)
{
    return lt_sampler_permute(count, 42, 7, place / 2);
}

static void check_permutation(void **state)
{
    (void)state;
    for (int64_t count = 1; count < 70; count++)
        assert_true(is_permutation(count, shuffled));
    assert_true(is_permutation(1 << 12, shuffled));
    assert_true(is_permutation((1 << 12) + 1, shuffled));
    assert_true(is_permutation(60000, shuffled));
    assert_false(is_permutation(100, repeated)); /* control */
}

/* Each position gets each index equally often: the chi-square statistic of a 5 x 5 table of 4000 draws, with 16 degrees
 * of freedom, is below its 1 - 1e-6 quantile, 58. */
static void check_uniform(void **state)
{
    enum { N = 5, EPOCHS = 4000 };
    (void)state;
    int seen[N][N] = {0};
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < N; i++)
            seen[i][lt_sampler_permute(N, 1, e, i)]++;
    double chi = 0, want = (double)EPOCHS / N;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            chi += (seen[i][k] - want) * (seen[i][k] - want) / want;
    assert_near(chi, 0, 58);
}

static void check_keys(void **state)
{
    enum { COUNT = 1000 };
    (void)state;
    int same_epoch = 0, same_seed = 0, fixed = 0, adjacent = 0;
    for (int i = 0; i < COUNT; i++) {
        int64_t x = lt_sampler_permute(COUNT, 1, 0, i);
        same_epoch += x == lt_sampler_permute(COUNT, 1, 1, i);
        same_seed += x == lt_sampler_permute(COUNT, 2, 0, i);
        fixed += x == i;
        adjacent += llabs(x - lt_sampler_permute(COUNT, 1, 0, (i + 1) % COUNT)) == 1;
    }
    /* expected: 1, 1, 1, 2 */
    assert_true(same_epoch < 10 && same_seed < 10 && fixed < 10 && adjacent < 14);
}

static void check_ranks(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        for (int64_t count = 5; count < 60; count += 7)
            for (int mode = 0; mode < 4; mode++) {
                int *seen = calloc((size_t)count, sizeof *seen);
                int64_t total = 0;
                for (int rank = 0; rank < size; rank++) {
                    lt_sampler s = {.count = count, .rank = rank, .size = size, .seed = 3};
                    s.shuffle = mode & 1;
                    s.drop_last = mode & 2;
                    total += lt_sampler_rank_samples(&s);
                    for (int64_t i = 0; i < lt_sampler_rank_samples(&s); i++)
                        seen[lt_sampler_index(&s, 2, i)]++;
                }
                assert_int_equal(total, mode & 2 ? count / size * size : count);
                int once = 0;
                for (int64_t i = 0; i < count; i++) {
                    assert_true(seen[i] <= 1);
                    once += seen[i];
                }
                assert_int_equal(once, total);
                free(seen);
            }
}

/* Over all ranks each of the epoch's images comes `repeats` times with different keys; the last one may come less
 * often. */
static void check_repeats(void **state)
{
    enum { COUNT = 23, SEED = 3, EPOCH = 2 };
    (void)state;
    for (int repeats = 1; repeats <= 4; repeats++)
        for (int size = 1; size <= 5; size++) {
            int seen[COUNT] = {0};
            uint64_t keys[COUNT];
            for (int rank = 0; rank < size; rank++) {
                const lt_sampler s = {.count = COUNT,
                                      .rank = rank,
                                      .size = size,
                                      .seed = SEED,
                                      .shuffle = true,
                                      .repeats = repeats};
                for (int64_t i = 0; i < lt_sampler_rank_samples(&s); i++) {
                    int64_t index = lt_sampler_index(&s, EPOCH, i);
                    seen[index]++;
                    keys[i * size + rank] = lt_sampler_sample_key(&s, EPOCH, i, index);
                }
            }
            for (int i = 0; i < COUNT; i++)
                for (int j = 0; j < i; j++)
                    assert_true(keys[i] != keys[j]);
            for (int64_t first = 0; first < COUNT; first += repeats) {
                int64_t index = lt_sampler_permute(COUNT, SEED, EPOCH, first / repeats);
                assert_int_equal(seen[index], COUNT - first < repeats ? COUNT - first : repeats);
                assert_true(keys[first]
                            == lt_rng_key(SEED, LT_STREAM_AUGMENT, EPOCH, (uint64_t)index));
            }
        }
}

/* A part of a data set is spread evenly over it and divided among ranks. */
static void check_spread(void **state)
{
    (void)state;
    for (int64_t all = 1; all < 40; all++)
        for (int64_t count = 1; count <= all; count++) {
            const lt_sampler s = {.count = count, .size = 1, .spread = all},
                             large = {.count = count, .size = 1, .spread = all << 30};
            int64_t before = -all / count;
            for (int64_t i = 0; i < count; i++) {
                int64_t index = lt_sampler_index(&s, 0, i);
                assert_in_range(index - before, all / count, (all + count - 1) / count);
                assert_true(index < all && lt_sampler_index(&large, 0, i) < all << 30);
                before = index;
            }
            const lt_sampler last = {
                .count = count, .rank = (int)count - 1, .size = (int)count, .spread = all};
            assert_int_equal(lt_sampler_index(&last, 0, 0), before);
        }
}

/* Classes of 90, 9, 0 and 1 samples, in turn; a sample's label may be overwritten. */
enum { UNEQUAL = 100, LABELS = 4 };
static int32_t unequal_label[UNEQUAL];

static lt_status read_unequal(const lt_dataset *self, int64_t index, lt_record *record)
{
    (void)self;
    record->label = unequal_label[index];
    return LT_OK;
}

static lt_dataset *open_unequal(void)
{
    static const lt_dataset_ops ops = {
        .name = "unequal", .bytes = sizeof(lt_dataset), .read = read_unequal};
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_new(&d, &ops));
    d->count = UNEQUAL;
    d->classes = LABELS;
    for (int i = 0; i < UNEQUAL; i++)
        unequal_label[i] = i == 50 ? 3 : i % 11 == 7;
    return d;
}

/* As weights inverse to the class's samples: each class that has any equally often, and each sample of a class. */
static void check_balance(void **state)
{
    enum { EPOCHS = 300, SEED = 5 };
    (void)state;
    lt_dataset *d = open_unequal();
    int64_t *memory = NULL, seen[UNEQUAL] = {0}, of_class[LABELS] = {0}, members[LABELS] = {0};
    lt_sampler all = {.count = UNEQUAL, .size = 1, .seed = SEED, .shuffle = true};
    assert_ok(lt_sampler_balance(&all, &memory, d));
    assert_int_equal(all.classes, 3);
    int same = 0, twice = 0, label;
    for (int e = 0; e < EPOCHS; e++)
        for (int64_t i = 0; i < UNEQUAL; i++) {
            const int64_t index = lt_sampler_index(&all, e, i);
            lt_sampler ranked = all;
            ranked.size = 3;
            ranked.rank = (int)(i % 3);
            assert_int_equal(lt_sampler_index(&ranked, e, i / 3),
                             index); /* ranks share positions */
            seen[index]++;
            of_class[unequal_label[index]]++;
            same += index == lt_sampler_index(&all, e + 1, i);
            twice += i && index == lt_sampler_index(&all, e, i - 1)
                     && lt_sampler_sample_key(&all, e, i, index)
                            != lt_sampler_sample_key(&all, e, i - 1, index);
        }
    double chi = 0, within = 0;
    for (int i = 0; i < UNEQUAL; i++)
        members[unequal_label[i]]++;
    assert_true(members[2] == 0 && members[3] == 1 && members[0] > 80);
    for (int k = 0; k < LABELS; k++)
        chi += members[k]
                   ? pow((double)of_class[k] - EPOCHS * UNEQUAL / 3., 2) / (EPOCHS * UNEQUAL / 3.)
                   : 0;
    for (int i = 0; i < UNEQUAL; i++) {
        const double want = (double)of_class[unequal_label[i]] / (double)members[unequal_label[i]];
        within += pow((double)seen[i] - want, 2) / want;
    }
    assert_near(chi, 0, 27.6);   /* 2 degrees of freedom, 1 - 1e-6 */
    assert_near(within, 0, 180); /* 97 */
    assert_true(same < EPOCHS * UNEQUAL / 2 && twice > EPOCHS);
    lt_free(memory);
    unequal_label[3] = LABELS;
    assert_fails(lt_dataset_label(d, 3, &label), LT_E_FORMAT,
                 "unequal: sample 3 has label 4, want 0 .. 3");
    assert_status(lt_sampler_balance(&all, &memory, d), LT_E_FORMAT);
    lt_free(memory);
    lt_dataset_free(&d);
}

/* lt_dataset_map_classes(): labels are the model's, of which there may be more. */
static void check_balance_of_mapped_labels(void **state)
{
    (void)state;
    enum { MORE = 40 };
    lt_dataset *d = open_unequal();
    int64_t *memory = NULL;
    int32_t map[LABELS] = {MORE - 1, 20, 3, 0};
    lt_sampler all = {.count = UNEQUAL, .size = 1, .shuffle = true};
    d->label_map = map;
    d->map_classes = MORE;
    assert_ok(lt_sampler_balance(&all, &memory, d));
    assert_int_equal(all.classes, 3);
    assert_int_equal(all.first[1], 1); /* label 0: one sample */
    lt_free(memory);
    d->label_map = NULL;
    d->map_classes = 0;
    lt_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every count has a permutation", check_permutation, 0, 0, 0},
        {"over epochs every index is equally likely at every position", check_uniform, 0, 0, 0},
        {"epochs and seeds have different orders", check_keys, 0, 0, 0},
        {"the ranks partition the epoch", check_ranks, 0, 0, 0},
        {"a part is spread evenly over the data set", check_spread, 0, 0, 0},
        {"repeats of an image have different keys", check_repeats, 0, 0, 0},
        {"weighted positions draw all classes equally often", check_balance, 0, 0, 0},
        {"  and those of mapped labels", check_balance_of_mapped_labels, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
