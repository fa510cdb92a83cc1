/* Closed forms of collectives: payload and its seconds on links. They are direct, as in src/dist/collectives: in a
 * reduce-scatter each rank sends every other rank its chunk, in an all-gather its own chunk to every other rank. */

#include "dist/cost/parts.h"

/* --- Bytes --- */

int64_t lt_cost_chunk(int64_t count, int parts, int index)
{
    return count / parts + (index < count % parts);
}

/* Elements of the chunks of ranks first to first + ranks - 1. */
static int64_t chunks(int64_t count, int parts, int first, int ranks)
{
    const int64_t longer = count % parts - first, most = ranks;
    return count / parts * most + (longer < 0 ? 0 : longer < most ? longer : most);
}

/* Elements that a rank sends to its node and to other nodes. */
typedef struct flat_part {
    int64_t within, between;
} flat_part;

static flat_part flat_scatter(const lt_cost_cluster *c, int64_t d, int rank)
{
    const int ranks = c->nodes * c->per_node, first = rank - rank % c->per_node;
    const int64_t own = lt_cost_chunk(d, ranks, rank), node = chunks(d, ranks, first, c->per_node);
    return (flat_part){.within = node - own, .between = d - node};
}

static flat_part flat_gather(const lt_cost_cluster *c, int64_t d, int rank)
{
    const int ranks = c->nodes * c->per_node;
    const int64_t own = lt_cost_chunk(d, ranks, rank);
    return (flat_part){.within = own * (c->per_node - 1), .between = own * (ranks - c->per_node)};
}

static lt_cost_bytes in_bytes(flat_part a, flat_part b, int element_bytes)
{
    return (lt_cost_bytes){(double)((a.within + b.within) * element_bytes),
                           (double)((a.between + b.between) * element_bytes)};
}

lt_cost_bytes lt_cost_allreduce(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank)
{
    return in_bytes(flat_scatter(c, d, rank), flat_gather(c, d, rank), element_bytes);
}

lt_cost_bytes lt_cost_reducescatter(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    int rank)
{
    return in_bytes(flat_scatter(c, d, rank), (flat_part){0}, element_bytes);
}

lt_cost_bytes lt_cost_allgather(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank)
{
    return in_bytes((flat_part){0}, flat_gather(c, d, rank), element_bytes);
}

/* Elements that a rank sends in a reduce-scatter and an all-gather of d elements. */
static int64_t sent_by(int64_t d, int ranks, int index)
{
    return d - lt_cost_chunk(d, ranks, index) + (ranks - 1) * lt_cost_chunk(d, ranks, index);
}

lt_cost_bytes lt_cost_two_level(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank)
{
    const int local = rank % c->per_node, node = rank / c->per_node;
    const int64_t shard = lt_cost_chunk(d, c->per_node, local);
    return (lt_cost_bytes){.within = (double)(sent_by(d, c->per_node, local) * element_bytes),
                           .between = (double)(sent_by(shard, c->nodes, node) * element_bytes)};
}

/* --- Seconds --- */

static int rounds(lt_cost_round kind)
{
    return kind == LT_COST_REDUCE ? 2 : 1;
}

/* Seconds of a collective over `ranks` of which each sends `bytes`, over a link that `sharers` share equally. */
static double on_link(const lt_cost_link *link, int ranks, int sharers, double bytes,
                      lt_cost_round kind)
{
    if (ranks < 2)
        return 0;
    return rounds(kind) * (link->latency + (ranks - 1) * sharers * link->message)
           + sharers * bytes / link->bandwidth;
}

/* Messages within the node and to other nodes are sent at once: the slower link decides. */
lt_cost_stage lt_cost_over_all(const lt_cost_cluster *c, lt_cost_bytes bytes, lt_cost_round kind)
{
    const int others = c->nodes > 1 ? (c->nodes - 1) * c->per_node + 1 : 1;
    const double in = on_link(&c->within, c->per_node, 1, bytes.within, kind),
                 out = on_link(&c->between, others, c->per_node, bytes.between, kind);
    return (lt_cost_stage){.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN,
                           .seconds = out > in ? out : in,
                           .messages = rounds(kind) * ((double)c->nodes * c->per_node - 1)};
}

lt_cost_stage lt_cost_in_node(const lt_cost_cluster *c, int64_t d, int element_bytes,
                              lt_cost_round kind)
{
    const int64_t own = lt_cost_chunk(d, c->per_node, 0);
    const int64_t scatter = d - own, gather = (c->per_node - 1) * own;
    const int64_t sent = kind == LT_COST_SCATTER  ? scatter
                         : kind == LT_COST_GATHER ? gather
                                                  : scatter + gather;
    return (lt_cost_stage){
        .uses = LT_COST_WITHIN,
        .seconds = on_link(&c->within, c->per_node, 1, (double)(sent * element_bytes), kind),
        .messages = rounds(kind) * (double)(c->per_node - 1)};
}

lt_cost_stage lt_cost_between(const lt_cost_cluster *c, double bytes, lt_cost_round kind)
{
    return (lt_cost_stage){.uses = LT_COST_BETWEEN,
                           .seconds = on_link(&c->between, c->nodes, c->per_node, bytes, kind),
                           .messages = rounds(kind) * (double)(c->nodes - 1)};
}

lt_cost_stage lt_cost_compute(double seconds)
{
    return (lt_cost_stage){.uses = LT_COST_COMPUTE, .seconds = seconds};
}

lt_cost_stage lt_cost_in_levels(const lt_cost_cluster *c, int64_t d, int element_bytes)
{
    lt_cost_stage s =
        lt_cost_between(c, lt_cost_two_level(c, d, element_bytes, 0).between, LT_COST_REDUCE);
    const lt_cost_stage node = lt_cost_in_node(c, d, element_bytes, LT_COST_REDUCE);
    s.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN;
    s.seconds += node.seconds;
    s.messages += node.messages;
    return s;
}
