/* Runs of lt_train() that do not wait for slow ranks: all ranks remain equal, the log replays the run bitwise, and
 * only used samples are counted. A rank is a thread; a delay is a sleep in its forward pass. */

#include "base/rng.h"
#include "train/loop/contributors.h"
#include "training.h"

#include "lather/shampoo.h"
#include "lather/shard.h"

#include <math.h>
#include <time.h>

enum { INPUTS = 5, HIDDEN = 6, CLASSES = 4, SAMPLES = 96, BATCH = 2, RANKS = 4 };
enum { VALUES = INPUTS * HIDDEN, STEPS = 400, PER_STEP = 8, ANY = -1 };

typedef enum kind { SGD, SHAMPOO } kind;

/* A run of all ranks. */
typedef struct plan {
    const char *run; /* run folder, or NULL */
    const lt_straggler_config *stragglers;
    kind optim;
    bool divided, in_order, resume;
    int accum, epochs, stop_after, seed; /* seed: of the delays */
    int slow;                            /* rank that is late in each step; ANY: no fixed rank */
    double delay;                        /* mean delay of the other ranks, in milliseconds */
    double late; /* the slow rank's delay in milliseconds, with drop_compute */
} plan;

typedef struct rank {
    training run;
    const plan *plan;
    float value[VALUES], mean[HIDDEN];       /* first parameter; running statistics */
    int seen[STEPS][PER_STEP], count[STEPS]; /* labels seen in each step, and their number */
} rank;

static rank ranks[RANKS];
static float inputs[SAMPLES][INPUTS];
static int64_t labels[SAMPLES];
static char output[TEMP_PATH];

static void nap(double milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e6 * milliseconds)}, NULL);
}

/* Sleeps in short intervals; after each it runs an operation that fails once no rank waits any more. */
static void delay(rank *r, lt_tape *tape, lt_tensor *x)
{
    const lt_pass pass = lt_tape_pass(tape);
    lt_rng rng = {.key = lt_rng_key((uint64_t)r->plan->seed, LT_STREAM_INIT, (uint64_t)pass.attempt,
                                    (uint64_t)pass.micro)};
    const bool waits =
        r->plan->stragglers
            ->drop_compute; /* the others wait for the slow rank, so it sleeps once */
    const bool is_slow = r->plan->slow == lt_comm_rank(r->run.at.comm)
                         && (waits ? pass.attempt == 2 : pass.attempt > 1);
    const double until =
        is_slow ? (waits ? r->plan->late : 2200) : r->plan->delay * -log(1 - lt_rng_uniform(&rng));
    for (double done = 0; done < until && lt_relu(tape, x); done += 0.2)
        nap(0.2);
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    rank *r = context;
    int32_t label[BATCH];
    assert_null(counts);
    const lt_pass pass = lt_tape_pass(tape);
    if (pass.record && r->plan->delay > 0)
        delay(r, tape, batch->inputs);
    if (pass.record && pass.attempt < STEPS && batch->count == BATCH) {
        LT_TRY(lt_tensor_read(batch->labels, label, sizeof label));
        for (int i = 0; i < BATCH && r->count[pass.attempt] < PER_STEP; i++)
            r->seen[pass.attempt][r->count[pass.attempt]++] = label[i];
    }
    out->output = lt_module_forward(r->run.model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

/* Shuffles the classes: in file order, each rank would get only one class. */
static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < INPUTS; k++)
            inputs[i][k] = sinf((float)(7 * i + 3 * k)) + (float)(i % CLASSES == k);
        labels[i] = i % CLASSES;
    }
}

/* --- A rank --- */

static lt_status make_model(rank *r)
{
    lt_module *layer[4] = {NULL};
    LT_TRY(lt_layer_linear(&layer[0], r->run.at.device, "first", INPUTS, HIDDEN, true));
    LT_TRY(lt_layer_batchnorm1d(&layer[1], r->run.at.device, "norm", HIDDEN,
                                (lt_batchnorm2d_config){0}));
    LT_TRY(lt_layer_relu(&layer[2]));
    LT_TRY(lt_layer_linear(&layer[3], r->run.at.device, "last", HIDDEN, CLASSES, true));
    return make_chain(&r->run, layer, 4);
}

