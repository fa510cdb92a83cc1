/* Hooks of lt_train(): when they are called and with which numbers, how one ends a run on all ranks, and their
 * numbers in checkpoints; early stopping. A rank is a thread. */

#include "train/loop/hooks.h"

#include "train/program/program.h"
#include "training.h"

#include <math.h>

enum { INPUTS = 3, CLASSES = 2, SAMPLES = 16, BATCH = 8, EPOCHS = 4, RANKS = 2, VALUES = 6 };
enum { STEPS = EPOCHS * SAMPLES / BATCH };

typedef enum point { RUN, BEFORE, AFTER, EVALUATION, EPOCH, POINTS } point;

typedef struct plan {
    int ranks, epochs;
    const char *run; /* run folder, or NULL */
    bool resume;
    point stop_at;    /* with stop_call: the hook asks to stop in this call on the last rank */
    int stop_call;    /* number of the call, from 1; 0: never */
    bool fails;       /* it fails instead */
    const char *stop; /* --early-stop, or NULL: the test's own hooks */
} plan;

typedef struct rank {
    training run;
    const plan *plan;
    int calls[POINTS];
    double number, loss_at_epoch; /* number: saved in checkpoints; counts steps */
    lt_train_number saved;
    lt_train_hooks hooks;
    early_stop early;
    float value[VALUES];
} rank;

static rank ranks[RANKS];
static float inputs[SAMPLES][INPUTS];
static int64_t labels[SAMPLES];

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const rank *r = context;
    (void)counts;
    out->output = lt_module_forward(r->run.model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

/* --- The hooks of the test --- */

static lt_status count_call(rank *r, point at, const lt_train_view *view, bool *stop)
{
    const plan *p = r->plan;
    const bool chosen = ++r->calls[at] == p->stop_call && at == p->stop_at;
    assert_false(*stop);
    assert_int_equal(view->rank, r->run.at.rank);
    assert_int_equal(view->ranks, p->ranks);
    assert_ptr_equal(view->params, &r->run.params);
    assert_true(view->lr > 0);
    if (!chosen || view->rank + 1 < view->ranks)
        return LT_OK;
    *stop = !p->fails;
    return p->fails ? lt_fail(LT_E_IO, "no space on the moon") : LT_OK;
}

static lt_status before_run(void *context, const lt_train_view *view, bool *stop)
{
    rank *r = context;
    assert_int_equal(view->metrics, 0);
    return count_call(r, RUN, view, stop);
}

static lt_status before_step(void *context, const lt_train_view *view, bool *stop)
{
    rank *r = context;
    assert_int_equal(view->step, (int64_t)r->number + 1);
    return count_call(r, BEFORE, view, stop);
}

static lt_status after_step(void *context, const lt_train_view *view, bool *stop)
{
    rank *r = context;
    assert_int_equal(view->step, (int64_t)++r->number);
    assert_true(lt_train_view_metric(view, "loss") > 0);
    assert_true(lt_train_view_metric(view, "gradient_norm") > 0);
    assert_true(isnan(lt_train_view_metric(view, "val_loss")));
    const lt_metric own = {"double_loss", 2 * lt_train_view_metric(view, "loss")};
    assert_fails(lt_train_record(view, "step", &own, 1), LT_E_ARG,
                 "the event 'step' is the library's");
    const lt_metric reserved[] = {own, {"run", 1}};
    assert_fails(lt_train_record(view, "moon", reserved, 2), LT_E_ARG,
                 "event moon: every record has 'run'; choose another name");
    LT_TRY(lt_train_record(view, "moon", &own, 1));
    return count_call(r, AFTER, view, stop);
}

static lt_status after_evaluation(void *context, const lt_train_view *view, bool *stop)
{
    assert_true(lt_train_view_metric(view, "val_loss") > 0);
    return count_call(context, EVALUATION, view, stop);
}

static lt_status after_epoch(void *context, const lt_train_view *view, bool *stop)
{
    rank *r = context;
    r->loss_at_epoch = lt_train_view_metric(view, "train_loss");
    assert_true(lt_train_view_metric(view, "seconds") > 0);
    return count_call(r, EPOCH, view, stop);
}

static void fill_hooks(rank *r)
{
    r->saved = (lt_train_number){"steps", &r->number};
    r->hooks = (lt_train_hooks){.name = "moon",
                                .context = r,
                                .before_run = before_run,
                                .before_step = before_step,
                                .after_step = after_step,
                                .after_evaluation = after_evaluation,
                                .after_epoch = after_epoch,
                                .number = &r->saved,
                                .numbers = 1};
}

/* --- A rank --- */

static lt_status run(void *context)
{
    rank *r = context;
    const plan *p = r->plan;
    lt_module *layer = NULL;
    LT_TRY(open_arrays(&r->run.data, inputs[0], labels, SAMPLES, LT_SHAPE(INPUTS), CLASSES));
    LT_TRY(lt_layer_linear(&layer, r->run.at.device, "only", INPUTS, CLASSES, false));
    LT_TRY(make_chain(&r->run, &layer, 1));
    LT_TRY(lt_optim_sgd(&r->run.optim, &r->run.params, NULL));
    fill_hooks(r);
    if (p->stop)
        LT_TRY(lt_early_stop_open(
            &r->early, &(evaluation_options){.early_stop = p->stop, .eval_every = 1}, &task));
    lt_train_config c = configure(&r->run, &task, NULL);
    char path[TEMP_PATH];
    c.hooks = p->stop ? &r->early.hooks : &r->hooks;
    c.comm = p->ranks > 1 ? r->run.at.comm : NULL;
    c.loader.batch = BATCH / p->ranks;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = p->epochs};
    c.eval_every = 1;
    c.output = p->run ? temp_path(path, folder, p->run) : NULL;
    c.resume = p->resume;
    LT_TRY(lt_train(&c, &r->run.end));
    return lt_tensor_read(r->run.params.item[0]->value, r->value, sizeof r->value);
}

