/* Candidates: every combination of --vary on every number of ranks, their predicted cost, rejections with reasons, the
 * ranking. */

#include "base/alloc.h"
#include "base/os.h"
#include "planner.h"
#include "train/loop/mesh.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CANDIDATES = 20000 };
static const double hour = 3600, gib = 0x1p30;

/* --- Cost by the system model --- */

static void reject_candidate(plan_candidate *c, const char *format, ...) LT_PRINTF(2, 3);
static void reject_candidate(plan_candidate *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
}

static lt_cost_cluster make_cost_cluster(const plan *p, const lt_plan_setup *u)
{
    lt_cost_cluster cluster = p->request.machine.cluster;
    cluster.per_node = u->ranks_per_node;
    cluster.nodes = u->ranks / u->ranks_per_node;
    for (size_t i = 0; i < PLAN_UNITS && u->exchange.reducer; i++)
        if (lt_cost_of_reducer(i) == u->exchange.reducer)
            cluster.unit = p->profile.unit[i];
    cluster.copy = p->profile.copy;
    return cluster;
}

/* Errors: LT_E_ARG (its optimizer was not measured; those of lt_plan_predict()). */
static lt_status predict_config_cost(const plan *p, const plan_config *config, lt_plan_cost *out)
{
    const plan_optimizer *o = lt_plan_find_optimizer(&p->profile, config);
    if (!o)
        return lt_fail(LT_E_ARG,
                       "the profile has no optimizer %s of block size %lld%s%s, and Ernest's model "
                       "needs runs on %d different numbers of ranks, found %d",
                       config->setup.optim, (long long)config->setup.block,
                       *config->state ? ", " : "", config->state, LT_TIME_TERMS,
                       lt_plan_count_rank_counts(&p->runs, config, lt_plan_is_timed));
    const lt_plan_profile profile = lt_plan_profile_with_optimizer(&p->profile, o);
    lt_plan_machine machine = p->request.machine;
    machine.cluster = make_cost_cluster(p, &config->setup);
    if (p->options.one_machine)
        machine.slots /= machine.cluster.nodes;
    return lt_plan_predict(out, &profile, &machine, &config->setup);
}

/* Predicts a step by Ernest's model of runs, if the profile lacks the optimizer; else false. Memory is unknown then,
 * and so are the samples that an update loses to a deadline. */
static bool predict_step_from_runs(const plan *p, const plan_config *config, lt_plan_cost *out)
{
    if (lt_plan_find_optimizer(&p->profile, config) || config->setup.deadline > 0)
        return false;
    const double seconds = lt_plan_ernest_seconds(&p->runs, config);
    if (!isfinite(seconds))
        return false;
    *out = (lt_plan_cost){
        .seconds = seconds, .samples = (double)config->batch, .memory = (double)NAN, .fits = true};
    return true;
}

/* --- Verdicts --- */

static bool has_reducer_verdict(const lt_plan_setup *u)
{
    return u->exchange.scheme == LT_COST_REDUCER && u->exchange.reducer->verdict;
}

/* Compares a tensor-parallel mesh with data parallelism by bytes only: over equal links, what moves more bytes is
 * slower. Publications on such meshes only compare them with each other. */
lt_status lt_plan_mesh_verdict(lt_cost_verdict *out, const lt_mesh_config *mesh, double tokens,
                               double hidden)
{
    lt_mesh_traffic one, two, all;
    LT_TRY(lt_mesh_compute_traffic(mesh, 1, hidden, 1, &one));
    LT_TRY(lt_mesh_compute_traffic(mesh, 2, hidden, 1, &two));
    LT_TRY(lt_mesh_compute_traffic(mesh, tokens, hidden, 1, &all));
    const double of_token = two.mesh - one.mesh,
                 bound = of_token > 0 ? 1 + (one.data_parallel - one.mesh) / of_token : 0;
    lt_cost_verdict v = {.value = tokens, .bound = fmax(bound, 0)};
    v.pays = all.mesh < all.data_parallel;
    snprintf(v.why, sizeof v.why,
             "a rank receives %.4g elements per layer, with data parallelism over as many ranks "
             "%.4g: %dx%dx%d pays below %.0f tokens per replica (%.3g times the width), and there "
             "are %.0f",
             all.mesh, all.data_parallel, mesh->rows, mesh->columns, mesh->depth, v.bound,
             v.bound / hidden, tokens);
    *out = v;
    return LT_OK;
}

