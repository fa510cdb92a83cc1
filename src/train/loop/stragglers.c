/* Backup workers and deadlines in steps (lather/stragglers.h). Latencies of micro-batches are recorded over a few
 * steps without a deadline; then all ranks gather them and choose from the same numbers. */

#include "stragglers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "contributors.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Steps. The first one, which makes buckets and warms caches, is not recorded. A given deadline is checked
 * earlier. */
enum { WARM = 1, RECORDED = 16, CHECKED = 4, NUMBER = 24 };

struct lt_stragglers {
    lt_straggler_config config;
    lt_data_parallel *dp;
    lt_comm *comm;
    int rank, ranks, grad_accum;
    lt_contributors *given; /* contributors to repeat, on rank 0; NULL if not given */

    double deadline; /* seconds; 0: no deadline */
    double began;    /* time at which this step began */
    double before;   /* seconds of its micro-batches so far */
    int computed;
    int to_record; /* steps to record, including those to warm up; 0: none */
    int recorded;  /* steps recorded in own */
    /* [RECORDED][grad_accum + 1] latencies, then seconds of the step; of this rank and of all */
    double *own, *all;
    lt_drop_plan plan;
    bool has_plan, same_failure;

    lt_tensor *counts; /* f64 [ranks]: micro-batches that each computed; NULL without a deadline */
    lt_request *counting;
    double *count; /* [ranks] */
    char *text;
};

void lt_stragglers_set_dp_config(const lt_straggler_config *c, int ranks, int64_t grad_accum,
                                 lt_data_parallel_config *out)
{
    out->needed = c->backup_workers ? ranks - c->backup_workers : 0;
    out->micro_batches = c->drop_compute ? grad_accum : 0;
}

/* --- Life cycle --- */

lt_status lt_stragglers_check(const lt_straggler_config *c, int ranks, int64_t grad_accum)
{
    if (c->backup_workers < 0 || c->backup_workers >= ranks)
        return lt_fail(LT_E_ARG,
                       "--backup-workers %d of %d ranks: an update needs at least one rank: use at "
                       "most %d",
                       c->backup_workers, ranks, ranks - 1);
    if (c->backup_workers && c->drop_compute)
        return lt_fail(LT_E_ARG,
                       "--backup-workers %d and --drop-compute contradict each other: "
                       "one drops whole ranks, the other single micro-batches",
                       c->backup_workers);
    if (c->contributors && !c->backup_workers)
        return lt_fail(LT_E_ARG, "--contributors %s: needs --backup-workers", c->contributors);
    if (c->drop_compute && grad_accum < 2)
        return lt_fail(LT_E_ARG,
                       "--drop-compute: an update has %lld micro-batch, and the first one is "
                       "always computed; use --grad-accum for more",
                       (long long)grad_accum);
    return LT_OK;
}

static lt_status allocate_straggler_records(lt_stragglers *s)
{
    const size_t steps = RECORDED * ((size_t)s->grad_accum + 1), ranks = (size_t)s->ranks;
    s->text = lt_alloc(ranks, NUMBER);
    if (!s->text)
        return LT_E_NOMEM;
    if (s->config.contributors && !s->rank)
        return lt_contributors_read(&s->given, s->config.contributors, s->ranks,
                                    s->ranks - s->config.backup_workers);
    if (!s->config.drop_compute)
        return LT_OK;
    s->own = lt_alloc(steps, sizeof *s->own);
    s->all = lt_alloc(steps * ranks, sizeof *s->all);
    s->count = lt_alloc(ranks, sizeof *s->count);
    s->deadline = s->config.deadline;
    lt_stragglers_record_again(s);
    if (!s->own || !s->all || !s->count)
        return LT_E_NOMEM;
    return lt_tensor_new(&s->counts, s->comm->device, LT_F64, LT_SHAPE((int64_t)ranks));
}

lt_status lt_stragglers_new(lt_stragglers **out, const lt_straggler_config *config,
                            lt_data_parallel *dp, lt_comm *comm, int64_t grad_accum)
{
    lt_stragglers *s = NULL;
    LT_TRY(LT_ALLOC(&s, 1));
    s->config = *config;
    s->dp = dp;
    s->comm = comm;
    s->rank = lt_comm_rank(comm);
    s->ranks = lt_comm_size(comm);
    s->grad_accum = (int)grad_accum;
    lt_status st = allocate_straggler_records(s);
    if (st)
        lt_stragglers_free(&s);
    else
        *out = s;
    return st;
}

