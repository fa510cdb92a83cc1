/* Predicts the loss of a real convex problem on numbers of ranks that the model was not fitted to: logistic regression
 * with an L2 term, each rank trains on its part of the samples and averages with the others once an epoch. A rank is a
 * thread. */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/train.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { INPUTS = 8, SAMPLES = 256, CLASSES = 2, BATCH = 4, EPOCHS = 24, SIZES = 5, MOST = 16 };
enum { WEIGHTS = CLASSES * (INPUTS + 1) };

static const double decay = 0.01; /* objective: mean cross-entropy + decay / 2 (|W|^2 + |b|^2) */
static const int size_of[SIZES] = {1, 2, 4, 8, 16};
static float inputs[SAMPLES][INPUTS];
static int64_t labels[SAMPLES];
static lt_loss_point point[SIZES * EPOCHS];

typedef struct rank {
    lt_device *device;
    lt_comm *comm;
    lt_dataset *data;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    int ranks;
    int64_t seen;        /* batches of evaluations */
    double loss[EPOCHS]; /* sums over them */
    lt_status status;
    char why[512];
} rank;

static void make_data(void)
{
    lt_rng rng = {.key = 11};
    for (int i = 0; i < SAMPLES; i++) {
        double score = lt_rng_normal(&rng);
        for (int k = 0; k < INPUTS; k++) {
            inputs[i][k] = (float)lt_rng_normal(&rng);
            score += (double)inputs[i][k] * (k % 3 - 0.7);
        }
        labels[i] = score > 0;
    }
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const rank *r = context;
    (void)counts;
    out->output = lt_module_forward(r->model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    for (size_t i = 0; i < r->params.count; i++) {
        lt_tensor *w = lt_tape_param(tape, r->params.item[i]);
        lt_tensor *square = lt_sum(tape, lt_mul(tape, w, w), (lt_reduce_config){0});
        out->loss = lt_add(tape, out->loss, lt_scale(tape, square, decay / 2));
    }
    return lt_tape_status(tape);
}

static lt_status observe(void *context, lt_tape *tape, const lt_batch *batch,
                         const lt_task_output *out)
{
    rank *r = context;
    double loss = 0;
    (void)tape;
    (void)batch;
    LT_TRY(lt_tensor_read(out->loss, &loss, sizeof loss));
    r->loss[r->seen++ / (SAMPLES / BATCH / r->ranks)] += loss;
    return LT_OK;
}

static lt_status train(rank *r)
{
    static const lt_task_ops task = {
        .name = "classes", .unit = "samples", .forward = forward, .observe = observe};
    const lt_sgd_config sgd = {.momentum = 0};
    const lt_local_steps_config local = {.every = SAMPLES / BATCH / r->ranks, .lr = 1};
    LT_TRY(lt_layer_linear(&r->model, r->device, "only", INPUTS, CLASSES, true));
    LT_TRY(lt_init_module(r->model, 5));
    LT_TRY(lt_module_params(r->model, &r->params));
    LT_TRY(lt_optim_sgd(&r->optim, &r->params, &sgd));
    const lt_train_config c = {.device = r->device,
                               .params = &r->params,
                               .optim = r->optim,
                               .task = {&task, r},
                               .comm = r->ranks > 1 ? r->comm : NULL,
                               .local_steps = r->ranks > 1 ? &local : NULL,
                               .ranks_per_node = r->ranks > 1,
                               .train = r->data,
                               .loader = {.batch = BATCH, .shuffle = true, .seed = 3, .threads = 1},
                               .schedule = {.lr = 0.02, .epochs = EPOCHS},
                               .eval_every = 1,
                               .progress = LT_PROGRESS_OFF};
    return lt_train(&c, NULL);
}

static void *play(void *context)
{
    rank *r = context;
    r->status = train(r);
    if (r->status) {
        snprintf(r->why, sizeof r->why, "%s", lt_error_message());
        lt_comm_abort(r->comm);
    }
    lt_optim_free(&r->optim);
    return NULL;
}

static void open_rank(rank *r, int ranks)
{
    const lt_arrays arrays = {.values = &inputs[0][0],
                              .labels = labels,
                              .count = SAMPLES,
                              .shape = LT_SHAPE(INPUTS),
                              .classes = CLASSES};
    const lt_device_config config = {.f64 = true, .threads = 1};
    *r = (rank){.ranks = ranks};
    assert_ok(lt_device_open(&r->device, "ref", &config));
    assert_ok(lt_dataset_arrays(&r->data, &arrays));
}

/* out [EPOCHS]: the loss after each epoch. */
static void run(int ranks, lt_loss_point *out)
{
    LT_ASSERT(ranks >= 1);
    rank all[MOST];
    lt_device *device[MOST];
    lt_comm *comm[MOST];
    pthread_t thread[MOST];
    for (int i = 0; i < ranks; i++) {
        open_rank(&all[i], ranks);
        device[i] = all[i].device;
    }
    assert_ok(lt_comm_open_threads(comm, device, ranks));
    for (int i = 0; i < ranks; i++) {
        all[i].comm = comm[i];
        assert_int_equal(pthread_create(&thread[i], NULL, play, &all[i]), 0);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < EPOCHS; i++)
        out[i] = (lt_loss_point){ranks, i + 1, 0};
    for (int i = 0; i < ranks; i++) {
        if (all[i].status)
            fail_msg("rank %d of %d: %s", i, ranks, all[i].why);
        for (int k = 0; k < EPOCHS; k++)
            out[k].loss += all[i].loss[k] * BATCH / SAMPLES;
        lt_comm_close(&comm[i]);
        lt_params_clear(&all[i].params);
        lt_module_free(&all[i].model);
        lt_dataset_free(&all[i].data);
        lt_device_close(&device[i]);
    }
}

static int measure(void **state)
{
    (void)state;
    make_data();
    for (int k = 0; k < SIZES; k++)
        run(size_of[k], point + (ptrdiff_t)k * EPOCHS);
    return 0;
}

/* The objective, and its slope. */
static double objective(const double *w, double *slope)
{
    double sum = 0;
    for (int k = 0; k < WEIGHTS; k++) {
        slope[k] = decay * w[k];
        sum += decay / 2 * w[k] * w[k];
    }
    for (int i = 0; i < SAMPLES; i++) {
        double score = w[INPUTS] - w[WEIGHTS - 1];
        for (int k = 0; k < INPUTS; k++)
            score += (double)inputs[i][k] * (w[k] - w[INPUTS + 1 + k]);
        const double sign = labels[i] ? -1 : 1, wrong = 1 / (1 + exp(sign * score));
        sum -= log1p(-wrong) / SAMPLES;
        for (int k = 0; k <= INPUTS; k++) {
            const double part = -sign * wrong * (k < INPUTS ? (double)inputs[i][k] : 1) / SAMPLES;
            slope[k] += part;
            slope[INPUTS + 1 + k] -= part;
        }
    }
    return sum;
}

/* By gradient descent: the objective is strongly convex. */
static double minimum(void)
{
    double w[WEIGHTS] = {0}, slope[WEIGHTS], value = 0;
    for (int step = 0; step < 4000; step++) {
        value = objective(w, slope);
        for (int k = 0; k < WEIGHTS; k++)
            w[k] -= 0.5 * slope[k];
    }
    return value;
}

/* The mean over epochs of the error in log10(loss - floor) on the ranks `without`, from the other ones of the first
 * `sizes`. */
static double left_out(lt_loss_model *model, int without, int sizes, double floor)
{
    lt_loss_point kept[SIZES * EPOCHS];
    size_t count = 0;
    double sum = 0;
    for (int k = 0; k < sizes * EPOCHS; k++)
        if (k / EPOCHS != without)
            kept[count++] = point[k];
    assert_ok(isfinite(floor) ? lt_loss_fit_above(model, kept, count, floor)
                              : lt_loss_fit(model, kept, count));
    const double under = isfinite(floor) ? floor : 0;
    for (int i = 0; i < EPOCHS; i++) {
        const lt_loss_point *p = &point[without * EPOCHS + i];
        const double said = lt_loss_predict(model, p->ranks, p->step);
        sum += fabs(log10((said - under) / (p->loss - under))) / EPOCHS;
    }
    return sum;
}

/* The same error of a trivial prediction: the loss on the adjacent number of ranks. */
static double adjacent(int without, double floor)
{
    const int other = without ? without - 1 : 1;
    double sum = 0;
    for (int i = 0; i < EPOCHS; i++)
        sum += fabs(log10((point[other * EPOCHS + i].loss - floor)
                          / (point[without * EPOCHS + i].loss - floor)))
               / EPOCHS;
    return sum;
}

static void the_suboptimality_of_ranks_left_out_is_predicted(void **state)
{
    (void)state;
    const double least = minimum();
    for (int k = 0; k < SIZES; k++) {
        lt_loss_model model;
        const double off = left_out(&model, k, SIZES, least),
                     last = point[(k + 1) * EPOCHS - 1].loss;
        print_message("%d ranks: %.3f in log10(loss - %.4f), at last %.4f\n", size_of[k], off,
                      least, last);
        assert_true(off < 0.3);
        assert_true(off < 0.5 * adjacent(k, least));
        assert_true(last < point[k * EPOCHS].loss);
    }
}

static void the_loss_of_ranks_left_out_is_predicted(void **state)
{
    (void)state;
    const double least = minimum();
    for (int k = 0; k < SIZES; k++) {
        lt_loss_model model;
        const double off = left_out(&model, k, SIZES, (double)NAN);
        print_message("%d ranks: %.4f in log10 of the loss, floor %.4f of %.4f\n", size_of[k], off,
                      model.floor, least);
        assert_true(off < 0.3);
        assert_true(off < 0.5 * adjacent(k, 0));
    }
}

/* Predicts each of 1, 2, 4 and 8 ranks from the three others. */
static void three_numbers_of_ranks_predict_a_fourth(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES - 1; k++) {
        lt_loss_model model;
        const double off = left_out(&model, k, SIZES - 1, (double)NAN);
        print_message("%d ranks, of three others: %.4f in log10 of the loss\n", size_of[k], off);
        assert_true(off < 0.3);
        assert_true(off < 0.5 * adjacent(k, 0));
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(the_suboptimality_of_ranks_left_out_is_predicted),
        cmocka_unit_test(the_loss_of_ranks_left_out_is_predicted),
        cmocka_unit_test(three_numbers_of_ranks_predict_a_fourth),
    };
    return cmocka_run_group_tests(rows, measure, NULL);
}
