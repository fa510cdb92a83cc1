/* --compress topk on ranks that are threads: gradients equal applied ones plus error feedback, exactly. */

#include "brought.h"
#include "dist/data_parallel/state.h"
#include "dist/reducer/sparse_codec.h"

#include "lather/log.h"

#include <stdlib.h>

enum { STEPS = 12, ALL = 120 + 216 + 7 + 4 + 155, BUCKETS = 3 };

typedef double gradient_fn(const world *w, int step, int64_t i);

/* Element i of the concatenation of all parameters. */
/* Configuration of all ranks. */
typedef struct topk_scene {
    scene base;
    int ranks;
    gradient_fn *gradient;
    play_fn *play;
    bool (*is_absent)(int param, int step); /* a gradient is missing on all ranks; NULL: never */
} topk_scene;

/* Record of a rank: sums of given and of applied gradients; the last mean; its node's error feedback. */
typedef struct book {
    double in[ALL], applied[ALL], out[ALL], residual[ALL];
    lt_reducer_bytes sent;
    int64_t bucket[BUCKETS]; /* elements of each bucket */
} book;
static book books[MOST_WORLDS];

static const topk_scene *scene_of(const world *w)
{
    return (const topk_scene *)(const void *)w->scene;
}

static book *book_of(const world *w)
{
    return &books[w->at.rank];
}

static lt_status differs(const char *what, double got, double want)
{
    return lt_fail(LT_E_FORMAT, "%s: %.9g, want %.9g", what, got, want);
}

/* Averages scaled gradients. */
static lt_status reduce(world *w, int step, double scale, bool applied)
{
    const topk_scene *s = scene_of(w);
    book *b = book_of(w);
    double g[MOST];
    for (int k = 0; k < PARAMS; k++) {
        const bool is_absent = s->is_absent && s->is_absent(k, step);
        for (int64_t i = 0, at = start_of(k); i < count_of(k); i++, at++) {
            g[i] = is_absent ? 0 : s->gradient(w, step, at);
            b->in[at] += g[i];
            g[i] *= scale;
        }
        LT_TRY(bring(w, k, is_absent ? NULL : g));
    }
    LT_TRY(average(w, applied));
    for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < count_of(k); i++)
            b->out[start_of(k) + i] = w->param[k].has_grad ? w->mean[k][i] : 0;
    return LT_OK;
}

static lt_status update(world *w, int step)
{
    book *b = book_of(w);
    LT_TRY(reduce(w, step, 1, true));
    for (int i = 0; i < ALL; i++)
        b->applied[i] += b->out[i];
    return LT_OK;
}

/* reduce() with a loss scale. */
static lt_status scaled_reduce(world *w, int step, double scale, bool applied)
{
    lt_tensor *tensor = NULL;
    LT_TRY(lt_tensor_new(&tensor, w->at.device, LT_F64, LT_SCALAR));
    lt_status st = lt_tensor_fill(tensor, scale);
    lt_data_parallel_set_loss_scale(w->dp, tensor);
    if (!st)
        st = reduce(w, step, scale, applied);
    lt_data_parallel_set_loss_scale(w->dp, NULL);
    lt_tensor_free(&tensor);
    return st;
}

/* --- Error feedback, as in checkpoints --- */

typedef struct reading {
    double *residual; /* [ALL] */
    bool load;
    int entries;
} reading;

static lt_status see_residual(void *context, const lt_state_entry *e)
{
    reading *to = context;
    int k = 0;
    to->entries++;
    while (strcmp(names[k], e->param) != 0)
        k++;
    double *at = to->residual + start_of(k);
    return !e->tensor ? LT_OK
           : to->load ? write_doubles(e->tensor, at)
                      : read_doubles(e->tensor, at);
}

static lt_status visit_residual(world *w, bool load)
{
    reading to = {book_of(w)->residual, load, 0};
    lt_state_visitor visitor = {.entry = see_residual, .context = &to};
    LT_TRY(lt_data_parallel_visit(w->dp, &visitor));
    return to.entries == PARAMS * w->nodes.count ? LT_OK
                                                 : lt_fail(LT_E_ARG, "%d entries", to.entries);
}

