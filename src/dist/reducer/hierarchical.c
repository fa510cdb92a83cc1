/* Hierarchical reduction; each level averages, so that 16-bit sums do not overflow. */

#include "dist/reducer/hierarchical.h"

#include "base/alloc.h"

#include "lather/detail/topology.h"

enum { SCATTER, PEERS, GATHER };

lt_status lt_hier_comms_open(lt_hier_comms *comms, const lt_nodes *nodes, lt_comm *comm)
{
    LT_TRY(lt_nodes_open_node(nodes, comm, &comms->scatter));
    LT_TRY(lt_nodes_open_peers(nodes, comm, &comms->peers));
    return lt_nodes_open_node(nodes, comm, &comms->gather);
}

void lt_hier_comms_close(lt_hier_comms *comms)
{
    lt_comm_close(&comms->gather);
    lt_comm_close(&comms->peers);
    lt_comm_close(&comms->scatter);
}

void lt_hier_comms_bytes_sent(const lt_hier_comms *comms, lt_reducer_bytes *out)
{
    *out =
        (lt_reducer_bytes){.within = lt_comm_bytes(comms->scatter) + lt_comm_bytes(comms->gather),
                           .between = lt_comm_bytes(comms->peers)};
}

lt_status lt_hier_shard_open(lt_hier_shard *shard, const lt_comm *node, const lt_tensor *whole,
                             int64_t elements)
{
    const int64_t ranks = lt_comm_size(node), rank = lt_comm_rank(node);
    LT_TRY(LT_ALLOC(&shard->count, ranks));
    for (int64_t r = 0; r < ranks; r++) {
        shard->count[r] = elements / ranks + (r < elements % ranks);
        shard->first += r < rank ? shard->count[r] : 0;
    }
    shard->elements = shard->count[rank];
    return shard->elements ? lt_tensor_new(&shard->tensor, lt_tensor_device(whole),
                                           lt_tensor_dtype(whole), LT_SHAPE(shard->elements))
                           : LT_OK;
}

bool lt_hier_shard_intersects(const lt_hier_shard *shard, const lt_reducer_part *part,
                              int64_t *from, int64_t *to)
{
    const int64_t end = shard->first + shard->elements, part_end = part->offset + part->elements;
    *from = part->offset > shard->first ? part->offset : shard->first;
    *to = part_end < end ? part_end : end;
    return *from < *to;
}

void lt_hier_shard_close(lt_hier_shard *shard)
{
    lt_tensor_free(&shard->tensor);
    lt_free(shard->count);
}

lt_status lt_hier_open(lt_hier *hier, const lt_reducer *reducer)
{
    const lt_nodes *nodes = reducer->nodes;
    *hier = (lt_hier){.reducer = reducer};
    if (!nodes || nodes->count < 2 || nodes->ranks_per_node < 2)
        return LT_OK;
    LT_TRY(lt_nodes_open_node(nodes, reducer->comm, &hier->node));
    return lt_nodes_open_peers(nodes, reducer->comm, &hier->peers);
}

void lt_hier_close(lt_hier *hier)
{
    lt_comm_close(&hier->peers);
    lt_comm_close(&hier->node);
}

void lt_hier_bytes_sent(const lt_hier *hier, lt_reducer_bytes *out)
{
    const lt_nodes *nodes = hier->reducer->nodes;
    *out = (lt_reducer_bytes){0};
    if (hier->peers) {
        out->within = lt_comm_bytes(hier->node);
        out->between = lt_comm_bytes(hier->peers);
    } else if (nodes && nodes->count == 1) {
        out->within = hier->sent;
    } else {
        out->between = hier->sent;
    }
}

lt_status lt_hier_mean_open(lt_hier_mean *mean, lt_hier *hier, lt_tensor *tensor)
{
    mean->hier = hier;
    mean->tensor = tensor;
    return hier->peers
               ? lt_hier_shard_open(&mean->shard, hier->node, tensor, lt_tensor_count(tensor))
               : LT_OK;
}

void lt_hier_mean_close(lt_hier_mean *mean)
{
    (void)!lt_request_wait(&mean->request);
    lt_hier_shard_close(&mean->shard);
}

static lt_status start_phase(lt_hier_mean *m)
{
    lt_hier *l = m->hier;
    switch (m->phase) {
    case SCATTER:
        return lt_comm_reducescatter_begin(l->node, m->tensor, m->shard.tensor, m->shard.count,
                                           LT_REDUCE_MEAN, &m->request);
    case PEERS: /* an empty shard is empty on all peers */
        return m->shard.tensor
                   ? lt_comm_allreduce_begin(l->peers, m->shard.tensor, LT_REDUCE_MEAN, &m->request)
                   : LT_OK;
    default:
        return lt_comm_allgather_begin(l->node, m->shard.tensor, m->tensor, m->shard.count,
                                       &m->request);
    }
}

lt_status lt_hier_mean_begin(lt_hier_mean *m)
{
    lt_hier *l = m->hier;
    lt_comm *comm = l->reducer->comm;
    m->phase = SCATTER;
    if (l->peers)
        return start_phase(m);
    const uint64_t before = lt_comm_bytes(comm);
    LT_TRY(lt_comm_allreduce_begin(comm, m->tensor, LT_REDUCE_MEAN, &m->request));
    l->sent += lt_comm_bytes(comm) - before;
    return LT_OK;
}

lt_status lt_hier_mean_step(lt_hier_mean *m, bool *done)
{
    *done = !m->hier->peers || m->phase == GATHER;
    LT_TRY(lt_request_wait(&m->request));
    if (*done)
        return LT_OK;
    m->phase++;
    return start_phase(m);
}
