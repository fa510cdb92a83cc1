/* PowerSGD: applied gradients, error feedback and bytes, on ranks that are threads with given gradients. */

#include "brought.h"
#include "formulas.h"

#include <stdlib.h>

/* --- Conservation --- */

/* 20 updates of random gradients, of which each third is skipped. mean becomes the sum of the applied gradients. */
static lt_status play_sums(world *w)
{
    static const int updates = 20;
    double sum[PARAMS][MOST] = {{0}};
    shown s = {0};
    for (int t = 0; t < updates; t++) {
        const bool applied = t % 3 != 2;
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, applied));
        for (int k = 0; k < PARAMS && applied; k++)
            for (int64_t i = 0; i < count_of(k); i++)
                sum[k][i] += w->mean[k][i];
    }
    memcpy(w->mean, sum, sizeof sum);
    return visit(w, &s);
}

static double mean_brought(int ranks, int k, int64_t i)
{
    double sum = 0;
    for (int t = 0; t < 20; t++)
        for (int r = 0; r < ranks && t % 3 != 2; r++)
            sum += random_gradient(r, t, k, i);
    return sum / ranks;
}

typedef struct mass_row {
    scene scene;
    int ranks;
    double bound;
} mass_row;

static const mass_row masses[] = {
    {{.name = "f64, 2 ranks", .compress = "powersgd:1", .f64 = true}, 2, 1e-13},
    {{.name = "f64, 3 ranks, rank 2, a bucket each",
      .compress = "powersgd:2",
      .f64 = true,
      .bucket_bytes = 8},
     3,
     1e-13},
    {{.name = "f32, 4 ranks", .compress = "powersgd:2", .bucket_bytes = 1024}, 4, 1e-5},
    {{.name = "bf16, 4 ranks, rank 1", .compress = "powersgd:1", .dtype = LT_BF16}, 4, 1e-5},
    {{.name = "f64, 2 nodes of 2 ranks, a bucket each",
      .compress = "powersgd:2",
      .f64 = true,
      .bucket_bytes = 8,
      .ranks_per_node = 2},
     4,
     1e-13},
    {{.name = "f32, 1 node of 3 ranks", .compress = "powersgd:2", .ranks_per_node = 3}, 3, 1e-5},
    {{.name = "f32, 3 nodes of 1 rank", .compress = "powersgd:2", .ranks_per_node = 1}, 3, 1e-5},
    {{.name = "a rank that compresses no matrix", .compress = "powersgd:9", .f64 = true}, 3, 1e-13},
};

/* Applied gradients plus error feedback equal the given gradients, except those of skipped updates. */
static void gradients_are_conserved(void **state)
{
    const mass_row *row = *state;
    scene s = row->scene;
    s.play = play_sums;
    const world *w = play_well(&s, row->ranks);
    for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < count_of(k); i++) {
            double sum = w[0].mean[k][i];
            for (int c = 0; c < COMPRESSED; c++)
                sum += compressed[c] == k ? residual_sum(w, row->ranks, c, i) : 0;
            assert_near(sum, mean_brought(row->ranks, k, i), row->bound);
        }
    for (int r = 1; r < row->ranks; r++)
        assert_memory_equal(w[r].mean, w[0].mean, sizeof w[0].mean);
    double most = 0;
    for (int64_t i = 0; i < count_of(MATRIX); i++)
        most = fmax(most, fabs(residual_sum(w, row->ranks, 0, i)));
    assert_int_equal(most > 0.01,
                     strcmp(s.compress, "powersgd:9") != 0); /* control: error feedback is not 0 */
}

/* --- Exactness --- */

/* u v' + x y', with v and y equal on all ranks: the mean has rank 2. */
static lt_status play_low_rank(world *w)
{
    double g[MOST];
    for (int t = 0; t < 3; t++) {
        LT_TRY(bring_random(w, t));
        for (int c = 0; c < COMPRESSED; c++) {
            const int k = compressed[c];
            const int64_t rows = shapes[k].dim[0], cols = count_of(k) / rows;
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++)
                    g[i * cols + j] =
                        number("u", (w->at.rank * 9 + t) * 100 + i) * number("v", t * 100 + j)
                        + number("x", (w->at.rank * 9 + t) * 100 + i) * number("y", j);
            LT_TRY(bring(w, k, g));
        }
        LT_TRY(average(w, true));
        double most = 0;
        for (int c = 0; c < COMPRESSED; c++) {
            const int k = compressed[c];
            const int64_t cols = count_of(k) / shapes[k].dim[0];
            for (int64_t e = 0; e < count_of(k); e++) {
                double want = 0;
                for (int r = 0; r < w->at.ranks; r++)
                    want +=
                        number("u", (r * 9 + t) * 100 + e / cols) * number("v", t * 100 + e % cols)
                        + number("x", (r * 9 + t) * 100 + e / cols) * number("y", e % cols);
                most = fmax(most, fabs(w->mean[k][e] - want / w->at.ranks));
            }
        }
        w->trace[t] = most;
    }
    return LT_OK;
}

