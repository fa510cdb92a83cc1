/* Image classification: softmax cross-entropy with labels, or with the soft targets of mixed images. */

#include "train/classify/task.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>

enum { TOP1, TOP5 };

void lt_classification_softmax(double *logits, int classes)
{
    double largest = logits[0], sum = 0;
    for (int k = 1; k < classes; k++)
        largest = fmax(largest, logits[k]);
    for (int k = 0; k < classes; k++)
        sum += logits[k] = lt_f64_exp(logits[k] - largest);
    for (int k = 0; k < classes; k++)
        logits[k] /= sum;
}

double lt_classification_top1(const lt_task_sums *sums)
{
    return 100 * sums->count[TOP1] / sums->samples;
}

double lt_classification_top5(const lt_task_sums *sums)
{
    return 100 * sums->count[TOP5] / sums->samples;
}

static const lt_task_metric metrics[] = {
    {.name = "top1",
     .label = "top-1",
     .unit = "%",
     .of_training = true,
     .value = lt_classification_top1},
    {.name = "top5", .label = "top-5", .unit = "%", .value = lt_classification_top5},
};

/* Returns the sum of the logits of images and of their mirror images. */
static lt_tensor *add_mirrored(const classification *c, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *mirrored = lt_index_select(tape, x, -1, c->mirror);
    return lt_add(tape, lt_module_forward(c->model, tape, x),
                  lt_module_forward(c->model, tape, mirrored));
}

lt_tensor *lt_classification_logits(const classification *c, lt_tape *tape, lt_tensor *x)
{
    if (!c->mirror || lt_tape_pass(tape).record)
        return lt_module_forward(c->model, tape, x);
    lt_tensor *sum = add_mirrored(c, tape, x);
    if (!c->shift[0])
        return lt_scale(tape, sum, 0.5);
    sum = lt_scale(tape, sum, 0.25);
    for (int i = 0; i < 2; i++) {
        lt_tensor *rows = lt_index_select(tape, x, -2, c->shift[i]);
        lt_tensor *moved = lt_index_select(tape, rows, -1, c->shift[i]);
        sum = lt_add(tape, sum, lt_scale(tape, add_mirrored(c, tape, moved), 0.125));
    }
    return sum;
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const classification *c = context;
    const bool is_training = lt_tape_pass(tape).record;
    lt_tensor *x = lt_tensor_dtype(batch->inputs) == LT_U8
                       ? lt_normalize(tape, batch->inputs, &c->pixels)
                       : batch->inputs;
    out->output = lt_classification_logits(c, tape, x);
    if (is_training && c->class_weight)
        out->loss = lt_cross_entropy(tape, out->output, batch->labels, c->class_weight,
                                     (lt_cross_entropy_config){.smoothing = c->label_smoothing});
    else
        out->loss =
            lt_softmax_xent(tape, out->output, batch->targets ? batch->targets : batch->labels,
                            is_training ? c->label_smoothing : 0);
    LT_TRY(lt_tape_status(tape));
    return lt_topk_hits(out->output, batch->labels, counts);
}

static lt_status collect_details(void *context, lt_tape *tape, const lt_batch *batch,
                                 const lt_task_output *out)
{
    const classification *c = context;
    return c->collect ? c->collect(c->collector, tape, batch, out->output) : LT_OK;
}

const lt_task_ops lt_classification_task = {
    .name = "classification",
    .unit = "images",
    .unit_short = "img",
    .counts = 2,
    .count_name = {"correct"}, /* top-5 is for evaluations only */
    .metric = metrics,
    .metrics = sizeof metrics / sizeof *metrics,
    .best = TOP1,
    .forward = forward,
    .observe = collect_details,
};
