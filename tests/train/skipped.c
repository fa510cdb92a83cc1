/* A skipped step changes nothing that the next step uses: values, running statistics, optimizer state, averages,
 * residuals. One micro-batch of one rank has a NaN. A rank is a thread. */

#include "ranks.h"
#include "temp_folder.h"
#include "tensor/tensor.h"

#include "lather/averaging.h"
#include "lather/data_parallel.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/shampoo.h"
#include "lather/train.h"

enum { CHANNELS = 2, SIDE = 3, PIXELS = CHANNELS * SIDE * SIDE, CLASSES = 3, BATCH = 4 };
enum { RANKS = 2, GOOD = 3, MOST = 1 << 14, SAMPLES = 16 };

typedef struct plan {
    const char *name;
    int ranks, accum;
    int bad; /* micro-batch of the last rank with a NaN */
    bool sync_bn, ema, average, shampoo;
    bool far; /* the optimizer's scalars are on the device */
    const char *compress;
    double scale; /* loss scale; 0: none */
} plan;

typedef struct bytes {
    unsigned char of[MOST];
    size_t used;
    bool finite;
} bytes;

typedef struct rank {
    test_rank at;
    const plan *plan;
    lt_module *model;
    lt_params params;
    lt_tape *tape;
    lt_data_parallel *dp;
    lt_optim *optim;
    lt_ema *ema;
    lt_train_step *step;
    lt_tensor *inputs, *labels;
    int number, micro; /* step and index of the next micro-batch */
    bool is_bad;
    lt_train_result result;
} rank;

static rank ranks[RANKS];
static bytes kept[RANKS][3];

/* --- A model with a batch norm, and data that depend only on rank, step and micro-batch --- */

