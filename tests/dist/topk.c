/* --compress topk on ranks that are threads: what goes in comes out or stays, every bit of it. */

#include "dist/reducer/sparse.h"
#include "topk_ranks.h"

#include "lather/log.h"

#include <stdlib.h>

/* --- Mass --- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9U;
    return x ^ x >> 32;
}

/* Multiples of the ranks, which a mean divides exactly; many are equal. */
static double integers(const rank *r, int step, int64_t i)
{
    const uint64_t x = mixed((uint64_t)(step * 131 + r->at.rank) << 32 | (uint64_t)i);
    return (double)((int)(x % 41) - 20) * (i % 7 ? 1 : 9) * r->s->nodes * r->s->per_node;
}

static double reals(const rank *r, int step, int64_t i)
{
    const uint64_t x = mixed((uint64_t)(step * 131 + r->at.rank) << 32 | (uint64_t)i);
    return ldexp((double)(x >> 11), -53 - (int)(x % 9)) * (x & 512 ? 1 : -1);
}

static lt_status play_steps(rank *r)
{
    for (int step = 0; step < STEPS; step++)
        LT_TRY(update(r, step, 0));
    return LT_OK;
}

/* Mean of what went in, minus what came out, minus residuals. */
static double lost(const scene *s, const rank *ranks, int64_t i)
{
    double mass = -ranks[0].applied[i];
    for (int k = 0; k < s->nodes * s->per_node; k++) {
        mass += ranks[k].in[i] / (s->nodes * s->per_node);
        mass -= k % s->per_node ? 0 : ranks[k].residual[i];
    }
    return mass;
}

static double largest_residual(const scene *s, const rank *ranks)
{
    double most = 0;
    for (int k = 0; k < s->nodes * s->per_node; k++)
        for (int i = 0; i < ALL; i++)
            most = fmax(most, fabs(ranks[k].residual[i]));
    return most;
}

/* Bytes of a rank's shard of a bucket: the formulas. */
static lt_reducer_bytes expected_bytes(const scene *s, int index, double density)
{
    const int64_t size = (int64_t)lt_dtype_size(s->dtype), m = s->nodes, n = s->per_node;
    lt_reducer_bytes sum = {0, 0};
    for (size_t b = 0; b < BUCKETS; b++) {
        int64_t d = 0;
        for (size_t p = 0; p < count_of[b]; p++)
            d += sizes[first_of[b] + p];
        const int64_t own = d / n + (index % n < d % n), node = index / n;
        const int64_t chunk = own / m + (node < own % m), k = (int64_t)ceil(density * (double)own);
        const int64_t sparse = (m - 1) * lt_sparse_plan(own, k, s->dtype).bytes;
        const int64_t dense = (own - chunk + (m - 1) * chunk) * size;
        const bool is_dense = m * lt_sparse_plan(own, k, s->dtype).bytes >= 2 * own * size;
        sum.between += (uint64_t)(is_dense ? dense : sparse);
        sum.within += (uint64_t)((d - own + (n - 1) * own) * size);
    }
    return sum;
}

/* Of read_residual(): all-gathers in the node. */
static uint64_t gathered_bytes(const scene *s, int index)
{
    int64_t sum = 0;
    for (size_t b = 0; b < BUCKETS; b++) {
        int64_t d = 0;
        for (size_t p = 0; p < count_of[b]; p++)
            d += sizes[first_of[b] + p];
        sum += d / s->per_node + (index % s->per_node < d % s->per_node);
    }
    return (uint64_t)(sum * (s->per_node - 1))
           * lt_dtype_size(s->dtype == LT_F64 ? LT_F64 : LT_F32);
}

typedef struct mass_row {
    const char *name;
    int nodes, per_node;
    lt_dtype dtype;
} mass_row;

static const mass_row mass_rows[] = {
    {"integers: 2 nodes of 1", 2, 1, LT_F32},      {"integers: 2 nodes of 2", 2, 2, LT_F32},
    {"integers: 4 nodes of 2", 4, 2, LT_F32},      {"integers: 3 nodes of 2", 3, 2, LT_F32},
    {"integers: 2 nodes of 3, f64", 2, 3, LT_F64}, {"integers: 3 nodes of 1, f64", 3, 1, LT_F64},
};