static void low_ranks_are_exact(void **state)
{
    (void)state;
    const scene exact = {.play = play_low_rank, .compress = "powersgd:2", .f64 = true},
                narrow = {.play = play_low_rank, .compress = "powersgd:2"},
                control = {.play = play_low_rank, .compress = "powersgd:1", .f64 = true};
    for (int t = 0; t < 3; t++) {
        assert_near(play_well(&exact, 3)->trace[t], 0, 1e-12);
        assert_near(play_well(&narrow, 4)->trace[t], 0, 5e-6);
        assert_true(play_well(&control, 3)->trace[t] > 1e-3);
    }
}

/* --- Iterations --- */

/* The same full-rank matrix in each update, with singular values 1, 0.5, 0.25, 0.125 on the diagonal. trace: distance of
 * the mean applied gradient from it. The first six gradients are zero or absent. */
static lt_status play_constant(world *w)
{
    double g[MOST] = {0}, sum[MOST] = {0};
    for (int t = 0; t < UPDATES; t++) {
        double apart = 0;
        LT_TRY(bring_random(w, t));
        memset(g, 0, sizeof g);
        for (int i = 0; i < 4 && t >= 6; i++)
            g[i * 11] = pow(0.5, i);
        LT_TRY(bring(w, MATRIX, t < 3 ? NULL : g));
        LT_TRY(average(w, true));
        memset(g, 0, sizeof g);
        for (int i = 0; i < 4; i++)
            g[i * 11] = pow(0.5, i);
        for (int i = 0; i < 120 && t >= 6; i++) {
            sum[i] += w->mean[MATRIX][i];
            apart += pow(sum[i] / (t - 5) - g[i], 2);
        }
        w->trace[t] = sqrt(apart);
    }
    return LT_OK;
}

static void error_feedback_converges_to_the_gradient(void **state)
{
    (void)state;
    const scene with = {.play = play_constant, .compress = "powersgd:1", .f64 = true},
                without = {
                    .play = play_constant, .compress = "powersgd:1,no-feedback", .f64 = true};
    const double last = play_well(&with, 2)->trace[UPDATES - 1];
    assert_true(last < 0.1);
    assert_true(last < 0.5 * play_well(&with, 2)->trace[12]);
    const double stalls = play_well(&without, 2)->trace[UPDATES - 1];
    assert_true(stalls > 0.55); /* sqrt(0.5^2 + 0.25^2 + 0.125^2) = 0.573 */
}

/* One warm-started power iteration per update converges to the largest singular value. */
static lt_status play_iterations(world *w)
{
    double g[MOST] = {0};
    for (int i = 0; i < 4; i++)
        g[i * 11] = pow(0.5, i);
    for (int t = 0; t < UPDATES; t++) {
        LT_TRY(bring_random(w, t));
        LT_TRY(bring(w, MATRIX, g));
        LT_TRY(average(w, true));
        double apart = pow(w->mean[MATRIX][0] - 1, 2);
        for (int i = 1; i < 120; i++)
            apart += pow(w->mean[MATRIX][i], 2);
        w->trace[t] = sqrt(apart);
    }
    return LT_OK;
}

static void iterations_are_warm_started(void **state)
{
    (void)state;
    const scene s = {.play = play_iterations, .compress = "powersgd:1,no-feedback", .f64 = true};
    const world *w = play_well(&s, 2);
    assert_true(w->trace[0] > 1e-3);
    assert_near(w->trace[UPDATES - 1], 0, 1e-11); /* each iteration divides the error by 4 */
}

/* --- Skipped updates, uncompressed updates, missing gradients --- */