static lt_status make_optim(rank *r)
{
    const plan *p = r->plan;
    lt_shampoo_config shampoo = LT_SHAMPOO_DEFAULTS;
    shampoo.precondition_frequency = 2;
    if (p->optim == SGD)
        LT_TRY(lt_optim_sgd(&r->run.optim, &r->run.params, &(lt_sgd_config){.momentum = 0.9}));
    else
        LT_TRY(lt_optim_shampoo(&r->run.optim, &r->run.params, &shampoo));
    if (!p->divided)
        return LT_OK;
    LT_TRY(lt_comm_split(r->run.at.comm, 0, lt_comm_rank(r->run.at.comm), &r->run.group));
    return lt_optim_shard(r->run.optim, &(lt_shard_config){.comm = r->run.group});
}

static lt_status train(rank *r)
{
    const plan *p = r->plan;
    lt_train_config c = configure(&r->run, &task, NULL);
    c.stragglers = p->stragglers;
    c.loader.batch = BATCH;
    c.loader.shuffle = !p->in_order;
    c.grad_accum = p->accum;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = p->epochs};
    c.output = p->run ? output : NULL;
    c.resume = p->resume;
    r->run.stop_after = p->stop_after;
    return lt_train(&c, NULL);
}

static lt_status note_values(rank *r)
{
    LT_TRY(lt_tensor_read(r->run.params.item[0]->value, r->value, sizeof r->value));
    for (size_t i = 0; i < r->run.params.count; i++)
        if (strstr(r->run.params.item[i]->name, "running_mean"))
            LT_TRY(lt_tensor_read(r->run.params.item[i]->value, r->mean, sizeof r->mean));
    return LT_OK;
}

static lt_status play(void *context)
{
    rank *r = context;
    LT_TRY(make_model(r));
    LT_TRY(make_optim(r));
    LT_TRY(train(r));
    return note_values(r);
}

static void end(void *context)
{
    close_training(context);
}

static void run_all(const plan *p)
{
    const rank_group g = {RANKS_OF(ranks, RANKS), .run = play, .end = end};
    make_data();
    if (p->run)
        temp_path(output, folder, p->run);
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].plan = p;
        assert_ok(
            open_arrays(&ranks[i].run.data, inputs[0], labels, SAMPLES, LT_SHAPE(INPUTS), CLASSES));
    }
    play_ranks(&g);
}

static void run_well(const plan *p)
{
    run_all(p);
    expect_ranks(&(rank_group){RANKS_OF(ranks, RANKS)});
    for (int i = 1; i < RANKS; i++)
        assert_memory_equal(ranks[i].value, ranks[0].value, sizeof ranks[0].value);
}

static void run_badly(const plan *p, lt_status status, const char *why)
{
    run_all(p);
    assert_int_equal(ranks[0].run.at.status, status);
    if (!strstr(ranks[0].run.at.message, why))
        fail_msg("'%s' lacks '%s'", ranks[0].run.at.message, why);
}

/* --- Backup workers --- */

static const lt_straggler_config one_backup = {.backup_workers = 1};

static void path_of(char path[TEMP_PATH], const char *run)
{
    char name[64];
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    temp_path(path, folder, name);
}

/* Runs once with delays, then replays the log under other delays: uninterrupted, and with a resume. */
static void check_repeats(plan p)
{
    float value[VALUES], mean[RANKS][HIDDEN];
    char path[TEMP_PATH];
    lt_contributors *sets;
    p.run = "first";
    p.stragglers = &one_backup;
    p.seed = 1;
    run_well(&p);
    memcpy(value, ranks[0].value, sizeof value);
    for (int r = 0; r < RANKS; r++)
        memcpy(mean[r], ranks[r].mean, sizeof mean[r]);
    path_of(path, p.run);
    assert_ok(lt_contributors_read(&sets, path, RANKS,
                                   RANKS - 1)); /* RANKS - 1 different ranks per step */
    for (int t = 1; t <= 2 * SAMPLES / (BATCH * RANKS * p.accum); t++)
        assert_non_null(lt_contributors_of(sets, t));
    lt_contributors_free(&sets);
    const lt_straggler_config given = {.backup_workers = 1, .contributors = path};
    p.stragglers = &given;
    p.run = "again";
    p.seed = 2;
    run_well(&p);
    assert_memory_equal(ranks[0].value, value, sizeof value);
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(ranks[r].mean, mean[r], sizeof mean[r]);
    p.run = "parts";
    p.seed = 3;
    p.stop_after = 7;
    run_well(&p);
    p.stop_after = 0;
    p.resume = true;
    run_well(&p);
    assert_memory_equal(ranks[0].value, value, sizeof value);
}

static void test_repeats(void **state)
{
    (void)state;
    check_repeats((plan){.accum = 2, .epochs = 2, .slow = ANY, .delay = 1});
}