/* Compares the bytes of tensor parallelism or compression with those of plain data parallelism. */
static lt_status compare_bytes_with_plain(const plan *p, plan_candidate *c)
{
    const lt_plan_setup *u = &c->config.setup;
    const lt_plan_profile *f = &p->profile.base;
    const lt_cost_cluster cluster = make_cost_cluster(p, u);
    int64_t elements = 0;
    for (size_t i = 0; i < f->buckets; i++)
        elements += f->bucket[i].elements;
    if (u->mesh.data && f->hidden > 0)
        return lt_plan_mesh_verdict(&c->verdict, &u->mesh,
                                    (double)(u->batch_size * u->grad_accum) * f->tokens, f->hidden);
    if (has_reducer_verdict(u))
        return u->exchange.reducer->verdict(&c->verdict, &cluster, elements, u->exchange.number,
                                            u->exchange.element_bytes);
    return LT_OK;
}

/* Makes the config without tensor parallelism or compression, with the same global batch and ranks, and --allreduce
 * auto. false: a replica's batch is no multiple of its ranks, or the run has one node, which compresses nothing. */
static bool make_plain_config(const plan_config *config, plan_config *plain)
{
    *plain = *config;
    lt_plan_setup *u = &plain->setup;
    lt_cost_scheme *scheme = &u->exchange.scheme;
    const int replicas = u->mesh.data, ranks = replicas ? u->ranks / replicas : 1;
    const bool has_nodes = u->ranks > u->ranks_per_node;
    if (*scheme == LT_COST_FLAT || has_reducer_verdict(u))
        *scheme = has_nodes && u->ranks_per_node > 1 && !u->backup_workers ? LT_COST_TWO_LEVEL
                                                                           : LT_COST_FLAT;
    if (!replicas)
        return has_nodes;
    u->batch_size /= ranks;
    u->mesh = (lt_mesh_config){0};
    return config->setup.batch_size % ranks == 0;
}

/* Rejects a candidate that moves more bytes than its plain counterpart, if that fits into memory and is no slower:
 * tensor parallelism within a node may move more over better links. A measured step overrules the verdict. ADR 0042. */
static void reject_by_byte_verdict(const plan *p, plan_candidate *c)
{
    const double rounding = 1e-9;
    plan_config plain;
    lt_plan_cost cost;
    if (!*c->verdict.why || c->verdict.pays || c->step.basis == PLAN_MEASURED
        || !make_plain_config(&c->config, &plain) || predict_config_cost(p, &plain, &cost)
        || !cost.fits || cost.seconds > c->cost.seconds * (1 + rounding))
        return;
    reject_candidate(c, "%s; without it a step is predicted to take %.3g s, with it %.3g s",
                     c->verdict.why, cost.seconds, c->cost.seconds);
}

/* --- Estimates --- */

/* Estimates the steps by runs; if none reached the goal, by pilots; with --pilots but without any pilot, by the
 * flags. */
static plan_estimate estimate_steps_to_goal(const plan *p, const plan_config *config)
{
    const plan_table *t = &p->table;
    plan_estimate of_batch, e = lt_plan_estimate_steps(&p->runs, &p->request.goal, config);
    if (e.basis != PLAN_UNKNOWN)
        return e;
    if (!config->is_lossless)
        (void)lt_plan_estimate_lossy_steps(p, config, &e);
    else if (p->pilots.has_classes)
        (void)lt_plan_estimate_class_steps(p, config, &e);
    else if (p->request.pilot_share > 0
             && lt_plan_convert_steps_to_batch(&of_batch, &p->runs, config, t->least_steps,
                                               t->least_batch))
        e = lt_plan_make_estimate(of_batch.value, of_batch.basis,
                                  "as the flags say, of batch %g%.100s", t->least_batch,
                                  of_batch.why);
    return e;
}