static void end(void *context)
{
    close_training(context);
}

static void run_plan(const plan *p, bool ends_well)
{
    const rank_group group = {RANKS_OF(ranks, p->ranks), .run = run, .end = end};
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < RANKS; i++)
        ranks[i].plan = p;
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % 2;
        for (int k = 0; k < INPUTS; k++)
            inputs[i][k] = sinf((float)(7 * i + 3 * k)) + (float)labels[i];
    }
    play_ranks(&group);
    for (int i = 0; i < p->ranks; i++)
        if (ends_well && ranks[i].run.at.status)
            fail_msg("rank %d: %s", i, ranks[i].run.at.message);
}

static bool file_has(const char *run, const char *name, const char *text)
{
    char path[TEMP_PATH], relative[128];
    static char bytes[1 << 17];
    snprintf(relative, sizeof relative, "%s/%s", run, name);
    FILE *file = fopen(temp_path(path, folder, relative), "r");
    assert_non_null(file);
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = 0;
    fclose(file);
    return strstr(bytes, text);
}

/* --- Rows --- */

static void test_calls(void **state)
{
    (void)state;
    for (int count = 1; count <= RANKS; count++) {
        run_plan(&(plan){.ranks = count, .epochs = EPOCHS, .run = count > 1 ? "two" : "one"}, true);
        for (int i = 0; i < count; i++) {
            const int want[POINTS] = {1, STEPS, STEPS, EPOCHS, EPOCHS};
            assert_memory_equal(ranks[i].calls, want, sizeof want);
            assert_null(ranks[i].run.end.ended_by);
        }
    }
    assert_true(
        file_has("one", "metrics.jsonl", "{\"event\":\"moon\",\"step\":8,\"double_loss\":"));
    assert_false(file_has("one", "metrics.jsonl", "\"ended\""));
    assert_false(file_has("one", "checkpoints/latest/state.json", "ended_by"));
}

/* A stop of one rank ends all at the same step; calls: the wanted ones. */
static void check_stop(point at, int call, int step, const int calls[POINTS])
{
    run_plan(
        &(plan){.ranks = RANKS, .epochs = EPOCHS, .run = "run", .stop_at = at, .stop_call = call},
        true);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].run.end.step, step);
        assert_string_equal(ranks[i].run.end.ended_by, "moon");
        assert_false(ranks[i].run.end.stopped);
        assert_memory_equal(ranks[i].calls, calls, POINTS * sizeof *calls);
    }
    assert_true(temp_exists("run/model.safetensors"));
    assert_true(file_has("run", "metrics.jsonl", "\"event\":\"ended\""));
    if (step)
        assert_true(file_has("run", "checkpoints/latest/state.json", "\"ended_by\":\"moon\""));
    temp_remove(folder);
    temp_make(folder);
}

static void test_stops(void **state)
{
    (void)state;
    check_stop(RUN, 1, 0, (int[]){1, 0, 0, 0, 0});
    check_stop(BEFORE, 4, 3, (int[]){1, 4, 3, 1, 1});
    check_stop(AFTER, 3, 3, (int[]){1, 3, 3, 1, 1});
    check_stop(AFTER, 4, 4, (int[]){1, 4, 4, 2, 2}); /* the last step of an epoch */
    check_stop(EVALUATION, 2, 4, (int[]){1, 4, 4, 2, 2});
    check_stop(EPOCH, 2, 4, (int[]){1, 4, 4, 2, 2});
}

static void test_failure(void **state)
{
    (void)state;
    run_plan(
        &(plan){.ranks = RANKS, .epochs = EPOCHS, .stop_at = AFTER, .stop_call = 3, .fails = true},
        false);
    assert_int_equal(ranks[1].run.at.status, LT_E_IO);
    assert_string_equal(ranks[1].run.at.message, "step 3: hook moon: no space on the moon");
    assert_int_equal(ranks[0].run.at.status, LT_E_COMM);
}