static void test_repeats_shampoo(void **state)
{
    (void)state;
    check_repeats((plan){.optim = SHAMPOO, .accum = 1, .epochs = 2, .slow = ANY, .delay = 1});
}

static void test_repeats_divided(void **state)
{
    (void)state;
    check_repeats((plan){
        .optim = SHAMPOO, .divided = true, .accum = 1, .epochs = 2, .slow = ANY, .delay = 1});
}

/* Returns Pearson's chi-squared statistic for equally frequent classes among the used labels. */
static double chi_squared(const char *run, int steps)
{
    char path[TEMP_PATH];
    int64_t count[CLASSES] = {0}, all = 0;
    lt_contributors *sets;
    path_of(path, run);
    assert_ok(lt_contributors_read(&sets, path, RANKS, RANKS - 1));
    for (int t = 2; t <= steps; t++)
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; lt_contributors_of(sets, t)[r] && i < ranks[r].count[t]; i++, all++)
                count[ranks[r].seen[t][i]]++;
    lt_contributors_free(&sets);
    double sum = 0;
    const double expected = (double)all / CLASSES;
    for (int c = 0; c < CLASSES; c++)
        sum += ((double)count[c] - expected) * ((double)count[c] - expected) / expected;
    assert_true(all >= (steps - 1) * BATCH * (RANKS - 1)); /* every used label was seen */
    return sum;
}

/* Each epoch is reshuffled, so that each rank's share differs; 16.27 is exceeded with probability 0.001. In
 * file order, the slow rank's classes would be missing. */
static void test_classes(void **state)
{
    (void)state;
    enum { EPOCHS = 12, ALL = EPOCHS * SAMPLES / (BATCH * RANKS) };
    plan p = {.run = "shuffled",
              .stragglers = &one_backup,
              .accum = 1,
              .epochs = EPOCHS,
              .slow = 2,
              .delay = 1e-3};
    run_well(&p);
    assert_true(chi_squared(p.run, ALL) < 16.27);
    p.run = "ordered";
    p.in_order = true;
    run_well(&p);
    assert_true(chi_squared(p.run, ALL) > 16.27);
}

/* A checkpoint counts only samples whose gradients arrived in time. */
static void check_samples(const char *name, int want)
{
    char path[TEMP_PATH], key[64];
    size_t bytes;
    char *text = temp_read(temp_path(path, folder, name), &bytes);
    snprintf(key, sizeof key, "\"samples\":%d,", want);
    if (!strstr(text, key))
        fail_msg("no %s in %s", key, text);
    free(text);
}

static void test_no_set(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    plan p = {.run = "short",
              .stragglers = &one_backup,
              .accum = 1,
              .epochs = 1,
              .slow = ANY,
              .delay = 1e-6};
    run_well(&p);
    check_samples("short/checkpoints/step-12/state.json", 12 * BATCH * (RANKS - 1));
    path_of(path, p.run);
    const lt_straggler_config given = {.backup_workers = 1, .contributors = path};
    const lt_straggler_config fewer = {.backup_workers = 2, .contributors = path};
    p.stragglers = &given;
    p.run = "long";
    p.epochs = 2;
    run_badly(&p, LT_E_ARG, "has no record of step 13");
    p.stragglers = &fewer;
    p.run = "fewer";
    run_badly(&p, LT_E_FORMAT, "2 different ones of 4");
}

/* --- DropCompute --- */

static int read_number(const char **at)
{
    char *end;
    const long number = strtol(*at, &end, 10);
    *at = end;
    return (int)number;
}

/* Sums the numbers of "computed" over a run's records; *steps is the number of records. */
static int sum_of_counts(const char *run, int *steps)
{
    char path[TEMP_PATH];
    size_t bytes;
    int sum = 0;
    const char *key = "\"computed\":\"";
    path_of(path, run);
    char *text = temp_read(path, &bytes);
    *steps = 0;
    for (const char *at = text; (at = strstr(at, key)); ++*steps) {
        at += strlen(key);
        for (int r = 0; r < RANKS; r++)
            sum += read_number(&at);
    }
    free(text);
    return sum;
}

static void test_no_drop(void **state)
{
    (void)state;
    float value[VALUES];
    int steps;
    const lt_straggler_config far = {.drop_compute = true, .deadline = 1000};
    plan p = {.accum = 3, .epochs = 4, .slow = ANY};
    run_well(&p);
    memcpy(value, ranks[0].value, sizeof value);
    p.stragglers = &far;
    p.run = "far";
    run_well(&p);
    assert_memory_equal(ranks[0].value, value, sizeof value);
    assert_int_equal(sum_of_counts(p.run, &steps), 16 * RANKS * 3);
    assert_int_equal(steps, 16);
}

