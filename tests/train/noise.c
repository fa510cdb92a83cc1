/* Gradient noise scale during training: a step's measurement equals one computed from the gradients of its parts,
 * and a resumed run continues with the same numbers. A rank is a thread. */

#include "ranks.h"
#include "temp_folder.h"
#include "tensor/tensor.h"
#include "train/loop/stragglers.h"

#include "lather/data_parallel.h"
#include "lather/detail/shard_params.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/shard.h"
#include "lather/train.h"

enum { INPUTS = 5, HIDDEN = 6, CLASSES = 4, BATCH = 3, SAMPLES = 96 };
enum { RANKS = 4, ACCUM = 4, STEPS = 3, MOST = 256 };

typedef enum division { WHOLE, STATE, GRADIENTS, PARAMS } division;

typedef struct plan {
    int ranks, accum, steps;
    division division;
    double clip, scale; /* maximum norm; loss scale, 0: none */
    lt_straggler_config stragglers;
    int bad;                     /* step with a gradient that is not finite; 0: none */
    bool absent;                 /* half of the ranks use a layer in each step */
    bool no_norms, no_frobenius; /* dp measures no norms; the device has no kernel for them */
} plan;

typedef struct rank {
    test_rank at;
    const plan *plan;
    lt_module *model, *extra;
    lt_params params;
    lt_tape *tape;
    lt_data_parallel *dp;
    lt_stragglers *stragglers;
    lt_optim *optim;
    lt_train_step *step;
    lt_tensor *inputs, *labels;
    int number, micro; /* step and index of the next micro-batch */
    double part[STEPS][ACCUM][MOST];
    size_t count; /* elements of a gradient */
    lt_train_result result[STEPS];
    bool used[STEPS];
} rank;

static rank ranks[RANKS];

/* --- A model, and data that depend only on rank, step and micro-batch --- */

static lt_status fill(rank *r, int step, int micro)
{
    double x[BATCH * INPUTS];
    int32_t label[BATCH];
    for (int i = 0; i < BATCH * INPUTS; i++)
        x[i] = sin(1 + 7.0 * i + 31 * r->at.rank + 5 * micro + 13 * step);
    for (int i = 0; i < BATCH; i++)
        label[i] = (i + r->at.rank + micro) % CLASSES;
    if (r->plan->bad == step + 1 && r->at.rank + 1 == r->plan->ranks)
        x[0] = (double)NAN;
    LT_TRY(lt_tensor_write(r->inputs, x, sizeof x));
    return lt_tensor_write(r->labels, label, sizeof label);
}

