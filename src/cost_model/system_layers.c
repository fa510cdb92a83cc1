/* Forward and backward, and the communication inside the layers of a tensor-parallel model, which partly overlaps with
 * matrix products. */

#include "cost_model/parts.h"

#include <math.h>

enum { F32 = 4 };

double lt_system_micro_batch_seconds(const lt_system *s)
{
    const lt_plan_profile *p = s->profile;
    return s->slow * (p->fixed + p->per_sample * (double)s->setup->batch_size / s->model);
}

/* Inputs and outputs of a layer's matrix products, in units of the width h: 12 h^2 weights, each used 3 times. */
static const struct {
    int inputs, outputs;
} product[] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
enum { PRODUCTS = sizeof product / sizeof *product, ALL_WEIGHTS = 36 };

/* Returns the CPU seconds of messages sent and received if communication shares the cores of computing; else 0. */
static double message_core_seconds(const lt_system *s, bool inside, double bytes, double messages)
{
    const lt_cost_cluster *c = &s->cluster;
    const double byte = inside ? c->copy + c->carry : c->copy;
    return lt_cost_shares_cores(c) ? 2 * (byte * bytes + c->wake * messages) / c->cores : 0;
}

/* Returns the seconds in which each of `size` ranks, `apart` apart, sends bytes to the others; ranks of a node share
 * its network card. */
static double group_exchange_seconds(const lt_system *s, int size, int apart, double bytes)
{
    const int per_node = s->cluster.per_node, fit = per_node / apart > 1 ? per_node / apart : 1,
              here = fit < size ? fit : size;
    if (size == 1)
        return 0;
    const lt_cost_link *l = here == size ? &s->cluster.within : &s->cluster.between;
    const double share = here == size ? 1 : per_node * (double)(size - here) / (size - 1);
    return l->latency + share * ((size - 1) * l->message + bytes / l->bandwidth);
}

/* --- One dimension --- */

enum { ROOTED = 8 }; /* rooted collectives in flight at once */

/* Rows are all-gathered before a product, or reduce-scattered after it, in chunks, up to ROOTED at once. The product of
 * the rank's own chunk overlaps with nothing; the CPU time of messages alternates with products. Backward has the same:
 * twice. */
static double exposed_in_one_dimension(const lt_system *s, double rows, double computing)
{
    const int t = s->mesh.columns;
    const double rest = (t - 1.0) / t;
    const double bytes = F32 * rest * rows * s->profile->hidden;
    const double moved =
                     group_exchange_seconds(s, s->model, 1, bytes) * fmax(1, (double)t / ROOTED),
                 own = message_core_seconds(s, s->model <= s->cluster.per_node, bytes, t - 1);
    double sum = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const double weights = product[i].inputs * product[i].outputs;
        sum += 2 * fmax(own, moved - rest * computing * weights / ALL_WEIGHTS);
    }
    return sum;
}

/* Outside the layers: rows are reduce-scattered after a sharded embedding and all-gathered before the last layer, both
 * again in backward; gradients of parameters that are not sharded are summed (all but 12 h^2 of a layer and the
 * table). */
static double exposed_outside_layers(const lt_system *s, double rows)
{
    enum { TABLE = 4, SUM = 2 };
    const lt_plan_profile *p = s->profile;
    const double rest = (s->mesh.columns - 1.0) / s->mesh.columns;
    double whole = -(12 * p->hidden * p->layers + p->vocabulary) * p->hidden;
    for (size_t i = 0; i < p->buckets; i++)
        whole += (double)p->bucket[i].elements;
    const double table =
        p->vocabulary > 0
            ? TABLE * group_exchange_seconds(s, s->model, 1, F32 * rest * rows * p->hidden)
            : 0;
    return table
           + (whole > 0 ? SUM * group_exchange_seconds(s, s->model, 1, F32 * rest * whole) : 0);
}

/* --- Grids --- */

typedef struct broadcast {
    double seconds, latency;
    bool inside;   /* all ranks of the broadcast are in one node */
    int in_flight; /* overlapping reductions of successive steps: 2 if each has its own card */
} broadcast;

/* A block sent from a rank to the others of its row (along) or column; ranks of a row are consecutive. The roots of a
 * column broadcast that are in one node share its card. */
static broadcast broadcast_cost(const lt_system *s, bool along, double bytes)
{
    const int q = s->mesh.rows, per_node = s->cluster.per_node;
    const int span = along ? q : q * q;
    const bool inside = span <= per_node;
    const lt_cost_link *l = inside ? &s->cluster.within : &s->cluster.between;
    const int here = along ? (per_node < q ? per_node : q) : per_node / q > 1 ? per_node / q : 1;
    const int sharers = along ? 1 : per_node < q ? per_node : q;
    const int messages = inside ? q - 1 : (q - here) * sharers;
    const bool apart = inside || (along ? per_node == 1 : per_node <= q);
    return (broadcast){.seconds = messages * (l->message + bytes / l->bandwidth),
                       .latency = l->latency,
                       .inside = inside,
                       .in_flight = apart ? 2 : 1};
}

/* A gradient in q steps of product time g broadcasts one operand, in b, and sums one, in s. With a card per rank two
 * sums are in flight: a step starts max(b, g) after the last one, or s + g after the one before; the longest path has
 * one kind only, up to an odd step. Where ranks share a card, sums run one after another. */
