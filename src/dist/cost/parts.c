/* Closed forms of collectives: payload and its seconds on links. They are direct, as in src/dist/collectives: in a
 * reduce-scatter each rank sends every other rank its chunk, in an all-gather its own chunk to every other rank. */

#include "dist/cost/parts.h"

#include "lather/detail/process_group.h"

/* --- Bytes --- */

/* Returns the elements of the chunks of ranks first to first + ranks - 1. */
static int64_t elements_of_ranks(int64_t count, int parts, int first, int ranks)
{
    return lt_even_shard_offset(count, parts, first + ranks)
           - lt_even_shard_offset(count, parts, first);
}

/* Returns the elements that a rank with chunk `index` sends in a collective of d elements over `ranks` ranks. */
static int64_t elements_sent(int64_t d, int ranks, int index, lt_cost_round kind)
{
    const int64_t own = lt_even_shard_size(d, ranks, index);
    return (kind == LT_COST_GATHER ? 0 : d - own)
           + (kind == LT_COST_SCATTER ? 0 : (ranks - 1) * own);
}

/* Returns the elements that a rank sends within its node in a collective of d elements over all ranks. */
static int64_t elements_sent_in_node(const lt_cost_cluster *c, int64_t d, int rank,
                                     lt_cost_round kind)
{
    const int ranks = c->nodes * c->per_node;
    const int64_t own = lt_even_shard_size(d, ranks, rank),
                  node = elements_of_ranks(d, ranks, rank - rank % c->per_node, c->per_node);
    return (kind == LT_COST_GATHER ? 0 : node - own)
           + (kind == LT_COST_SCATTER ? 0 : (c->per_node - 1) * own);
}

/* --- Seconds --- */

static int round_count(lt_cost_round kind)
{
    return kind == LT_COST_REDUCE ? 2 : 1;
}

/* Returns the seconds of a collective whose ranks send `bytes` each, over a link that `sharers` share equally. */
static double link_seconds(const lt_cost_link *link, int ranks, int sharers, double bytes,
                           lt_cost_round kind)
{
    if (ranks < 2)
        return 0;
    return round_count(kind) * (link->latency + (ranks - 1) * sharers * link->message)
           + sharers * bytes / link->bandwidth;
}

/* Messages within the node and to other nodes are sent at once: the slower link decides. */
lt_cost_stage lt_cost_all_ranks_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                      lt_cost_round kind, int rank)
{
    const int ranks = c->nodes * c->per_node, others = c->nodes > 1 ? ranks - c->per_node + 1 : 1;
    const int64_t within = elements_sent_in_node(c, d, rank, kind),
                  between = elements_sent(d, ranks, rank, kind) - within;
    const lt_cost_bytes bytes = {(double)(within * element_bytes),
                                 (double)(between * element_bytes)};
    const double in = link_seconds(&c->within, c->per_node, 1, bytes.within, kind),
                 out = link_seconds(&c->between, others, c->per_node, bytes.between, kind);
    return (lt_cost_stage){.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN,
                           .seconds = out > in ? out : in,
                           .messages = round_count(kind) * ((double)ranks - 1),
                           .bytes = bytes};
}

lt_cost_stage lt_cost_in_node_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    lt_cost_round kind, int rank)
{
    const double bytes =
        (double)(elements_sent(d, c->per_node, rank % c->per_node, kind) * element_bytes);
    return (lt_cost_stage){.uses = LT_COST_WITHIN,
                           .seconds = link_seconds(&c->within, c->per_node, 1, bytes, kind),
                           .messages = round_count(kind) * (double)(c->per_node - 1),
                           .bytes = {.within = bytes}};
}

lt_cost_stage lt_cost_between_stage(const lt_cost_cluster *c, double bytes, lt_cost_round kind)
{
    return (lt_cost_stage){.uses = LT_COST_BETWEEN,
                           .seconds = link_seconds(&c->between, c->nodes, c->per_node, bytes, kind),
                           .messages = round_count(kind) * (double)(c->nodes - 1),
                           .bytes = {.between = bytes}};
}

lt_cost_stage lt_cost_shard_allreduce_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                            int rank)
{
    const int64_t shard = lt_even_shard_size(d, c->per_node, rank % c->per_node);
    const int64_t sent = elements_sent(shard, c->nodes, rank / c->per_node, LT_COST_REDUCE);
    return lt_cost_between_stage(c, (double)(sent * element_bytes), LT_COST_REDUCE);
}

lt_cost_stage lt_cost_compute_stage(double seconds)
{
    return (lt_cost_stage){.uses = LT_COST_COMPUTE, .seconds = seconds};
}

lt_cost_stage lt_cost_two_level_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                      int rank)
{
    lt_cost_stage s = lt_cost_shard_allreduce_stage(c, d, element_bytes, rank);
    const lt_cost_stage node = lt_cost_in_node_stage(c, d, element_bytes, LT_COST_REDUCE, rank);
    s.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN;
    s.seconds += node.seconds;
    s.messages += node.messages;
    s.bytes.within = node.bytes.within;
    return s;
}

lt_cost_stage lt_cost_two_level_gather_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                             int rank)
{
    const int ranks = c->nodes * c->per_node;
    const int64_t own = lt_even_shard_size(d, ranks, rank);
    int64_t joined = 0;
    for (int r = rank % c->per_node; r < ranks; r += c->per_node)
        joined += lt_even_shard_size(d, ranks, r);
    lt_cost_stage s =
        lt_cost_between_stage(c, (double)((c->nodes - 1) * own * element_bytes), LT_COST_GATHER);
    s.bytes.within = (double)((c->per_node - 1) * joined * element_bytes);
    s.seconds += link_seconds(&c->within, c->per_node, 1, s.bytes.within, LT_COST_GATHER);
    s.messages += c->per_node - 1;
    return s;
}