static plan_estimate estimate_step_seconds(const plan *p, plan_candidate *c)
{
    if (c->is_by_runs)
        (void)predict_step_from_runs(p, &c->config, &c->cost);
    plan_estimate e = lt_plan_estimate_step(
        &p->runs, &c->config, (plan_modelled){c->cost.seconds, c->cost.exposed, c->cost.load});
    if (c->is_by_runs && e.basis != PLAN_MEASURED)
        snprintf(e.why, sizeof e.why,
                 "Ernest's model of runs alone, as the profile does not have %s",
                 c->config.setup.optim);
    return e;
}

static void estimate_candidate(const plan *p, plan_candidate *c)
{
    const plan_config *config = &c->config;
    c->step = estimate_step_seconds(p, c);
    c->ernest = lt_plan_ernest_seconds(&p->runs, config);
    c->steps = *p->request.goal.metric ? estimate_steps_to_goal(p, config)
                                       : lt_plan_make_estimate(lt_plan_steps_from_flags(config),
                                                               PLAN_MEASURED, "as the flags say");
    c->epoch = c->step.value * (double)config->epoch_steps;
    c->seconds = c->step.value * c->steps.value;
    c->price = p->options.price > 0 ? p->options.price * config->setup.ranks * c->seconds / hour
                                    : (double)NAN;
}

static void reject_if_infeasible(const plan *p, plan_candidate *c)
{
    const plan_goal *g = &p->request.goal;
    const double beyond = /* while pilots may follow, one may still measure this step */
        fmax(p->pilots.racing ? 1 : c->step.beyond, c->steps.beyond);
    *c->why = 0;
    if (!c->cost.fits)
        reject_candidate(c, "a rank needs %.3g GiB, and has %.3g", c->cost.memory / gib,
                         p->request.machine.memory / gib);
    else if (beyond > PLAN_BEYOND && !p->options.extrapolate)
        reject_candidate(
            c, "%.3g times beyond what runs measured, more than %d: --extrapolate accepts it",
            beyond, PLAN_BEYOND);
    else if (p->runs.most && p->pilots.count && !p->pilots.racing && !p->options.extrapolate
             && c->config.setup.ranks > PLAN_BEYOND * p->runs.most)
        reject_candidate(
            c, "more than twice the %d ranks of runs and pilots: --extrapolate accepts it",
            p->runs.most);
    else if (g->deadline > 0 && c->seconds > g->deadline)
        reject_candidate(c, "takes %.3g h, and the deadline is %.3g h", c->seconds / hour,
                         g->deadline / hour);
    else
        reject_by_byte_verdict(p, c);
}

/* --- Enumeration --- */

static lt_status check_global_batch(const plan *p, const plan_config *config)
{
    const int64_t wanted = p->options.global_batch;
    if (!wanted || config->batch == wanted)
        return LT_OK;
    return lt_fail(LT_E_ARG, "--global-batch %lld: the ranks have %lld together", (long long)wanted,
                   (long long)config->batch);
}

/* Counts the updates of an epoch as training does: drops an incomplete one; fails if the data is less than one. */
static lt_status count_epoch_steps(const plan *p, plan_config *config, const command_line *line)
{
    const lt_plan_setup *u = &config->setup;
    int64_t batches;
    LT_TRY(lt_trainer_count_batches(&batches, line, (int64_t)p->profile.samples,
                                    u->mesh.data ? u->mesh.data : u->ranks));
    config->epoch_steps = batches / u->grad_accum;
    return LT_OK;
}

static lt_status predict_candidate(const plan *p, plan_candidate *c, lt_trainer *t, int ranks)
{
    const command_line *line = &t->line;
    LT_TRY(lt_plan_parse_candidate(p, c->choice, t));
    LT_TRY(lt_plan_read_config(&c->config, line, ranks, p->request.per_node));
    LT_TRY(lt_plan_check_ranks(&c->config, &line->args));
    LT_TRY(count_epoch_steps(p, &c->config, line));
    LT_TRY(check_global_batch(p, &c->config));
    c->is_by_runs = predict_step_from_runs(p, &c->config, &c->cost);
    if (!c->is_by_runs)
        LT_TRY(predict_config_cost(p, &c->config, &c->cost));
    return compare_bytes_with_plain(p, c);
}

