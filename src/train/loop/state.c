/* State of a run: counted by steps and epochs, saved in checkpoints and restored from them. */

#include "state.h"

#include "base/alloc.h"
#include "tensor/statistics.h"

#include "lather/detail/checkpoint_hash.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUM_LOSS,
    SUM_COUNTS
}; /* indices in lt_checkpoint_state.sum: the loss, then the named counts */

static void copy_name(char *to, const char *from)
{
    snprintf(to, LT_CHECKPOINT_NAME, "%s", from);
}

void lt_train_state_begin(lt_train_state *s, const lt_task_ops *task, const lt_optim *optim,
                          const lt_ranks *ranks, int64_t batch, int64_t grad_accum)
{
    lt_checkpoint_state *now = &s->now;
    *now = (lt_checkpoint_state){.loss_scale = 1,
                                 .loss_good_steps = -1,
                                 .epoch_recorded = 1,
                                 .best = -1, /* unknown: best_step is 0 */
                                 .ranks = ranks->count,
                                 .global_batch = batch * grad_accum * ranks->data_count};
    copy_name(now->optim, lt_optim_name(optim));
    copy_name(now->unit, task->unit);
    copy_name(now->best_name, task->metrics ? task->metric[task->best].name : "loss");
    copy_name(now->sum[SUM_LOSS].name, "loss");
    now->sums = SUM_COUNTS;
    for (int i = 0; i < task->counts; i++)
        if (task->count_name[i])
            copy_name(now->sum[now->sums++].name, task->count_name[i]);
}

void lt_train_state_close(lt_train_state *s)
{
    for (size_t i = 0; i < s->extras; i++) {
        union {
            const char *shown;
            char *owned;
        } name = {s->extra[i].name};
        lt_free(name.owned);
    }
    lt_free(s->extra);
    s->extra = NULL;
    s->extras = 0;
    lt_ema_free(&s->ema);
}

/* --- Tensors of the EMA and of averaged weights, under their names in checkpoints --- */

typedef struct naming {
    lt_train_state *state;
    const lt_params *params;
} naming;

static lt_status add_extra(void *context, const lt_state_entry *entry)
{
    const naming *n = context;
    lt_train_state *s = n->state;
    char *name = lt_format("%s.%s", entry->name, entry->param);
    if (!name)
        return LT_E_NOMEM;
    s->extra[s->extras++] = (lt_checkpoint_tensor){
        .name = name, .tensor = entry->tensor, .param = lt_params_find(n->params, entry->param)};
    /* cppcheck-suppress memleak ; it is in extra */
    return LT_OK;
}

static lt_status ignore_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

/* Grows the list of extra tensors by one per parameter. */
static lt_status reserve_extra_tensors(lt_train_state *s, const lt_params *params)
{
    size_t capacity = 0; /* grows to the exact size */
    return LT_GROW(&s->extra, &capacity, s->extras + params->count);
}

lt_status lt_train_state_open_ema(lt_train_state *s, const lt_params *params, double decay)
{
    naming all = {s, params};
    lt_state_visitor visitor = {.entry = add_extra, .number = ignore_number, .context = &all};
    LT_TRY(reserve_extra_tensors(s, params));
    LT_TRY(lt_ema_new(&s->ema, params, decay));
    return lt_ema_visit(s->ema, &visitor);
}

lt_status lt_train_state_open_iterates(lt_train_state *s, const lt_params *params, lt_optim *optim)
{
    naming all = {s, params};
    lt_state_visitor visitor = {.entry = add_extra, .number = ignore_number, .context = &all};
    if (!lt_optim_is_averaged(optim))
        return LT_OK;
    LT_TRY(reserve_extra_tensors(s, params));
    return lt_optim_visit_iterates(optim, &visitor);
}

lt_status lt_train_state_swap_ema(lt_train_state *s)
{
    return s->ema ? lt_ema_swap(s->ema) : LT_OK;
}

lt_status lt_train_use_eval_weights(lt_train_state *s, lt_optim *optim)
{
    LT_TRY(lt_optim_eval(optim));
    return lt_train_state_swap_ema(s);
}

lt_status lt_train_use_train_weights(lt_train_state *s, lt_optim *optim)
{
    LT_TRY(lt_train_state_swap_ema(s));
    return lt_optim_train(optim);
}

void lt_train_state_add_averages(const lt_train_state *s, lt_checkpoint_contents *parts)
{
    parts->extra = s->extra;
    parts->extra_count = s->extras;
}

/* --- Resume --- */

static void reset_epoch_counters(lt_checkpoint_state *now)
{
    now->batch = now->epoch_samples = now->epoch_unused = 0;
    now->epoch_seconds = now->epoch_loss_missing = 0;
    for (int i = 0; i < now->sums; i++)
        now->sum[i].value = 0;
}