/* trace: 1 if a repeated update is bitwise identical. */
static lt_status play_skips(world *w)
{
    double first[PARAMS][MOST];
    for (int t = 0; t < 6; t++) {
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, false));
        memcpy(first, w->mean, sizeof first);
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, true));
        w->trace[t] = memcmp(first, w->mean, sizeof first) == 0;
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, false));
        w->trace[6 + t] =
            memcmp(first, w->mean, sizeof first) != 0; /* control: differs after an applied one */
    }
    return LT_OK;
}

static void a_skipped_update_changes_nothing(void **state)
{
    (void)state;
    const scene s = {.play = play_skips, .compress = "powersgd:2", .bucket_bytes = 600};
    const world *w = play_well(&s, 3);
    for (int t = 0; t < 12; t++)
        assert_near(w->trace[t], 1, 0);
}

/* A NaN on rank 1 reaches all ranks and leaves no trace in later updates. */
static lt_status play_poison(world *w)
{
    double g[MOST] = {0};
    LT_TRY(bring_random(w, 0));
    LT_TRY(average(w, true));
    for (int t = 0; t < 2; t++) {
        g[5] = t ? (double)INFINITY : (double)NAN;
        LT_TRY(bring_random(w, 1));
        if (w->at.rank == 1)
            LT_TRY(bring(w, MATRIX, g));
        LT_TRY(average(w, false));
        w->trace[t] = isfinite(w->mean[MATRIX][5]) + isfinite(w->mean[MATRIX][0]);
    }
    LT_TRY(bring_random(w, 1));
    return average(w, true);
}

static lt_status play_two(world *w)
{
    LT_TRY(bring_random(w, 0));
    LT_TRY(average(w, true));
    LT_TRY(bring_random(w, 1));
    return average(w, true);
}

static void non_finite_gradients_reach_all_and_leave_no_trace(void **state)
{
    (void)state;
    static double want[PARAMS][MOST];
    scene s = {.play = play_two, .compress = "powersgd:2"};
    memcpy(want, play_well(&s, 3)->mean, sizeof want);
    s.play = play_poison;
    const world *w = play_well(&s, 3);
    for (int r = 0; r < 3; r++) {
        assert_near(w[r].trace[0], 0, 0);
        assert_near(w[r].trace[1], 0, 0);
        assert_memory_equal(w[r].mean, want, sizeof want);
    }
}

/* Compressed, uncompressed, uncompressed: the second update sends the first one's error feedback, the third none. */
static lt_status play_dense(world *w)
{
    shown s = {0};
    double sum[PARAMS][MOST] = {{0}};
    for (int t = 0; t < 3; t++) {
        lt_data_parallel_compress(w->dp, t == 0);
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, true));
        for (int k = 0; k < PARAMS; k++)
            for (int64_t i = 0; i < count_of(k) && t < 2; i++)
                sum[k][i] += w->mean[k][i];
    }
    for (int64_t i = 0; i < count_of(MATRIX); i++) {
        double want = 0;
        for (int r = 0; r < w->at.ranks; r++)
            want += random_gradient(r, 0, MATRIX, i) + random_gradient(r, 1, MATRIX, i);
        w->trace[0] = fmax(w->trace[0], fabs(sum[MATRIX][i] - want / w->at.ranks));
    }
    return visit(w, &s);
}

static lt_status play_third(world *w)
{
    LT_TRY(bring_random(w, 2));
    return average(w, true);
}

static void an_uncompressed_update_sends_the_error_feedback(void **state)
{
    (void)state;
    static double want[PARAMS][MOST];
    scene s = {.play = play_third, .bucket_bytes = 600};
    memcpy(want, play_well(&s, 3)->mean, sizeof want);
    s.compress = "powersgd:1";
    s.play = play_dense;
    const world *w = play_well(&s, 3);
    assert_near(w->trace[0], 0, 1e-6);
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(w[r].mean, want, sizeof want); /* equal to the plain reducer's */
        for (int c = 0; c < COMPRESSED; c++)
            for (int i = 0; i < MOST; i++)
                assert_near(w[r].state[c][i], 0, 0);
    }
}