static void nothing_is_lost(void **state)
{
    static const char *const densities[] = {"topk:0.001", "topk:0.01", "topk:0.05", "topk:1"};
    static rank ranks[RANKS];
    const mass_row *row = *state;
    for (size_t d = 0; d < COUNT_OF(densities); d++) {
        const scene s = {row->nodes, row->per_node, densities[d], row->dtype, integers, play_steps};
        run(&s, ranks);
        for (int i = 0; i < ALL; i++)
            assert_near(lost(&s, ranks, i), 0, 0);
        if (d == COUNT_OF(densities) - 1)
            assert_near(largest_residual(&s, ranks), 0, 0);
        else
            assert_true(largest_residual(&s, ranks) > 0);
        for (int i = 0; i < s.nodes * s.per_node; i++) {
            const lt_reducer_bytes want = expected_bytes(&s, i, strtod(densities[d] + 5, NULL));
            assert_int_equal(ranks[i].bytes.between, STEPS * want.between);
            assert_int_equal(ranks[i].bytes.within, STEPS * want.within + gathered_bytes(&s, i));
        }
    }
}

/* Sums that depend on their order: run() compares the ranks' bits. */
static void ranks_have_the_same_bits(void **state)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    static rank ranks[RANKS];
    (void)state;
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        const scene s = {4, 2, "topk:0.05", dtypes[d], reals, play_steps};
        run(&s, ranks);
        for (int i = 0; i < ALL; i++)
            assert_near(lost(&s, ranks, i), 0, dtypes[d] == LT_F32 ? 1e-4 : 0.2);
    }
}

/* --- Dense updates --- */

/* Is dense for a while, sparse, dense once, sparse again. */
static lt_status play_switches(rank *r)
{
    for (int step = 0; step < 12; step++) {
        r->reducer->dense = step < 3 || step == 8;
        LT_TRY(update(r, step, 0));
        LT_TRY(read_residual(r));
        double most = 0;
        for (int i = 0; i < ALL; i++)
            most = fmax(most, fabs(r->residual[i]));
        if (r->reducer->dense != (most <= 0))
            return differs("largest residual", most, 0);
    }
    return LT_OK;
}

static void dense_updates_flush_once(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    const scene s = {3, 2, "topk:0.01", LT_F32, integers, play_switches};
    run(&s, ranks);
    for (int i = 0; i < ALL; i++)
        assert_near(lost(&s, ranks, i), 0, 0);
}

/* The mean itself, while nothing is to be lost. */
static lt_status play_warm_up(rank *r)
{
    r->reducer->dense = true;
    for (int step = 0; step < 3; step++) {
        LT_TRY(update(r, step, 0));
        for (int i = 0; i < ALL; i++) {
            double mean = 0;
            for (int k = 0; k < r->s->nodes * r->s->per_node; k++)
                mean += integers(&(rank){.s = r->s, .at.rank = k}, step, i);
            mean /= r->s->nodes * r->s->per_node;
            if (!(fabs(r->out[i] - mean) <= 0))
                return differs("mean", r->out[i], mean);
        }
    }
    return LT_OK;
}

static void warm_up_is_dense(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    run(&(scene){2, 2, "topk:0.01", LT_F32, integers, play_warm_up}, ranks);
}

/* --- Updates that are not applied --- */

static lt_status same_residual(rank *r, const double *before)
{
    LT_TRY(read_residual(r));
    for (int i = 0; i < ALL; i++)
        if (!(fabs(r->residual[i] - before[i]) <= 0))
            return differs("residual", r->residual[i], before[i]);
    return LT_OK;
}

static lt_status play_skips(rank *r)
{
    double before[ALL];
    for (int step = 0; step < 6; step++) {
        LT_TRY(update(r, step, 0));
        LT_TRY(read_residual(r));
        memcpy(before, r->residual, sizeof before);
        r->reducer->dense = step == 3;
        LT_TRY(reduce(r, 100 + step, 0));
        LT_TRY(r->reducer->ops->commit(r->reducer, false));
        LT_TRY(same_residual(r, before));
        r->reducer->dense = false;
        for (int i = 0; i < ALL; i++) /* of what was skipped */
            r->in[i] -= integers(r, 100 + step, i);
    }
    return LT_OK;
}

static void skipped_updates_change_nothing(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    const scene s = {2, 2, "topk:0.02", LT_F32, integers, play_skips};
    run(&s, ranks);
    for (int i = 0; i < ALL; i++)
        assert_near(lost(&s, ranks, i), 0, 0);
}

