/* Exchanges: of gradients between copies, and inside the layers of a divided model. */

#include "base/alloc.h"
#include "plan/system.h"

#include <string.h>

enum { F32 = 4 };

/* --- Gradients --- */

/* Copies of a divided model are ranks of the same place in it: as many groups as a node has places share its
 * card. */
static lt_cost_cluster cluster_of_replicas(const lt_system *s)
{
    lt_cost_cluster c = s->cluster;
    const int places = s->mesh.rows * s->mesh.columns;
    const int in_node = c.per_node / places > 0 ? c.per_node / places : 1;
    const int groups = c.per_node / in_node;
    c.nodes = s->setup->ranks / places / in_node;
    c.per_node = in_node;
    c.between.bandwidth /= groups;
    c.between.message *= groups;
    return c;
}

static lt_status copy_buckets(lt_cost_bucket **out, const lt_system *s, double backward)
{
    const lt_plan_profile *p = s->profile;
    const int places = s->mesh.rows * s->mesh.columns;
    lt_cost_bucket *b = lt_alloc(p->buckets ? p->buckets : 1, sizeof *b);
    if (!b)
        return LT_E_NOMEM;
    for (size_t i = 0; i < p->buckets; i++) {
        b[i] = p->bucket[i];
        b[i].ready *= backward;
        b[i].elements = (b[i].elements + places - 1) / places;
        b[i].dense = b[i].dense < b[i].elements ? b[i].dense : b[i].elements;
    }
    *out = b;
    return LT_OK;
}

/* Pieces of parameters that go to their owners and back, inside a copy, where owners are no blocks of their own. */
static double routes(const lt_system *s, const lt_cost_cluster *c)
{
    if (s->model == 1 || s->profile->blocks)
        return 0;
    double elements = 0;
    for (size_t i = 0; i < s->profile->buckets; i++)
        elements += (double)s->profile->bucket[i].elements;
    const int replicas = s->setup->ranks / (s->mesh.rows * s->mesh.columns), t = s->model;
    const double bytes = 2.0 * F32 * (t - 1) / t * elements / t / replicas;
    const bool inside = s->cluster.nodes == 1 || t <= s->cluster.per_node;
    const int sharers = s->cluster.per_node;
    return inside ? bytes / c->within.bandwidth + 2 * c->within.latency
                  : sharers * bytes / s->cluster.between.bandwidth + 2 * c->between.latency;
}

lt_status lt_system_exchange(double *seconds, const lt_system *s)
{
    const double backward = s->profile->backward * lt_system_micro(s);
    const lt_cost_cluster c = s->model > 1 ? cluster_of_replicas(s) : s->cluster;
    lt_cost_plan plan = s->setup->exchange;
    lt_cost_bucket *b;
    lt_cost_result r;
    plan.divided = s->divided;
    plan.element_bytes = plan.element_bytes ? plan.element_bytes : F32;
    LT_TRY(copy_buckets(&b, s, backward));
    const lt_status st = lt_cost_simulate(&r, &plan, &c, b, s->profile->buckets, backward);
    lt_free(b);
    if (!st)
        *seconds = r.exposed + routes(s, &c);
    return st;
}

/* --- Layers --- */

/* Seconds in which one rank sends bytes to the others of its row, column or copy, over a link that all ranks
 * of a node use alike. */
static double on_link(const lt_system *s, bool inside, int others, double bytes)
{
    const lt_cost_link *l = inside ? &s->cluster.within : &s->cluster.between;
    const int sharers = inside ? 1 : s->cluster.per_node;
    return l->latency + others * sharers * l->message + sharers * bytes / l->bandwidth;
}

/* The products of a layer, in h^2 weights: of 36 forward and backward. */
static const struct {
    int inputs, outputs;
} product[] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
enum { PRODUCTS = sizeof product / sizeof *product, ALL_WEIGHTS = 36 };

static double positive(double x)
{
    return x > 0 ? x : 0;
}

/* One dimension: rows are gathered in front of a product, or summed and scattered behind it, piece by piece. The
 * own piece's product hides nothing. Twice, for backward has the same. */
static double one_dimension(const lt_system *s, double rows, double computing)
{
    const int t = s->mesh.columns;
    const double rest = (t - 1.0) / t, bytes = F32 * rest * rows * s->profile->hidden;
    const double moved = on_link(s, t <= s->cluster.per_node, t - 1, bytes);
    double sum = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const double weights = product[i].inputs * product[i].outputs;
        sum += 2 * positive(moved - rest * computing * weights / ALL_WEIGHTS);
    }
    return sum;
}

/* A grid: q steps, each with a block of rows along the row and one of weights down the column, behind the product
 * of the step before. Three products: forward, dx, dw. */
static double grid(const lt_system *s, double rows, double computing)
{
    const int q = s->mesh.rows;
    const double h = s->profile->hidden, part = s->mesh.depth * q * q;
    double sum = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const double weights = product[i].inputs * product[i].outputs;
        const double along = F32 * (q - 1) * rows * product[i].inputs * h / part / q,
                     down = F32 * (q - 1) * weights * h * h / (q * q) / q;
        const double step = on_link(s, q <= s->cluster.per_node, q - 1, along)
                            + on_link(s, q * q <= s->cluster.per_node, q - 1, down);
        const double of_step = computing * weights / ALL_WEIGHTS / q;
        sum += 3 * (step + (q - 1) * positive(step - of_step));
    }
    return sum;
}

lt_status lt_system_layers(double *seconds, const lt_system *s)
{
    *seconds = 0;
    if (s->model == 1)
        return LT_OK;
    const double rows = (double)s->setup->batch_size * s->profile->tokens;
    const double computing = lt_system_micro(s) / s->profile->layers;
    const double of_layer =
        s->mesh.rows > 1 ? grid(s, rows, computing) : one_dimension(s, rows, computing);
    *seconds = (double)s->accum * s->profile->layers * of_layer;
    return LT_OK;
}
