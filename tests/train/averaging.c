/* Runs with weight averaging: evaluation, checkpoints and the EMA use the averaged sequence; training continues
 * from the other one. */

#include "lather/averaging.h"

#include "train/loop/evaluate.h"
#include "training.h"

#include "lather/safetensors.h"

enum { CLASSES = 4, SAMPLES = 32, BATCH = 8, EPOCHS = 3, WEIGHTS = CLASSES * CLASSES, RANKS = 2 };

typedef struct fixture {
    training run;
    float input[SAMPLES][CLASSES], evaluated[WEIGHTS],
        trained[WEIGHTS]; /* weights at the last evaluation and step */
    int64_t label[SAMPLES];
    int batches, fail_after; /* batches after which an evaluation fails; 0: never */
} fixture;

/* --- The task --- */

static void read_weights(const fixture *f, float *out)
{
    assert_ok(lt_tensor_read(f->run.params.item[0]->value, out, WEIGHTS * sizeof *out));
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    fixture *f = context;
    const bool trains = lt_tape_pass(tape).record;
    (void)counts;
    read_weights(f, trains ? f->trained : f->evaluated);
    if (!trains && f->fail_after && ++f->batches > f->fail_after)
        return LT_E_DEVICE;
    out->output = lt_module_forward(f->run.model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {
    .name = "averaging", .unit = "samples", .unit_short = "smp", .forward = forward};

/* --- A run --- */

static void open_fixture(fixture *f, lt_averaging_kind kind)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < SAMPLES; i++) {
        for (int c = 0; c < CLASSES; c++)
            f->input[i][c] = (float)((i * (c + 3)) % 7) - 3;
        f->label[i] = (i * i + i / 3) % CLASSES;
    }
    training *t = &f->run;
    lt_averaging_config c = LT_AVERAGING_DEFAULTS;
    c.kind = kind;
    assert_ok(lt_device_open(&t->at.device, "ref", NULL));
    assert_ok(open_arrays(&t->data, f->input[0], f->label, SAMPLES, LT_SHAPE(CLASSES), CLASSES));
    assert_ok(lt_layer_linear(&t->model, t->at.device, "fc", CLASSES, CLASSES, false));
    assert_ok(lt_module_params(t->model, &t->params));
    assert_ok(lt_optim_adam(&t->optim, &t->params, NULL));
    if (kind)
        assert_ok(lt_optim_start_averaging(t->optim, &t->params, &c));
}

static void close_fixture(fixture *f)
{
    close_training(&f->run);
    lt_device_close(&f->run.at.device);
}

static const char *path_of(const char *name)
{
    static char path[TEMP_PATH];
    return temp_path(path, folder, name);
}

static lt_train_config config_of(fixture *f, const char *run)
{
    lt_train_config c = configure(&f->run, &task, run);
    c.loader.batch = BATCH;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = EPOCHS, .warmup_epochs = 1};
    c.eval_every = 1;
    return c;
}

static void read_saved(const char *file, const char *name, float *out)
{
    lt_safetensors *in = NULL;
    assert_ok(lt_safetensors_open(&in, path_of(file)));
    const lt_safetensors_entry *e = lt_safetensors_find(in, name);
    assert_non_null(e);
    memcpy(out, e->data, WEIGHTS * sizeof *out);
    lt_safetensors_close(&in);
}

static void assert_saved(const char *file, const float *want)
{
    float got[WEIGHTS];
    read_saved(file, "fc.weight", got);
    assert_memory_equal(got, want, sizeof got);
}

/* --- Rows --- */

static void test_evaluated(void **state)
{
    const lt_averaging_kind kind = *(const lt_averaging_kind *)*state;
    float y[WEIGHTS], x[WEIGHTS];
    fixture f;
    open_fixture(&f, kind);
    const lt_train_config c = config_of(&f, "run");
    assert_ok(lt_train(&c, NULL));
    assert_false(lt_optim_is_eval(f.run.optim));
    lt_evaluation none;
    assert_fails(lt_evaluate(&(lt_evaluator){.optim = f.run.optim}, f.run.data, &none), LT_E_ARG,
                 "training weights of an averaging optimizer: call lt_optim_eval() first");
    read_weights(&f, y);
    assert_ok(lt_optim_eval(f.run.optim));
    read_weights(&f, x);
    assert_true(memcmp(x, y, sizeof x) != 0); /* control: the sequences differ */
    assert_memory_equal(f.evaluated, x, sizeof x);
    assert_saved("run/model.safetensors", x);
    assert_saved("run/checkpoints/latest/model.safetensors", x);
    close_fixture(&f);
}

