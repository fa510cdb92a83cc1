/* A share of the step's time for new roots: budget.h, docs/adr/0055.
 *
 * Behind the first roots, which all blocks get at once, one interval of precondition_frequency steps is timed: in
 * it every block gets new roots once. Its seconds of roots and its median step without them, of the slowest rank,
 * say how long intervals are from then on. That number is state: a run that is resumed repeats it. */

#include "optim/shampoo/budget.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "optim/shampoo/refresh.h"
#include "optim/shampoo/root_task.h"

#include "lather/comm.h"
#include "lather/log.h"

#include <inttypes.h>
#include <math.h>

int64_t lt_budget_interval(double r, double t, double budget, int64_t multiple)
{
    const double least = r * (1 - budget) / (budget * fmax(t, 1e-9));
    const int64_t most = LT_LONGEST_INTERVAL / multiple * multiple;
    const double f = ceil(least / (double)multiple) * (double)multiple;
    return (int64_t)fmax(fmin(f, (double)most), (double)multiple);
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double lt_budget_median(double *x, int64_t count)
{
    qsort(x, (size_t)count, sizeof *x, by_size);
    return x[count / 2];
}

/* Of each number, over all ranks. */
static lt_status largest(const lt_optim *o, double *value, int64_t count)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    const size_t bytes = (size_t)count * sizeof *value;
    if (!o->shard)
        return LT_OK;
    LT_TRY(lt_tensor_new(&t, o->device, LT_F64, LT_SHAPE(count)));
    lt_status st = lt_tensor_write(t, value, bytes);
    if (!st)
        st = lt_comm_allreduce_begin(o->shard->config.comm, t, LT_REDUCE_MAX, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(t, value, bytes);
    lt_tensor_free(&t);
    return st;
}

static lt_status use(lt_shampoo *s)
{
    if (s->config.precondition_frequency == s->budget.interval)
        return LT_OK;
    s->config.precondition_frequency = s->budget.interval;
    return lt_shampoo_stagger(s, lt_shampoo_batch_elements(s->base.device));
}

static void tell(const lt_shampoo *s, double r, double t)
{
    const lt_budget *b = &s->budget;
    const double share = r / ((double)b->interval * t + r), wanted = s->config.precondition_budget;
    const bool missed = share > wanted * (1 + 1e-9);
    lt_log(missed ? LT_LOG_WARN : LT_LOG_INFO, "optim",
           "shampoo: new roots every %" PRId64 " updates are %.3g %% of the time: all of them take "
           "%.3g s, an update without them %.3g s; precondition_budget is %.3g %%%s",
           b->interval, 100 * share, r, t, 100 * wanted,
           missed ? ", which no interval meets: this is the least that it can do" : "");
}

static lt_status choose(lt_shampoo *s)
{
    lt_budget *b = &s->budget;
    enum { ROOTS, OTHER, INTERVAL, NUMBERS };
    double value[NUMBERS] = {[ROOTS] = b->roots, [OTHER] = lt_budget_median(b->other, b->count)};
    lt_free(b->other);
    b->other = NULL;
    value[INTERVAL] = (double)lt_budget_interval(
        value[ROOTS], value[OTHER], s->config.precondition_budget, s->config.factor_frequency);
    LT_TRY(largest(&s->base, value, NUMBERS));
    b->interval = (int64_t)value[INTERVAL];
    tell(s, value[ROOTS], value[OTHER]);
    return use(s);
}

/* The step before this one, which took that long. */
static lt_status add(lt_shampoo *s, double seconds)
{
    lt_budget *b = &s->budget;
    if (!b->other)
        b->other = lt_alloc((size_t)s->config.precondition_frequency, sizeof *b->other);
    if (!b->other)
        return LT_E_NOMEM;
    b->other[b->count++] = seconds - s->stats.root_seconds;
    b->roots += s->stats.root_seconds;
    return LT_OK;
}

lt_status lt_shampoo_keep_budget(lt_shampoo *s)
{
    lt_budget *b = &s->budget;
    const int64_t now = lt_clock_nanoseconds(), before = s->base.attempt - 1;
    if (!(s->config.precondition_budget > 0))
        return LT_OK;
    if (b->interval)
        return use(s);
    if (b->step == before && before > s->config.start_preconditioning_step) {
        LT_TRY(add(s, (double)(now - b->began) * 1e-9));
    } else { /* the first, or behind a step that was skipped */
        b->count = 0;
        b->roots = 0;
    }
    b->began = now;
    b->step = s->base.attempt;
    return b->count < s->config.precondition_frequency ? LT_OK : choose(s);
}

lt_status lt_shampoo_visit_budget(lt_shampoo *s, const lt_state_visitor *visitor)
{
    if (!(s->config.precondition_budget > 0))
        return LT_OK;
    return visitor->number(visitor->context, "precondition_interval", &s->budget.interval);
}