static lt_status next(void *context, lt_batch *batch)
{
    rank *r = context;
    double x[BATCH * PIXELS];
    int32_t label[BATCH];
    for (int i = 0; i < BATCH * PIXELS; i++)
        x[i] = sin(1 + 7.0 * i + 31 * r->at.rank + 5 * r->micro + 13 * r->number);
    for (int i = 0; i < BATCH; i++)
        label[i] = (i + r->at.rank + r->micro) % CLASSES;
    if (r->is_bad && r->at.rank + 1 == r->plan->ranks && r->micro == r->plan->bad)
        x[5] = (double)NAN;
    r->micro++;
    LT_TRY(lt_tensor_write(r->inputs, x, sizeof x));
    LT_TRY(lt_tensor_write(r->labels, label, sizeof label));
    *batch = (lt_batch){.inputs = r->inputs, .labels = r->labels, .count = BATCH};
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

static lt_status make_model(rank *r)
{
    lt_module *layer[4] = {NULL};
    LT_TRY(lt_layer_sequential(&r->model));
    LT_TRY(lt_layer_batchnorm2d(&layer[0], r->at.device, "norm", CHANNELS,
                                (lt_batchnorm2d_config){.relu = true}));
    LT_TRY(lt_layer_flatten(&layer[1]));
    LT_TRY(lt_layer_dropout(&layer[2], 0.25));
    LT_TRY(lt_layer_linear(&layer[3], r->at.device, "last", PIXELS, CLASSES, true));
    for (int i = 0; i < 4; i++)
        LT_TRY(lt_sequential_add(r->model, &layer[i]));
    LT_TRY(lt_init_module(r->model, 5));
    return lt_module_params(r->model, &r->params);
}

static lt_status open_optim(rank *r)
{
    const plan *p = r->plan;
    const lt_loss_scaling scaling = {.start = p->scale, .growth = 2, .backoff = 0.5, .interval = 9};
    const lt_sgd_config sgd = {.momentum = 0.9};
    lt_averaging_config averaging = LT_AVERAGING_DEFAULTS;
    averaging.kind = LT_AVERAGING_SCHEDULE_FREE;
    LT_TRY(p->shampoo ? lt_optim_shampoo(&r->optim, &r->params, NULL)
                      : lt_optim_sgd(&r->optim, &r->params, &sgd));
    if (p->scale > 0)
        LT_TRY(lt_optim_scale_loss(r->optim, &scaling));
    if (p->ema)
        LT_TRY(lt_ema_new(&r->ema, &r->params, 0.5));
    return p->average ? lt_optim_start_averaging(r->optim, &r->params, &averaging) : LT_OK;
}

static lt_status open_rank(rank *r)
{
    const plan *p = r->plan;
    const lt_data_parallel_config dp = {.compress = p->compress, .sync_bn = p->sync_bn};
    LT_TRY(make_model(r));
    LT_TRY(lt_tensor_new(&r->inputs, r->at.device, LT_F64, LT_SHAPE(BATCH, CHANNELS, SIDE, SIDE)));
    LT_TRY(lt_tensor_new(&r->labels, r->at.device, LT_I32, LT_SHAPE(BATCH)));
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    if (r->at.comm)
        LT_TRY(lt_data_parallel_new(&r->dp, r->at.comm, &r->params, r->tape, &dp));
    LT_TRY(open_optim(r));
    const lt_train_step_config c = {.device = r->at.device,
                                    .tape = r->tape,
                                    .params = &r->params,
                                    .optim = r->optim,
                                    .task = {&task, r->model},
                                    .ema = r->ema,
                                    .comm = r->at.comm,
                                    .dp = r->dp,
                                    .pass = LT_PASS_TRAIN,
                                    .grad_accum = p->accum,
                                    .next = next,
                                    .next_context = r};
    return lt_train_step_new(&r->step, &c);
}

/* --- All state that a step may change --- */

static lt_status add_tensor(bytes *b, const lt_tensor *t)
{
    const size_t size = lt_tensor_bytes(t);
    void *at = b->of + b->used;
    assert_true(b->used + size <= MOST);
    LT_TRY(lt_tensor_read(t, at, size));
    for (size_t i = 0; i < size / sizeof(double) && lt_tensor_dtype(t) == LT_F64; i++)
        b->finite = b->finite && isfinite(((double *)at)[i]);
    b->used += size;
    return LT_OK;
}

static lt_status add_entry(void *context, const lt_state_entry *entry)
{
    return entry->tensor ? add_tensor(context, entry->tensor) : LT_OK; /* NULL: on another rank */
}

/* Ignores the attempt counter, which a skipped step increments too. */
static lt_status add_number(void *context, const char *name, int64_t *value)
{
    bytes *b = context;
    if (!strcmp(name, "attempt"))
        return LT_OK;
    memcpy(b->of + b->used, value, sizeof *value);
    b->used += sizeof *value;
    return LT_OK;
}

static lt_status take_all(rank *r, bytes *b)
{
    lt_state_visitor visitor = {add_entry, add_number, b};
    b->used = 0;
    b->finite = true;
    for (size_t i = 0; i < r->params.count; i++)
        LT_TRY(add_tensor(b, r->params.item[i]->value));
    LT_TRY(lt_optim_eval(r->optim));
    LT_TRY(lt_optim_visit(r->optim, &visitor));
    LT_TRY(lt_optim_visit_iterates(r->optim, &visitor));
    LT_TRY(lt_optim_train(r->optim));
    if (r->ema)
        LT_TRY(lt_ema_visit(r->ema, &visitor));
    if (r->dp)
        LT_TRY(lt_data_parallel_gather_state(r->dp));
    return r->dp ? lt_data_parallel_visit(r->dp, &visitor) : LT_OK;
}

static lt_status take_step(rank *r, bool is_bad)
{
    const lt_step numbers = {.lr = 0.1, .attempt = r->number + 1};
    r->is_bad = is_bad;
    r->micro = 0;
    LT_TRY(lt_train_step_begin(r->step, &numbers, &r->result));
    LT_TRY(lt_train_step_finish(r->step, &r->result));
    r->number++;
    return r->result.optim.applied == !is_bad
               ? LT_OK
               : lt_fail(LT_E_ARG, "step %d: applied is %d", r->number, r->result.optim.applied);
}

static lt_status run(void *context)
{
    rank *r = context;
    bytes *b = kept[r->at.rank];
    LT_TRY(open_rank(r));
    for (int i = 0; i < GOOD; i++)
        LT_TRY(take_step(r, false));
    LT_TRY(take_all(r, &b[0]));
    LT_TRY(take_step(r, true));
    LT_TRY(take_all(r, &b[1]));
    LT_TRY(take_step(r, false));
    return take_all(r, &b[2]);
}

static void end(void *context)
{
    rank *r = context;
    lt_train_step_free(&r->step);
    lt_ema_free(&r->ema);
    lt_optim_free(&r->optim);
    lt_data_parallel_free(&r->dp);
    lt_tape_free(&r->tape);
    lt_tensor_free(&r->inputs);
    lt_tensor_free(&r->labels);
    lt_params_clear(&r->params);
    lt_module_free(&r->model);
}

static void leaves_everything_as_it_was(void **state)
{
    static lt_backend far;
    const plan *p = *state;
    const rank_group g = {RANKS_OF(ranks, p->ranks), .f64 = true, .without_comm = p->ranks == 1,
                          .run = run, .end = end};
    for (int i = 0; i < p->ranks; i++)
        ranks[i] = (rank){.plan = p};
    open_ranks(&g);
    far = *ranks[0].at.device->backend;
    far.host_memory = false;
    if (p->far)
        ranks[0].at.device->backend = &far;
    run_ranks(&g);
    close_ranks(&g);
    expect_ranks(&g);
    for (int i = 0; i < p->ranks; i++) {
        const bytes *b = kept[i];
        assert_int_equal(b[1].used, b[0].used);
        assert_memory_equal(b[1].of, b[0].of, b[0].used);
        assert_true(b[2].finite);
        assert_true(memcmp(b[2].of, b[0].of, b[0].used)
                    != 0); /* control: a step changes the state */
    }
}

/* --- A run --- */

typedef struct trial {
    const char *folder;
    double value; /* one pixel */
    int epochs;
    bool resume;
    bool poison; /* give the newest checkpoint an infinite variance after training */
} trial;

/* Replaces the newest checkpoint by one with an infinite variance, as earlier versions saved it. */
static void poison(const rank *r, const char *output)
{
    char path[TEMP_PATH];
    lt_checkpoint_state state = {.reproducible = false};
    const lt_checkpoint_contents parts = {.params = &r->params, .optim = r->optim};
    const double infinite = HUGE_VAL;
    assert_ok(lt_checkpoint_newest(output, path, sizeof path));
    assert_ok(lt_checkpoint_load(path, &parts, &state));
    assert_ok(lt_tensor_fill(lt_params_find(&r->params, "norm.running_var")->value, infinite));
    assert_ok(lt_checkpoint_save(output, &parts, &state, NULL));
}

static lt_status train(const trial *t)
{
    static float values[SAMPLES][PIXELS];
    static int64_t labels[SAMPLES];
    rank r = {.plan = &(plan){.ranks = 1}};
    lt_dataset *data;
    char output[TEMP_PATH];
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < PIXELS; k++)
            values[i][k] = sinf((float)(7 * i + 3 * k));
    }
    values[5][3] = (float)t->value;
    const lt_arrays arrays = {.values = &values[0][0],
                              .labels = labels,
                              .count = SAMPLES,
                              .shape = LT_SHAPE(CHANNELS, SIDE, SIDE),
                              .classes = CLASSES};
    assert_ok(lt_device_open(&r.at.device, "ref", &(lt_device_config){.threads = 1}));
    assert_ok(make_model(&r));
    assert_ok(lt_dataset_arrays(&data, &arrays));
    assert_ok(lt_optim_sgd(&r.optim, &r.params, NULL));
    const lt_train_config c = {.device = r.at.device,
                               .params = &r.params,
                               .optim = r.optim,
                               .task = {&task, r.model},
                               .train = data,
                               .loader = {.batch = BATCH, .threads = 1},
                               .schedule = {.lr = 0.05, .epochs = t->epochs},
                               .eval_every = isfinite(t->value) ? 1 : -1,
                               .output = temp_path(output, folder, t->folder),
                               .resume = t->resume,
                               .skip_nan = true,
                               .progress = LT_PROGRESS_OFF};
    const lt_status st = lt_train(&c, NULL);
    if (t->poison)
        poison(&r, output);
    lt_optim_free(&r.optim);
    lt_dataset_free(&data);
    lt_params_clear(&r.params);
    lt_module_free(&r.model);
    lt_device_close(&r.at.device);
    return st;
}