static void train_to(const char *run, lt_averaging_kind kind, int stop_after, double ema)
{
    fixture f;
    open_fixture(&f, kind);
    lt_train_config c = config_of(&f, run);
    f.run.stop_after = stop_after;
    c.resume = true;
    c.ema_decay = ema;
    assert_ok(lt_train(&c, NULL));
    close_fixture(&f);
}

/* Stopped within an epoch, and within an evaluation. */
static void test_resume(void **state)
{
    const lt_averaging_kind kind = *(const lt_averaging_kind *)*state;
    const int steps = SAMPLES / BATCH;
    train_to("whole", kind, 0, 0.5);
    train_to("parts", kind, steps - 1, 0.5);
    train_to("parts", kind, 1 + steps + 2 + steps + 2, 0.5);
    assert_false(temp_exists("parts/model.safetensors"));
    train_to("parts", kind, 0, 0.5);
    temp_assert_same(folder, "whole/model.safetensors", "parts/model.safetensors");
    temp_assert_same(folder, "whole/checkpoints/latest/model.safetensors",
                     "parts/checkpoints/latest/model.safetensors");
    temp_assert_same(folder, "whole/checkpoints/latest/optim.safetensors",
                     "parts/checkpoints/latest/optim.safetensors");
}

/* An evaluation does not change training. */
static void test_without_evaluations(void **state)
{
    const lt_averaging_kind kind = *(const lt_averaging_kind *)*state;
    float often[WEIGHTS], never[WEIGHTS];
    for (int i = 0; i < 2; i++) {
        fixture f;
        open_fixture(&f, kind);
        lt_train_config c = config_of(&f, NULL);
        c.eval_every = i ? -1 : 1;
        assert_ok(lt_train(&c, NULL));
        read_weights(&f, i ? never : often);
        close_fixture(&f);
    }
    assert_memory_equal(often, never, sizeof often);
}

static void test_tail_trains_alone(void **state)
{
    (void)state;
    float tail[WEIGHTS], alone[WEIGHTS];
    for (int i = 0; i < 2; i++) {
        fixture f;
        open_fixture(&f, i ? LT_AVERAGING_OFF : LT_AVERAGING_TAIL);
        const lt_train_config c = config_of(&f, NULL);
        assert_ok(lt_train(&c, NULL));
        read_weights(&f, i ? alone : tail);
        close_fixture(&f);
    }
    assert_memory_equal(tail, alone, sizeof tail);
}

static void test_failed_evaluation(void **state)
{
    (void)state;
    float y[WEIGHTS], x[WEIGHTS];
    fixture f;
    open_fixture(&f, LT_AVERAGING_PRIMAL);
    const lt_train_config c = config_of(&f, NULL);
    f.fail_after = 2;
    assert_status(lt_train(&c, NULL), LT_E_DEVICE);
    assert_false(lt_optim_is_eval(f.run.optim));
    read_weights(&f, y);
    assert_ok(lt_optim_eval(f.run.optim));
    read_weights(&f, x);
    assert_memory_equal(f.evaluated, x, sizeof x);
    assert_true(memcmp(x, y, sizeof x) != 0);
    close_fixture(&f);
}

/* With --iterate-averaging, the EMA averages the evaluated weights. */
static void test_moving_average(void **state)
{
    (void)state;
    float start[WEIGHTS], x[WEIGHTS], ema[WEIGHTS];
    fixture f;
    open_fixture(&f, LT_AVERAGING_PRIMAL);
    lt_train_config c = config_of(&f, "run");
    c.ema_decay = 0.5;
    c.max_steps = 1;
    c.schedule = (lt_schedule){.lr = 0.05};
    read_weights(&f, start);
    assert_ok(lt_train(&c, NULL));
    assert_ok(lt_optim_eval(f.run.optim));
    read_weights(&f, x);
    read_saved("run/checkpoints/latest/optim.safetensors", "ema.fc.weight", ema);
    for (int i = 0; i < WEIGHTS; i++)
        assert_near(ema[i], (start[i] + x[i]) / 2, 1e-6);
    assert_memory_equal(f.evaluated, ema, sizeof ema);
    assert_saved("run/model.safetensors", ema);
    assert_saved("run/checkpoints/latest/model.safetensors", x);
    close_fixture(&f);
}