static lt_tensor *loss_of(const rank *r, lt_tape *tape, int step)
{
    lt_tensor *logits = lt_module_forward(r->model, tape, r->inputs);
    if (!r->plan->absent || (r->at.rank + step) % 2)
        logits = lt_add(tape, logits, lt_module_forward(r->extra, tape, r->inputs));
    return lt_softmax_xent(tape, logits, r->labels, 0);
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    rank *r = context;
    (void)batch;
    (void)counts;
    out->loss = loss_of(r, tape, r->number);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

static lt_status next(void *context, lt_batch *batch)
{
    rank *r = context;
    LT_TRY(fill(r, r->number, r->micro++));
    *batch = (lt_batch){.inputs = r->inputs, .labels = r->labels, .count = BATCH};
    return LT_OK;
}

static lt_status make_model(rank *r)
{
    lt_module *layer[3] = {NULL};
    LT_TRY(lt_layer_sequential(&r->model));
    LT_TRY(lt_layer_linear(&layer[0], r->at.device, "first", INPUTS, HIDDEN, true));
    LT_TRY(lt_layer_relu(&layer[1]));
    LT_TRY(lt_layer_linear(&layer[2], r->at.device, "last", HIDDEN, CLASSES, true));
    for (int i = 0; i < 3; i++)
        LT_TRY(lt_sequential_add(r->model, &layer[i]));
    LT_TRY(lt_layer_linear(&r->extra, r->at.device, "extra", INPUTS, CLASSES, false));
    LT_TRY(lt_init_module(r->model, 5));
    LT_TRY(lt_init_module(r->extra, 6));
    LT_TRY(lt_module_params(r->model, &r->params));
    LT_TRY(lt_module_params(r->extra, &r->params));
    LT_TRY(lt_tensor_new(&r->inputs, r->at.device, LT_F64, LT_SHAPE(BATCH, INPUTS)));
    return lt_tensor_new(&r->labels, r->at.device, LT_I32, LT_SHAPE(BATCH));
}

/* --- Gradients of a step's parts, computed separately --- */

static lt_status read_gradient(rank *r, double *out)
{
    r->count = 0;
    for (size_t i = 0; i < r->params.count; i++) {
        const lt_param *p = r->params.item[i];
        const size_t count = (size_t)lt_tensor_count(p->grad);
        assert_true(r->count + count <= MOST);
        memset(out + r->count, 0, count * sizeof *out);
        if (p->has_grad)
            LT_TRY(lt_tensor_read(p->grad, out + r->count, count * sizeof *out));
        r->count += count;
    }
    return LT_OK;
}

static lt_status compute_parts(rank *r, int step)
{
    lt_tape *tape;
    LT_TRY(lt_tape_new(&tape, r->at.device));
    lt_status st = LT_OK;
    for (int m = 0; m < r->plan->accum && !st; m++) {
        lt_tape_reset(tape, LT_PASS_TRAIN);
        lt_params_zero_grad(&r->params);
        st = fill(r, step, m);
        if (!st)
            st = lt_tape_backward(tape, loss_of(r, tape, step), 1);
        if (!st)
            st = read_gradient(r, r->part[step][m]);
    }
    lt_params_zero_grad(&r->params);
    lt_tape_free(&tape);
    return st;
}

/* --- Steps --- */

static lt_status open_optim(rank *r)
{
    const plan *p = r->plan;
    const lt_loss_scaling scaling = {.start = p->scale, .growth = 2, .backoff = 0.5, .interval = 1};
    const lt_shard_config c = {.comm = r->at.comm, .shard_params = p->division == PARAMS};
    LT_TRY(lt_optim_sgd(&r->optim, &r->params, NULL));
    if (p->scale > 0)
        LT_TRY(lt_optim_scale_loss(r->optim, &scaling));
    if (p->division != WHOLE)
        LT_TRY(lt_optim_shard(r->optim, &c));
    if (p->division >= GRADIENTS)
        LT_TRY(lt_optim_shard_gradients(r->optim, r->dp));
    return p->division == PARAMS ? lt_optim_shard_params(r->optim, r->tape, NULL) : LT_OK;
}

static lt_status open_step(rank *r)
{
    const plan *p = r->plan;
    const bool drops = p->stragglers.drop_compute || p->stragglers.backup_workers;
    lt_data_parallel_config dp = {.bucket_bytes = 200, .norms = !p->no_norms};
    static lt_backend lacking;
    const lt_backend *whole = r->at.device->backend;
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    lt_stragglers_set_dp_config(&p->stragglers, p->ranks, p->accum, &dp);
    if (r->at.comm)
        LT_TRY(lt_data_parallel_new(&r->dp, r->at.comm, &r->params, r->tape, &dp));
    if (drops)
        LT_TRY(lt_stragglers_new(&r->stragglers, &p->stragglers, r->dp, r->at.comm, p->accum));
    LT_TRY(open_optim(r));
    const lt_train_step_config c = {.device = r->at.device,
                                    .tape = r->tape,
                                    .params = &r->params,
                                    .optim = r->optim,
                                    .task = {&task, r},
                                    .comm = r->at.comm,
                                    .dp = r->dp,
                                    .pass = LT_PASS_TRAIN,
                                    .grad_accum = p->accum,
                                    .stragglers = r->stragglers,
                                    .gradient_noise = true,
                                    .next = next,
                                    .next_context = r};
    lacking = *whole;
    lacking.frobenius = NULL;
    r->at.device->backend = p->no_frobenius ? &lacking : whole;
    const lt_status st = lt_train_step_new(&r->step, &c);
    r->at.device->backend = whole;
    return st;
}

static lt_status take_step(rank *r, int number)
{
    const lt_step numbers = {.lr = 0.3, .clip_norm = r->plan->clip, .attempt = number + 1};
    lt_train_result *result = &r->result[number];
    if (number)
        LT_TRY(compute_parts(r, number));
    r->number = number;
    r->micro = 0;
    LT_TRY(lt_train_step_begin(r->step, &numbers, result));
    LT_TRY(lt_train_step_finish(r->step, result));
    r->used[number] = !r->stragglers || lt_stragglers_uses_gradients(r->stragglers);
    return LT_OK;
}

static lt_status run(void *context)
{
    rank *r = context;
    LT_TRY(make_model(r));
    LT_TRY(compute_parts(r, 0)); /* before values are sharded */
    LT_TRY(open_step(r));
    for (int i = 0; i < r->plan->steps; i++)
        LT_TRY(take_step(r, i));
    return LT_OK;
}

static void end(void *context)
{
    rank *r = context;
    lt_train_step_free(&r->step);
    lt_optim_free(&r->optim);
    lt_stragglers_free(&r->stragglers);
    lt_data_parallel_free(&r->dp);
    lt_tape_free(&r->tape);
    lt_tensor_free(&r->inputs);
    lt_tensor_free(&r->labels);
    lt_params_clear(&r->params);
    lt_module_free(&r->extra);
    lt_module_free(&r->model);
}

static void run_all(const plan *p)
{
    const rank_group g = {RANKS_OF(ranks, p->ranks), .f64 = true, .without_comm = p->ranks == 1,
                          .run = run, .end = end};
    for (int i = 0; i < p->ranks; i++)
        ranks[i] = (rank){.plan = p};
    play_ranks(&g);
}

static void run_well(const plan *p)
{
    run_all(p);
    expect_ranks(&(rank_group){RANKS_OF(ranks, p->ranks)});
}

/* --- Reference computation --- */

/* Adds weight times a gradient; returns the gradient's squared norm. */
static double add(double *sum, double weight, const double *gradient, size_t count)
{
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        sum[i] += weight * gradient[i];
        square += gradient[i] * gradient[i];
    }
    return square;
}

