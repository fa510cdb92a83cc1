/* A task without images and accuracy, trained by lt_train(): a bigram language model with the perplexity as
 * metric; lower is better. */

#include "train/loop/step_parts.h"
#include "training.h"

#include "lather/local_steps.h"
#include "lather/stragglers.h"

#include <math.h>

enum { TOKENS = 5, LENGTH = 65, SAMPLES = LENGTH - 1, BATCH = 8, EPOCHS = 4 };

typedef struct fixture {
    training run;
    float input[SAMPLES][TOKENS]; /* a token, one-hot */
    int64_t next[SAMPLES];
} fixture;

/* --- The task --- */

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const fixture *f = context;
    assert_null(counts);
    out->output = lt_module_forward(f->run.model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static double perplexity(const lt_task_sums *sums)
{
    return exp(sums->loss);
}

static const lt_task_metric metrics[] = {{.name = "perplexity",
                                          .label = "perplexity",
                                          .of_training = true,
                                          .lower_is_better = true,
                                          .value = perplexity}};

static const lt_task_ops language = {.name = "language model",
                                     .unit = "tokens",
                                     .unit_short = "tok",
                                     .metric = metrics,
                                     .metrics = 1,
                                     .forward = forward};

/* --- A run --- */

/* Makes a text in which each token usually determines the next. */
static void make_text(fixture *f)
{
    int token = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const int next = i % 7 == 6 ? i % TOKENS : (2 * token + 1) % TOKENS;
        memset(f->input[i], 0, sizeof f->input[i]);
        f->input[i][token] = 1;
        f->next[i] = next;
        token = next;
    }
}

static void open_fixture(fixture *f, int samples)
{
    memset(f, 0, sizeof *f);
    make_text(f);
    training *t = &f->run;
    const lt_adam_config adam = LT_ADAM_DEFAULTS;
    assert_ok(lt_device_open(&t->at.device, "ref", NULL));
    assert_ok(open_arrays(&t->data, f->input[0], f->next, samples, LT_SHAPE(TOKENS), TOKENS));
    assert_ok(lt_layer_linear(&t->model, t->at.device, "next", TOKENS, TOKENS, true));
    assert_ok(lt_module_params(t->model, &t->params));
    assert_ok(lt_optim_adam(&t->optim, &t->params, &adam));
}

static void close_fixture(fixture *f)
{
    close_training(&f->run);
    lt_device_close(&f->run.at.device);
}

/* output: name of the run folder, or NULL. */
static lt_train_config config_of(fixture *f, const char *output)
{
    lt_train_config c = configure(&f->run, &language, output);
    c.loader.batch = BATCH;
    c.schedule = (lt_schedule){.lr = 0.1, .epochs = EPOCHS};
    c.eval_every = 1;
    c.ema_decay = 0.5;
    return c;
}

/* Reads the number of "key": in text from *at on, and advances *at past it. */
static double number_at(const char **at, const char *key)
{
    char quoted[64];
    const int bytes = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    *at = strstr(*at, quoted);
    assert_non_null(*at);
    *at += bytes;
    return strtod(*at, NULL);
}

static char *read_part(const char *name)
{
    char path[TEMP_PATH];
    return temp_read(temp_path(path, folder, name), NULL);
}

static double first_number(const char *file, const char *key)
{
    char *text = read_part(file);
    const char *at = text;
    const double value = number_at(&at, key);
    free(text);
    return value;
}

/* Reads all val_perplexity values of a run in order. */
static void read_perplexities(const char *file, double value[EPOCHS])
{
    char *text = read_part(file);
    const char *at = text;
    for (int i = 0; i < EPOCHS; i++) {
        const double loss = number_at(&at, "val_loss");
        value[i] = number_at(&at, "val_perplexity");
        assert_near(value[i], exp(loss), 1e-9 * value[i]);
    }
    free(text);
}

/* --- Rows --- */

