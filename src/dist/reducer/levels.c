/* A rank's shard of a tensor is cut as evenly as an all-reduce cuts it; both levels make means. */

#include "dist/reducer/levels.h"

#include "base/alloc.h"

#include "lather/topology.h"

enum { SCATTER, PEERS, GATHER };

lt_status lt_levels_open(lt_levels *levels, const lt_reducer *reducer)
{
    const lt_nodes *nodes = reducer->nodes;
    *levels = (lt_levels){.reducer = reducer};
    if (!nodes || nodes->count < 2 || nodes->ranks_per_node < 2)
        return LT_OK;
    LT_TRY(lt_nodes_open_node(nodes, reducer->comm, &levels->node));
    return lt_nodes_open_peers(nodes, reducer->comm, &levels->peers);
}

void lt_levels_close(lt_levels *levels)
{
    lt_comm_close(&levels->peers);
    lt_comm_close(&levels->node);
}

void lt_levels_sent(const lt_levels *levels, lt_reducer_bytes *out)
{
    const lt_nodes *nodes = levels->reducer->nodes;
    *out = (lt_reducer_bytes){0};
    if (levels->peers) {
        out->within = lt_comm_bytes(levels->node);
        out->between = lt_comm_bytes(levels->peers);
    } else if (nodes && nodes->count == 1) {
        out->within = levels->sent;
    } else {
        out->between = levels->sent;
    }
}

lt_status lt_level_mean_open(lt_level_mean *mean, lt_levels *levels, lt_tensor *what)
{
    mean->levels = levels;
    mean->what = what;
    if (!levels->peers)
        return LT_OK;
    const int64_t ranks = lt_comm_size(levels->node), elements = lt_tensor_count(what);
    mean->count = lt_alloc((size_t)ranks, sizeof *mean->count);
    if (!mean->count)
        return LT_E_NOMEM;
    for (int64_t r = 0; r < ranks; r++)
        mean->count[r] = elements / ranks + (r < elements % ranks);
    const int64_t mine = mean->count[lt_comm_rank(levels->node)];
    return mine ? lt_tensor_new(&mean->shard, lt_tensor_device(what), lt_tensor_dtype(what),
                                LT_SHAPE(mine))
                : LT_OK;
}

void lt_level_mean_close(lt_level_mean *mean)
{
    (void)!lt_request_wait(&mean->request);
    lt_tensor_free(&mean->shard);
    lt_free(mean->count);
}

static lt_status start(lt_level_mean *m)
{
    lt_levels *l = m->levels;
    switch (m->hop) {
    case SCATTER:
        return lt_comm_reducescatter_begin(l->node, m->what, m->shard, m->count, LT_REDUCE_MEAN,
                                           &m->request);
    case PEERS: /* a shard without elements is so on all peers */
        return m->shard ? lt_comm_allreduce_begin(l->peers, m->shard, LT_REDUCE_MEAN, &m->request)
                        : LT_OK;
    default:
        return lt_comm_allgather_begin(l->node, m->shard, m->what, m->count, &m->request);
    }
}

lt_status lt_level_mean_begin(lt_level_mean *m)
{
    lt_levels *l = m->levels;
    lt_comm *comm = l->reducer->comm;
    m->hop = SCATTER;
    if (l->peers)
        return start(m);
    const uint64_t before = lt_comm_bytes(comm);
    LT_TRY(lt_comm_allreduce_begin(comm, m->what, LT_REDUCE_MEAN, &m->request));
    l->sent += lt_comm_bytes(comm) - before;
    return LT_OK;
}

lt_status lt_level_mean_step(lt_level_mean *m, bool *done)
{
    *done = !m->levels->peers || m->hop == GATHER;
    LT_TRY(lt_request_wait(&m->request));
    if (*done)
        return LT_OK;
    m->hop++;
    return start(m);
}