/* Returns the mean of all numbers of a key in a file; *count is their number. */
static double mean_of(const char *name, const char *key, int *count)
{
    char path[TEMP_PATH];
    double sum = 0;
    char *text = temp_read(temp_path(path, folder, name), NULL);
    *count = 0;
    for (const char *at = text; (at = strstr(at, key)); ++*count) {
        at += strlen(key);
        sum += strtod(at, NULL);
    }
    free(text);
    return sum / *count;
}

static void the_epochs_loss_excludes_the_skipped_batch(void **state)
{
    int losses, epochs;
    (void)state;
    assert_ok(train(&(trial){.folder = "run", .epochs = 1, .value = (double)NAN}));
    const double want = mean_of("run/metrics.jsonl", "\"loss\":", &losses),
                 got = mean_of("run/metrics.jsonl", "\"train_loss\":", &epochs);
    assert_int_equal(losses, SAMPLES / BATCH - 1);
    assert_int_equal(epochs, 1);
    assert_near(got, want, 1e-12);
    assert_true(temp_exists("run/model.safetensors"));
}

/* The square of 1e25 overflows f32, and values normalized by it are 0: the loss and all gradients remain finite. */
static void an_infinite_running_variance_ends_the_run(void **state)
{
    (void)state;
    assert_fails(train(&(trial){.folder = "run", .epochs = 1, .value = 1e25}), LT_E_ARG,
                 "step 4: norm.running_var is not finite (inf in channel 0)");
    assert_false(temp_exists("run/model.safetensors"));
    assert_false(temp_exists("run/checkpoints/latest"));
}