void lt_train_state_set_fingerprint(lt_train_state *s, const lt_dataset *train)
{
    s->now.data_samples = lt_dataset_count(train);
    s->fingerprint = lt_dataset_fingerprint(train);
    s->now.data_hash = (int64_t)(s->fingerprint >> 11) | 1; /* fits a double */
    s->now.data_bytes = lt_dataset_bytes(train);
}

lt_status lt_train_state_check_data(lt_train_state *s, bool may_continue)
{
    const lt_checkpoint_state *now = &s->now;
    lt_checkpoint_state *found = &s->found;
    const bool other_bytes =
        found->data_bytes && now->data_bytes && found->data_bytes != now->data_bytes;
    s->data_changed = found->data_samples
                      && (found->data_samples != now->data_samples
                          || found->data_hash != now->data_hash || other_bytes);
    if (s->data_changed && found->batch && !may_continue)
        return lt_fail(
            LT_E_ARG,
            "%s: was saved within epoch %lld of %lld %s, but the data now has %lld%s; "
            "--data-changed continue restarts that epoch with the new data",
            s->folder, (long long)found->epoch + 1, (long long)found->data_samples, now->unit,
            (long long)now->data_samples,
            found->data_samples == now->data_samples ? " with other names, contents or order" : "");
    if (s->data_changed)
        reset_epoch_counters(found);
    return LT_OK;
}

/* Fails, suggesting the --batch-size that gives a step as many samples as the checkpointed run had, if one does. */
static lt_status fail_other_batch_size(const lt_train_state *s, int64_t passes)
{
    char advice[64] = "";
    const int64_t found = s->found.global_batch;
    if (found > 0 && found % passes == 0)
        snprintf(advice, sizeof advice, "; use --batch-size %lld", (long long)(found / passes));
    return lt_fail(LT_E_ARG,
                   "%s: was saved within an epoch with %lld %s per update, but this run has "
                   "%lld (--batch-size x --grad-accum x ranks)%s",
                   s->folder, (long long)found, s->now.unit, (long long)s->now.global_batch,
                   advice);
}

/* Maps the batch within the epoch to this run's ranks, batches and micro-batches: all samples before it were seen,
 * if a step has as many samples as before. */
static lt_status map_batch_position(const lt_train_state *s, lt_checkpoint_state *found,
                                    const lt_ranks *ranks, int64_t grad_accum)
{
    const int64_t samples = s->now.global_batch;
    if (!found->batch)
        return LT_OK;
    if (found->global_batch != samples)
        return fail_other_batch_size(s, grad_accum * ranks->data_count);
    const int64_t passed = found->epoch_samples + found->epoch_unused;
    int64_t steps = passed / samples, batch = 0;
    if (steps < 1 || passed % samples || found->batch % steps || found->batch > passed
        || __builtin_mul_overflow(steps, grad_accum, &batch))
        return lt_fail(LT_E_FORMAT,
                       "%s/state.json: 'batch' %lld and 'epoch_%s' %lld contradict each other, "
                       "with %lld %s per update",
                       s->folder, (long long)found->batch, s->now.unit, (long long)passed,
                       (long long)samples, s->now.unit);
    found->batch = batch;
    return LT_OK;
}

static lt_status check_same_run(const lt_train_state *s, const lt_checkpoint_state *found,
                                int64_t batches_per_epoch)
{
    const lt_checkpoint_state *now = &s->now;
    LT_TRY(lt_checkpoint_check_task(s->folder, found, now));
    if (strcmp(found->optim, now->optim) != 0)
        return lt_plugins_advise(lt_fail(LT_E_ARG,
                                         "%s: was trained with --optim %s, but this run has %s",
                                         s->folder, found->optim, now->optim),
                                 s->folder);
    if (found->seed != now->seed)
        return lt_fail(LT_E_ARG, "%s: was trained with --seed %llu, but this run has %llu",
                       s->folder, (unsigned long long)found->seed, (unsigned long long)now->seed);
    const lt_checkpoint_fact *base = lt_checkpoint_find_fact(now, "mup"),
                             *found_base = lt_checkpoint_find_fact(found, "mup");
    const int64_t mup = base ? base->number : 0, found_mup = found_base ? found_base->number : 0;
    if (mup != found_mup)
        return lt_fail(LT_E_ARG, "%s: was trained with --mup %lld, but this run has %lld",
                       s->folder, (long long)found_mup, (long long)mup);
    if (found->batch > batches_per_epoch)
        return lt_fail(LT_E_ARG, "%s: was saved at batch %lld of an epoch, which now has %lld",
                       s->folder, (long long)found->batch, (long long)batches_per_epoch);
    return LT_OK;
}