/* In one step a rank takes longer per micro-batch than the deadline: it computes one, the others three. Returns
 * the sum over four steps. */
static int drop(const char *run, double deadline)
{
    int steps;
    const lt_straggler_config brief = {.drop_compute = true, .deadline = deadline};
    plan p = {.run = run,
              .late = 1100 * deadline,
              .stragglers = &brief,
              .optim = SHAMPOO,
              .divided = true,
              .accum = 3,
              .epochs = 1,
              .slow = 1,
              .delay = 1e-3};
    run_well(&p);
    const int sum = sum_of_counts(p.run, &steps);
    assert_int_equal(steps, 4);
    return sum;
}

/* Retries with longer deadlines, as on a busy machine the other ranks may miss a short one. */
static void test_drop(void **state)
{
    const int want = 4 * RANKS * 3 - 2;
    (void)state;
    if (drop("short", 0.3) != want)
        assert_int_equal(drop("long", 3), want);
}

/* Runs 27 steps with exponential delays. Returns true if most micro-batches were computed, but not all. */
static bool gains_by_latencies(int seed, double delay)
{
    const int all = 27 * RANKS * 4;
    int steps;
    char run[16];
    snprintf(run, sizeof run, "auto-%d", seed);
    const lt_straggler_config by_latency = {.drop_compute = true};
    plan p = {.run = run,
              .stragglers = &by_latency,
              .accum = 4,
              .epochs = 9,
              .slow = ANY,
              .seed = seed,
              .delay = delay};
    run_well(&p);
    const int sum = sum_of_counts(p.run, &steps);
    assert_int_equal(steps, 27);
    return sum > 17 * RANKS * 4 && sum < all;
}

/* Retries with longer delays, as other programs may disturb the recorded latencies. */
static void test_auto(void **state)
{
    (void)state;
    assert_true(gains_by_latencies(4, 3) || gains_by_latencies(5, 10) || gains_by_latencies(6, 10));
}

static void test_bad(void **state)
{
    (void)state;
    const lt_straggler_config tiny = {.drop_compute = true, .deadline = 1e-7};
    const lt_straggler_config all = {.backup_workers = RANKS};
    const lt_straggler_config both = {.backup_workers = 1, .drop_compute = true};
    plan p = {.stragglers = &tiny, .accum = 2, .epochs = 2, .slow = ANY, .delay = 1};
    run_badly(&p, LT_E_ARG, "--drop-compute 1e-07: is shorter than one micro-batch");
    p.accum = 1;
    run_badly(&p, LT_E_ARG, "an update has 1 micro-batch");
    p.stragglers = &all;
    run_badly(&p, LT_E_ARG, "--backup-workers 4 of 4 ranks");
    p.stragglers = &both;
    run_badly(&p, LT_E_ARG, "contradict each other");
    const lt_straggler_config all_needed = {.contributors = "sets.jsonl"};
    p.stragglers = &all_needed;
    run_badly(&p, LT_E_ARG, "--contributors sets.jsonl: needs --backup-workers");
    char path[TEMP_PATH];
    lt_contributors *sets = NULL;
    temp_path(path, folder, "none.jsonl");
    temp_write(path, "{\"event\":\"step\"}\n", 17);
    assert_fails(lt_contributors_read(&sets, path, RANKS, RANKS - 1), LT_E_FORMAT,
                 "none.jsonl: has no record of contributors");
    assert_null(sets);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"a log of participating ranks replays a run bitwise", test_repeats, temp_setup,
         temp_teardown, NULL},
        {"a log replays a run with Shampoo", test_repeats_shampoo, temp_setup, temp_teardown, NULL},
        {"a log replays a run with sharded Shampoo", test_repeats_divided, temp_setup,
         temp_teardown, NULL},
        {"a rank that is always late causes no missing class", test_classes, temp_setup,
         temp_teardown, NULL},
        {"a log that lacks a step is an error", test_no_set, temp_setup, temp_teardown, NULL},
        {"a distant deadline changes no bit", test_no_drop, temp_setup, temp_teardown, NULL},
        {"no micro-batch starts after a deadline", test_drop, temp_setup, temp_teardown, NULL},
        {"a deadline is chosen from latencies", test_auto, temp_setup, temp_teardown, NULL},
        {"invalid configurations are named", test_bad, temp_setup, temp_teardown, NULL},
    };
    return cmocka_run_group_tests_name("runs with stragglers", rows, NULL, NULL);
}
