/* Local steps (DiLoCo): rounds of inner steps, each ended by an outer step. */

#include "base/alloc.h"
#include "dist/comm/comm.h"
#include "dist/data_parallel/state.h"
#include "dist/local_steps/state.h"
#include "dist/topology.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* --- The outer step --- */

/* Outer Nesterov step: start -= lr (change + momentum u), with u = momentum u + change. */
static lt_status apply_outer_update(lt_local_steps *l)
{
    const lt_local_steps_config *c = &l->config;
    const lt_view change = lt_tensor_view(l->change), start = lt_tensor_view(l->start);
    LT_TRY(lt_local_axpby(l, -c->lr, change, 1, start));
    if (!l->momentum)
        return LT_OK;
    const lt_view u = lt_tensor_view(l->momentum);
    LT_TRY(lt_local_axpby(l, 1, change, c->momentum, u));
    return lt_local_axpby(l, -c->lr * c->momentum, u, 1, start);
}

/* Sets the values of all ranks to start. */
static lt_status set_values_to_start(lt_local_steps *l)
{
    lt_tensor *whole = NULL;
    LT_TRY(lt_local_gather(l, l->start, &whole));
    lt_status st = lt_local_unpack(l, whole);
    lt_tensor_free(&whole);
    return st;
}

static lt_status outer_step(lt_local_steps *l)
{
    LT_TRY(lt_local_pack(l, l->change));
    LT_TRY(lt_local_axpby(l, 1, lt_tensor_view(l->start), -1, lt_tensor_view(l->change)));
    LT_TRY(l->residual ? lt_local_allreduce_sparse(l)
                       : lt_comm_allreduce(l->peers, l->change, LT_REDUCE_MEAN));
    LT_TRY(apply_outer_update(l));
    LT_TRY(set_values_to_start(l));
    return lt_local_merge_statistics(l);
}

lt_status lt_local_steps_synchronize(lt_local_steps *l, bool *met)
{
    const uint64_t within = lt_comm_bytes(l->node), between = lt_comm_bytes(l->peers);
    *met = false;
    if (!l->since)
        return LT_OK;
    LT_TRY(outer_step(l));
    l->sent.within += lt_comm_bytes(l->node) - within;
    l->sent.between += lt_comm_bytes(l->peers) - between;
    l->since = 0;
    *met = true;
    return LT_OK;
}

lt_status lt_local_steps_step(lt_local_steps *l, bool *met)
{
    *met = false;
    return ++l->since < l->config.every ? LT_OK : lt_local_steps_synchronize(l, met);
}

lt_status lt_local_steps_begin(lt_local_steps *l)
{
    l->since = 0;
    return lt_local_pack(l, l->start);
}

/* --- Getters --- */

lt_comm *lt_local_steps_comm(const lt_local_steps *l)
{
    return l->node;
}

int lt_local_steps_groups(const lt_local_steps *l)
{
    return l->groups;
}

int lt_local_steps_group(const lt_local_steps *l)
{
    return l->group;
}

int64_t lt_local_steps_since_sync(const lt_local_steps *l)
{
    return l->since;
}

int lt_local_steps_rank(const lt_local_steps *l, int group, int rank)
{
    return l->rank[group * l->locals + rank];
}

/* --- Construction --- */

static lt_status check_config(const lt_local_steps_config *c)
{
    if (c->every < 1)
        return lt_fail(LT_E_ARG, "local steps: a round of %" PRId64 " steps, want at least 1",
                       c->every);
    if (!(c->lr > 0) || !isfinite(c->lr))
        return lt_fail(LT_E_ARG, "local steps: outer lr %g, want a number above 0", c->lr);
    if (!(c->momentum >= 0 && c->momentum < 1))
        return lt_fail(LT_E_ARG, "local steps: outer momentum %g, want a number in [0,1)",
                       c->momentum);
    if (!(c->decay >= 0 && c->decay <= 1))
        return lt_fail(LT_E_ARG, "local steps: outer decay %g, want a number in (0,1]", c->decay);
    return LT_OK;
}

static lt_status check_nodes(const lt_nodes *n, int ranks)
{
    if (n->count < 2)
        return lt_fail(LT_E_ARG,
                       "local steps: all %d ranks are on one node, and each node is a group; use "
                       "--ranks-per-node 1 to make each rank a group",
                       ranks);
    if (n->ranks_per_node)
        return LT_OK;
    int first, other;
    const int node = lt_nodes_find_uneven(n, ranks, &first, &other);
    return lt_fail(LT_E_ARG,
                   "local steps: node 0 has %d ranks, node %d has %d; groups must have equal sizes",
                   first, node, other);
}

static lt_status list_ranks(lt_local_steps *l, const lt_nodes *n, int ranks)
{
    l->groups = n->count;
    l->group = n->index;
    l->locals = n->ranks_per_node;
    l->local = n->local;
    l->rank = lt_alloc((size_t)ranks, sizeof *l->rank);
    l->count = lt_alloc((size_t)l->locals, sizeof *l->count);
    int *listed = lt_alloc((size_t)l->groups, sizeof *listed);
    lt_status st = l->rank && l->count && listed ? LT_OK : LT_E_NOMEM;
    for (int r = 0; r < ranks && !st; r++)
        l->rank[n->of[r] * l->locals + listed[n->of[r]]++] = r;
    lt_free(listed);
    return st;
}