/* Several ranks: the parts are the ranks, weighted by the micro-batches that each computed. One rank: the part is
 * the first micro-batch. */
static lt_noise_sample by_hand(const plan *p, int step)
{
    double all[MOST] = {0};
    lt_noise_sample s = {0};
    const int computed = p->stragglers.drop_compute ? 1 : p->accum;
    const size_t count = ranks[0].count;
    double parts = 0, mean = 0;
    for (int r = 0; r < p->ranks; r++) {
        double own[MOST] = {0};
        if (!ranks[r].used[step])
            continue;
        for (int m = 0; m < computed; m++)
            add(own, 1.0 / computed, ranks[r].part[step][m], count);
        mean += add(all, 1, own, count);
        parts++;
    }
    for (size_t i = 0; i < count; i++)
        s.large_square += all[i] * all[i] / (parts * parts);
    s.small_square = p->ranks > 1 ? mean / parts : add(all, 0, ranks[0].part[step][0], count);
    s.large_batch = parts * computed * BATCH;
    s.small_batch = p->ranks > 1 ? computed * BATCH : BATCH;
    return s;
}

static void check_step(const plan *p, int step)
{
    const lt_noise_sample want = by_hand(p, step);
    assert_true(want.small_square > want.large_square);
    for (int r = 0; r < p->ranks; r++) {
        const lt_noise_sample *got = &ranks[r].result[step].noise;
        assert_near(got->small_batch, want.small_batch, 0);
        assert_near(got->large_batch, want.large_batch, 0);
        assert_near(got->small_square, want.small_square, 1e-12 * want.small_square);
        assert_near(got->large_square, want.large_square, 1e-12 * want.large_square);
    }
}

static void check(const plan *p)
{
    run_well(p);
    for (int step = 0; step < p->steps; step++)
        if (step + 1 != p->bad)
            check_step(p, step);
}

static void test_measured(void **state)
{
    check(*state);
}

static void test_not_applied(void **state)
{
    const plan *p = *state;
    check(p);
    for (int r = 0; r < p->ranks; r++) {
        assert_false(ranks[r].result[p->bad - 1].optim.applied);
        assert_near(ranks[r].result[p->bad - 1].noise.large_batch, 0, 0);
    }
}