/* A NaN on rank 3 in the parameter "fc", at the sixth step. */
static double poisoned(const rank *r, int step, int64_t i)
{
    return step == 5 && r->at.rank == 3 && i == start_of(1) + 700 ? (double)NAN
                                                                  : integers(r, step, i);
}

static lt_status play_poison(rank *r)
{
    double before[ALL];
    for (int step = 0; step < 5; step++)
        LT_TRY(update(r, step, 0));
    LT_TRY(read_residual(r));
    memcpy(before, r->residual, sizeof before);
    for (int k = 0; k < 3; k++) { /* without and with a loss scale; and whole */
        r->reducer->dense = k == 2;
        LT_TRY(reduce(r, 5, k == 1 ? 1024 : 0));
        if (!isnan(r->out[start_of(1) + 700]))
            return differs("poisoned element", r->out[start_of(1) + 700], (double)NAN);
        LT_TRY(r->reducer->ops->commit(r->reducer, false));
        LT_TRY(same_residual(r, before));
    }
    /* Who applies it all the same does not get NaNs for ever. */
    r->reducer->dense = false;
    LT_TRY(reduce(r, 5, 0));
    LT_TRY(r->reducer->ops->commit(r->reducer, true));
    LT_TRY(read_residual(r));
    for (int i = 0; i < ALL; i++)
        if (!isfinite(r->residual[i]))
            return differs("residual", r->residual[i], before[i]);
    return LT_OK;
}

static char said[256];
static int sayings;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static void hear(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)context;
    (void)area;
    pthread_mutex_lock(&said_lock);
    if (level <= LT_LOG_WARN) {
        snprintf(said, sizeof said, "%s", text);
        sayings++;
    }
    pthread_mutex_unlock(&said_lock);
}

static void non_finite_gradients_are_named(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    sayings = 0;
    lt_log_set(hear, NULL);
    run(&(scene){2, 2, "topk:0.02", LT_F32, poisoned, play_poison}, ranks);
    lt_log_set(NULL, NULL);
    assert_int_equal(sayings, 3); /* not under loss scaling, where that is normal */
    assert_non_null(strstr(said, "rank 3"));
    assert_non_null(strstr(said, "gradient of fc"));
}

/* --- Scales --- */

static lt_status play_scales(rank *r)
{
    static const double scales[] = {1024, 1024, 2048, 4, 0.5, 65536};
    for (int step = 0; step < STEPS; step++)
        LT_TRY(update(r, step, scales[step % 6]));
    return LT_OK;
}

static void loss_scales_change_nothing(void **state)
{
    static rank plain[RANKS], scaled[RANKS];
    (void)state;
    run(&(scene){2, 2, "topk:0.02", LT_F32, reals, play_steps}, plain);
    run(&(scene){2, 2, "topk:0.02", LT_F32, reals, play_scales}, scaled);
    assert_memory_equal(plain[0].applied, scaled[0].applied, sizeof plain->applied);
    assert_memory_equal(plain[3].residual, scaled[3].residual, sizeof plain->residual);
}

/* --- A parameter that no rank has a gradient of --- */

static double first_alone(const rank *r, int step, int64_t i)
{
    return step % 2 && i >= start_of(1) && i < start_of(2) ? 0 : integers(r, step, i);
}

static lt_status play_absent(rank *r)
{
    for (int step = 0; step < 20; step++) {
        double before[ALL];
        memcpy(before, r->applied, sizeof before);
        r->param[1].has_grad = step % 2 == 0;
        LT_TRY(update(r, step, 0));
        for (int64_t i = start_of(1); i < start_of(2) && step % 2; i++)
            r->applied[i] = before[i]; /* an optimizer leaves it alone */
    }
    return LT_OK;
}

static void unused_parameters_keep_their_residual(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    const scene s = {2, 2, "topk:0.02", LT_F32, first_alone, play_absent};
    run(&s, ranks);
    for (int i = 0; i < ALL; i++)
        assert_near(lost(&s, ranks, i), 0, 0);
}

/* --- A quadratic function of a sum over nodes --- */

enum { DESCENT = 1000 };

/* Of |x - a|^2 / 2, where the nodes' a are opposite in the first element and equal in the others. */
static double slope(const rank *r, int step, int64_t i)
{
    (void)step;
    const double a = i == 0 ? (r->at.rank ? -1000 : 1000) : (double)(i % 5) - 2;
    return -r->applied[i] - a; /* applied is -x */
}