/* Predicts a candidate's cost; an error rejects it. */
static void predict_or_reject(const plan *p, plan_candidate *c, int ranks)
{
    lt_trainer t = {0};
    c->is_possible = !predict_candidate(p, c, &t, ranks);
    c->config.setup.ranks = ranks;
    if (!c->is_possible)
        reject_candidate(c, "%s", lt_error_message());
    lt_trainer_close(&t);
}

bool lt_plan_next_choice(const plan_request *r, int *choice)
{
    for (int i = 0; i < r->axes; i++) {
        if (++choice[i] < r->axis[i].values)
            return true;
        choice[i] = 0;
    }
    return false;
}

/* Returns true if an earlier candidate has the same config: --allreduce auto and two-level may be the same. */
static bool is_duplicate(const plan_table *t, const plan_candidate *c)
{
    const plan_config *a = &c->config;
    for (size_t i = 0; i < t->count && !*c->why; i++) {
        const plan_config *b = &t->item[i].config;
        if (!*t->item[i].why && a->setup.ranks == b->setup.ranks
            && a->setup.batch_size == b->setup.batch_size
            && a->setup.grad_accum == b->setup.grad_accum && !strcmp(a->label, b->label)
            && a->convergence == b->convergence)
            return true;
    }
    return false;
}

static lt_status make_candidates(plan *p)
{
    const plan_request *r = &p->request;
    plan_table *t = &p->table;
    double count = r->rank_counts;
    for (int i = 0; i < r->axes; i++)
        count *= r->axis[i].values;
    if (count > MOST_CANDIDATES)
        return lt_fail(LT_E_ARG, "--vary: %.0f candidates, at most %d are possible", count,
                       MOST_CANDIDATES);
    LT_TRY(LT_ALLOC(&t->item, count + 1));
    for (int k = 0; k < r->rank_counts; k++) {
        int choice[PLAN_AXES] = {0};
        do {
            plan_candidate *c = &t->item[t->count];
            *c = (plan_candidate){0};
            memcpy(c->choice, choice, sizeof choice);
            predict_or_reject(p, c, r->ranks[k]);
            t->count += !is_duplicate(t, c);
        } while (lt_plan_next_choice(r, choice));
    }
    return LT_OK;
}

/* --- Ranking --- */

double lt_plan_objective(const plan *p, const plan_candidate *c)
{
    const double seconds = isfinite(c->seconds) ? c->seconds : c->epoch;
    return p->request.goal.deadline > 0 ? seconds * c->config.setup.ranks : seconds;
}

/* Sorts accepted candidates first, then those with known seconds; of the others the lossless first, as an epoch of a
 * lossy candidate is worth less. */
static int compare_candidates(const void *x, const void *y, void *p)
{
    const plan_candidate *a = x, *b = y;
    if (!*a->why != !*b->why)
        return *a->why ? 1 : -1;
    if (isfinite(a->seconds) != isfinite(b->seconds))
        return isfinite(a->seconds) ? -1 : 1;
    if (!isfinite(a->seconds) && a->config.is_lossless != b->config.is_lossless)
        return a->config.is_lossless ? -1 : 1;
    const double first = lt_plan_objective(p, a), second = lt_plan_objective(p, b);
    if (first > second || first < second)
        return first > second ? 1 : -1;
    return a->config.setup.ranks - b->config.setup.ranks;
}

int lt_plan_format_rejection(const plan_table *t, size_t i, char *text, size_t size)
{
    const plan_config *config = &t->item[i].config;
    char batch[PLAN_NAME] = "";
    int times = 0;
    for (size_t k = t->kept; k < t->count; k++)
        if (!strcmp(t->item[k].why, t->item[i].why) && times++ == 0 && k != i)
            return 0;
    if (config->batch)
        snprintf(batch, sizeof batch, ", batch %lld", (long long)config->batch);
    return snprintf(text, size, "%d: %d ranks%s%s%s%s: %s", times, config->setup.ranks, batch,
                    *config->label ? ", " : "", config->label, times > 1 ? " and others" : "",
                    t->item[i].why);
}