static void test_records(void **state)
{
    (void)state;
    fixture f;
    lt_train_end end;
    double value[EPOCHS];
    open_fixture(&f, SAMPLES);
    const lt_train_config c = config_of(&f, "run");
    assert_ok(lt_train(&c, &end));
    assert_int_equal(end.step, EPOCHS * SAMPLES / BATCH);
    assert_int_equal(end.epoch, EPOCHS);
    assert_false(end.stopped);
    read_perplexities("run/metrics.jsonl", value);
    assert_true(value[EPOCHS - 1] < 0.7 * TOKENS); /* an untrained model has about TOKENS */
    char *text = read_part("run/metrics.jsonl");
    for (const char *key = "perplexity\0train_perplexity\0tokens_per_second\0"; *key;
         key += strlen(key) + 1) {
        const char *at = text;
        assert_true(number_at(&at, key) > 0);
    }
    assert_null(strstr(text, "top1"));
    assert_null(strstr(text, "image"));
    free(text);
    close_fixture(&f);
}

/* higher: the same task with lower_is_better = false. */
static double best_of(bool higher, double value[EPOCHS])
{
    fixture f;
    lt_train_end end;
    const char *run = higher ? "high" : "low";
    char file[64];
    lt_task_metric metric = metrics[0];
    lt_task_ops task = language;
    task.metric = &metric;
    metric.lower_is_better = !higher;
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, run);
    c.task.ops = &task;
    assert_ok(lt_train(&c, &end));
    snprintf(file, sizeof file, "%s/metrics.jsonl", run);
    read_perplexities(file, value);
    snprintf(file, sizeof file, "%s/checkpoints/best/state.json", run);
    assert_near(first_number(file, "best_perplexity"), end.best, 1e-9);
    assert_near(first_number(file, "step"), (double)end.best_step, 0);
    close_fixture(&f);
    return end.best;
}

static void test_best(void **state)
{
    (void)state;
    double value[EPOCHS], least = (double)INFINITY, most = -(double)INFINITY;
    const double low = best_of(false, value), high = best_of(true, value);
    for (int i = 0; i < EPOCHS; i++) {
        least = fmin(least, value[i]);
        most = fmax(most, value[i]);
    }
    assert_near(low, least, 0);
    assert_near(high, most, 0); /* control: lower_is_better decides */
    assert_true(most > least);
}

static void test_target(void **state)
{
    (void)state;
    fixture f;
    lt_train_end end;
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, NULL);
    c.target = 1000;
    assert_ok(lt_train(&c, &end)); /* every evaluation is below */
    assert_int_equal(end.epoch, 1);
    c.target = 1; /* no evaluation reaches it */
    assert_ok(lt_train(&c, &end));
    assert_int_equal(end.epoch, EPOCHS);
    close_fixture(&f);
}

static void run_to(const char *run, int stop_after, bool resume, lt_train_end *end)
{
    fixture f;
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, run);
    f.run.stop_after = stop_after;
    c.resume = resume;
    c.grad_accum = 2;
    assert_ok(lt_train(&c, end));
    close_fixture(&f);
}

static void test_resume(void **state)
{
    (void)state;
    const int epoch = SAMPLES / BATCH / 2, within = epoch + 2, evaluated = SAMPLES / BATCH;
    lt_train_end whole, part;
    run_to("whole", 0, false, &whole);
    run_to("parts", within + evaluated, false, &part); /* evaluations call stop() too */
    assert_true(part.stopped && part.step == within);
    run_to("parts", 0, true, &part);
    assert_false(part.stopped);
    assert_int_equal(part.step, whole.step);
    assert_near(part.best, whole.best, 0);
    temp_assert_same(folder, "whole/model.safetensors", "parts/model.safetensors");
    temp_assert_same(folder, "whole/checkpoints/latest/optim.safetensors",
                     "parts/checkpoints/latest/optim.safetensors");
}