static void test_refused(void **state)
{
    static const struct {
        plan plan;
        lt_status want;
        const char *says;
    } rows[] = {{{.ranks = 1, .accum = 1, .steps = 1}, LT_E_ARG, "grad_accum 2"},
                {{.ranks = 2, .accum = 1, .steps = 1, .no_norms = true},
                 LT_E_ARG,
                 "train: gradient_noise: dp measures no norms"},
                {{.ranks = 1, .accum = 2, .steps = 1, .no_frobenius = true},
                 LT_E_UNSUPPORTED,
                 "train: gradient_noise: ref has no frobenius"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        run_all(&rows[i].plan);
        assert_int_equal(ranks[0].at.status, rows[i].want);
        assert_non_null(strstr(ranks[0].at.message, rows[i].says));
    }
}

/* --- An interrupted run --- */

typedef struct trial {
    const char *folder;
    bool noise, resume;
    int stop_after, asked;
} trial;

static lt_status predict(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    (void)counts;
    out->output = lt_module_forward(context, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops classes = {.name = "classes", .unit = "samples", .forward = predict};

static bool stop(void *context)
{
    trial *t = context;
    return t->stop_after && ++t->asked >= t->stop_after;
}

static void train(trial *t)
{
    static float values[SAMPLES][INPUTS];
    static int64_t labels[SAMPLES];
    rank r = {.plan = &(plan){.ranks = 1}};
    lt_dataset *data;
    char output[TEMP_PATH];
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < INPUTS; k++)
            values[i][k] = sinf((float)(7 * i + 3 * k)) + (float)(labels[i] == k);
    }
    const lt_arrays arrays = {.values = &values[0][0],
                              .labels = labels,
                              .count = SAMPLES,
                              .shape = LT_SHAPE(INPUTS),
                              .classes = CLASSES};
    assert_ok(lt_device_open(&r.at.device, "ref", &(lt_device_config){.threads = 1}));
    assert_ok(make_model(&r));
    assert_ok(lt_dataset_arrays(&data, &arrays));
    assert_ok(lt_optim_sgd(&r.optim, &r.params, NULL));
    const lt_train_config c = {.device = r.at.device,
                               .params = &r.params,
                               .optim = r.optim,
                               .task = {&classes, r.model},
                               .train = data,
                               .loader = {.batch = BATCH, .shuffle = true, .threads = 1},
                               .grad_accum = 2,
                               .gradient_noise = t->noise,
                               .schedule = {.lr = 0.05, .epochs = 1},
                               .eval_every = -1,
                               .output = temp_path(output, folder, t->folder),
                               .resume = t->resume,
                               .progress = LT_PROGRESS_OFF,
                               .stop = stop,
                               .context = t};
    assert_ok(lt_train(&c, NULL));
    lt_optim_free(&r.optim);
    lt_dataset_free(&data);
    lt_tensor_free(&r.inputs);
    lt_tensor_free(&r.labels);
    lt_params_clear(&r.params);
    lt_module_free(&r.extra);
    lt_module_free(&r.model);
    lt_device_close(&r.at.device);
}

/* Returns the texts of all numbers of a key in a file; *count is their number. */
static char *numbers_of(const char *name, const char *key, int *count)
{
    char path[TEMP_PATH];
    size_t bytes, end = 0;
    char *text = temp_read(temp_path(path, folder, name), &bytes);
    *count = 0;
    for (const char *at = text; (at = strstr(at, key)); ++*count) {
        at += strlen(key);
        const size_t digits = strcspn(at, ",}");
        memmove(text + end, at, digits);
        end += digits;
        text[end++] = ' ';
    }
    text[end] = 0;
    return text;
}

/* Requires at least `least` numbers, equal in both files. */
static void assert_same_numbers(const char *one, const char *other, const char *key, int least)
{
    int count[2];
    char *a = numbers_of(one, key, &count[0]), *b = numbers_of(other, key, &count[1]);
    assert_true(count[0] >= least);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void test_resume(void **state)
{
    enum { MOST_STEPS = 12 }; /* noise hides the gradient in some of the 16 steps */
    const char *const whole = "whole/checkpoints/step-16/state.json",
                      *const parts = "parts/checkpoints/step-16/state.json";
    (void)state;
    train(&(trial){.folder = "whole", .noise = true});
    train(&(trial){.folder = "parts", .noise = true, .stop_after = 5});
    train(&(trial){.folder = "parts", .noise = true, .resume = true});
    assert_same_numbers("whole/metrics.jsonl", "parts/metrics.jsonl",
                        "\"noise_scale\":", MOST_STEPS);
    assert_same_numbers(whole, parts, "\"noise_square\":", 1);
    assert_same_numbers(whole, parts, "\"noise_trace\":", 1);
    assert_same_numbers(whole, parts, "\"noise_count\":16", 1);
}

static void assert_has_none(const char *name)
{
    int count;
    free(numbers_of(name, "noise", &count));
    assert_int_equal(count, 0);
}

/* Neither the records nor state.json have the fields; resuming without them drops the saved estimate. */
static void test_off(void **state)
{
    (void)state;
    train(&(trial){.folder = "off", .stop_after = 5});
    assert_has_none("off/metrics.jsonl");
    assert_has_none("off/checkpoints/step-5/state.json");
    train(&(trial){.folder = "on", .noise = true, .stop_after = 5});
    assert_same_numbers("on/checkpoints/step-5/state.json", "on/checkpoints/step-5/state.json",
                        "\"noise_count\":5", 1);
    train(&(trial){.folder = "on", .resume = true});
    assert_has_none("on/checkpoints/step-16/state.json");
}

/* clang-format off */
static plan plans[] = {
    {.ranks = 2, .steps = STEPS, .accum = 1},
    {.ranks = 4, .steps = STEPS, .accum = 3},
    {.ranks = 1, .steps = STEPS, .accum = 4},
    {.ranks = 2, .steps = STEPS, .accum = 2, .clip = 1e-3},
    {.ranks = 3, .steps = STEPS, .accum = 2, .scale = 1024},
    {.ranks = 1, .steps = STEPS, .accum = 2, .scale = 1024},
    {.ranks = 3, .steps = STEPS, .accum = 2, .absent = true},
    {.ranks = 3, .steps = STEPS, .accum = 2, .division = STATE},
    {.ranks = 3, .steps = STEPS, .accum = 2, .division = GRADIENTS, .absent = true},
    {.ranks = 3, .accum = 2, .division = PARAMS, .steps = 1},
    {.ranks = 4, .steps = STEPS, .accum = 2, .stragglers = {.backup_workers = 1}},
    {.ranks = 3, .steps = STEPS, .accum = 4, .stragglers = {.drop_compute = true, .deadline = 1e-9}},
};
/* clang-format on */

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"two ranks", test_measured, NULL, NULL, &plans[0]},
        {"four ranks of several micro-batches", test_measured, NULL, NULL, &plans[1]},
        {"one rank: its first micro-batch compared with all", test_measured, NULL, NULL, &plans[2]},
        {"norms are taken before clipping", test_measured, NULL, NULL, &plans[3]},
        {"a changing loss scale is removed", test_measured, NULL, NULL, &plans[4]},
        {"a changing loss scale is removed on one rank", test_measured, NULL, NULL, &plans[5]},
        {"a rank without a layer's gradient", test_measured, NULL, NULL, &plans[6]},
        {"state sharded over ranks", test_measured, NULL, NULL, &plans[7]},
        {"gradients sharded over ranks", test_measured, NULL, NULL, &plans[8]},
        {"parameters sharded over ranks", test_measured, NULL, NULL, &plans[9]},
        {"ranks replaced by a backup worker are excluded", test_measured, NULL, NULL, &plans[10]},
        {"micro-batches dropped by a deadline are excluded", test_measured, NULL, NULL, &plans[11]},
        {"a skipped step is not measured", test_not_applied, NULL, NULL,
         &(plan){.ranks = 2, .accum = 2, .steps = 3, .bad = 2}},
        {"a skipped step on one rank is not measured", test_not_applied, NULL, NULL,
         &(plan){.ranks = 1, .accum = 2, .steps = 3, .bad = 2}},
        {"one batch size, or no way to measure norms, is refused", test_refused, NULL, NULL, NULL},
        {"a resumed run has the same numbers", test_resume, temp_setup, temp_teardown, NULL},
        {"without the option files have no noise fields", test_off, temp_setup, temp_teardown,
         NULL},
    };
    return cmocka_run_group_tests_name("gradient noise in training", rows, NULL, NULL);
}