static double gradient_product_seconds(int q, broadcast of, broadcast sum, double g)
{
    const double b = of.seconds + of.latency, s = sum.seconds + sum.latency, step = fmax(b, g);
    const int pairs = (q - 1) / 2, odd = (q - 1) % 2;
    const double apart = fmax((q - 1) * step, pairs * (s + g) + odd * step);
    return b + (sum.in_flight > 1 ? apart : (q - 1) * fmax(step, s)) + g + s;
}

/* A product on a grid of rows x rows ranks, in `rows` steps. */
typedef struct grid_product {
    int rows;
    double x_bytes, w_bytes; /* bytes per block */
    double seconds;          /* seconds of the product in a step */
} grid_product;

/* The three products (forward, two gradients) without their computation, g per step. forward = f + l + (q - 1) max(g, m
 * + l) + g with f the communication of the first step, whose card on the diagonal sends both blocks, and m that of a
 * later step. */
static double exposed_in_grid_products(const lt_system *s, const grid_product *p)
{
    const int q = p->rows;
    const double g = p->seconds;
    const broadcast x = broadcast_cost(s, true, p->x_bytes),
                    w = broadcast_cost(s, false, p->w_bytes);
    const double most = fmax(x.seconds + x.latency, w.seconds + w.latency);
    const double first =
        x.inside == w.inside ? x.seconds + w.seconds + fmax(x.latency, w.latency) : most;
    const double forward = first + (q - 1) * fmax(g, most) + g;
    return forward + gradient_product_seconds(q, w, x, g) + gradient_product_seconds(q, x, w, g)
           - 3 * q * g;
}

/* Exposed communication of a product of rows [rows,inputs] and weights [inputs,outputs] and of its gradients;
 * computing: seconds of one of them. The CPU time of messages alternates with products. */
static double exposed_of_grid_product(const lt_system *s, double rows, double inputs,
                                      double outputs, double computing)
{
    const int q = s->mesh.rows;
    const double blocks = q * q;
    grid_product p = {.rows = q,
                      .x_bytes = F32 * rows * inputs / (blocks * s->mesh.depth),
                      .w_bytes = F32 * inputs * outputs / blocks,
                      .seconds = computing / q};
    const double rest = (q - 1.0) / q,
                 own = message_core_seconds(s, q <= s->cluster.per_node, rest * p.x_bytes, rest)
                       + message_core_seconds(s, q * q <= s->cluster.per_node, rest * p.w_bytes,
                                              rest);
    p.seconds += own;
    return exposed_in_grid_products(s, &p) + 3 * q * own;
}

/* Sums of moments of norms, forward and backward, and gradients of norms' parameters and of biases. */
static double norm_exchange_seconds(const lt_system *s, double rows)
{
    enum { EXCHANGES = 4, MOMENTS = 2, VECTORS = 13, SUM = 2 };
    const int q = s->mesh.rows;
    const double sum = SUM * F32 * (q - 1.0) / q, own = rows / q / s->mesh.depth;
    return EXCHANGES * group_exchange_seconds(s, q, 1, sum * MOMENTS * own)
           + group_exchange_seconds(s, q, q, sum * VECTORS * s->profile->hidden / q);
}

/* The embedding table [vocabulary, h], which is the last layer's weight too: its columns are all-gathered, embedded
 * rows reduce-scattered, both again in backward. Along depth, gradients of weights are summed, those of the table for
 * both uses. */
static double exposed_outside_grid_layers(const lt_system *s, double rows, double computing)
{
    enum { BOTH = 2, SUM = 2 };
    const int q = s->mesh.rows, d = s->mesh.depth;
    const double h = s->profile->hidden, table = s->profile->vocabulary * h,
                 weights = 12 * h * h * s->profile->layers + BOTH * table,
                 others = (q - 1.0) / q / q;
    const double sum =
        group_exchange_seconds(s, d, q * q, F32 * SUM * (d - 1.0) / d * weights / q / q);
    if (table <= 0)
        return sum;
    return sum + BOTH * group_exchange_seconds(s, q, q, F32 * others * table)
           + BOTH * group_exchange_seconds(s, q, 1, F32 * others * rows * h / d)
           + exposed_of_grid_product(s, rows, h, s->profile->vocabulary, computing / 3);
}

static double exposed_on_grid(const lt_system *s, double rows)
{
    const lt_plan_profile *p = s->profile;
    const double h = p->hidden,
                 last = p->vocabulary / (12 * h), /* size of the last layer, in layers */
        layer = lt_system_micro_batch_seconds(s) / (p->layers + last);
    double seconds = norm_exchange_seconds(s, rows);
    for (int i = 0; i < PRODUCTS; i++)
        seconds +=
            exposed_of_grid_product(s, rows, product[i].inputs * h, product[i].outputs * h,
                                    layer * product[i].inputs * product[i].outputs / ALL_WEIGHTS);
    return seconds * p->layers + exposed_outside_grid_layers(s, rows, layer * last);
}

double lt_system_layer_comm_seconds(const lt_system *s)
{
    if (s->model == 1)
        return 0;
    const double rows = (double)s->setup->batch_size * s->profile->tokens;
    const double layers = s->profile->layers;
    const double seconds =
        s->mesh.rows > 1
            ? exposed_on_grid(s, rows)
            : layers * exposed_in_one_dimension(s, rows, lt_system_micro_batch_seconds(s) / layers)
                  + exposed_outside_layers(s, rows);
    return seconds * (double)s->accum;
}
