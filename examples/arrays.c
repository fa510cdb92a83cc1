/* Training on numbers that a program has in memory: three spirals in the plane, told apart by a network of two hidden
 * layers with Shampoo. Data set, loader, model, optimizer, schedule and the loop around them.
 *
 *     cc arrays.c $(pkg-config --cflags --libs lather) -lm -o arrays && ./arrays */

#include "lather/data.h"
#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/schedule.h"
#include "lather/shampoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASSES = 3, POINTS = 600, INPUTS = 2, HIDDEN = 32, BATCH = 50, EPOCHS = 40 };
static const double enough = 95; /* percent */

typedef struct run {
    lt_device *device;
    lt_dataset *data;
    lt_loader *loader;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_tensor *hits;
} run;

/* Computes the points of the spirals, from the middle outwards, with a little noise. */
static void make_points(float values[POINTS][INPUTS], int64_t labels[POINTS])
{
    const double turns = 4, noise = 0.1;
    for (int i = 0; i < POINTS; i++) {
        double radius = (double)(i / CLASSES) / (POINTS / CLASSES);
        double angle = turns * (i % CLASSES) * 3.14159265 / 6 + turns * radius
                       + noise * sin(12.9898 * i) * cos(78.233 * i);
        values[i][0] = (float)(2 * radius * cos(angle));
        values[i][1] = (float)(2 * radius * sin(angle));
        labels[i] = i % CLASSES;
    }
}

static lt_status open_data(run *r)
{
    static float values[POINTS][INPUTS]; /* borrowed by the data set */
    static int64_t labels[POINTS];
    make_points(values, labels);
    const lt_arrays arrays = {
        .values = &values[0][0], .labels = labels, .count = POINTS, .shape = LT_SHAPE(INPUTS)};
    const lt_loader_config config = {.batch = BATCH, .shuffle = true, .drop_last = true, .seed = 1};
    LT_TRY(lt_dataset_arrays(&r->data, &arrays));
    return lt_loader_new(&r->loader, r->data, r->device, &config);
}

static lt_status add_layer(run *r, const char *name, int in, int out)
{
    lt_module *linear = NULL, *relu = NULL;
    LT_TRY(lt_layer_linear(&linear, r->device, name, in, out, true));
    LT_TRY(lt_sequential_add(r->model, &linear));
    if (out == CLASSES)
        return LT_OK;
    LT_TRY(lt_layer_relu(&relu));
    return lt_sequential_add(r->model, &relu);
}

static lt_status open_model(run *r)
{
    LT_TRY(lt_layer_sequential(&r->model));
    LT_TRY(add_layer(r, "first", INPUTS, HIDDEN));
    LT_TRY(add_layer(r, "second", HIDDEN, HIDDEN));
    LT_TRY(add_layer(r, "last", HIDDEN, CLASSES));
    LT_TRY(lt_module_params(r->model, &r->params));
    LT_TRY(lt_init_module(r->model, 1));
    lt_shampoo_config config = LT_SHAMPOO_DEFAULTS;
    config.precondition_frequency = 10; /* a short run needs its first roots soon */
    LT_TRY(lt_optim_shampoo(&r->optim, &r->params, &config));
    LT_TRY(lt_tensor_new(&r->hits, r->device, LT_I64, LT_SHAPE(2)));
    return lt_tape_new(&r->tape, r->device);
}

/* One batch: forward, backward, update. */
static lt_status train_step(run *r, const lt_batch *batch, double lr, int64_t attempt)
{
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    lt_tensor *logits = lt_module_forward(r->model, r->tape, batch->inputs);
    lt_tensor *loss = lt_softmax_xent(r->tape, logits, batch->labels, 0);
    lt_params_zero_grad(&r->params);
    LT_TRY(lt_tape_backward(r->tape, loss, 1));
    const lt_step step = {.lr = lr, .attempt = attempt};
    return lt_optim_step(r->optim, &step);
}

static lt_status train(run *r)
{
    const lt_schedule schedule = {.kind = LT_SCHEDULE_COSINE,
                                  .lr = 0.1,
                                  .warmup_epochs = 1,
                                  .epochs = EPOCHS,
                                  .steps_per_epoch = lt_loader_batches(r->loader)};
    LT_TRY(lt_schedule_check(&schedule));
    int64_t attempt = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        lt_batch batch;
        lt_status st;
        while (!(st = lt_loader_next(r->loader, &batch))) {
            attempt++;
            LT_TRY(train_step(r, &batch, lt_schedule_lr(&schedule, attempt), attempt));
        }
        if (st != LT_END)
            return st;
    }
    return LT_OK;
}

/* Computes the percentage of an epoch's points whose largest logit is the right one. */
static lt_status evaluate(run *r, double *accuracy)
{
    int64_t hits[2], seen = 0;
    lt_batch batch;
    lt_status st;
    LT_TRY(lt_tensor_fill(r->hits, 0));
    while (!(st = lt_loader_next(r->loader, &batch))) {
        lt_tape_reset(r->tape, LT_PASS_EVAL);
        lt_tensor *logits = lt_module_forward(r->model, r->tape, batch.inputs);
        LT_TRY(lt_tape_status(r->tape));
        LT_TRY(lt_topk_hits(logits, batch.labels, r->hits));
        seen += batch.count;
    }
    if (st != LT_END)
        return st;
    LT_TRY(lt_tensor_read(r->hits, hits, sizeof hits));
    *accuracy = 100.0 * (double)hits[0] / (double)seen;
    return LT_OK;
}

static lt_status train_and_report(run *r)
{
    double before = 0, after = 0;
    LT_TRY(lt_device_open(&r->device, "cpu", NULL));
    LT_TRY(open_data(r));
    LT_TRY(open_model(r));
    LT_TRY(evaluate(r, &before));
    LT_TRY(train(r));
    LT_TRY(evaluate(r, &after));
    printf("%.1f %% of the points right before, %.1f %% after %d epochs\n", before, after, EPOCHS);
    if (!(after >= enough))
        return lt_fail(LT_E_ARG, "arrays: %.1f %% right, want %.1f", after, enough);
    return LT_OK;
}

int main(void)
{
    run r = {0};
    lt_status st = train_and_report(&r);
    if (st)
        fprintf(stderr, "arrays: %s: %s\n", lt_status_name(st), lt_error_message());
    lt_optim_free(&r.optim);
    lt_params_clear(&r.params);
    lt_tensor_free(&r.hits);
    lt_tape_free(&r.tape);
    lt_module_free(&r.model);
    lt_loader_free(&r.loader);
    lt_dataset_free(&r.data);
    lt_device_close(&r.device);
    return st ? 1 : 0;
}