/* The matrix has no gradient on any rank in update 1, and on rank 0 only in update 2. */
static lt_status play_missing(world *w)
{
    shown s = {0};
    double before[MOST];
    LT_TRY(bring_random(w, 0));
    LT_TRY(average(w, true));
    LT_TRY(visit(w, &s));
    memcpy(before, w->state[0], sizeof before);
    LT_TRY(bring_random(w, 1));
    LT_TRY(bring(w, MATRIX, NULL));
    LT_TRY(average(w, true));
    LT_TRY(visit(w, &s));
    w->trace[0] = memcmp(before, w->state[0], sizeof before) == 0;
    w->trace[1] = w->param[MATRIX].has_grad;
    LT_TRY(bring_random(w, 2));
    if (w->at.rank)
        LT_TRY(bring(w, MATRIX, NULL));
    LT_TRY(average(w, true));
    w->trace[2] = w->param[MATRIX].has_grad;
    return LT_OK;
}

static void a_missing_gradient_keeps_its_error_feedback(void **state)
{
    (void)state;
    const scene s = {.play = play_missing, .compress = "powersgd:1"};
    const world *w = play_well(&s, 3);
    for (int r = 0; r < 3; r++) {
        assert_near(w[r].trace[0], 1, 0);
        assert_near(w[r].trace[1], 0, 0);
        assert_near(w[r].trace[2], 1, 0);
    }
}

/* Gradients and loss scale grow together: error feedback does not depend on the scale. */
static lt_status play_scaled(world *w)
{
    shown s = {0};
    lt_tensor *scale = NULL;
    LT_TRY(lt_tensor_new(&scale, w->at.device, LT_F64, (lt_shape){0}));
    lt_data_parallel_set_loss_scale(w->dp, scale);
    lt_status st = LT_OK;
    for (int t = 0; t < 4 && !st; t++) {
        const double by = w->scene->scale > 0 ? w->scene->scale * (1 + 3 * (t > 1)) : 1;
        double g[MOST];
        st = lt_tensor_write(scale, &by, sizeof by);
        for (int k = 0; k < PARAMS && !st; k++) {
            for (int64_t i = 0; i < count_of(k); i++)
                g[i] = by * (double)(float)random_gradient(w->at.rank, t, k, i);
            st = bring(w, k, g);
        }
        if (!st)
            st = average(w, true);
        for (int k = 0; k < PARAMS && !st; k++)
            for (int64_t i = 0; i < count_of(k); i++)
                w->mean[k][i] /= by;
    }
    if (!st)
        st = visit(w, &s);
    lt_data_parallel_set_loss_scale(w->dp, NULL);
    lt_tensor_free(&scale);
    return st;
}

static void error_feedback_is_unscaled(void **state)
{
    (void)state;
    static world plain;
    scene s = {.play = play_scaled, .compress = "powersgd:2"};
    plain = play_well(&s, 2)[0];
    s.scale = 1024;
    const world *w = play_well(&s, 2);
    assert_memory_equal(w->mean, plain.mean, sizeof plain.mean);
    assert_memory_equal(w->state, plain.state, sizeof plain.state);
}

/* --- Checkpoints --- */

static bool lose_q, lose_residual;

/* Eight updates; after four the state is loaded into a new reducer. */
static lt_status play_resumed(world *w)
{
    for (int t = 0; t < 8; t++) {
        shown save = {0},
              load = {.load = true, .without_q = lose_q, .without_residual = lose_residual};
        if (t == 4 && w->scene->scale > 0) {
            LT_TRY(visit(w, &save));
            w->trace[0] = save.entries;
            lt_data_parallel_free(&w->dp);
            LT_TRY(open_dp(w));
            LT_TRY(visit(w, &load));
            LT_TRY(lt_data_parallel_finish_load(w->dp));
        }
        LT_TRY(bring_random(w, t));
        LT_TRY(average(w, true));
    }
    return LT_OK;
}

static void a_resumed_run_is_bitwise_identical(void **state)
{
    (void)state;
    static double want[PARAMS][MOST];
    scene s = {.play = play_resumed, .compress = "powersgd:1", .bucket_bytes = 600};
    memcpy(want, play_well(&s, 3)->mean, sizeof want);
    s.scale = 1; /* means: through a checkpoint */
    const world *w = play_well(&s, 3);
    assert_memory_equal(w[1].mean, want, sizeof want);
    assert_near(w[1].trace[0], COMPRESSED * (1 + 3), 0); /* Q, and error feedback of each rank */
    lose_q = true;
    assert_true(memcmp(play_well(&s, 3)->mean, want, sizeof want) != 0);
    lose_q = false;
    lose_residual = true;
    assert_true(memcmp(play_well(&s, 3)->mean, want, sizeof want) != 0);
    lose_residual = false;
}

