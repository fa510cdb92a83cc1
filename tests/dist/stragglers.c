/* Backup workers and DropCompute, on ranks that are threads with given gradients, some of them late. */

#include "lather/stragglers.h"

#include "brought.h"

#include "lather/ops.h"

#include <stdatomic.h>
#include <time.h>

enum { UPDATES_HERE = 24, NEEDED = 3 };

typedef struct record {
    bool set[RANKS];
    float mean[PARAMS][MOST];
} record;

static record log_of[RANKS][UPDATES_HERE];
static bool given[UPDATES_HERE][RANKS];

/* Gradients whose sums depend on their order. */
static double rough(int rank, int t, int k, int64_t i)
{
    const double size[RANKS] = {1, 1e-3, 1e4, 30};
    return (double)(float)(size[(rank + t) % RANKS]
                           * number(names[k], ((int64_t)rank * 977 + t) * MOST + i));
}

static lt_status bring_rough(world *w, int t)
{
    double g[MOST];
    for (int k = 0; k < PARAMS; k++) {
        for (int64_t i = 0; i < count_of(k); i++)
            g[i] = rough(w->at.rank, t, k, i);
        LT_TRY(bring(w, k, g));
    }
    return LT_OK;
}

static void nap(double milliseconds)
{
    const long ns = (long)(1e6 * milliseconds);
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* Computes for that time, or until this rank is excluded. */
static void compute(const world *w, double milliseconds)
{
    for (double done = 0; done < milliseconds && !lt_data_parallel_is_late(w->dp); done += 0.2)
        nap(0.2);
}

/* Makes an update and records its result. */
static lt_status update(world *w, int t, const bool *set, double milliseconds)
{
    record *out = &log_of[w->at.rank][t];
    LT_TRY(lt_data_parallel_begin_update(w->dp, t + 1, set));
    compute(w, milliseconds);
    LT_TRY(bring_rough(w, t));
    LT_TRY(average(w, true));
    for (int r = 0; r < w->at.ranks; r++)
        out->set[r] =
            lt_data_parallel_participants(w->dp) ? lt_data_parallel_participants(w->dp)[r] : true;
    for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < count_of(k); i++)
            out->mean[k][i] = (float)w->mean[k][i];
    return LT_OK;
}

static lt_status updates(world *w)
{
    for (int t = 0; t < UPDATES_HERE; t++)
        LT_TRY(update(w, t, NULL, 4 * (number("delay", 31 * t + w->at.rank) + 0.5)));
    const lt_data_parallel_contributions terms = lt_data_parallel_count_contributions(w->dp);
    w->trace[0] = (double)terms.received;
    w->trace[1] = (double)terms.used;
    w->trace[2] = (double)terms.dropped;
    return LT_OK;
}

static lt_status repeat(world *w)
{
    for (int t = 0; t < UPDATES_HERE; t++)
        LT_TRY(update(w, t, given[t], 4 * (number("other", 31 * t + w->at.rank) + 0.5)));
    return LT_OK;
}

static int members(const record *r)
{
    int count = 0;
    for (int i = 0; i < RANKS; i++)
        count += r->set[i];
    return count;
}

/* The mean of the set, added in rank order, in f32. */
static float mean_of(const record *log, int t, int k, int64_t i)
{
    float sum = 0;
    bool first = true;
    for (int r = 0; r < RANKS; r++) {
        if (!log->set[r])
            continue;
        const float term = (float)rough(r, t, k, i);
        sum = first ? term : sum + term;
        first = false;
    }
    return sum / (float)members(log);
}

static void check_means(int needed)
{
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < UPDATES_HERE; t++) {
            const record *log = &log_of[r][t];
            assert_memory_equal(log->set, log_of[0][t].set, sizeof log->set);
            assert_int_equal(members(log), needed);
            for (int k = 0; k < PARAMS; k++)
                for (int64_t i = 0; i < count_of(k); i++) {
                    const float want = mean_of(log, t, k, i);
                    assert_memory_equal(&log->mean[k][i], &want, sizeof want);
                }
        }
}

/* Bytes received from excluded ranks on all ranks; timing decides whether they had sent any. */
static double dropped_by(const world *w)
{
    double sum = 0;
    for (int r = 0; r < RANKS; r++)
        sum += w[r].trace[2];
    return sum;
}