static lt_status list_params(lt_local_steps *l)
{
    LT_TRY(LT_ALLOC(&l->param, l->all->count));
    LT_TRY(LT_ALLOC(&l->begin, l->all->count + 1));
    for (size_t i = 0; i < l->all->count; i++) {
        lt_param *p = l->all->item[i];
        if (p->role == LT_PARAM_STAT && !p->frozen)
            l->statistics += lt_tensor_count(p->value);
        if (!lt_param_is_trained(p))
            continue;
        l->param[l->params++] = p;
        l->begin[l->params] = l->begin[l->params - 1] + lt_tensor_count(p->value);
    }
    return LT_OK;
}

static lt_status compute_shard_sizes(lt_local_steps *l)
{
    const int64_t all = l->begin[l->params];
    if (all < l->locals)
        return lt_fail(LT_E_ARG,
                       "local steps: %" PRId64 " elements cannot be sharded over %d ranks", all,
                       l->locals);
    if (l->compression.density > 0 && all / l->locals >= UINT32_MAX)
        return lt_fail(LT_E_UNSUPPORTED,
                       "local steps: %" PRId64 " elements over %d ranks are too many to compress; "
                       "at most 2^32-1 per rank",
                       all, l->locals);
    for (int r = 0; r < l->locals; r++)
        l->count[r] = all / l->locals + (r < all % l->locals);
    for (int r = 0; r < l->local; r++)
        l->first += l->count[r];
    return LT_OK;
}

/* Makes a shard of zeros. */
static lt_status make_shard(const lt_local_steps *l, lt_tensor **out)
{
    LT_TRY(lt_tensor_new(out, l->device, lt_device_master_dtype(l->device),
                         LT_SHAPE(l->count[l->local])));
    return lt_tensor_fill(*out, 0);
}

static lt_status make_tensors(lt_local_steps *l)
{
    LT_TRY(make_shard(l, &l->start));
    LT_TRY(make_shard(l, &l->change));
    if (l->config.momentum > 0)
        LT_TRY(make_shard(l, &l->momentum));
    if (l->compression.density > 0)
        LT_TRY(make_shard(l, &l->residual));
    return l->statistics ? lt_tensor_new(&l->statistic, l->device,
                                         lt_device_master_dtype(l->device), LT_SHAPE(l->statistics))
                         : LT_OK;
}

/* Checks that all ranks have the same configuration and parameters. */
static lt_status check_same_config(const lt_local_steps *l, lt_comm *comm)
{
    const lt_local_steps_config *c = &l->config;
    char text[256];
    snprintf(text, sizeof text,
             "%" PRId64 " steps, lr %g, momentum %g, density %g, values %d, decay %g, %zu "
             "parameters of %" PRId64 " elements, %" PRId64 " statistics",
             c->every, c->lr, c->momentum, l->compression.density, (int)l->compression.values,
             c->decay, l->params, l->begin[l->params], l->statistics);
    return lt_comm_check_same(comm, "local steps", text);
}

static lt_status set_up_local_steps(lt_local_steps *l, lt_comm *comm, const lt_nodes *nodes)
{
    LT_TRY(list_ranks(l, nodes, lt_comm_size(comm)));
    LT_TRY(list_params(l));
    LT_TRY(check_same_config(l, comm));
    LT_TRY(compute_shard_sizes(l));
    LT_TRY(lt_nodes_open_node(nodes, comm, &l->node));
    LT_TRY(lt_nodes_open_peers(nodes, comm, &l->peers));
    LT_TRY(make_tensors(l));
    LT_TRY(lt_dp_broadcast_values(comm, l->all));
    return lt_local_steps_begin(l);
}

lt_status lt_local_steps_new(lt_local_steps **out, lt_comm *comm, const lt_nodes *nodes,
                             const lt_params *params, const lt_local_steps_config *config)
{
    lt_outer_compression compression;
    LT_TRY(check_config(config));
    LT_TRY(lt_outer_compression_parse(&compression, config->compress));
    LT_TRY(check_nodes(nodes, lt_comm_size(comm)));
    if (!params->count)
        return lt_fail(LT_E_ARG, "local steps: the model has no parameters");
    lt_local_steps *l = NULL;
    LT_TRY(LT_ALLOC(&l, 1));
    l->config = *config;
    l->compression = compression;
    l->all = params;
    l->device = lt_tensor_device(params->item[0]->value);
    lt_status st = set_up_local_steps(l, comm, nodes);
    if (st)
        lt_local_steps_free(&l);
    else
        *out = l;
    return st;
}

void lt_local_steps_free(lt_local_steps **local)
{
    lt_local_steps *l = *local;
    if (!l)
        return;
    (void)!lt_local_steps_free_gathered(l, false);
    lt_tensor_free(&l->start);
    lt_tensor_free(&l->change);
    lt_tensor_free(&l->momentum);
    lt_tensor_free(&l->residual);
    lt_tensor_free(&l->statistic);
    lt_comm_close(&l->peers);
    lt_comm_close(&l->node);
    lt_free(l->param);
    lt_free(l->begin);
    lt_free(l->count);
    lt_free(l->rank);
    lt_free(l);
    *local = NULL;
}

lt_local_steps_bytes lt_local_steps_bytes_sent(const lt_local_steps *l)
{
    return l->sent;
}
