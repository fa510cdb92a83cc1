/* Measures the parts of a step at one rank: forward and backward with three batch sizes, the order and times in which
 * backward finishes gradients, updates of optimizers, and the loader, alone or with a step waiting for it. */

#include "base/alloc.h"
#include "base/clock.h"
#include "planner.h"
#include "tensor/tensor.h"
#include "train/loop/step_parts.h"

#include "lather/detail/shampoo_report.h"
#include "lather/device.h"
#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 2, LOADS = 8 };
/* Steps between refreshes of Shampoo's roots: the first is the first timed step, and whole rounds are timed. */
enum { ROUND = WARM + 1 };
static const double load_seconds = 0.02; /* at least, as one batch may take only us */

/* Steps with one batch size. */
typedef struct bench {
    lt_trainer *trainer;
    lt_train_step *step;
    lt_task_ops ops; /* the task's, except for timed_forward() of this file */
    lt_task task;    /* the trainer's task, whose forward timed_forward() calls */
    double forward;  /* clock at the end of forward */
    double *final;   /* clock at which backward finished each gradient; NULL: not recorded */
    size_t *order;   /* index of the parameter of each clock in `final` */
    size_t finals;
    int64_t attempt;
    bool by_core; /* count CPU time of the thread, not wall time */
    const plan_workers *workers;
} bench;

static int compare_ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a > b ? 1 : -(a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_ascending);
    return count ? (values[(count - 1) / 2] + values[count / 2]) / 2 : 0;
}

/* --- The steps --- */

/* Returns wall time; CPU time if ranks share processors, as --slots already counts the wait for a core. ADR 0040. */
static double read_clock(const bench *b)
{
    return b->by_core ? lt_clock_thread_cpu_seconds() : lt_clock_seconds();
}

static lt_status timed_forward(void *context, lt_tape *tape, const lt_batch *batch,
                               lt_tensor *counts, lt_task_output *out)
{
    bench *b = context;
    LT_TRY(b->task.ops->forward(b->task.context, tape, batch, counts, out));
    LT_TRY(lt_device_sync(b->trainer->model.device));
    b->forward = read_clock(b);
    return LT_OK;
}

static void on_gradient_ready(void *context, lt_param *param)
{
    bench *b = context;
    const lt_params *all = &b->trainer->model.params;
    for (size_t i = 0; i < all->count && b->finals < all->count; i++)
        if (all->item[i] == param && b->final) {
            b->order[b->finals] = i;
            b->final[b->finals++] = read_clock(b);
        }
}

/* Loads the next batch; continues with the next epoch at the end of one. */
static lt_status next_batch(void *context, lt_batch *batch)
{
    lt_loader *loader = context;
    lt_status st = lt_loader_next(loader, batch);
    return st == LT_END ? lt_loader_next(loader, batch) : st;
}

static void close_bench(bench *b)
{
    lt_tape_on_grad_ready(b->trainer->model.tape, NULL, NULL);
    lt_train_step_free(&b->step);
    lt_loader_free(&b->trainer->input.loader);
}

/* Returns the share of a processor that each of `ranks` ranks gets, at most 1. */
static double fair_core_share(double ranks)
{
    const double processors = lt_cpu_threads();
    return ranks > processors ? processors / ranks : 1;
}

static lt_status open_bench(bench *b, lt_trainer *t, int64_t batch, const plan_workers *workers)
{
    lt_loader_config c = lt_trainer_loader_config(t, true);
    const bool one_thread =
        lt_device_threads(t->model.device) == 1 && t->model.device->backend->host_memory;
    *b = (bench){.trainer = t,
                 .task = lt_trainer_task(t),
                 .by_core = one_thread && fair_core_share(workers->count + 1) < 1,
                 .workers = workers};
    b->ops = *b->task.ops;
    b->ops.forward = timed_forward;
    c.batch = (int)batch;
    c.size = 1;
    c.seed = (uint64_t)t->line.args.training.seed;
    c.shuffle = t->line.args.loader.shuffle;
    c.drop_last = true;
    LT_TRY(lt_loader_new(&t->input.loader, t->input.train, t->model.device, &c));
    const lt_train_step_config config = {.device = t->model.device,
                                         .tape = t->model.tape,
                                         .params = &t->model.params,
                                         .optim = t->optim,
                                         .task = {&b->ops, b},
                                         .pass = lt_trainer_pass(t, true),
                                         .next = next_batch,
                                         .next_context = t->input.loader};
    lt_tape_on_grad_ready(t->model.tape, on_gradient_ready, b);
    return lt_train_step_new(&b->step, &config);
}