static void update_is_the_mean_of_the_logged_set(void **state)
{
    (void)state;
    const int attempts = 20;
    const scene s = {.play = updates, .bucket_bytes = 600, .needed = NEEDED};
    const world *w = play_well(&s, RANKS);
    for (int i = 1; i < attempts && !(dropped_by(w) > 0); i++)
        w = play_well(&s, RANKS);
    double received = 0, used = 0;
    const double dropped = dropped_by(w);
    check_means(NEEDED);
    int others = 0;
    for (int t = 0; t < UPDATES_HERE; t++)
        others += memcmp(log_of[0][t].set, log_of[0][0].set, sizeof log_of[0][t].set) != 0;
    assert_true(others > 0); /* delays differ from update to update */
    for (int r = 0; r < RANKS; r++) {
        assert_true(w[r].trace[0] == w[r].trace[1] + w[r].trace[2]);
        received += w[r].trace[0];
        used += w[r].trace[1];
    }
    assert_true(received == used + dropped && dropped > 0);
    /* A participating rank's chunks, nearly a quarter, are not received. */
    double all = 0;
    for (int k = 0; k < PARAMS; k++)
        all += (double)count_of(k) + 1;
    assert_near(used / (UPDATES_HERE * NEEDED * all * 0.75 * sizeof(float)), 1, 0.02);
}

static void sets_of_all_sizes(void **state)
{
    (void)state;
    for (int needed = 1; needed <= RANKS; needed++) {
        const scene s = {.play = updates, .bucket_bytes = 1 << 20, .needed = needed};
        play_well(&s, RANKS);
        check_means(needed);
    }
}

/* Copies rank 0's results. */
static void keep(record *out)
{
    memcpy(out, log_of[0], sizeof log_of[0]);
}

static void all_needed_is_an_all_reduce(void **state)
{
    (void)state;
    static record want[UPDATES_HERE];
    const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        scene s = {.play = updates, .bucket_bytes = 600, .dtype = dtypes[d]};
        play_well(&s, RANKS);
        keep(want);
        s.needed = RANKS;
        play_well(&s, RANKS);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(log_of[r], want, sizeof want);
    }
}

static void given_sets_give_bitwise_identical_updates(void **state)
{
    (void)state;
    static record want[UPDATES_HERE];
    scene s = {.play = updates, .bucket_bytes = 600, .needed = NEEDED};
    play_well(&s, RANKS);
    keep(want);
    for (int t = 0; t < UPDATES_HERE; t++)
        memcpy(given[t], want[t].set, sizeof given[t]);
    s.play = repeat;
    play_well(&s, RANKS);
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(log_of[r], want, sizeof want);
}

enum { SLOW = 1 };

/* The slow rank would take hours: it is excluded, and its progress thread reduces its chunks. In the first update all
 * ranks lay out the buckets. */
static lt_status with_slow_rank(world *w)
{
    LT_TRY(update(w, 0, NULL, 0));
    for (int t = 1; t < UPDATES_HERE; t++)
        LT_TRY(update(w, t, NULL, w->at.rank == SLOW ? 1e6 : 0));
    return LT_OK;
}

static void slow_rank_is_not_waited_for(void **state)
{
    (void)state;
    const scene s = {.play = with_slow_rank, .bucket_bytes = 600, .needed = NEEDED};
    play_well(&s, RANKS);
    check_means(NEEDED);
    for (int t = 1; t < UPDATES_HERE; t++)
        assert_false(log_of[0][t].set[SLOW]);
}

/* Rank 0, which determines the set, is the slow one. */
static lt_status with_slow_leader(world *w)
{
    LT_TRY(update(w, 0, NULL, 0));
    for (int t = 1; t < UPDATES_HERE; t++)
        LT_TRY(update(w, t, NULL, w->at.rank ? 0 : 1e6));
    return LT_OK;
}

static void rank_0_may_be_slow(void **state)
{
    (void)state;
    const scene s = {.play = with_slow_leader, .bucket_bytes = 600, .needed = NEEDED};
    play_well(&s, RANKS);
    check_means(NEEDED);
    for (int t = 1; t < UPDATES_HERE; t++)
        assert_false(log_of[0][t].set[0]);
}

/* --- An absent rank --- */

static atomic_int failed;

/* The rank that would take part in the update waits until all others have failed. */
static lt_status with_absent_rank(world *w)
{
    LT_TRY(update(w, 0, NULL, 0));
    while (w->at.rank == SLOW && failed < RANKS - 1)
        nap(1);
    const lt_status st = w->at.rank == SLOW ? LT_OK : update(w, 1, NULL, 0);
    failed += st == LT_E_COMM;
    return st;
}

static void absent_rank_is_named(void **state)
{
    (void)state;
    const scene s = {
        .play = with_absent_rank, .bucket_bytes = 600, .needed = NEEDED, .deadline = 1};
    const world *w = play(&s, RANKS);
    int naming = 0;
    for (int r = 0; r < RANKS; r++)
        naming += strstr(w[r].at.message, "data is missing from rank 1 of 4") != NULL;
    assert_int_equal(failed, RANKS - 1);
    assert_true(naming > 0);
}