static void test_other_task(void **state)
{
    (void)state;
    fixture f;
    lt_train_end end;
    lt_task_ops task = language;
    task.unit = "words";
    run_to("run", 3, false, &end);
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, "run");
    assert_status(lt_train(&c, NULL), LT_E_ARG); /* the folder has a run */
    c.resume = true;
    c.grad_accum = 2;
    c.task.ops = &task;
    assert_status(lt_train(&c, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "words"));
    c.task.ops = &language;
    assert_ok(lt_train(&c, NULL)); /* control */
    close_fixture(&f);
}

/* Returns NaN for the first evaluation, whose record and comparison both ask for it; then the perplexity. */
static double unknown_first(const lt_task_sums *sums)
{
    static int asked;
    return asked++ < 2 ? (double)NAN : perplexity(sums);
}

static void test_nan(void **state)
{
    (void)state;
    fixture f;
    lt_train_end end;
    const lt_task_metric metric = {
        .name = "odd", .label = "odd", .lower_is_better = true, .value = unknown_first};
    lt_task_ops task = language;
    task.metric = &metric;
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, "run");
    c.task.ops = &task;
    c.schedule.epochs = 1;
    assert_ok(lt_train(&c, &end));
    assert_int_equal(end.best_step, 0);
    c.schedule.epochs = 2;
    c.resume = true;
    assert_ok(lt_train(&c, &end));
    assert_int_equal(end.best_step, 2 * SAMPLES / BATCH);
    assert_true(end.best > 1);
    close_fixture(&f);
}

/* Limits that end a run, and invalid ones. */
static void test_limits(void **state)
{
    (void)state;
    fixture f;
    lt_train_end end;
    char path[950];
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, NULL);
    c.schedule.epochs = 0;
    c.max_steps = 3;
    assert_ok(lt_train(&c, &end));
    assert_int_equal(end.step, 3);
    c.max_steps = 0;
    assert_status(lt_train(&c, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "epochs 0"));
    c.max_steps = 3;
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    c.output = path;
    assert_status(lt_train(&c, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "949 bytes"));
    close_fixture(&f);
}

/* --- Two ranks, each a thread --- */

enum { RANKS = 2 };

static void open_all(const rank_group *g, fixture *all)
{
    for (int i = 0; i < g->count; i++)
        open_fixture(&all[i], SAMPLES);
    open_ranks(g);
    for (int i = 0; i < g->count; i++) {
        all[i].run.config = config_of(&all[i], "run");
        all[i].run.config.loader.batch = BATCH / g->count;
    }
}

static void close_all(const rank_group *g, fixture *all)
{
    close_ranks(g);
    for (int i = 0; i < g->count; i++)
        close_fixture(&all[i]);
}

/* A run that cannot begin: its task, its numbers, what needs several ranks, and the variable that profiles a step. */
static void test_bad_configs(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, SAMPLES);
    const lt_task_ops nameless = {.unit = "tokens"}, no_unit = {.name = "language model"};
    const lt_straggler_config stragglers = {.backup_workers = 1};
    const lt_local_steps_config local = {.every = 2, .lr = 1};
    const lt_train_config good = config_of(&f, NULL);
    lt_train_config c = good;
    c.task.ops = &nameless;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "a task needs a name and a unit of samples");
    c.task.ops = &no_unit;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "a task needs a name and a unit of samples");
    c = good;
    c.loader.batch = 0;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "train: loader.batch 0, grad_accum ");
    c = good;
    c.grad_accum = -2;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "grad_accum -2, max_steps ");
    c = good;
    c.max_steps = -3;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, ", max_steps -3");
    c = good;
    c.stragglers = &stragglers;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "train: stragglers needs at least 2 ranks");
    c.stragglers = NULL;
    c.local_steps = &local;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "train: local_steps needs at least 2 ranks");
    assert_int_equal(setenv("LATHER_PROFILE_STEP", "0", 1), 0);
    assert_fails(lt_train(&good, NULL), LT_E_ARG,
                 "LATHER_PROFILE_STEP=0: expected the number of a step, 1 or more");
    assert_int_equal(unsetenv("LATHER_PROFILE_STEP"), 0);
    assert_ok(lt_train(&good, NULL)); /* control */
    close_fixture(&f);
}