/* Seconds of a step's parts. waited: for the loader; factors: the extra time of an update that updates Shampoo's
 * factors, where only some do. */
typedef struct parts {
    double waited, compute, backward, update, roots, factors;
} parts;

static lt_status time_step_parts(bench *b, parts *out)
{
    const lt_trainer *t = b->trainer;
    const capture_plan eager = {PHASES_NONE, false};
    const lt_step numbers = {
        .lr = 0, .clip_norm = t->line.args.training.clip_grad, .attempt = ++b->attempt};
    lt_batch batch;
    lt_step_result result;
    LT_TRY(lt_optim_prepare(t->optim, &numbers));
    const double asked = read_clock(b);
    LT_TRY(next_batch(t->input.loader, &batch));
    const double given = read_clock(b);
    b->finals = 0;
    LT_TRY(lt_device_sync(t->model.device));
    const double begin = read_clock(b);
    LT_TRY(lt_step_run_micro_batch(b->step, &batch, 0, b->attempt, eager));
    LT_TRY(lt_device_sync(t->model.device));
    const double computed = read_clock(b);
    LT_TRY(lt_plan_wait_at_barrier(b->workers));
    const double met = read_clock(b), clock = lt_clock_seconds();
    LT_TRY(lt_step_run_optimizer(b->step, eager));
    LT_TRY(lt_device_sync(t->model.device));
    const double updated = read_clock(b), taken = lt_clock_seconds() - clock;
    lt_optim_advance(t->optim);
    LT_TRY(lt_optim_result(t->optim, &result));
    const double share =
        b->by_core && taken > 0 ? (updated - met) / taken : 1; /* CPU time per wall time */
    const double roots = share * lt_shampoo_statistics(t->optim).root_seconds;
    *out = (parts){.waited = given - asked,
                   .compute = computed - begin,
                   .backward = computed - b->forward,
                   .update = updated - met - roots,
                   .roots = roots};
    return LT_OK;
}

/* Runs whole rounds of steps for about `seconds`. out: medians, of roots the mean. compute [PLAN_STEPS]: seconds of
 * each step, or NULL. */
static lt_status time_steps(bench *b, double seconds, parts *out, double *compute, size_t *steps)
{
    double wait[PLAN_STEPS], c[PLAN_STEPS], back[PLAN_STEPS], up[PLAN_STEPS];
    double updates = 0, roots = 0;
    int count = 0;
    parts p;
    lt_plan_workers_set_sync(b->workers, true);
    for (int i = 0; i < WARM; i++)
        LT_TRY(time_step_parts(b, &p));
    const double end = lt_clock_seconds() + seconds;
    for (; count % ROUND || (count + ROUND <= PLAN_STEPS && (!count || lt_clock_seconds() < end));
         count++) {
        LT_TRY(time_step_parts(b, &p));
        wait[count] = p.waited;
        c[count] = p.compute;
        back[count] = p.backward;
        up[count] = p.update;
        updates += p.update;
        roots += p.roots;
    }
    lt_plan_workers_set_sync(b->workers, false);
    if (compute) {
        memcpy(compute, c, (size_t)count * sizeof *c);
        *steps = (size_t)count;
    }
    *out = (parts){median(wait, count), median(c, count), median(back, count),
                   median(up, count),   roots / count,    0};
    out->factors = fmax(ROUND * (updates / count - out->update), 0);
    return LT_OK;
}

/* --- Forward and backward --- */

