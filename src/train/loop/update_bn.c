/* Forward passes over some training batches that only compute batch norm's statistics. */

#include "update_bn.h"

#include "base/heartbeat.h"

#include "lather/ext/fail.h"

/* Runs the k-th batch, whose weight is 1/(k+1): the first one replaces the old statistics. */
static lt_status update_statistics_from_batch(const lt_evaluator *e, const lt_batch *batch,
                                              int64_t k, lt_tensor *counts)
{
    lt_task_output out = {0};
    lt_pass now = e->pass;
    now.batch_stats = true;
    now.stat_momentum = 1 / (double)(k + 1);
    lt_tape_reset(e->tape, now);
    LT_TRY(e->task.ops->forward(e->task.context, e->tape, batch, counts, &out));
    return lt_tape_status(e->tape);
}

static lt_status update_statistics(const lt_evaluator *e, lt_loader *loader, lt_tensor *counts)
{
    lt_batch batch;
    lt_status st;
    for (int64_t k = 0; !(st = lt_loader_next(loader, &batch)); k++) {
        LT_TRY(update_statistics_from_batch(e, &batch, k, counts));
        lt_heartbeat_progress();
    }
    return st == LT_END ? LT_OK : st;
}

static lt_status update_in_time_slice(const lt_evaluator *e, lt_loader *loader, lt_tensor *counts)
{
    lt_share_turn turn;
    if (!e->share)
        return update_statistics(e, loader, counts);
    LT_TRY(lt_share_begin(e->share, &turn));
    LT_TRY(update_statistics(e, loader, counts));
    return lt_share_end(e->share);
}

lt_status lt_update_bn_run(lt_update_bn *u, const lt_evaluator *e, int64_t step)
{
    lt_loader *loader = NULL;
    lt_tensor *counts = NULL;
    if (u->step == step)
        return LT_OK;
    lt_status st = lt_evaluator_new_counts(e, &counts);
    if (!st)
        st = lt_loader_new(&loader, u->train, e->device, &u->loader);
    if (!st)
        st = update_in_time_slice(e, loader, counts);
    lt_loader_free(&loader);
    lt_tensor_free(&counts);
    if (!st && u->dp)
        st = lt_data_parallel_sync_statistics(u->dp);
    u->step = st ? u->step : step;
    return st;
}
