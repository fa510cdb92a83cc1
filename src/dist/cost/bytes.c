/* Payload by closed forms. A direct exchange is modelled, as src/dist/collectives makes it: in a
 * reduce-scatter each rank sends every other one its chunk, in an all-gather its own chunk to every
 * other one. */

#include "dist/cost/cost.h"

#include "lather/comm_cost.h"

#include <math.h>

const char *lt_cost_name(lt_cost_scheme scheme)
{
    static const char *const names[LT_COST_SCHEMES] = {"flat", "two-level", "shard-gradients",
                                                       "topk", "powersgd",  "local-steps"};
    return names[scheme];
}

int64_t lt_cost_chunk(int64_t count, int parts, int index)
{
    return count / parts + (index < count % parts);
}

/* Elements of the chunks of ranks first .. first + ranks - 1. */
static int64_t chunks(int64_t count, int parts, int first, int ranks)
{
    const int64_t longer = count % parts - first, most = ranks;
    return count / parts * most + (longer < 0 ? 0 : longer < most ? longer : most);
}

static int64_t filled(int64_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

int64_t lt_cost_sparse_bytes(int64_t elements, double density, int value_bytes)
{
    enum { CHUNK = 4096 };
    const int64_t k = lt_cost_count(elements, density);
    int64_t places = 4 * k;
    const int64_t in_chunks = 2 * k + 2 * ((elements + CHUNK - 1) / CHUNK),
                  bits = (elements + 7) / 8;
    places = in_chunks < places ? in_chunks : places;
    places = bits < places ? bits : places;
    return filled(filled(k * value_bytes) + places);
}

int64_t lt_cost_count(int64_t elements, double density)
{
    int64_t k = (int64_t)ceil(density * (double)elements);
    return k > elements ? elements : k;
}

double lt_cost_break_even(int nodes, int value_bytes, int index_bytes)
{
    return 2.0 * value_bytes / ((double)nodes * (value_bytes + index_bytes));
}

/* Elements that rank sends to others of its node and to other nodes, over all ranks. */
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

/* A reduce-scatter or an all-gather of d elements in a node; both send as much in all. */
static int64_t sent_by(int64_t d, int ranks, int index)
{
    return d - lt_cost_chunk(d, ranks, index) + (ranks - 1) * lt_cost_chunk(d, ranks, index);
}

bool lt_cost_is_sparse(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t shard)
{
    return p->scheme == LT_COST_TOPK
           && c->nodes * lt_cost_sparse_bytes(shard, p->density, p->element_bytes)
                  < 2 * shard * p->element_bytes;
}

lt_cost_bytes lt_cost_two_level(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank)
{
    const int local = rank % c->per_node, node = rank / c->per_node;
    const int64_t shard = lt_cost_chunk(d, c->per_node, local);
    return (lt_cost_bytes){.within = (double)(sent_by(d, c->per_node, local) * element_bytes),
                           .between = (double)(sent_by(shard, c->nodes, node) * element_bytes)};
}

static lt_cost_bytes topk(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d, int rank)
{
    const int64_t shard = lt_cost_chunk(d, c->per_node, rank % c->per_node);
    lt_cost_bytes b = lt_cost_two_level(c, d, p->element_bytes, rank);
    if (lt_cost_is_sparse(p, c, shard))
        b.between =
            (double)((c->nodes - 1) * lt_cost_sparse_bytes(shard, p->density, p->element_bytes));
    return b;
}

/* A round's end: the mean of a shard over nodes, then the node's shards to all of its ranks. */
static lt_cost_bytes round_end(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank)
{
    const int local = rank % c->per_node, node = rank / c->per_node;
    const int64_t shard = lt_cost_chunk(d, c->per_node, local);
    return (lt_cost_bytes){.within = (double)((c->per_node - 1) * shard * element_bytes),
                           .between = (double)(sent_by(shard, c->nodes, node) * element_bytes)};
}

static lt_cost_bytes sum(lt_cost_bytes a, lt_cost_bytes b, double share)
{
    return (lt_cost_bytes){a.within + share * b.within, a.between + share * b.between};
}

static lt_cost_bytes local_steps(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d,
                                 int rank)
{
    const int local = rank % c->per_node;
    lt_cost_bytes inner = {.within = (double)(sent_by(d, c->per_node, local) * p->element_bytes)};
    if (p->divided) /* over the ranks of the node */
        inner.within +=
            (double)((c->per_node - 1) * lt_cost_chunk(d, c->per_node, local) * LT_COST_F32);
    return sum(inner, round_end(c, d, LT_COST_F32, rank), 1.0 / p->every);
}

lt_cost_bytes lt_cost_payload(const lt_cost_plan *p, const lt_cost_cluster *c,
                              const lt_cost_bucket *b, int rank)
{
    lt_cost_bytes bytes;
    if (p->scheme == LT_COST_LOCAL_STEPS)
        return local_steps(p, c, b->elements, rank);
    if (p->scheme == LT_COST_TWO_LEVEL)
        bytes = lt_cost_two_level(c, b->elements, p->element_bytes, rank);
    else if (p->scheme == LT_COST_TOPK)
        bytes = topk(p, c, b->elements, rank);
    else if (p->scheme == LT_COST_POWERSGD)
        bytes = sum(lt_cost_two_level(c, p->rank * b->rows + b->dense, p->element_bytes, rank),
                    lt_cost_two_level(c, p->rank * b->columns, p->element_bytes, rank), 1);
    else if (p->scheme == LT_COST_SHARD_GRADIENTS)
        bytes = lt_cost_reducescatter(c, b->elements, p->element_bytes, rank);
    else
        bytes = lt_cost_allreduce(c, b->elements, p->element_bytes, rank);
    if (p->divided || p->scheme == LT_COST_SHARD_GRADIENTS)
        bytes = sum(bytes, lt_cost_allgather(c, b->elements, LT_COST_F32, rank), 1);
    return bytes;
}