lt_status lt_train_state_check(const lt_train_state *s, const lt_ranks *ranks, int64_t grad_accum,
                               int64_t batches_per_epoch)
{
    lt_checkpoint_state found = s->found;
    LT_TRY(map_batch_position(s, &found, ranks, grad_accum));
    return check_same_run(s, &found, batches_per_epoch);
}

/* Keeps the checkpoint's noise-scale averages if this run measures the noise scale; otherwise clears them. */
static void keep_or_drop_noise_scale(const lt_train_state *s, lt_checkpoint_state *found)
{
    found->noise.decay = s->now.noise.decay;
    if (!(found->noise.decay > 0))
        found->noise = (lt_noise_scale){0};
}

/* Keeps as many of the best checkpoints as the run now keeps. */
static void drop_tops(lt_checkpoint_state *found, int save_top)
{
    const int most = save_top < 2 ? 0 : save_top;
    found->tops = found->tops < most ? found->tops : most;
}

lt_status lt_train_state_load(lt_train_state *s, const lt_checkpoint_contents *parts,
                              const lt_ranks *ranks, int64_t grad_accum, int64_t batches_per_epoch)
{
    lt_checkpoint_state found = s->found;
    found.ranks = ranks->count; /* for comparison */
    found.threads = s->now.threads;
    found.reproducible = s->now.reproducible;
    LT_TRY(lt_optim_eval(parts->optim)); /* checkpoints store the evaluation weights */
    const lt_status st = lt_checkpoint_load(s->folder, parts, &found);
    if (st)
        return lt_plugins_advise(st, s->folder);
    LT_TRY(lt_statistics_check(parts->params, s->folder));
    LT_TRY(lt_processor_compare_checkpoint(s->folder, s->now.reproducible, s->processor,
                                           sizeof s->processor));
    lt_plugins_compare_checkpoint(s->folder, s->plugins, sizeof s->plugins);
    LT_TRY(lt_optim_train(parts->optim));
    if (s->data_changed)
        reset_epoch_counters(&found);
    LT_TRY(map_batch_position(s, &found, ranks, grad_accum));
    found.data_samples = s->now.data_samples;
    found.data_hash = s->now.data_hash;
    found.data_bytes = s->now.data_bytes;
    found.ranks = ranks->count;
    found.threads = s->now.threads;
    found.reproducible = s->now.reproducible;
    found.global_batch = s->now.global_batch;
    /* Earlier versions wrote resnet50 whatever --weights had. */
    memcpy(found.fact, s->now.fact, sizeof found.fact);
    found.facts = s->now.facts;
    keep_or_drop_noise_scale(s, &found);
    drop_tops(&found, s->save_top);
    s->now = found;
    s->offset = found.step - (found.epoch * batches_per_epoch + found.batch) / grad_accum;
    return LT_OK;
}

lt_status lt_train_state_init_loss_scale(lt_train_state *s, lt_optim *optim, bool is_scaled)
{
    lt_checkpoint_state *now = &s->now;
    lt_loss_scaling scaling = LT_LOSS_SCALING_DEFAULTS;
    if (!is_scaled) {
        now->loss_scale = 1;
        now->loss_good_steps = -1;
        return LT_OK;
    }
    if (now->loss_good_steps >= 0) {
        scaling.start = now->loss_scale;
        scaling.good_steps = now->loss_good_steps;
    }
    now->loss_scale = scaling.start;
    now->loss_good_steps = scaling.good_steps;
    return lt_optim_scale_loss(optim, &scaling);
}

/* --- Save --- */

lt_status lt_train_state_save(const lt_train_state *s, const lt_checkpoint_contents *parts,
                              const char *output, const lt_checkpoint_policy *policy)
{
    if (!output)
        return LT_OK;
    LT_TRY(lt_optim_eval(parts->optim));
    lt_status st = lt_checkpoint_save(output, parts, &s->now, policy);
    lt_status back = lt_optim_train(parts->optim);
    return st ? st : back;
}

lt_status lt_train_state_save_weights(lt_train_state *s, const lt_checkpoint_contents *parts,
                                      const char *output)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/model.safetensors", output);
    LT_TRY(lt_train_use_eval_weights(s, parts->optim));
    lt_status st = lt_weights_save_ranks(path, parts->params, parts->metadata,
                                         parts->metadata_count, parts->comm);
    lt_status back = lt_train_use_train_weights(s, parts->optim);
    return st ? st : back;
}

lt_status lt_train_state_record_data(const lt_train_state *s, lt_run *run)
{
    return s->now.reproducible ? lt_run_data(run, s->now.step, s->now.data_samples, s->fingerprint,
                                             s->now.data_bytes)
                               : LT_OK;
}