void lt_stragglers_free(lt_stragglers **stragglers)
{
    lt_stragglers *s = *stragglers;
    *stragglers = NULL;
    if (!s)
        return;
    if (s->counting)
        (void)!lt_request_wait(&s->counting);
    lt_tensor_free(&s->counts);
    lt_contributors_free(&s->given);
    lt_free(s->own);
    lt_free(s->all);
    lt_free(s->count);
    lt_free(s->text);
    lt_free(s);
}

void lt_stragglers_record_again(lt_stragglers *s)
{
    if (!s->config.drop_compute || s->to_record || (s->config.deadline > 0 && s->recorded))
        return;
    s->to_record = WARM + (s->config.deadline > 0 ? CHECKED : RECORDED);
    s->recorded = 0;
    s->deadline = s->config.deadline;
}

/* --- A step --- */

static lt_status find_given_contributors(const lt_stragglers *s, int64_t step, const bool **set)
{
    *set = s->given ? lt_contributors_of(s->given, step) : NULL;
    if (s->given && !*set)
        return lt_fail(LT_E_ARG, "--contributors %s: has no record of step %lld",
                       lt_contributors_path(s->given), (long long)step);
    return LT_OK;
}

lt_status lt_stragglers_begin(lt_stragglers *s, int64_t step)
{
    const bool *set;
    s->began = lt_clock_seconds();
    s->before = 0;
    s->computed = 0;
    LT_TRY(find_given_contributors(s, step, &set));
    return lt_data_parallel_begin_update(s->dp, step, set);
}

bool lt_stragglers_may_begin(const lt_stragglers *s, int64_t micro)
{
    if (lt_data_parallel_is_late(s->dp))
        return false;
    return !micro || !(s->deadline > 0) || s->before < s->deadline;
}

bool lt_stragglers_drops_ranks(const lt_stragglers *s)
{
    return !s->counts;
}

static bool must_record_latency(const lt_stragglers *s)
{
    return s->to_record && s->to_record <= (s->config.deadline > 0 ? CHECKED : RECORDED);
}

static double *latency_row(const lt_stragglers *s)
{
    return s->own + (size_t)s->recorded * ((size_t)s->grad_accum + 1);
}

lt_status lt_stragglers_note_computed(lt_stragglers *s, int64_t count)
{
    s->computed = (int)count;
    if (!s->counts)
        return LT_OK;
    LT_TRY(lt_device_sync(s->comm->device));
    const double now = lt_clock_seconds() - s->began;
    if (must_record_latency(s))
        latency_row(s)[count - 1] = now - s->before;
    s->before = now;
    return LT_OK;
}

bool lt_stragglers_uses_gradients(const lt_stragglers *s)
{
    const bool *set = lt_data_parallel_participants(s->dp);
    return !set || set[s->rank];
}

lt_status lt_stragglers_begin_exchange(lt_stragglers *s)
{
    if (!s->counts)
        return LT_OK;
    memset(s->count, 0, (size_t)s->ranks * sizeof *s->count);
    s->count[s->rank] = s->computed;
    LT_TRY(lt_tensor_write(s->counts, s->count, lt_tensor_bytes(s->counts)));
    return lt_comm_allreduce_begin(s->comm, s->counts, LT_REDUCE_SUM, &s->counting);
}

/* --- The deadline --- */

/* Rearranges s->all, [ranks][steps][grad_accum + 1], to [steps][ranks][grad_accum] latencies; seconds of steps are
 * rank 0's. Returns the mean seconds of a step beyond its slowest rank. */
static double rearrange_latencies(const lt_stragglers *s, double *latency)
{
    const size_t micro = (size_t)s->grad_accum, row = micro + 1;
    double rest = 0;
    for (int u = 0; u < s->recorded; u++) {
        double longest = 0;
        for (int r = 0; r < s->ranks; r++) {
            const double *from = s->all + ((size_t)r * (size_t)s->recorded + (size_t)u) * row;
            double sum = 0;
            for (size_t m = 0; m < micro; m++) {
                *latency++ = from[m];
                sum += from[m];
            }
            longest = sum > longest ? sum : longest;
        }
        rest += s->all[(size_t)u * row + micro] - longest;
    }
    return rest > 0 ? rest / s->recorded : 0;
}