static lt_status read_residual(world *w)
{
    LT_TRY(lt_data_parallel_gather_state(w->dp));
    return visit_residual(w, false);
}

/* --- Ranks --- */

static lt_status play_scene(world *w)
{
    book *b = book_of(w);
    LT_TRY(scene_of(w)->play(w));
    LT_TRY(read_residual(w));
    lt_data_parallel_bytes_sent(w->dp, &b->sent);
    for (size_t i = 0; i < BUCKETS && i < w->dp->buckets; i++)
        b->bucket[i] = w->dp->reducer->bucket[i].elements;
    return LT_OK;
}

/* Buckets that hold one to three of the parameters. */
static topk_scene scene_on(int nodes, int per_node, const char *compress, gradient_fn *gradient,
                           play_fn *steps)
{
    return (topk_scene){.base = {.play = play_scene,
                                 .compress = compress,
                                 .bucket_bytes = 1000,
                                 .ranks_per_node = per_node},
                        .ranks = nodes * per_node,
                        .gradient = gradient,
                        .play = steps};
}

static void run_scene(const topk_scene *s)
{
    memset(books, 0, sizeof books);
    (void)play_well(&s->base, s->ranks);
    for (int i = 1; i < s->ranks; i++)
        assert_memory_equal(books[i].applied, books[0].applied, sizeof books->applied);
}

/* --- Conservation --- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9U;
    return x ^ x >> 32;
}

/* Multiples of the number of ranks, whose means are exact; many are equal. */
static double integers(const world *w, int step, int64_t i)
{
    const uint64_t x = mixed((uint64_t)(step * 131 + w->at.rank) << 32 | (uint64_t)i);
    return (double)((int)(x % 41) - 20) * (i % 7 ? 1 : 9) * scene_of(w)->ranks;
}

static double reals(const world *w, int step, int64_t i)
{
    const uint64_t x = mixed((uint64_t)(step * 131 + w->at.rank) << 32 | (uint64_t)i);
    return ldexp((double)(x >> 11), -53 - (int)(x % 9)) * (x & 512 ? 1 : -1);
}

static lt_status play_steps(world *w)
{
    for (int step = 0; step < STEPS; step++)
        LT_TRY(update(w, step));
    return LT_OK;
}

/* Mean of the given gradients, minus applied ones, minus error feedback. */
static double lost(const topk_scene *s, int64_t i)
{
    double mass = -books[0].applied[i];
    for (int k = 0; k < s->ranks; k++) {
        mass += books[k].in[i] / s->ranks;
        mass -= k % s->base.ranks_per_node ? 0 : books[k].residual[i];
    }
    return mass;
}

static void assert_conserved(const topk_scene *s, double bound)
{
    for (int i = 0; i < ALL; i++)
        assert_near(lost(s, i), 0, bound);
}