/* Fits C(b) = fixed + per_sample b, by relative least squares. */
static lt_status fit_compute(plan_profile *p)
{
    double a[2 * PLAN_BATCHES], y[PLAN_BATCHES], x[2];
    for (ptrdiff_t i = 0; i < p->batches; i++) {
        a[2 * i] = 1 / p->seconds[i];
        a[2 * i + 1] = p->batch[i] / p->seconds[i];
        y[i] = 1;
    }
    LT_TRY(lt_nnls(x, NULL, a, p->batches, 2, y));
    p->base.fixed = x[0];
    p->base.per_sample = x[1];
    return LT_OK;
}

/* Chooses half, once and twice the batch size of the flags, at most the number of samples. */
static void choose_batch_sizes(plan_profile *p, const lt_trainer *t)
{
    const int64_t most = lt_dataset_count(t->input.train);
    int64_t b = t->line.args.batch_size / 2 ? t->line.args.batch_size / 2 : 1;
    for (p->batches = 0; p->batches < PLAN_BATCHES && (b <= most || !p->batches); b *= 2)
        p->batch[p->batches++] = (double)(b < most ? b : most);
}

static void add_to_bucket(lt_cost_bucket *b, const lt_param *p, double ready)
{
    const lt_shape shape = lt_tensor_shape(p->value);
    const int64_t count = lt_tensor_count(p->value);
    b->elements += count;
    b->ready = ready;
    if (shape.ndim < 2) {
        b->dense += count;
    } else {
        b->rows += shape.dim[0];
        b->columns += count / shape.dim[0];
    }
}

/* Makes buckets of the parameters in the order of backward, as data parallelism does. */
static lt_status make_buckets(plan_profile *p, const bench *b)
{
    enum { ITEM = 4, SMALLEST = 1 << 18 }; /* bytes; elements, as in data_parallel */
    const lt_trainer *t = b->trainer;
    const double full = t->line.args.ranks.bucket_mib * 0x1p20 / ITEM;
    double rest = p->base.parameter_bytes / ITEM, limit = 0;
    size_t at = 0;
    LT_TRY(LT_ALLOC(&p->bucket, b->finals));
    for (size_t i = 0; i < b->finals; i++) {
        const lt_param *param = t->model.params.item[b->order[i]];
        const double count = (double)lt_tensor_count(param->value);
        if (!at || (double)p->bucket[at - 1].elements + count > limit) {
            limit = fmin(fmax(rest / 4, SMALLEST), full);
            at++;
        }
        rest -= count;
        add_to_bucket(&p->bucket[at - 1], param, b->final[i] - b->forward);
    }
    p->base.buckets = at;
    p->base.bucket = p->bucket;
    return LT_OK;
}

/* Records the order and times of gradients in one step; ready is a share of that step's backward. */
static lt_status record_buckets(plan_profile *p, bench *b)
{
    const size_t count = b->trainer->model.params.count;
    parts one = {0};
    lt_status st = LT_ALLOC(&b->final, count);
    if (!st)
        st = LT_ALLOC(&b->order, count);
    if (!st)
        st = time_step_parts(b, &one);
    if (!st)
        st = make_buckets(p, b);
    for (size_t i = 0; !st && i < p->base.buckets; i++)
        p->bucket[i].ready /= one.backward > 0 ? one.backward : 1;
    lt_free(b->final);
    lt_free(b->order);
    b->final = NULL;
    b->order = NULL;
    return st;
}

/* Times copying the gradients to `kept`, a tensor like each of them, and back. */
static lt_status time_gradient_copies(const bench *b, lt_tensor **kept, double *seconds)
{
    const lt_params *all = &b->trainer->model.params;
    LT_TRY(lt_device_sync(b->trainer->model.device));
    const double begin = read_clock(b);
    for (size_t i = 0; i < all->count; i++)
        if (kept[i])
            LT_TRY(lt_tensor_copy(kept[i], all->item[i]->grad));
    for (size_t i = 0; i < all->count; i++)
        if (kept[i])
            LT_TRY(lt_tensor_copy(all->item[i]->grad, kept[i]));
    LT_TRY(lt_device_sync(b->trainer->model.device));
    *seconds = read_clock(b) - begin;
    return LT_OK;
}