/* --- Bytes --- */

static void bytes_follow_the_formula(void **state)
{
    (void)state;
    const int64_t sides = 12 + 6 + 31, columns = 10 + 36 + 5, kept = 7 + 4 + PARAMS;
    const scene s = {.play = play_third, .compress = "powersgd:2"},
                half = {.play = play_third, .compress = "powersgd:2", .dtype = LT_BF16};
    for (int ranks = 2; ranks <= RANKS; ranks++)
        for (int k = 0; k < 2; k++) {
            const world *w = play_well(k ? &half : &s, ranks);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(w[r].sent.within + w[r].sent.between,
                                 (k ? 2 : 4)
                                     * (allreduce_sent(kept + 2 * sides, r, ranks)
                                        + allreduce_sent(2 * columns, r, ranks)));
        }
}

/* Hierarchical, 2 nodes of 2 ranks: half of the elements are sent between nodes, once each way. */
static void bytes_between_nodes_follow_the_formula(void **state)
{
    (void)state;
    const int64_t sides = 12 + 6 + 31, columns = 10 + 36 + 5, kept = 7 + 4 + PARAMS;
    const int64_t elements[2] = {kept + 2 * sides, 2 * columns};
    const scene s = {.play = play_third, .compress = "powersgd:2", .ranks_per_node = 2};
    const world *w = play_well(&s, 4);
    for (int r = 0; r < 4; r++) {
        int64_t within = 0, between = 0;
        for (int k = 0; k < 2; k++) {
            const int64_t mine = (elements[k] + (r % 2 == 0)) / 2;
            within += elements[k] - mine
                      + mine; /* the peer's chunk of the sum, this rank's of the mean */
            between += allreduce_sent(mine, r / 2, 2);
        }
        assert_int_equal(w[r].sent.within, 4 * within);
        assert_int_equal(w[r].sent.between, 4 * between);
    }
    const scene one = {.play = play_third, .compress = "powersgd:2", .ranks_per_node = 3};
    w = play_well(&one, 3);
    assert_int_equal(w[0].sent.between, 0);
    assert_true(w[0].sent.within > 0);
}

/* --- Invalid arguments --- */

static const char *const bad[] = {"powersgd",    "powersgd:",    "powersgd:0",  "powersgd:65",
                                  "powersgd:-1", "powersgd:two", "powersgd:2,x"};

static void is_rejected(void **state)
{
    const scene s = {.play = play_third, .compress = *state};
    const world *w = play(&s, 2);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(w[r].at.status, LT_E_ARG);
        if (!strstr(w[r].at.message, "want powersgd:RANK, 1 to 64"))
            fail_msg("%s", w[r].at.message);
    }
}

int main(void)
{
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(low_ranks_are_exact),
        cmocka_unit_test(error_feedback_converges_to_the_gradient),
        cmocka_unit_test(iterations_are_warm_started),
        cmocka_unit_test(a_skipped_update_changes_nothing),
        cmocka_unit_test(non_finite_gradients_reach_all_and_leave_no_trace),
        cmocka_unit_test(an_uncompressed_update_sends_the_error_feedback),
        cmocka_unit_test(a_missing_gradient_keeps_its_error_feedback),
        cmocka_unit_test(error_feedback_is_unscaled),
        cmocka_unit_test(a_resumed_run_is_bitwise_identical),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(bytes_between_nodes_follow_the_formula),
    };
    enum { M = COUNT_OF(masses), B = COUNT_OF(bad), S = COUNT_OF(single) };
    struct CMUnitTest tests[M + B + S];
    static char text[M + B][TEXT];
    size_t n = 0;
    for (size_t i = 0; i < M; i++, n++) {
        snprintf(text[n], TEXT, "gradients are conserved: %s", masses[i].scene.name);
        tests[n] = (struct CMUnitTest){text[n], gradients_are_conserved, NULL, NULL,
                                       (void *)(uintptr_t)&masses[i]};
    }
    for (size_t i = 0; i < B; i++, n++) {
        snprintf(text[n], TEXT, "rejected: %s", bad[i]);
        tests[n] = (struct CMUnitTest){text[n], is_rejected, NULL, NULL, (void *)(uintptr_t)bad[i]};
    }
    for (size_t i = 0; i < S; i++)
        tests[n++] = single[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