static double largest(const double *values)
{
    double most = 0;
    for (int i = 0; i < ALL; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

/* Expected bytes of a rank in an update, and to gather error feedback. */
static lt_reducer_bytes expected_bytes(const topk_scene *s, int index, double density,
                                       int64_t *gathered)
{
    const lt_dtype dtype = s->base.f64 ? LT_F64 : LT_F32;
    const int64_t size = (int64_t)lt_dtype_size(dtype), n = s->base.ranks_per_node;
    const int64_t m = s->ranks / n;
    lt_reducer_bytes sum = {0, 0};
    *gathered = 0;
    for (size_t b = 0; b < BUCKETS; b++) {
        const int64_t d = books[index].bucket[b], own = d / n + (index % n < d % n);
        const int64_t node = index / n, chunk = own / m + (node < own % m);
        const int64_t message =
            lt_sparse_layout(own, (int64_t)ceil(density * (double)own), dtype).bytes;
        const int64_t dense = (own - chunk + (m - 1) * chunk) * size;
        sum.between += (uint64_t)(m * message >= 2 * own * size ? dense : (m - 1) * message);
        sum.within += (uint64_t)((d - own + (n - 1) * own) * size);
        *gathered += own * (n - 1) * size;
    }
    return sum;
}

typedef struct mass_row {
    const char *name;
    int nodes, per_node;
    bool f64;
} mass_row;

static const mass_row mass_rows[] = {
    {"integers: 2 nodes of 1", 2, 1, false},     {"integers: 2 nodes of 2", 2, 2, false},
    {"integers: 4 nodes of 2", 4, 2, false},     {"integers: 3 nodes of 2", 3, 2, false},
    {"integers: 2 nodes of 3, f64", 2, 3, true}, {"integers: 3 nodes of 1, f64", 3, 1, true},
};

static void gradients_are_conserved(void **state)
{
    static const char *const densities[] = {"topk:0.001", "topk:0.01", "topk:0.05", "topk:1"};
    const mass_row *row = *state;
    for (size_t d = 0; d < COUNT_OF(densities); d++) {
        topk_scene s = scene_on(row->nodes, row->per_node, densities[d], integers, play_steps);
        s.base.f64 = row->f64;
        s.base.bucket_bytes *= row->f64 ? 2 : 1;
        run_scene(&s);
        assert_conserved(&s, 0);
        double most = 0;
        for (int i = 0; i < s.ranks; i++) {
            int64_t gathered;
            most = fmax(most, largest(books[i].residual));
            const lt_reducer_bytes want =
                expected_bytes(&s, i, strtod(densities[d] + 5, NULL), &gathered);
            assert_int_equal(books[i].sent.between, STEPS * want.between);
            assert_int_equal(books[i].sent.within, STEPS * want.within + (uint64_t)gathered);
        }
        assert_int_equal(most > 0, d < COUNT_OF(densities) - 1);
    }
}

/* Sums that depend on their order; run_scene() compares the ranks bitwise. */
static void ranks_are_bitwise_identical(void **state)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    (void)state;
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        topk_scene s = scene_on(4, 2, "topk:0.05", reals, play_steps);
        s.base.dtype = dtypes[d];
        run_scene(&s);
        assert_conserved(&s, dtypes[d] == LT_F32 ? 1e-4 : 0.2);
    }
}

/* --- Uncompressed updates --- */

/* Uncompressed for a while, compressed, uncompressed once, compressed again. */
static lt_status play_switches(world *w)
{
    for (int step = 0; step < 12; step++) {
        const bool dense = step < 3 || step == 8;
        lt_data_parallel_compress(w->dp, !dense);
        LT_TRY(update(w, step));
        LT_TRY(read_residual(w));
        const double most = largest(book_of(w)->residual);
        if (dense != (most <= 0))
            return differs("largest residual", most, 0);
    }
    return LT_OK;
}

static void uncompressed_updates_flush_error_feedback_once(void **state)
{
    (void)state;
    const topk_scene s = scene_on(3, 2, "topk:0.01", integers, play_switches);
    run_scene(&s);
    assert_conserved(&s, 0);
}

/* Uncompressed updates are exact means. */
static lt_status play_warm_up(world *w)
{
    lt_data_parallel_compress(w->dp, false);
    for (int step = 0; step < 3; step++) {
        LT_TRY(update(w, step));
        for (int i = 0; i < ALL; i++) {
            double mean = 0;
            for (int k = 0; k < w->at.ranks; k++)
                mean += integers(&(world){.scene = w->scene, .at.rank = k}, step, i);
            mean /= w->at.ranks;
            if (!(fabs(book_of(w)->out[i] - mean) <= 0))
                return differs("mean", book_of(w)->out[i], mean);
        }
    }
    return LT_OK;
}

static void warm_up_is_uncompressed(void **state)
{
    (void)state;
    const topk_scene s = scene_on(2, 2, "topk:0.01", integers, play_warm_up);
    run_scene(&s);
}

/* --- Updates that are not applied --- */

static lt_status same_residual(world *w, const double *before)
{
    const double *now = book_of(w)->residual;
    LT_TRY(read_residual(w));
    for (int i = 0; i < ALL; i++)
        if (!(fabs(now[i] - before[i]) <= 0))
            return differs("residual", now[i], before[i]);
    return LT_OK;
}