static void test_resume(void **state)
{
    (void)state;
    float whole[VALUES];
    run_plan(&(plan){.ranks = 1, .epochs = EPOCHS}, true);
    memcpy(whole, ranks[0].value, sizeof whole);
    for (point at = AFTER; at <= EPOCH; at++) { /* within an epoch, and after one */
        run_plan(&(plan){.ranks = 1,
                         .epochs = EPOCHS,
                         .run = "run",
                         .stop_at = at,
                         .stop_call = at == AFTER ? 3 : 2},
                 true);
        run_plan(&(plan){.ranks = 1, .epochs = EPOCHS, .run = "run", .resume = true}, true);
        assert_true(ranks[0].number == STEPS);
        assert_memory_equal(ranks[0].value, whole, sizeof whole);
        assert_false(file_has("run", "checkpoints/latest/state.json", "ended_by"));
        temp_remove(folder);
        temp_make(folder);
    }
}

/* The learning rate is too small for 100: the loss falls, but by less in each evaluation. */
static void test_early_stop(void **state)
{
    (void)state;
    const plan long_run = {.ranks = RANKS, .epochs = 20, .run = "run", .stop = "val_loss:3:100"};
    run_plan(&long_run, true);
    assert_int_equal(ranks[1].run.end.epoch, 4); /* the first evaluation is the best one */
    assert_string_equal(ranks[1].run.end.ended_by, "early_stop");
    plan more = long_run;
    more.resume = true;
    run_plan(&more, true); /* remains ended */
    assert_int_equal(ranks[0].run.end.epoch, 4);
    more.stop = "val_loss:5:100"; /* trains on, with the count of 3 */
    run_plan(&more, true);
    assert_int_equal(ranks[0].run.end.epoch, 6);
    more.stop = "train_loss:2:0"; /* another metric begins at its first value, and falls */
    run_plan(&more, true);
    assert_int_equal(ranks[0].run.end.epoch, 20);
    assert_null(ranks[0].run.end.ended_by);
}

static lt_status nothing(void *context, const lt_train_view *view, bool *stop)
{
    (void)context;
    (void)view;
    (void)stop;
    return LT_OK;
}

static void test_rejects(void **state)
{
    (void)state;
    static double value;
    static lt_train_number many[LT_CHECKPOINT_NUMBERS + 1];
    static char name[LT_MAX_HOOKS][16];
    static lt_train_hooks full[LT_MAX_HOOKS];
    const lt_train_number twice[] = {{"a", &value}, {"a", &value}}, unset[] = {{"a", NULL}};
    lt_hooks list = {0};
    assert_fails(lt_hooks_add(&list, &(lt_train_hooks){.before_run = nothing}), LT_E_ARG, "name");
    assert_fails(lt_hooks_add(&list, &(lt_train_hooks){"a", .number = twice, .numbers = 2}),
                 LT_E_ARG, "two numbers are named 'a'");
    assert_fails(lt_hooks_add(&list, &(lt_train_hooks){"a", .number = unset, .numbers = 1}),
                 LT_E_ARG, "value");
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        static char names[COUNT_OF(many)][24];
        snprintf(names[i], sizeof names[i], "n%zu", i);
        many[i] = (lt_train_number){names[i], &value};
    }
    assert_fails(
        lt_hooks_add(&list, &(lt_train_hooks){"a", .number = many, .numbers = COUNT_OF(many)}),
        LT_E_ARG, "at most 16");
    for (int i = 0; i < LT_MAX_HOOKS; i++) {
        snprintf(name[i], sizeof name[i], "h%d", i);
        full[i].name = name[i];
        assert_ok(lt_hooks_add(&list, &full[i]));
    }
    assert_fails(lt_hooks_add(&list, &full[0]), LT_E_ARG, "'h0' is taken");
    assert_fails(lt_hooks_add(&list, &(lt_train_hooks){.name = "a"}), LT_E_NOMEM, "at most 8");
}

static void test_registered(void **state)
{
    (void)state;
    static rank other;
    static lt_train_hooks registered;
    fill_hooks(&other);
    registered = other.hooks;
    registered.name = "registered";
    registered.before_run = registered.before_step = NULL;
    registered.after_evaluation = registered.after_epoch = NULL;
    registered.after_step = nothing;
    assert_ok(lt_train_hooks_register(&registered));
    assert_fails(lt_train_hooks_register(&registered), LT_E_ARG, "taken");
    run_plan(&(plan){.ranks = 1, .epochs = 1, .run = "run"}, true);
    assert_true(file_has("run", "checkpoints/latest/state.json",
                         "\"hooks\":{\"moon.steps\":2,\"registered.steps\":0}"));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"each hook is called once at its point, on each rank", test_calls, temp_setup,
         temp_teardown, NULL},
        {"a hook of one rank ends the run on all, at the same step", test_stops, temp_setup,
         temp_teardown, NULL},
        {"a hook that fails ends the run with its error", test_failure, temp_setup, temp_teardown,
         NULL},
        {"a run that a hook ended resumes bit for bit, with the hook's numbers", test_resume,
         temp_setup, temp_teardown, NULL},
        {"early stopping keeps its count in a resume", test_early_stop, temp_setup, temp_teardown,
         NULL},
        {"hooks without name or with numbers that do not fit are rejected", test_rejects, NULL,
         NULL, NULL},
        {"registered hooks are called in each run", test_registered, temp_setup, temp_teardown,
         NULL},
    };
    return cmocka_run_group_tests_name("hooks", rows, NULL, NULL);
}