/* Records the median time of data parallelism's copies: gradients into buckets, and the means back. */
static lt_status measure_copies(plan_profile *p, const bench *b, lt_tensor **kept)
{
    enum { REPEATS = 5 };
    double seconds[REPEATS];
    LT_TRY(time_gradient_copies(b, kept, seconds)); /* touches new pages */
    for (int i = 0; i < REPEATS; i++)
        LT_TRY(time_gradient_copies(b, kept, &seconds[i]));
    p->base.staging = median(seconds, REPEATS);
    return LT_OK;
}

static lt_status measure_bucket_staging(plan_profile *p, const bench *b)
{
    const lt_params *all = &b->trainer->model.params;
    lt_tensor **kept;
    LT_TRY(LT_ALLOC(&kept, all->count));
    lt_status st = LT_OK;
    for (size_t i = 0; !st && i < all->count; i++)
        if (all->item[i]->grad)
            st = lt_tensor_new_like(&kept[i], all->item[i]->grad,
                                    lt_tensor_dtype(all->item[i]->grad));
    if (!st)
        st = measure_copies(p, b, kept);
    for (size_t i = 0; i < all->count; i++)
        lt_tensor_free(&kept[i]);
    lt_free(kept);
    return st;
}

/* Measures steps of one batch size; of_model: also gradient buckets, their copies, and each single step. */
static lt_status measure_batch_size(plan_profile *p, lt_trainer *t, double batch, double seconds,
                                    bool of_model, parts *out)
{
    bench b;
    lt_status st = open_bench(&b, t, (int64_t)batch, p->workers);
    if (!st)
        st = time_steps(&b, seconds, out, of_model ? p->step : NULL, &p->base.steps);
    if (!st && of_model)
        st = record_buckets(p, &b);
    if (!st && of_model)
        st = measure_bucket_staging(p, &b);
    close_bench(&b);
    return st;
}

/* Returns the loader's seconds per batch during training, if steps wait for it, as they take cores and memory from
 * it; 0: steps do not wait. */
static double loader_seconds_in_training(const parts *step)
{
    const double own = step->compute + step->update, noticeable = 0.1;
    return step->waited > noticeable * own ? step->waited + own : 0;
}

/* Times the loader after its prefetched batches are used up. */
static lt_status measure_loader(plan_profile *p, lt_trainer *t, const parts *middle)
{
    bench b;
    lt_batch batch;
    lt_status st = open_bench(&b, t, (int64_t)p->batch[0], p->workers);
    for (int i = 0; !st && i <= lt_loader_statistics(t->input.loader).capacity; i++)
        st = next_batch(t->input.loader, &batch);
    const double begin = lt_clock_seconds();
    int loads = 0;
    for (; !st && (loads < LOADS || lt_clock_seconds() - begin < load_seconds); loads++)
        st = next_batch(t->input.loader, &batch);
    const double alone = fair_core_share(p->ranks) * (lt_clock_seconds() - begin);
    p->base.load_per_sample = fmax(alone / (loads * p->batch[0]),
                                   loader_seconds_in_training(middle) / p->batch[p->batches > 1]);
    close_bench(&b);
    return st;
}

/* Records sizes of the model and the data: layers, width, bytes, samples. */
static lt_status read_model_sizes(plan_profile *p, const lt_trainer *t)
{
    const lt_model_facts *facts = lt_trainer_facts(t);
    const char *depth = lt_model_fact_text(facts, "depth");
    lt_model_cost cost;
    LT_TRY(lt_trainer_count_cost(t, &cost, &p->base.activation_bytes));
    p->base.layers = strtod(*depth ? depth : lt_model_fact_text(facts, "layers"), NULL);
    p->base.hidden = (double)cost.features;
    p->base.tokens = (double)cost.rows;
    p->base.vocabulary = t->input.train->tokens ? t->input.train->classes : 0;
    for (size_t i = 0; i < t->model.params.count; i++)
        if (lt_param_is_trained(t->model.params.item[i]))
            p->base.parameter_bytes += (double)lt_tensor_bytes(t->model.params.item[i]->value);
    p->samples = (double)lt_dataset_count(t->input.train);
    snprintf(p->program, sizeof p->program, "%s", t->line.choice.family->program);
    snprintf(p->model, sizeof p->model, "%s", facts->title);
    return LT_OK;
}

