/* A training step, with an average of the weights, and the opening of a communicator, in which one call of a kernel or
 * for memory fails: it fails, nothing leaks, and the next attempt works. */

#include "lather/train_step.h"

#include "faults.h"

#include "lather/averaging.h"
#include "lather/comm.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"

enum { BATCH = 4, INPUTS = 6, CLASSES = 3 };

typedef struct row {
    const char *name, *device;
    bool averaged; /* the average is of weights other than those that are trained */
    int64_t accum;
} row;

static const row rows[] = {
    {"sgd, ref", "ref", false, 1},
    {"sgd, cpu, two micro-batches", "cpu", false, 2},
    {"sgd, averaged, ref", "ref", true, 1},
};

typedef struct scene {
    const row *row;
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_ema *ema;
    lt_tape *tape;
    lt_tensor *inputs, *labels;
    lt_train_step *step;
    int64_t attempt;
} scene;

static lt_status next(void *context, lt_batch *batch)
{
    const scene *s = context;
    *batch = (lt_batch){.inputs = s->inputs, .labels = s->labels, .count = BATCH};
    return LT_OK;
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    (void)counts;
    out->output = lt_module_forward(context, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

static void fill_batch(const scene *s)
{
    float x[BATCH * INPUTS];
    int32_t label[BATCH];
    for (int i = 0; i < BATCH * INPUTS; i++)
        x[i] = sinf((float)i);
    for (int i = 0; i < BATCH; i++)
        label[i] = i % CLASSES;
    assert_ok(lt_tensor_write(s->inputs, x, sizeof x));
    assert_ok(lt_tensor_write(s->labels, label, sizeof label));
}

static void open_optim(scene *s)
{
    lt_averaging_config averaging = LT_AVERAGING_DEFAULTS;
    averaging.kind = LT_AVERAGING_SCHEDULE_FREE;
    assert_ok(lt_optim_sgd(&s->optim, &s->params, &(lt_sgd_config){.momentum = 0}));
    if (s->row->averaged)
        assert_ok(lt_optim_start_averaging(s->optim, &s->params, &averaging));
    assert_ok(lt_ema_new(&s->ema, &s->params, 0.5));
}

static void begin(void *context)
{
    scene *s = context;
    const lt_device_config config = {.threads = 1};
    assert_ok(lt_device_open(&s->device, s->row->device, &config));
    assert_ok(lt_layer_linear(&s->model, s->device, "fc", INPUTS, CLASSES, true));
    assert_ok(lt_init_module(s->model, 5));
    assert_ok(lt_module_params(s->model, &s->params));
    assert_ok(lt_tensor_new(&s->inputs, s->device, LT_F32, LT_SHAPE(BATCH, INPUTS)));
    assert_ok(lt_tensor_new(&s->labels, s->device, LT_I32, LT_SHAPE(BATCH)));
    assert_ok(lt_tape_new(&s->tape, s->device));
    fill_batch(s);
    open_optim(s);
    const lt_train_step_config c = {.device = s->device,
                                    .tape = s->tape,
                                    .params = &s->params,
                                    .optim = s->optim,
                                    .task = {&task, s->model},
                                    .ema = s->ema,
                                    .pass = LT_PASS_TRAIN,
                                    .grad_accum = s->row->accum,
                                    .next = next,
                                    .next_context = s};
    assert_ok(lt_train_step_new(&s->step, &c));
    s->attempt = 0;
    faults_attach(s->device);
}

static void end(void *context)
{
    scene *s = context;
    lt_train_step_free(&s->step);
    lt_tape_free(&s->tape);
    lt_tensor_free(&s->labels);
    lt_tensor_free(&s->inputs);
    lt_ema_free(&s->ema);
    lt_optim_free(&s->optim);
    lt_params_clear(&s->params);
    lt_module_free(&s->model);
    lt_device_close(&s->device);
}

static lt_status act(void *context)
{
    scene *s = context;
    lt_train_result result;
    const lt_step numbers = {.lr = 0.1, .attempt = ++s->attempt};
    LT_TRY(lt_train_step_begin(s->step, &numbers, &result));
    return lt_train_step_finish(s->step, &result);
}

static void after(void *context, lt_status st)
{
    const scene *s = context;
    if (st) /* the parameters may still hold the average */
        assert_ok(lt_optim_train(s->optim));
    assert_ok(act(context));
}

static void a_step_that_fails_says_so(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .open = begin,
                          .act = act,
                          .after = after,
                          .close = end,
                          .context = &s,
                          .least = 10};
    (void)faults_each(&c);
}

static void open_device(void *device)
{
    assert_ok(lt_device_open(device, "cpu", NULL));
}

static lt_status open_comm(void *device)
{
    lt_comm *comm = NULL;
    LT_TRY(lt_comm_open(&comm, "self", *(lt_device **)device));
    lt_comm_close(&comm);
    return LT_OK;
}

static void close_device(void *device)
{
    lt_device_close(device);
}

static void a_communicator_that_is_not_opened_says_so(void **state)
{
    lt_device *device = NULL;
    (void)state;
    (void)faults_each(&(fault_case){.name = "a communicator",
                                    .kinds = FAULT_MEMORY,
                                    .open = open_device,
                                    .act = open_comm,
                                    .close = close_device,
                                    .context = &device,
                                    .least = 1});
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1] = {
        cmocka_unit_test(a_communicator_that_is_not_opened_says_so)};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i + 1] = row_test(rows[i].name, a_step_that_fails_says_so, &rows[i]);
    return faults_run("faults in a training step", tests, COUNT_OF(tests), NULL, NULL);
}