lt_status lt_train_state_record_hash(const lt_train_state *s, const lt_checkpoint_contents *parts,
                                     lt_run *run)
{
    lt_checkpoint_hashes hashes = {0};
    const char *record;
    size_t bytes;
    if (!s->now.reproducible || !lt_run_folder(run))
        return LT_OK;
    LT_TRY(lt_optim_eval(parts->optim)); /* as in a checkpoint */
    lt_status st = lt_checkpoint_hash(parts, &s->now, &hashes);
    const lt_status back = lt_optim_train(parts->optim);
    if (!st && *hashes.all)
        st = lt_json_text(&hashes.record, &record, &bytes);
    if (!st && *hashes.all)
        st = lt_run_hash(run, s->now.step, hashes.all, record);
    lt_checkpoint_hashes_clear(&hashes);
    return st ? st : back;
}

/* --- Counting --- */

void lt_train_state_count_queued(lt_train_state *s, int64_t grad_accum)
{
    s->now.step++;
    s->now.epoch_recorded = 0;
    s->now.batch += grad_accum;
}

void lt_train_state_count_results(lt_train_state *s, const lt_task_ops *task,
                                  const lt_train_result *r)
{
    lt_checkpoint_state *now = &s->now;
    now->samples += (int64_t)r->sums.samples;
    now->seconds += r->seconds;
    now->epoch_samples += (int64_t)r->sums.samples;
    if (now->global_batch > (int64_t)r->sums.samples)
        now->epoch_unused += now->global_batch - (int64_t)r->sums.samples;
    now->epoch_seconds += r->seconds;
    const double weight = isfinite(r->sums.loss) ? r->weight : 0;
    now->sum[SUM_LOSS].value += weight > 0 ? r->sums.loss * r->sums.samples * weight : 0;
    now->epoch_loss_missing += r->sums.samples * (1 - weight);
    for (int i = 0, at = SUM_COUNTS; i < task->counts; i++)
        if (task->count_name[i])
            now->sum[at++].value += r->sums.count[i];
    now->loss_scale = r->optim.loss_scale;
    if (now->loss_good_steps >= 0)
        now->loss_good_steps = r->optim.good_steps;
    if (r->optim.applied && s->ema)
        now->ema_updates++;
}

void lt_train_enable_noise_scale(lt_train_state *s)
{
    s->now.noise = LT_NOISE_SCALE_DEFAULTS;
}

lt_status lt_train_add_noise_sample(lt_train_state *s, const lt_train_result *r)
{
    lt_noise_scale *noise = &s->now.noise;
    return noise->decay > 0 && r->noise.large_batch > 0 ? lt_noise_scale_add(noise, &r->noise)
                                                        : LT_OK;
}

double lt_train_state_noise_scale(const lt_train_state *s)
{
    return lt_noise_scale_estimate(&s->now.noise).scale;
}

lt_task_sums lt_train_state_sums(const lt_train_state *s, const lt_task_ops *task)
{
    const lt_checkpoint_state *now = &s->now;
    lt_task_sums sums = {.samples = (double)now->epoch_samples};
    sums.loss = now->sum[SUM_LOSS].value / (sums.samples - now->epoch_loss_missing);
    for (int i = 0, at = SUM_COUNTS; i < task->counts; i++)
        if (task->count_name[i])
            sums.count[i] = now->sum[at++].value;
    return sums;
}

void lt_train_state_next_epoch(lt_train_state *s)
{
    lt_checkpoint_state *now = &s->now;
    now->epoch++;
    reset_epoch_counters(now);
}

/* Inserts the step into the list of the best; of equal values the earlier is better. */
static void update_top(lt_checkpoint_state *now, int save_top, bool lower, double value)
{
    int at = 0;
    while (at < now->tops && !(lower ? value < now->top_value[at] : value > now->top_value[at]))
        at++;
    if (save_top < 2 || isnan(value) || at >= save_top)
        return;
    now->tops = now->tops < save_top ? now->tops + 1 : save_top;
    const size_t after = (size_t)(now->tops - 1 - at);
    memmove(now->top_step + at + 1, now->top_step + at, after * sizeof *now->top_step);
    memmove(now->top_value + at + 1, now->top_value + at, after * sizeof *now->top_value);
    now->top_step[at] = now->step;
    now->top_value[at] = value;
}

bool lt_train_state_update_best(lt_train_state *s, const lt_task_ops *task, double value)
{
    const bool lower = !task->metrics || task->metric[task->best].lower_is_better;
    update_top(&s->now, s->save_top, lower, value);
    const double best = s->now.best;
    const bool is_best =
        !isnan(value) && (!s->now.best_step || (lower ? value < best : value > best));
    if (is_best) {
        s->now.best = value;
        s->now.best_step = s->now.step;
    }
    return is_best;
}