/* Measures steps with each batch size, and the loader; *middle: the parts of a step with the flags' batch size. */
static lt_status measure_model(plan_profile *p, lt_trainer *t, double seconds, parts *middle)
{
    choose_batch_sizes(p, t);
    LT_TRY(read_model_sizes(p, t));
    for (int i = 0; i < p->batches; i++) {
        parts found;
        const bool is_middle = i == (p->batches > 1);
        LT_TRY(measure_batch_size(p, t, p->batch[i], seconds / p->batches, is_middle, &found));
        p->seconds[i] = found.compute;
        *middle = is_middle ? found : *middle;
    }
    p->base.backward = middle->backward / middle->compute;
    p->base.step_seconds = p->step;
    LT_TRY(measure_loader(p, t, middle));
    return fit_compute(p);
}

/* --- The optimizer --- */

/* Distributes the measured seconds over Shampoo's blocks by their modelled costs. */
static lt_status share_seconds_over_blocks(plan_optimizer *o, const lt_optim *optim)
{
    lt_shampoo_block b;
    double update = 0, refresh = 0;
    while (lt_shampoo_settings(optim) && !lt_shampoo_block_at(optim, o->block_count, &b)) {
        update += b.step_ns;
        refresh += b.refresh_ns;
        o->block_count++;
    }
    LT_TRY(LT_ALLOC(&o->blocks, o->block_count));
    for (size_t i = 0; i < o->block_count; i++) {
        LT_TRY(lt_shampoo_block_at(optim, i, &b));
        o->blocks[i] =
            (lt_plan_block){.update = update > 0 ? o->update * b.step_ns / update : 0,
                            .refresh = refresh > 0 ? o->refresh * b.refresh_ns / refresh : 0,
                            .elements = lt_shape_count(b.shape)};
    }
    return LT_OK;
}

/* Adds an optimizer's measured costs. factor_frequency: the run's; if 1, each measured update updates the factors. */
static lt_status add_optimizer(plan_profile *p, const lt_trainer *t, const plan_config *c,
                               const parts *found, int64_t factor_frequency)
{
    const double factors = factor_frequency > 1 ? found->factors / (double)factor_frequency : 0;
    LT_TRY(LT_RESIZE(&p->optimizer, p->optimizers + 1));
    plan_optimizer *o = &p->optimizer[p->optimizers++];
    *o = (plan_optimizer){.block = c->setup.block,
                          .update = found->update + factors,
                          .refresh = found->roots * ROUND,
                          .state_bytes = (double)lt_optim_state_bytes(t->optim)};
    snprintf(o->name, sizeof o->name, "%s", c->setup.optim);
    snprintf(o->state, sizeof o->state, "%s", c->state);
    return share_seconds_over_blocks(o, t->optim);
}

/* --- The whole --- */

static lt_status open_optimizer(lt_trainer *t)
{
    arguments *a = &t->line.args;
    const lt_params *params = &t->model.params;
    LT_TRY(lt_trainer_open_optimizer(&t->optim, a, params, 0));
    LT_TRY(lt_param_groups_apply(params, t->optim, a->optim.lr, &a->groups));
    return a->training.amp == AMP_F16 ? lt_optim_scale_loss(t->optim, NULL) : LT_OK;
}