static lt_status play_skips(world *w)
{
    double before[ALL];
    for (int step = 0; step < 6; step++) {
        LT_TRY(update(w, step));
        LT_TRY(read_residual(w));
        memcpy(before, book_of(w)->residual, sizeof before);
        lt_data_parallel_compress(w->dp, step != 3);
        LT_TRY(reduce(w, 100 + step, 1, false));
        LT_TRY(same_residual(w, before));
        lt_data_parallel_compress(w->dp, true);
        for (int i = 0; i < ALL; i++) /* the skipped update */
            book_of(w)->in[i] -= integers(w, 100 + step, i);
    }
    return LT_OK;
}

static void skipped_updates_change_nothing(void **state)
{
    (void)state;
    const topk_scene s = scene_on(2, 2, "topk:0.02", integers, play_skips);
    run_scene(&s);
    assert_conserved(&s, 0);
}

/* A NaN on rank 3 in the parameter "tall", at the sixth step. */
enum { POISONED = 120 + 216 + 7 + 4 + 100 };

static double poisoned(const world *w, int step, int64_t i)
{
    return step == 5 && w->at.rank == 3 && i == POISONED ? (double)NAN : integers(w, step, i);
}

static lt_status play_poison(world *w)
{
    const book *b = book_of(w);
    double before[ALL];
    for (int step = 0; step < 5; step++)
        LT_TRY(update(w, step));
    LT_TRY(read_residual(w));
    memcpy(before, b->residual, sizeof before);
    for (int k = 0; k < 3; k++) { /* without and with a loss scale; uncompressed */
        lt_data_parallel_compress(w->dp, k != 2);
        LT_TRY(k == 1 ? scaled_reduce(w, 5, 1024, false) : reduce(w, 5, 1, false));
        if (!isnan(b->out[POISONED]))
            return differs("poisoned element", b->out[POISONED], (double)NAN);
        LT_TRY(same_residual(w, before));
    }
    /* If it is applied nevertheless, error feedback does not keep the NaN. */
    lt_data_parallel_compress(w->dp, true);
    LT_TRY(reduce(w, 5, 1, true));
    LT_TRY(read_residual(w));
    for (int i = 0; i < ALL; i++)
        if (!isfinite(b->residual[i]))
            return differs("residual", b->residual[i], before[i]);
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
    (void)state;
    const topk_scene s = scene_on(2, 2, "topk:0.02", poisoned, play_poison);
    sayings = 0;
    lt_log_set(hear, NULL);
    run_scene(&s);
    lt_log_set(NULL, NULL);
    assert_int_equal(sayings, 3); /* none with a loss scale, where overflows are normal */
    assert_non_null(strstr(said, "rank 3"));
    assert_non_null(strstr(said, "gradient of tall"));
}

/* --- Scales --- */

static lt_status play_scales(world *w)
{
    static const double scales[] = {1024, 1024, 2048, 4, 0.5, 65536};
    book *b = book_of(w);
    for (int step = 0; step < STEPS; step++) {
        const double scale = scales[step % 6];
        LT_TRY(scaled_reduce(w, step, scale, true));
        for (int i = 0; i < ALL; i++)
            b->applied[i] += b->out[i] / scale;
    }
    return LT_OK;
}

/* Checks that two scenes have the same results. */
static void assert_same_end(const topk_scene *a, const topk_scene *b)
{
    static book first[MOST_WORLDS];
    run_scene(a);
    memcpy(first, books, sizeof first);
    run_scene(b);
    assert_memory_equal(first[0].applied, books[0].applied, sizeof books->applied);
    assert_memory_equal(first[3].residual, books[3].residual, sizeof books->residual);
}

static void loss_scales_change_nothing(void **state)
{
    (void)state;
    const topk_scene plain = scene_on(2, 2, "topk:0.02", reals, play_steps),
                     scaled = scene_on(2, 2, "topk:0.02", reals, play_scales);
    assert_same_end(&plain, &scaled);
}

/* --- A parameter without a gradient on any rank --- */

static bool tall_in_odd_steps(int param, int step)
{
    return param == TALL && step % 2;
}

static void missing_gradients_keep_their_error_feedback(void **state)
{
    (void)state;
    topk_scene s = scene_on(2, 2, "topk:0.02", integers, play_steps);
    s.is_absent = tall_in_odd_steps;
    run_scene(&s);
    assert_conserved(&s, 0);
}

