/* Hooks of a training run: early stopping of your own, and a log line and a record of your own. A linear classifier
 * of noisy points, trained by lt_train() until the validation loss no longer falls.
 *
 *     cc early_stop.c $(pkg-config --cflags --libs lather) -lm -o early_stop && ./early_stop */

#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/train.h"

#include <math.h>
#include <stdio.h>

/* --- The hooks --- */

typedef struct stopper {
    double best, bad; /* best validation loss; evaluations since then */
    double norm;      /* largest gradient norm of the epoch */
} stopper;

static lt_status watch_norm(void *context, const lt_train_view *view, bool *stop)
{
    stopper *s = context;
    (void)stop;
    s->norm = fmax(s->norm, lt_train_view_metric(view, "gradient_norm"));
    return LT_OK;
}

static lt_status stop_early(void *context, const lt_train_view *view, bool *stop)
{
    const double patience = 3;
    stopper *s = context;
    const double loss = lt_train_view_metric(view, "val_loss");
    const lt_metric own = {"largest_norm", s->norm};
    s->bad = loss < s->best ? 0 : s->bad + 1;
    s->best = fmin(s->best, loss);
    *stop = s->bad >= patience;
    lt_train_note(view, "epoch %lld: largest gradient norm %.3f, best loss %.4f",
                  (long long)view->epoch + 1, s->norm, s->best);
    s->norm = 0;
    return lt_train_record(view, "norms", &own, 1); /* {"event":"norms","step":8,...} */
}

/* --- Data, model, task --- */

enum { POINTS = 96, INPUTS = 12, BATCH = 12, EPOCHS = 200 };

typedef struct problem {
    lt_device *device;
    lt_dataset *train, *val;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
} problem;

/* Makes points whose first coordinate tells the class, with noise in all of them and in the labels. */
static lt_status make_points(lt_dataset **out, float values[POINTS][INPUTS], int64_t label[POINTS],
                             int seed)
{
    for (int i = 0; i < POINTS; i++) {
        for (int k = 0; k < INPUTS; k++)
            values[i][k] = (float)sin(37.7 * (i + 1) * (k + seed) + i * i);
        label[i] = values[i][0] + (float)sin(91.3 * i * seed) > 0;
    }
    const lt_arrays arrays = {
        .values = values[0], .labels = label, .count = POINTS, .shape = LT_SHAPE(INPUTS)};
    return lt_dataset_arrays(out, &arrays);
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    (void)counts;
    out->output = lt_module_forward(context, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static lt_status train(problem *p)
{
    static float values[2][POINTS][INPUTS]; /* borrowed by the data sets */
    static int64_t label[2][POINTS];
    static const lt_task_ops task = {.name = "points", .unit = "points", .forward = forward};
    stopper s = {.best = HUGE_VAL};
    const lt_train_number numbers[] = {{"best", &s.best}, {"bad", &s.bad}}; /* for a resume */
    const lt_train_hooks hooks = {.name = "stopper",
                                  .context = &s,
                                  .after_step = watch_norm,
                                  .after_evaluation = stop_early,
                                  .number = numbers,
                                  .numbers = 2};
    lt_train_end end;
    LT_TRY(lt_device_open(&p->device, "cpu", NULL));
    LT_TRY(make_points(&p->train, values[0], label[0], 1));
    LT_TRY(make_points(&p->val, values[1], label[1], 2));
    LT_TRY(lt_layer_linear(&p->model, p->device, "linear", INPUTS, 2, true));
    LT_TRY(lt_init_module(p->model, 1));
    LT_TRY(lt_module_params(p->model, &p->params));
    LT_TRY(lt_optim_adam(&p->optim, &p->params, NULL));
    const lt_train_config config = {.device = p->device,
                                    .params = &p->params,
                                    .optim = p->optim,
                                    .task = {&task, p->model},
                                    .train = p->train,
                                    .val = p->val,
                                    .loader = {.batch = BATCH, .shuffle = true},
                                    .schedule = {.lr = 0.05, .epochs = EPOCHS},
                                    .eval_every = 1,
                                    .progress = LT_PROGRESS_LINES,
                                    .hooks = &hooks};
    LT_TRY(lt_train(&config, &end));
    printf("step %lld, ended by %s\n", (long long)end.step, end.ended_by ? end.ended_by : "-");
    return end.ended_by ? LT_OK : lt_fail(LT_E_ARG, "early_stop: the run was not ended early");
}

int main(void)
{
    problem p = {0};
    lt_status st = train(&p);
    if (st)
        fprintf(stderr, "early_stop: %s: %s\n", lt_status_name(st), lt_error_message());
    lt_optim_free(&p.optim);
    lt_params_clear(&p.params);
    lt_module_free(&p.model);
    lt_dataset_free(&p.val);
    lt_dataset_free(&p.train);
    lt_device_close(&p.device);
    return st ? 1 : 0;
}