/* Opens device, data, model and optimizer as training does, for one rank without a run folder. */
static lt_status open_trainer_parts(lt_trainer *t)
{
    arguments *a = &t->line.args;
    a->ranks.dist = DIST_OFF;
    a->ranks.tensor_parallel = NULL;
    if (a->weights)
        snprintf(t->model.weights, sizeof t->model.weights, "%s", a->weights);
    LT_TRY(lt_trainer_open_device(t));
    LT_TRY(lt_trainer_open_data(t));
    LT_TRY(lt_trainer_open_model(t));
    LT_TRY(lt_params_freeze(&t->model.params, &a->groups.freeze, a->groups.freeze_bn));
    return open_optimizer(t);
}

/* Makes Shampoo refresh its roots once per round, as they are timed separately, and update its factors as often where
 * the run does not in each update; *factor_frequency: the run's. */
static lt_status shorten_refresh_periods(lt_trainer *t, int64_t *factor_frequency)
{
    const lt_shampoo_config *c = lt_shampoo_settings(t->optim);
    char round[PLAN_NAME];
    snprintf(round, sizeof round, "%d", ROUND);
    *factor_frequency = c ? c->factor_frequency : 1;
    if (!lt_options_applies(t->line.options, "precondition-frequency"))
        return LT_OK;
    LT_TRY(lt_options_set(t->line.options, "precondition-frequency", round));
    LT_TRY(lt_options_set(t->line.options, "start-preconditioning-step", round));
    LT_TRY(
        lt_options_set(t->line.options, "factor-frequency", *factor_frequency > 1 ? round : "1"));
    LT_TRY(lt_options_set(t->line.options, "refresh", "reference"));
    LT_TRY(lt_optim_flags_resolve(&t->line.args.optim, t->line.options));
    lt_optim_free(&t->optim);
    return open_optimizer(t);
}

lt_status lt_plan_measure_step_parts(plan_profile *p, lt_trainer *t, double seconds)
{
    const double begin = lt_clock_seconds();
    plan_config c;
    parts found = {0};
    int64_t factor_frequency;
    LT_TRY(lt_plan_read_config(&c, &t->line, 1, 1));
    LT_TRY(open_trainer_parts(t));
    LT_TRY(shorten_refresh_periods(t, &factor_frequency));
    p->samples_hash = c.samples;
    if (!p->batches)
        LT_TRY(measure_model(p, t, seconds, &found));
    else
        LT_TRY(measure_batch_size(p, t, p->batch[0], seconds, false, &found));
    LT_TRY(add_optimizer(p, t, &c, &found, factor_frequency));
    p->spent += lt_clock_seconds() - begin;
    return LT_OK;
}

lt_status lt_plan_worker_run(lt_trainer *t, const plan_workers *workers, int ready)
{
    bench b;
    parts found;
    LT_TRY(open_trainer_parts(t));
    lt_status st = open_bench(&b, t, t->line.args.batch_size, workers);
    for (int64_t i = 0; !st; i++) {
        st = time_step_parts(&b, &found);
        if (i + 1 == WARM && write(ready, "", 1) != 1)
            st = lt_fail(LT_E_IO, "the measuring process is gone");
    }
    return st;
}

void lt_plan_profile_clear(plan_profile *p)
{
    for (size_t i = 0; i < p->optimizers; i++)
        lt_free(p->optimizer[i].blocks);
    lt_free(p->optimizer);
    lt_free(p->bucket);
    *p = (plan_profile){0};
}

const plan_optimizer *lt_plan_find_optimizer(const plan_profile *p, const plan_config *c)
{
    for (const plan_optimizer *o = p->optimizer; o < p->optimizer + p->optimizers; o++)
        if (!strcmp(o->name, c->setup.optim) && o->block == c->setup.block
            && !strcmp(o->state, c->state))
            return o;
    return NULL;
}

lt_plan_profile lt_plan_profile_with_optimizer(const plan_profile *p, const plan_optimizer *o)
{
    lt_plan_profile all = p->base;
    all.update = o->update;
    all.refresh = o->refresh;
    all.state_bytes = o->state_bytes;
    all.block = o->blocks;
    all.blocks = o->block_count;
    return all;
}