/* Only one rank has an invalid table: the other one does not wait for it. */
static void test_failure_of_a_rank(void **state)
{
    (void)state;
    static fixture all[RANKS];
    const rank_group g = {RANKS_OF(all, RANKS), .same_refusal = true, .run = run_training};
    lt_task_ops none = language;
    none.forward = NULL;
    open_all(&g, all);
    all[1].run.config.task.ops = &none;
    run_ranks(&g);
    assert_int_equal(all[0].run.at.status, LT_E_COMM);
    assert_int_equal(all[1].run.at.status, LT_E_ARG);
    close_all(&g, all);
}

static void test_ranks(void **state)
{
    (void)state;
    static fixture all[RANKS], alone;
    const rank_group g = {RANKS_OF(all, RANKS), .run = run_training};
    lt_train_end end;
    open_fixture(&alone, SAMPLES);
    const lt_train_config c = config_of(&alone, NULL);
    assert_ok(lt_train(&c, &end));
    open_all(&g, all);
    run_ranks(&g);
    expect_ranks(&g);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(all[i].run.end.step, end.step);
        assert_near(all[i].run.end.best, all[0].run.end.best, 0);
        assert_near(all[i].run.end.best, end.best, 1e-4); /* f32 sums in a different order */
    }
    assert_near(first_number("run/checkpoints/best/state.json", "best_perplexity"),
                all[0].run.end.best, 1e-9);
    close_all(&g, all);
    close_fixture(&alone);
}

static int64_t one(const void *context)
{
    (void)context;
    return 1;
}

/* A table with as much as is possible. */
static void test_full_table(void **state)
{
    (void)state;
    lt_task_ops most = language;
    lt_task_metric all[LT_TASK_METRICS];
    for (int i = 0; i < LT_TASK_METRICS; i++)
        all[i] = metrics[0];
    most.counts = most.terms = LT_TASK_COUNTS;
    most.metric = all;
    most.metrics = LT_TASK_METRICS;
    most.best = LT_TASK_METRICS - 1;
    most.rate_unit = "bytes";
    most.rate_per_sample = one;
    assert_ok(lt_task_check(&most));
}

/* Invalid tables of a task, and a word of each message. */
static void test_tables(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, SAMPLES);
    lt_train_config c = config_of(&f, "a_file"); /* no folder, but tables come first */
    temp_write(c.output, "", 0);
    enum { ROWS = 13 };
    lt_task_ops row[ROWS];
    static const char *const word[ROWS] = {"forward",
                                           "6 counts",
                                           "9 metrics",
                                           "best is 1, but there are 1 metrics",
                                           "metric 0 needs",
                                           "terms is 1, but there are 0 counts",
                                           "rate_unit and",
                                           "-1 counts",
                                           "-1 metrics",
                                           "best is -1, but there are 1 metrics",
                                           "rate_unit and",
                                           "terms is -1, but there are 0 counts",
                                           "terms is 6, but there are 5 counts"};
    for (int i = 0; i < ROWS; i++)
        row[i] = language;
    const lt_task_metric without_value = {.name = "perplexity", .label = "perplexity"};
    row[0].forward = NULL;
    row[1].counts = LT_TASK_COUNTS + 1;
    row[2].metrics = LT_TASK_METRICS + 1;
    row[3].best = 1;
    row[4].metric = &without_value;
    row[5].terms = 1;
    row[6].rate_unit = "bytes";
    row[7].counts = -1;
    row[8].metrics = -1;
    row[9].best = -1;
    row[10].rate_per_sample = one;
    row[11].terms = -1;
    row[12].counts = LT_TASK_COUNTS;
    row[12].terms = LT_TASK_COUNTS + 1;
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        c.task.ops = &row[i];
        assert_status(lt_train(&c, NULL), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "language model"));
        assert_non_null(strstr(lt_error_message(), word[i]));
    }
    close_fixture(&f);
    open_fixture(&f, BATCH - 1);
    c = config_of(&f, NULL);
    assert_status(lt_train(&c, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "7 samples"));
    close_fixture(&f);
}