static void a_checkpoint_with_an_infinite_variance_is_not_resumed(void **state)
{
    (void)state;
    assert_ok(train(&(trial){.folder = "run", .epochs = 1, .poison = true}));
    assert_fails(train(&(trial){.folder = "run", .epochs = 2, .resume = true}), LT_E_ARG,
                 "step-4: norm.running_var is not finite (inf");
    assert_ok(train(&(trial){.folder = "other", .epochs = 1}));
    assert_ok(train(&(trial){.folder = "other", .epochs = 2, .resume = true})); /* control */
}

/* clang-format off */
static plan plans[] = {
    {.name = "sgd with momentum", .ranks = 1, .accum = 1},
    {.name = "a NaN in the first of three micro-batches", .ranks = 1, .accum = 3},
    {.name = "a NaN in the last of three micro-batches", .ranks = 1, .accum = 3, .bad = 2},
    {.name = "a loss scale", .ranks = 1, .accum = 2, .bad = 1, .scale = 1024},
    {.name = "the average of weights and statistics", .ranks = 1, .accum = 2, .ema = true},
    {.name = "averaged weights and the sum of their rates", .ranks = 1, .accum = 1, .average = true},
    {.name = "shampoo", .ranks = 1, .accum = 1, .shampoo = true},
    {.name = "a NaN on one of two ranks", .ranks = 2, .accum = 1},
    {.name = "batch norm over two ranks", .ranks = 2, .accum = 2, .sync_bn = true},
    {.name = "residuals of top-k", .ranks = 2, .accum = 1, .compress = "topk:0.1"},
    {.name = "residuals and bases of PowerSGD", .ranks = 2, .accum = 1, .compress = "powersgd:1"},
    {.name = "optimizer scalars on the device", .ranks = 1, .accum = 2, .ema = true, .far = true},
};
/* clang-format on */

int main(void)
{
    struct CMUnitTest rows[3 + COUNT_OF(plans)] = {
        {"the epoch's loss excludes the skipped batch", the_epochs_loss_excludes_the_skipped_batch,
         temp_setup, temp_teardown, NULL},
        {"an infinite running variance ends the run with its name",
         an_infinite_running_variance_ends_the_run, temp_setup, temp_teardown, NULL},
        {"a checkpoint with an infinite variance is not resumed",
         a_checkpoint_with_an_infinite_variance_is_not_resumed, temp_setup, temp_teardown, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(plans); i++)
        rows[3 + i] =
            (struct CMUnitTest){plans[i].name, leaves_everything_as_it_was, NULL, NULL, &plans[i]};
    return cmocka_run_group_tests_name("a skipped step", rows, NULL, NULL);
}