static lt_status play_descent(rank *r)
{
    for (int step = 0; step < DESCENT; step++) {
        LT_TRY(reduce(r, step, 0));
        LT_TRY(r->reducer->ops->commit(r->reducer, true));
        for (int i = 0; i < ALL; i++)
            r->applied[i] += 0.008 * r->out[i];
    }
    return LT_OK;
}

static double distance_from_optimum(const rank *r)
{
    double most = 0;
    for (int i = 1; i < ALL; i++)
        most = fmax(most, fabs(-r->applied[i] - ((double)(i % 5) - 2)));
    return most;
}

static void only_feedback_reaches_the_optimum(void **state)
{
    static rank ranks[RANKS];
    (void)state;
    run(&(scene){2, 1, "topk:0.01", LT_F32, slope, play_descent}, ranks);
    assert_near(distance_from_optimum(ranks), 0, 0.2);
    run(&(scene){2, 1, "topk:0.01,no-feedback", LT_F32, slope, play_descent}, ranks);
    assert_true(distance_from_optimum(ranks) > 1);
}

/* --- Checkpoints --- */

enum { SAVED_AT = 20 };

static lt_status play_resume(rank *r)
{
    for (int step = 0; step < STEPS; step++) {
        LT_TRY(update(r, step, 0));
        if (step != SAVED_AT)
            continue;
        LT_TRY(read_residual(r));
        lt_reducer_free(&r->reducer);
        LT_TRY(open_reducer(r));
        LT_TRY(visit(r, true));
        LT_TRY(r->reducer->ops->loaded(r->reducer));
        LT_TRY(lay_out(r));
    }
    return LT_OK;
}

static void resumed_ranks_repeat_the_bits(void **state)
{
    static rank straight[RANKS], resumed[RANKS];
    (void)state;
    run(&(scene){2, 2, "topk:0.02", LT_F32, reals, play_steps}, straight);
    run(&(scene){2, 2, "topk:0.02", LT_F32, reals, play_resume}, resumed);
    assert_memory_equal(straight[0].applied, resumed[0].applied, sizeof straight->applied);
    assert_memory_equal(straight[3].residual, resumed[3].residual, sizeof straight->residual);
}

/* --- Bad input --- */

static lt_status play_nothing(rank *r)
{
    (void)r;
    return LT_OK;
}

static void refused(const scene *s, const char *part)
{
    static rank ranks[RANKS];
    const rank_group g = group_of(s, ranks);
    play_ranks(&g);
    if (!strstr(ranks[0].at.message, part))
        fail_msg("'%s' has no '%s'", ranks[0].at.message, part);
}

static void densities_are_checked(void **state)
{
    static const char *const bad[] = {"topk:0",    "topk:1.01", "topk:-0.1", "topk:nan",
                                      "topk:0.1x", "topk:",     "topk",      "topk:0.1,feedback"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        refused(&(scene){2, 1, bad[i], LT_F32, integers, play_nothing},
                bad[i][4] ? bad[i] + 5 : "density");
}

int main(void)
{
    const struct CMUnitTest rest[] = {
        cmocka_unit_test(ranks_have_the_same_bits),
        cmocka_unit_test(dense_updates_flush_once),
        cmocka_unit_test(warm_up_is_dense),
        cmocka_unit_test(skipped_updates_change_nothing),
        cmocka_unit_test(non_finite_gradients_are_named),
        cmocka_unit_test(loss_scales_change_nothing),
        cmocka_unit_test(unused_parameters_keep_their_residual),
        cmocka_unit_test(only_feedback_reaches_the_optimum),
        cmocka_unit_test(resumed_ranks_repeat_the_bits),
        cmocka_unit_test(densities_are_checked),
    };
    struct CMUnitTest tests[COUNT_OF(mass_rows) + COUNT_OF(rest)];
    for (size_t i = 0; i < COUNT_OF(mass_rows); i++)
        tests[i] = (struct CMUnitTest){.name = mass_rows[i].name,
                                       .test_func = nothing_is_lost,
                                       .initial_state = (void *)(uintptr_t)&mass_rows[i]};
    memcpy(tests + COUNT_OF(mass_rows), rest, sizeof rest);

    if (lt_log_filter("warn"))
        return 1;
    return _cmocka_run_group_tests("topk", tests, COUNT_OF(tests), NULL, NULL);
}