static void test_other_runs(void **state)
{
    (void)state;
    static const lt_averaging_kind kinds[] = {LT_AVERAGING_OFF, LT_AVERAGING_PRIMAL};
    for (int i = 0; i < 2; i++) {
        const char *run = i ? "averaged" : "plain";
        fixture f;
        train_to(run, kinds[i], 2, 0);
        open_fixture(&f, kinds[!i]);
        lt_train_config c = config_of(&f, run);
        c.resume = true;
        assert_status(lt_train(&c, NULL), LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), i ? "--iterate-averaging was set"
                                                     : "--iterate-averaging was not set"));
        close_fixture(&f);
    }
}

/* --- Two ranks, each a thread --- */

static void test_ranks(void **state)
{
    (void)state;
    static fixture all[RANKS];
    const rank_group g = {RANKS_OF(all, RANKS), .same_refusal = true, .run = run_training};
    const lt_local_steps_config local = {.every = 2};
    float w[RANKS][WEIGHTS];
    for (int i = 0; i < RANKS; i++)
        open_fixture(&all[i], LT_AVERAGING_SCHEDULE_FREE);
    open_ranks(&g);
    for (int i = 0; i < RANKS; i++) {
        all[i].run.config = config_of(&all[i], "run");
        all[i].run.config.loader.batch = BATCH / RANKS;
    }
    run_ranks(&g);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(all[i].run.at.status, LT_OK);
        read_weights(&all[i], w[i]);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_saved("run/model.safetensors", all[0].evaluated);
    for (int i = 0; i < RANKS; i++) {
        all[i].run.config.local_steps = &local;
        all[i].run.config.output = NULL;
    }
    run_ranks(&g);
    close_ranks(&g);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(all[i].run.at.status, LT_E_ARG);
        close_fixture(&all[i]);
    }
}

int main(void)
{
    static lt_averaging_kind kinds[] = {LT_AVERAGING_SCHEDULE_FREE, LT_AVERAGING_PRIMAL,
                                        LT_AVERAGING_TAIL, LT_AVERAGING_EMA_NESTEROV};
#define ROW(text, test, data)                       \
    {                                               \
        text, test, temp_setup, temp_teardown, data \
    }
    const struct CMUnitTest tests[] = {
        ROW("schedule-free: the evaluated weights are saved", test_evaluated, &kinds[0]),
        ROW("primal: the evaluated weights are saved", test_evaluated, &kinds[1]),
        ROW("tail: the evaluated weights are saved", test_evaluated, &kinds[2]),
        ROW("ema-nesterov: the evaluated weights are saved", test_evaluated, &kinds[3]),
        ROW("schedule-free: a resumed run equals an uninterrupted one", test_resume, &kinds[0]),
        ROW("primal: a resumed run equals an uninterrupted one", test_resume, &kinds[1]),
        ROW("tail: a resumed run equals an uninterrupted one", test_resume, &kinds[2]),
        ROW("ema-nesterov: a resumed run equals an uninterrupted one", test_resume, &kinds[3]),
        ROW("schedule-free: evaluation changes nothing", test_without_evaluations, &kinds[0]),
        ROW("primal: evaluation changes nothing", test_without_evaluations, &kinds[1]),
        ROW("tail: evaluation changes nothing", test_without_evaluations, &kinds[2]),
        ROW("ema-nesterov: evaluation changes nothing", test_without_evaluations, &kinds[3]),
        ROW("tail: training is bitwise that without averaging", test_tail_trains_alone, NULL),
        ROW("a failed evaluation restores the training sequence", test_failed_evaluation, NULL),
        ROW("the EMA averages the evaluated weights", test_moving_average, NULL),
        ROW("checkpoints of other sequences are rejected", test_other_runs, NULL),
        ROW("two ranks average equally; local steps are rejected", test_ranks, NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
