/* Training and evaluation as the command line asks for them: fills the tables of the library's loop. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool asked_to_stop(void *context)
{
    (void)context;
    return lt_signals_seen() > 0;
}

/* --- Evaluation --- */

static lt_evaluator evaluator_of(classifier *s)
{
    const arguments *a = &s->args;
    const lt_loader_config loader = {
        .transform = lt_classifier_eval_transform(s),
        .batch = (int)(a->evaluation.eval_batch_size ? a->evaluation.eval_batch_size
                                                     : a->training.batch_size),
        .threads = s->workers,
        .max_bad = a->loader.max_bad_images,
        .max_batches = a->loader.limit_eval_batches,
        .read_ahead = a->loader.read_ahead,
        .limit = a->loader.overfit_batches * a->training.batch_size * s->ranks.count,
    };
    return (lt_evaluator){.device = s->device,
                          .tape = s->tape,
                          .task = lt_classifier_task(s),
                          .pass = lt_classifier_pass(s, false),
                          .loader = loader,
                          .ranks = &s->ranks,
                          .run = s->run,
                          .stop = asked_to_stop};
}

lt_status lt_classifier_evaluate(classifier *s, lt_evaluation *out)
{
    const lt_evaluator evaluator = evaluator_of(s);
    LT_TRY(lt_evaluate(&evaluator, s->input.val, out));
    s->ranks.stop = out->stopped;
    return LT_OK;
}

/* --- Training --- */

lt_status lt_classifier_open_step(classifier *s)
{
    const lt_train_step_config c = {.device = s->device,
                                    .tape = s->tape,
                                    .params = &s->params,
                                    .optim = s->optim,
                                    .task = lt_classifier_task(s),
                                    .ema = s->state.ema,
                                    .comm = s->ranks.comm,
                                    .dp = s->dp,
                                    .pass = lt_classifier_pass(s, true),
                                    .grad_accum = s->args.training.grad_accum,
                                    .graph = s->args.machine.graph,
                                    .next = lt_train_input_next,
                                    .next_context = &s->input,
                                    .stop = asked_to_stop};
    return lt_train_step_new(&s->step, &c);
}

/* entry: the metadata of the weights, for the lifetime of the parts. */
static lt_checkpoint_parts parts_of(const classifier *s, lt_metadata entry[META_ENTRIES])
{
    lt_checkpoint_parts parts = {.params = &s->params,
                                 .optim = s->optim,
                                 .comm = s->ranks.comm,
                                 .metadata = entry,
                                 .metadata_count = lt_classifier_metadata(s, entry)};
    lt_train_state_parts(&s->state, &parts);
    return parts;
}

lt_status lt_classifier_load_checkpoint(classifier *s)
{
    const int64_t passes = s->args.training.grad_accum;
    lt_metadata entry[META_ENTRIES];
    const lt_checkpoint_parts parts = parts_of(s, entry);
    if (!s->state.folder[0])
        return LT_OK;
    LT_TRY(lt_train_state_check(&s->state, &s->ranks, passes, s->input.batches_per_epoch));
    LT_TRY(lt_classifier_check_metadata(s));
    return lt_train_state_load(&s->state, &parts, &s->ranks, passes);
}

static int step_values(void *context, lt_metric out[LOOP_VALUES])
{
    const classifier *s = context;
    out[0] =
        (lt_metric){"image_size",
                    s->sizes.count ? lt_classifier_train_side(s, s->state.now.epoch) : (double)NAN};
    lt_shampoo_values(s->optim, s->ranks.comm != NULL, out + 1);
    return 1 + SHAMPOO_VALUES;
}

static void note_side(void *context)
{
    const classifier *s = context;
    const int64_t epoch = s->state.now.epoch;
    const int side = lt_classifier_train_side(s, epoch);
    if (s->sizes.count
        && (!epoch || s->state.now.batch || side != lt_classifier_train_side(s, epoch - 1)))
        lt_run_note(s->run, "epoch %lld: images of %d x %d", (long long)epoch + 1, side, side);
}

lt_status lt_classifier_train(classifier *s)
{
    const arguments *a = &s->args;
    const training_options *t = &a->training;
    const output_options *o = &a->output;
    lt_metadata entry[META_ENTRIES];
    const lt_train_loop loop = {
        .step = s->step,
        .input = &s->input,
        .state = &s->state,
        .ranks = &s->ranks,
        .run = s->run,
        .dp = s->dp,
        .schedule = &s->schedule,
        .evaluator = evaluator_of(s),
        .evaluated = a->loader.overfit_batches ? s->input.train : s->input.val,
        .parts = parts_of(s, entry),
        .output = o->output,
        .total_steps = s->total_steps,
        .grad_accum = t->grad_accum,
        .eval_every = a->evaluation.eval_every,
        .checkpoint_every = o->checkpoint_every,
        .keep = (int)o->keep,
        .clip_norm = t->clip_grad,
        .target = a->target_top1,
        .skip_nan = t->on_nan == ON_NAN_SKIP,
        .is_scaled = t->amp == AMP_F16,
        .ahead = (lt_run_ahead)a->machine.run_ahead,
        .step_values = step_values,
        .begin_epoch = note_side,
        .context = s,
    };
    return lt_train_loop_run(&loop);
}