/* --- A quadratic function of a sum over nodes --- */

enum { DESCENT = 1000 };

/* Gradient of |x - a|^2 / 2, where the nodes' a are opposite in the first element and equal in the others. */
static double slope(const world *w, int step, int64_t i)
{
    (void)step;
    const double a = i == 0 ? (w->at.rank ? -1000 : 1000) : (double)(i % 5) - 2;
    return -book_of(w)->applied[i] - a; /* applied is -x */
}

static lt_status play_descent(world *w)
{
    book *b = book_of(w);
    for (int step = 0; step < DESCENT; step++) {
        LT_TRY(reduce(w, step, 1, true));
        for (int i = 0; i < ALL; i++)
            b->applied[i] += 0.008 * b->out[i];
    }
    return LT_OK;
}

static double distance_from_optimum(const char *compress)
{
    const topk_scene s = scene_on(2, 1, compress, slope, play_descent);
    double most = 0;
    run_scene(&s);
    for (int i = 1; i < ALL; i++)
        most = fmax(most, fabs(-books[0].applied[i] - ((double)(i % 5) - 2)));
    return most;
}

static void only_error_feedback_reaches_the_optimum(void **state)
{
    (void)state;
    assert_near(distance_from_optimum("topk:0.01"), 0, 0.2);
    assert_true(distance_from_optimum("topk:0.01,no-feedback") > 1);
}

/* --- Checkpoints --- */

enum { SAVED_AT = 5 };

static lt_status play_resume(world *w)
{
    for (int step = 0; step < STEPS; step++) {
        LT_TRY(update(w, step));
        if (step != SAVED_AT)
            continue;
        LT_TRY(read_residual(w));
        lt_data_parallel_free(&w->dp);
        LT_TRY(open_dp(w));
        LT_TRY(visit_residual(w, true));
        LT_TRY(lt_data_parallel_finish_load(w->dp));
    }
    return LT_OK;
}

static void a_resumed_run_is_bitwise_identical(void **state)
{
    (void)state;
    const topk_scene straight = scene_on(2, 2, "topk:0.02", reals, play_steps),
                     resumed = scene_on(2, 2, "topk:0.02", reals, play_resume);
    assert_same_end(&straight, &resumed);
}

/* --- Bad input --- */

static void densities_are_checked(void **state)
{
    static const char *const bad[] = {"topk:0",    "topk:1.01", "topk:-0.1", "topk:nan",
                                      "topk:0.1x", "topk:",     "topk",      "topk:0.1,feedback"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const topk_scene s = scene_on(2, 1, bad[i], integers, play_steps);
        const char *message = play(&s.base, s.ranks)[0].at.message,
                   *part = bad[i][4] ? bad[i] + 5 : "density";
        if (!strstr(message, part))
            fail_msg("'%s', want '%s'", message, part);
    }
}

int main(void)
{
    const struct CMUnitTest rest[] = {
        cmocka_unit_test(ranks_are_bitwise_identical),
        cmocka_unit_test(uncompressed_updates_flush_error_feedback_once),
        cmocka_unit_test(warm_up_is_uncompressed),
        cmocka_unit_test(skipped_updates_change_nothing),
        cmocka_unit_test(non_finite_gradients_are_named),
        cmocka_unit_test(loss_scales_change_nothing),
        cmocka_unit_test(missing_gradients_keep_their_error_feedback),
        cmocka_unit_test(only_error_feedback_reaches_the_optimum),
        cmocka_unit_test(a_resumed_run_is_bitwise_identical),
        cmocka_unit_test(densities_are_checked),
    };
    struct CMUnitTest tests[COUNT_OF(mass_rows) + COUNT_OF(rest)];
    for (size_t i = 0; i < COUNT_OF(mass_rows); i++)
        tests[i] = (struct CMUnitTest){mass_rows[i].name, gradients_are_conserved, NULL, NULL,
                                       (void *)(uintptr_t)&mass_rows[i]};
    memcpy(tests + COUNT_OF(mass_rows), rest, sizeof rest);
    if (lt_log_filter("warn"))
        return 1;
    return _cmocka_run_group_tests("topk", tests, COUNT_OF(tests), NULL, NULL);
}