/* --- Cancelling --- */

static lt_status cancel(world *w)
{
    lt_tensor *x = NULL, *y;
    LT_TRY(lt_data_parallel_begin_update(w->dp, 1, NULL));
    LT_TRY(bring_rough(w, 0));
    LT_TRY(average(w, true));
    LT_TRY(lt_tensor_new(&x, w->at.device, LT_F32, LT_SHAPE(8)));
    lt_tape_reset(w->tape,
                  LT_PASS_TRAIN); /* the others may finish the update before this rank begins it */
    LT_TRY(lt_data_parallel_begin_update(w->dp, 2, NULL));
    y = x;
    for (int i = 0; w->at.rank == SLOW && y; i++) { /* an infinite forward pass */
        y = lt_relu(w->tape, y);
        nap(0.1);
    }
    w->trace[0] = w->at.rank == SLOW && lt_tape_status(w->tape) == LT_E_CANCELLED;
    w->trace[1] = lt_data_parallel_is_late(w->dp);
    LT_TRY(bring_rough(w, 1));
    LT_TRY(average(w, true));
    w->trace[2] = lt_data_parallel_is_late(w->dp);
    lt_tape_reset(w->tape, LT_PASS_TRAIN);
    y = lt_relu(w->tape, x);
    lt_status st = lt_tape_status(w->tape);
    lt_tensor_free(&x);
    return st;
}

static void late_tape_is_cancelled(void **state)
{
    (void)state;
    const scene s = {.play = cancel, .needed = NEEDED};
    const world *w = play_well(&s, RANKS);
    assert_true(w[SLOW].trace[0] > 0 && w[SLOW].trace[1] > 0 && !(w[SLOW].trace[2] > 0));
}

/* --- Invalid combinations --- */

static lt_status nothing(world *w)
{
    (void)w;
    return LT_OK;
}

static void invalid_combinations_are_rejected(void **state)
{
    (void)state;
    const struct {
        scene scene;
        const char *says;
    } rows[] = {
        {{.needed = RANKS + 1}, "5 of 4"},
        {{.needed = -1}, "-1 of 4"},
        {{.needed = 3, .sync_bn = true}, "first 3 of 4"},
        {{.needed = 3, .compress = "topk:0.1"}, "topk:0.1"},
        {{.needed = 3, .micro_batches = 4}, "not both"},
        {{.micro_batches = 4, .sync_bn = true}, "cannot be combined with a deadline"},
        {{.micro_batches = 4, .compress = "topk:0.1"}, "topk:0.1"},
        {{.micro_batches = 4, .dtype = LT_BF16}, "bf16"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        scene s = rows[i].scene;
        s.play = nothing;
        const world *w = play(&s, RANKS);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(w[r].at.status, LT_E_ARG);
            assert_non_null(strstr(w[r].at.message, rows[i].says));
        }
    }
}

/* Each rank is at another update. */
static lt_status out_of_step(world *w)
{
    return update(w, w->at.rank, NULL, 0);
}

static void different_updates_are_named(void **state)
{
    (void)state;
    const scene s = {.play = out_of_step, .bucket_bytes = 600, .needed = 2};
    const world *w = play(&s, 2);
    assert_status(w[0].at.status, LT_E_COMM);
    assert_status(w[1].at.status, LT_E_COMM);
    if (!strstr(w[0].at.message, "mismatched calls: update 1 on rank 0")
        && !strstr(w[1].at.message, "mismatched calls: update 2 on rank 1"))
        fail_msg("'%s', '%s'", w[0].at.message, w[1].at.message);
}

/* --- DropCompute --- */

enum { MICRO = 4 };

/* Returns the micro-batches that a rank computes in update t. */
static int computed(int rank, int t)
{
    return t < 2 ? MICRO : 1 + (rank + t) % MICRO;
}

/* Gradients are sums over the computed micro-batches, each divided by MICRO. */
static lt_status drop(world *w)
{
    double g[MOST];
    for (int t = 0; t < UPDATES_HERE; t++) {
        for (int k = 0; k < PARAMS; k++) {
            const bool has = k != SMALL || w->at.rank;
            for (int64_t i = 0; i < count_of(k) && has; i++)
                g[i] = random_gradient(w->at.rank, t, k, i) * computed(w->at.rank, t) / MICRO;
            LT_TRY(bring(w, k, has ? g : NULL));
        }
        if (w->scene->micro_batches)
            lt_data_parallel_set_computed(w->dp, computed(w->at.rank, t));
        LT_TRY(average(w, true));
        w->trace[t] = (double)lt_data_parallel_total_computed(w->dp);
        for (int k = 0; k < PARAMS; k++)
            for (int64_t i = 0; i < count_of(k); i++)
                log_of[w->at.rank][t].mean[k][i] = (float)w->mean[k][i];
    }
    return LT_OK;
}

