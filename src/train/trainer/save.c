/* Checkpoints of a run: loading the one to go on from, saving. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

static lt_checkpoint_parts parts(session *s, lt_weights_note note[NOTES])
{
    return (lt_checkpoint_parts){.params = &s->params,
                                 .optim = s->optim,
                                 .extra = s->ema_names,
                                 .extra_count = s->ema_count,
                                 .comm = s->comm,
                                 .note = note,
                                 .note_count = session_notes(s, note)};
}

/* Names the --batch-size that makes as many pictures an update as the checkpoint's run had, if one does. */
static lt_status other_batch(const session *s, int64_t found)
{
    char advice[64] = "";
    const int64_t passes = s->args.grad_accum * s->ranks;
    if (found > 0 && found % passes == 0)
        snprintf(advice, sizeof advice, "; use --batch-size %lld", (long long)(found / passes));
    return lt_fail(LT_E_ARG,
                   "%s: was saved within an epoch with %lld pictures to an update, this run has "
                   "%lld (--batch-size x --grad-accum x ranks)%s",
                   s->folder, (long long)found, (long long)s->state.global_batch, advice);
}

/* Where the epoch goes on, if ranks, batches and micro-batches are others now: all samples in front
 * of it were seen, if an update still has as many. */
static lt_status find_place(const session *s, lt_checkpoint_state *found)
{
    int64_t batch = s->state.global_batch;
    if (!found->batch)
        return LT_OK;
    if (found->global_batch != batch)
        return other_batch(s, found->global_batch);
    int64_t updates = found->epoch_samples / batch, place = 0;
    if (updates < 1 || found->epoch_samples % batch || found->batch % updates
        || found->batch > found->epoch_samples
        || __builtin_mul_overflow(updates, s->args.grad_accum, &place))
        return lt_fail(LT_E_FORMAT,
                       "%s/state.json: 'batch' %lld and 'epoch_images' %lld contradict each other, "
                       "with %lld pictures to an update",
                       s->folder, (long long)found->batch, (long long)found->epoch_samples,
                       (long long)batch);
    found->batch = place;
    return LT_OK;
}

static lt_status check_same_run(const session *s, const lt_checkpoint_state *found)
{
    const lt_checkpoint_state *now = &s->state;
    LT_TRY(lt_checkpoint_check_task(s->folder, found, now));
    if (strcmp(found->optim, now->optim) != 0)
        return lt_fail(LT_E_ARG, "%s: was trained with --optim %s, this run has %s", s->folder,
                       found->optim, now->optim);
    if (found->seed != now->seed)
        return lt_fail(LT_E_ARG, "%s: was trained with --seed %llu, this run has %llu", s->folder,
                       (unsigned long long)found->seed, (unsigned long long)now->seed);
    if (found->batch > s->batches_per_epoch)
        return lt_fail(LT_E_ARG, "%s: was saved at batch %lld of an epoch, which has %lld now",
                       s->folder, (long long)found->batch, (long long)s->batches_per_epoch);
    return LT_OK;
}

lt_status session_load_checkpoint(session *s)
{
    if (!s->folder[0])
        return LT_OK;
    lt_weights_note note[NOTES];
    lt_checkpoint_parts p = parts(s, note);
    lt_checkpoint_state found = s->found;
    LT_TRY(find_place(s, &found));
    LT_TRY(check_same_run(s, &found));
    LT_TRY(session_check_notes(s));
    found.ranks = s->ranks; /* what to compare with */
    found.threads = s->state.threads;
    LT_TRY(lt_checkpoint_load(s->folder, &p, &found));
    LT_TRY(find_place(s, &found));
    found.ranks = s->ranks;
    found.threads = s->state.threads;
    found.global_batch = s->state.global_batch;
    /* Earlier versions named resnet50 whatever --weights had. */
    memcpy(found.fact, s->state.fact, sizeof found.fact);
    found.facts = s->state.facts;
    s->state = found;
    return LT_OK;
}

lt_status session_save_checkpoint(session *s, bool is_best)
{
    if (!s->args.output)
        return LT_OK;
    lt_weights_note note[NOTES];
    lt_checkpoint_parts p = parts(s, note);
    lt_checkpoint_policy policy = {.keep = (int)s->args.keep, .is_best = is_best};
    return lt_checkpoint_save(s->args.output, &p, &s->state, &policy);
}

lt_status session_save_weights(session *s)
{
    char path[1024];
    if (!s->args.output || s->rank)
        return LT_OK;
    snprintf(path, sizeof path, "%s/model.safetensors", s->args.output);
    LT_TRY(session_swap_ema(s));
    lt_weights_note note[NOTES];
    lt_status st = lt_weights_save_with(path, &s->params, note, session_notes(s, note));
    lt_status back = session_swap_ema(s);
    return st ? st : back;
}