/* --- A single step --- */

typedef struct source {
    lt_loader *loader;
    int64_t batches;
} source;

static lt_status next(void *context, lt_batch *batch)
{
    source *from = context;
    from->batches++;
    return lt_loader_next(from->loader, batch);
}

static void test_step(void **state)
{
    (void)state;
    fixture f;
    lt_tape *tape = NULL;
    lt_train_step *step = NULL;
    lt_train_result r;
    source from = {0};
    const lt_loader_config loader = {.batch = BATCH, .threads = 1};
    open_fixture(&f, SAMPLES);
    assert_ok(lt_tape_new(&tape, f.run.at.device));
    assert_ok(lt_loader_new(&from.loader, f.run.data, f.run.at.device, &loader));
    const lt_train_step_config c = {.device = f.run.at.device,
                                    .tape = tape,
                                    .params = &f.run.params,
                                    .optim = f.run.optim,
                                    .task = {&language, &f},
                                    .pass = LT_PASS_TRAIN,
                                    .grad_accum = 3,
                                    .graph = true, /* the device has no graphs: runs eagerly */
                                    .next = next,
                                    .next_context = &from};
    assert_ok(lt_train_step_new(&step, &c));
    for (int64_t i = 1; i <= 2; i++) {
        const lt_step numbers = {.lr = 0.1, .attempt = i};
        assert_ok(lt_train_step_begin(step, &numbers, &r));
        assert_ok(lt_train_step_finish(step, &r));
        assert_int_equal(from.batches, 3 * i);
        assert_int_equal(r.step, i);
        assert_int_equal(r.optim.steps, i);
        assert_near(r.sums.samples, 3 * BATCH, 0);
        assert_true(r.optim.applied && r.optim.grad_norm > 0);
        assert_true(r.sums.loss > 0 && r.sums.loss < 3 * log(TOKENS));
        assert_false(r.stop);
    }
    lt_train_step_free(&step);
    lt_loader_free(&from.loader);
    lt_tape_free(&tape);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"records have the metrics of a language model", test_records, temp_setup, temp_teardown,
         NULL},
        {"the best checkpoint has the lowest perplexity", test_best, temp_setup, temp_teardown,
         NULL},
        {"a perplexity at the target or below ends the run", test_target, temp_setup, temp_teardown,
         NULL},
        {"a resumed run equals an uninterrupted one", test_resume, temp_setup, temp_teardown, NULL},
        {"a checkpoint of another task is rejected, naming the difference", test_other_task,
         temp_setup, temp_teardown, NULL},
        {"a full table is accepted", test_full_table, NULL, NULL, NULL},
        {"an invalid table is rejected, naming its task", test_tables, temp_setup, temp_teardown,
         NULL},
        {"a NaN evaluation is never the best and does not end the run", test_nan, temp_setup,
         temp_teardown, NULL},
        {"a run that cannot begin is refused", test_bad_configs, temp_setup, temp_teardown, NULL},
        {"a run needs a limit in epochs or steps, and ends at it", test_limits, temp_setup,
         temp_teardown, NULL},
        {"a rank that fails at start ends the others", test_failure_of_a_rank, temp_setup,
         temp_teardown, NULL},
        {"two ranks train like one", test_ranks, temp_setup, temp_teardown, NULL},
        {"a step runs its micro-batches and returns their sums", test_step, temp_setup,
         temp_teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