static void mean_is_over_computed_micro_batches(void **state)
{
    (void)state;
    static record plain[UPDATES_HERE];
    scene s = {.play = drop, .bucket_bytes = 600};
    play_well(&s, RANKS);
    keep(plain);
    s.micro_batches = MICRO;
    const world *w = play_well(&s, RANKS);
    for (int t = 0; t < UPDATES_HERE; t++) {
        int all = 0;
        for (int r = 0; r < RANKS; r++)
            all += computed(r, t);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal((int)w[r].trace[t], all);
            assert_memory_equal(log_of[r][t].mean, log_of[0][t].mean, sizeof log_of[0][t].mean);
        }
        if (all == RANKS * MICRO)
            assert_memory_equal(log_of[0][t].mean, plain[t].mean, sizeof plain[t].mean);
        for (int k = 0; k < PARAMS; k++)
            for (int64_t i = 0; i < count_of(k); i++) {
                double sum = 0;
                for (int r = k == SMALL; r < RANKS; r++)
                    sum += random_gradient(r, t, k, i) * computed(r, t);
                assert_near((double)log_of[0][t].mean[k][i], sum / all, 1e-6);
            }
    }
}

static void chosen_deadline_is_the_best(void **state)
{
    (void)state;
    enum { UPDATES_SEEN = 6, SEEN_RANKS = 3 };
    double t[UPDATES_SEEN * SEEN_RANKS * MICRO];
    const int count = UPDATES_SEEN * SEEN_RANKS * MICRO;
    for (int i = 0; i < count; i++) /* a tail: some micro-batches take six times as long */
        t[i] =
            0.1 + 0.02 * (number("latency", i) + 0.5) + (number("tail", i) + 0.5 < 0.08 ? 0.5 : 0);
    const lt_drop_latencies l = {.seconds = t,
                                 .updates = UPDATES_SEEN,
                                 .ranks = SEEN_RANKS,
                                 .micro_batches = MICRO,
                                 .rest = 0.05};
    const lt_drop_plan best = lt_drop_choose(&l), none = lt_drop_predict(&l, 0);
    assert_true(none.kept >= 1 && none.kept <= 1);
    assert_true(best.deadline > 0 && best.gain > 1.05);
    assert_near(best.kept / best.step, best.gain * none.kept / none.step, 1e-12);
    for (double deadline = 0.01; deadline < 1.2; deadline += 0.001) {
        const lt_drop_plan p = lt_drop_predict(&l, deadline);
        assert_true(p.kept / p.step <= best.kept / best.step * (1 + 1e-12));
    }
    /* by hand: two ranks, three micro-batches, a deadline of 2.5 */
    const double few[] = {1, 1, 1, 2, 2, 2};
    const lt_drop_latencies hand = {
        .seconds = few, .updates = 1, .ranks = 2, .micro_batches = 3, .rest = 1};
    const lt_drop_plan p = lt_drop_predict(&hand, 2.5);
    assert_near(p.kept, 5 / 6.0, 1e-15);
    assert_near(p.step, 5, 1e-15);
    /* the last update's latencies count too */
    const double late[] = {10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 1, 100, 1, 100};
    assert_near(lt_drop_choose(&(lt_drop_latencies){
                                   .seconds = late, .updates = 4, .ranks = 2, .micro_batches = 2})
                    .deadline,
                1, 0);
    /* equal latencies: no deadline gains */
    for (int i = 0; i < count; i++)
        t[i] = 0.1;
    const lt_drop_latencies equal = {
        .seconds = t, .updates = UPDATES_SEEN, .ranks = SEEN_RANKS, .micro_batches = MICRO};
    assert_true(!(lt_drop_choose(&equal).deadline > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_is_the_mean_of_the_logged_set),
        cmocka_unit_test(sets_of_all_sizes),
        cmocka_unit_test(all_needed_is_an_all_reduce),
        cmocka_unit_test(given_sets_give_bitwise_identical_updates),
        cmocka_unit_test(slow_rank_is_not_waited_for),
        cmocka_unit_test(rank_0_may_be_slow),
        cmocka_unit_test(absent_rank_is_named),
        cmocka_unit_test(late_tape_is_cancelled),
        cmocka_unit_test(invalid_combinations_are_rejected),
        cmocka_unit_test(different_updates_are_named),
        cmocka_unit_test(mean_is_over_computed_micro_batches),
        cmocka_unit_test(chosen_deadline_is_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
