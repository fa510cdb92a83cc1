/* Next-token prediction: cross-entropy of each token's successor. Labels without a successor are LT_IGNORED_LABEL
 * and are not counted. */

#include "train/language/task.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

enum { CORRECT, AMONG_FIVE, TARGETS, COUNTS }; /* indices, as in lt_topk_hits() */

double lt_language_perplexity(const lt_task_sums *sums)
{
    return lt_f64_exp(sums->loss);
}

double lt_language_accuracy(const lt_task_sums *sums)
{
    const double targets = sums->count[TARGETS];
    return targets > 0 ? 100 * sums->count[CORRECT] / targets : 0;
}

double lt_language_target_count(const lt_task_sums *sums)
{
    return sums->count[TARGETS];
}

static const lt_task_metric metrics[] = {
    {.name = "perplexity",
     .label = "perplexity",
     .of_training = true,
     .lower_is_better = true,
     .value = lt_language_perplexity},
    {.name = "accuracy",
     .label = "next token",
     .unit = "%",
     .of_training = true,
     .value = lt_language_accuracy},
};

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const language_model *l = context;
    out->output = lt_module_forward(l->model, tape, batch->inputs);
    out->loss = lt_parallel_softmax_xent(tape, out->output, batch->labels, l->parallel, l->classes);
    LT_TRY(lt_tape_status(tape));
    return lt_parallel_topk_hits(tape, out->output, batch->labels, counts, l->parallel, l->classes);
}

static int64_t tokens_per_sample(const void *context)
{
    return ((const language_model *)context)->length;
}

const lt_task_ops lt_language_task = {
    .name = "language model",
    .unit = "sequences",
    .unit_short = "seq",
    .rate_unit = "tokens",
    .rate_unit_short = "tok",
    .rate_per_sample = tokens_per_sample,
    .counts = COUNTS,
    .count_name = {[CORRECT] = "correct", [TARGETS] = "targets"},
    .terms = TARGETS + 1,
    .metric = metrics,
    .metrics = sizeof metrics / sizeof *metrics,
    .forward = forward,
};