static lt_status choose_deadline(lt_stragglers *s)
{
    const size_t count = (size_t)s->recorded * (size_t)s->ranks * (size_t)s->grad_accum;
    double *latency = NULL;
    LT_TRY(LT_ALLOC(&latency, count));
    const lt_drop_latencies all = {.rest = rearrange_latencies(s, latency),
                                   .seconds = latency,
                                   .updates = s->recorded,
                                   .ranks = s->ranks,
                                   .micro_batches = s->grad_accum};
    s->plan = lt_drop_choose(&all);
    s->has_plan = true;
    s->deadline = s->plan.deadline;
    lt_free(latency);
    return LT_OK;
}

/* Fails if the deadline is below every first micro-batch, which is computed in any case. */
static lt_status check_deadline(lt_stragglers *s)
{
    const size_t row = (size_t)s->grad_accum + 1;
    const int rows = s->recorded * s->ranks;
    double shortest = s->all[0];
    int rank = 0;
    for (int i = 1; i < rows; i++)
        if (s->all[(size_t)i * row] < shortest) {
            shortest = s->all[(size_t)i * row];
            rank = i / s->recorded;
        }
    if (s->deadline >= shortest)
        return LT_OK;
    s->same_failure = true;
    return lt_fail(LT_E_ARG,
                   "--drop-compute %g: is shorter than one micro-batch; the fastest took %g "
                   "seconds, on rank %d",
                   s->deadline, shortest, rank);
}

static lt_status gather_latencies_and_decide(lt_stragglers *s)
{
    const int64_t own = (int64_t)s->recorded * (s->grad_accum + 1) * (int64_t)sizeof *s->own;
    int64_t *bytes = NULL;
    LT_TRY(LT_ALLOC(&bytes, s->ranks));
    for (int r = 0; r < s->ranks; r++)
        bytes[r] = own;
    lt_status st = lt_comm_allgather_host(s->comm, s->own, bytes, s->all);
    lt_free(bytes);
    if (st)
        return st;
    return s->config.deadline > 0 ? check_deadline(s) : choose_deadline(s);
}

lt_status lt_stragglers_end_exchange(lt_stragglers *s, double seconds)
{
    if (!s->counts)
        return LT_OK;
    LT_TRY(lt_request_wait(&s->counting));
    LT_TRY(lt_tensor_read(s->counts, s->count, lt_tensor_bytes(s->counts)));
    if (!s->to_record)
        return LT_OK;
    if (must_record_latency(s)) {
        latency_row(s)[s->grad_accum] = seconds;
        s->recorded++;
    }
    return --s->to_record ? LT_OK : gather_latencies_and_decide(s);
}

/* --- Results --- */

const char *lt_stragglers_format_record(const lt_stragglers *s)
{
    const bool *set = lt_data_parallel_participants(s->dp);
    size_t used = 0;
    s->text[0] = 0;
    for (int r = 0; r < s->ranks; r++)
        if (s->counts || (set && set[r]))
            used += (size_t)snprintf(s->text + used, NUMBER, "%s%d", used ? " " : "",
                                     s->counts ? (int)s->count[r] : r);
    return s->text;
}

const char *lt_stragglers_event(const lt_stragglers *s)
{
    return s->counts ? "micro_batches" : "contributors";
}

const char *lt_stragglers_text_key(const lt_stragglers *s)
{
    return s->counts ? "computed" : "ranks";
}

double lt_stragglers_count_dropped(const lt_stragglers *s)
{
    if (!s)
        return (double)NAN;
    const double all = (double)s->ranks * s->grad_accum;
    return s->counts ? all - (double)lt_data_parallel_total_computed(s->dp)
                     : (double)s->config.backup_workers * s->grad_accum;
}

double lt_stragglers_deadline(const lt_stragglers *s)
{
    return s && s->deadline > 0 ? s->deadline : (double)NAN;
}

const lt_drop_plan *lt_stragglers_take_new_plan(lt_stragglers *s)
{
    const bool has = s->has_plan;
    s->has_plan = false;
    return has ? &s->plan : NULL;
}

bool lt_stragglers_same_failure(const lt_stragglers *s)
{
    return s->same_failure;
}