/* Fails, naming each reason for a rejection once, with its count; reasons that do not fit in are only counted. */
static lt_status fail_no_candidate_left(const plan_table *t)
{
    enum { MOST = 900 }; /* bytes; a message has 1,024 */
    char text[MOST] = "", reason[PLAN_REASON];
    size_t at = 0;
    int more = 0;
    for (size_t i = 0; i < t->count; i++) {
        const int bytes = lt_plan_format_rejection(t, i, reason, sizeof reason);
        if (bytes && (more || at + strlen("; ") + (size_t)bytes >= sizeof text))
            more++;
        else if (bytes)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? "; " : "", reason);
    }
    if (more)
        snprintf(reason, sizeof reason, "%sand %d other reasons", at ? "; " : "", more);
    return lt_fail(LT_E_ARG, "no candidate is left of %zu: %s%s", t->count, text,
                   more ? reason : "");
}

/* Without pilots or --extrapolate, rejects more than twice the ranks of the runs of --from. */
static lt_status check_ranks_near_runs(const plan *p)
{
    const int most = p->request.ranks[p->request.rank_counts - 1];
    if (!p->runs.count || p->options.extrapolate || p->request.pilot_share > 0
        || most <= PLAN_BEYOND * p->runs.most)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--ranks %d: more than twice the %d ranks of the runs of --from: --extrapolate "
                   "accepts it",
                   most, p->runs.most);
}

static lt_status check_run_length_known(const plan *p)
{
    const training_options *o = &p->trainer->line.args.training;
    if (*p->request.goal.metric || o->epochs > 0 || o->max_steps > 0)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--goal deadline: the length of the run is unknown: add a metric, --epochs or "
                   "--max-steps");
}

static void predict_run_step_seconds(plan *p)
{
    lt_plan_cost cost;
    for (plan_run *run = p->runs.run; run < p->runs.run + p->runs.count; run++) {
        const bool is_known = !predict_config_cost(p, &run->config, &cost) && cost.seconds > 0;
        run->modelled = is_known ? (plan_modelled){cost.seconds, cost.exposed, cost.load}
                                 : (plan_modelled){run->seconds, 0, 0};
    }
}

static void estimate_all_candidates(plan *p)
{
    plan_table *t = &p->table;
    predict_run_step_seconds(p);
    t->least_batch = HUGE_VAL;
    for (size_t i = 0; i < t->count; i++)
        if (t->item[i].is_possible && (double)t->item[i].config.batch < t->least_batch) {
            t->least_batch = (double)t->item[i].config.batch;
            t->least_steps = lt_plan_steps_from_flags(&t->item[i].config);
        }
    for (int lossless = 1; lossless >= 0; lossless--) /* lossy estimates need the lossless ones */
        for (size_t i = 0; i < t->count; i++)
            if (t->item[i].is_possible && t->item[i].config.is_lossless == lossless) {
                estimate_candidate(p, &t->item[i]);
                reject_if_infeasible(p, &t->item[i]);
            }
}

lt_status lt_plan_rank_candidates(plan *p)
{
    plan_table *t = &p->table;
    estimate_all_candidates(p);
    lt_os_sort(t->item, t->count, sizeof *t->item, compare_candidates, p);
    t->kept = 0;
    while (t->kept < t->count && !*t->item[t->kept].why)
        t->kept++;
    t->is_known = t->kept && isfinite(t->item[0].seconds);
    return t->kept ? LT_OK : fail_no_candidate_left(t);
}

lt_status lt_plan_choose(plan *p)
{
    LT_TRY(check_run_length_known(p));
    LT_TRY(check_ranks_near_runs(p));
    LT_TRY(make_candidates(p));
    return lt_plan_rank_candidates(p);
}
