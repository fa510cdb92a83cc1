/* The step on a device with a queue. Between refreshes it is one piece of work, the same in each step:
 * numbers that change are read on the device. A step in which the host has something to do, new roots
 * or those of the other thread, is two such pieces and the host between them:
 *
 *   first    the factors
 *   host     swap in pending roots; roots that are due; factors for the async thread
 *   second   directions and weights
 *
 * Solvers read residuals and eigenvalues back, so the host synchronizes there; with LT_REFRESH_ASYNC their
 * thread does. A skipped step skips the host phase: what was due is due in the next step.
 *
 * Divided over ranks it is one piece between refreshes too, the exchange in it; a step with new roots on
 * this rank is not captured. */

#include "optim/shampoo/shampoo.h"

static bool host_has_work(const lt_shampoo *s)
{
    return lt_shampoo_refreshes(s) || lt_shampoo_swaps(s) || lt_shampoo_starts_async(s);
}

/* KL factors read the roots: pending ones must be swapped in before. */
static bool swaps_first(const lt_shampoo *s)
{
    return lt_shampoo_is_kl(&s->config) && lt_shampoo_swaps(s);
}

/* Before the first roots it is other work, and a first step makes what the others use. */
static bool is_settled(const lt_shampoo *s)
{
    return s->ready && !lt_shampoo_is_early(s);
}

bool lt_shampoo_is_capturable(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    return is_settled(s) && !host_has_work(s);
}

static bool has_host_phase(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    return is_settled(s) && host_has_work(s) && !swaps_first(s);
}

/* The piece that comes first in this step does it: others may be replays. */
static void begin_stats(lt_shampoo *s)
{
    if (s->stats_step != s->base.attempt)
        lt_shampoo_start_stats(s);
}

static lt_status first(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    begin_stats(s);
    LT_TRY(lt_shampoo_prepare(s));
    for (size_t i = 0; i < s->batches; i++)
        LT_TRY(lt_shampoo_before_roots(s, s->batch[i]));
    return LT_OK;
}

static lt_status host(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    begin_stats(s);
    LT_TRY(lt_shampoo_swap(s));
    if (lt_shampoo_plan(s) != LT_DUE_NONE)
        LT_TRY(lt_shampoo_refresh(s, (lt_block_batch){0, s->count}));
    return lt_shampoo_starts_async(s) ? lt_shampoo_start_async(s) : LT_OK;
}

static lt_status second(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    for (size_t i = 0; i < s->batches; i++) {
        if (s->batches > 1) /* else the gradient is still there */
            LT_TRY(lt_shampoo_begin_batch(s, s->batch[i]));
        LT_TRY(lt_shampoo_after_roots(s, s->batch[i]));
    }
    return LT_OK;
}

const lt_host_phase_ops lt_shampoo_host_phase = {has_host_phase, first, host, second};

static lt_status one_piece(lt_shampoo *s)
{
    for (size_t i = 0; i < s->batches; i++) {
        LT_TRY(lt_shampoo_before_roots(s, s->batch[i]));
        LT_TRY(lt_shampoo_after_roots(s, s->batch[i]));
    }
    return LT_OK;
}

/* The same phases, eagerly. */
lt_status lt_shampoo_queue_step(lt_shampoo *s)
{
    lt_scalars scalars;
    if (!host_has_work(s))
        return one_piece(s);
    LT_TRY(lt_optim_read_scalars(&s->base, &scalars));
    if (!scalars.finite)
        return one_piece(s);
    if (swaps_first(s))
        LT_TRY(lt_shampoo_swap(s));
    LT_TRY(first(&s->base));
    LT_TRY(host(&s->base));
    return second(&s->base);
}
