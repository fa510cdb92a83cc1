/* Forward and backward, and exchanges inside the layers of a divided model, part of which overlaps with matrix products. */

#include "plan/parts.h"

#include <math.h>

enum { F32 = 4 };

double lt_system_micro(const lt_system *s)
{
    const lt_plan_profile *p = s->profile;
    return s->slow * (p->fixed + p->per_sample * (double)s->setup->batch_size / s->model);
}

/* The products of a layer, in h^2 weights: of 36 forward and backward. */
static const struct {
    int inputs, outputs;
} product[] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
enum { PRODUCTS = sizeof product / sizeof *product, ALL_WEIGHTS = 36 };

/* Core seconds of what a rank sends and gets, inside a node or not, where no core is spare for them. */
static double work(const lt_system *s, bool inside, double bytes, double messages)
{
    const lt_cost_cluster *c = &s->cluster;
    const double byte = inside ? c->copy + c->carry : c->copy;
    return lt_cost_shares_cores(c) ? 2 * (byte * bytes + c->wake * messages) / c->cores : 0;
}

/* Each of size ranks, so many apart, sends bytes to the others: as many of them outside the node as the group has there. */
static double in_group(const lt_system *s, int size, int apart, double bytes)
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

enum { ROOTED = 8 }; /* broadcasts, or sums at one rank, that are under way at once */

/* Rows are gathered in front of a product, or summed and scattered behind it, piece by piece, all at once as far as there
 * are no more than ROOTED of them. The own piece's product hides nothing; what messages compute takes turns with
 * products. Twice, as backward has the same. */
static double in_one_dimension(const lt_system *s, double rows, double computing)
{
    const int t = s->mesh.columns;
    const double rest = (t - 1.0) / t;
    const double bytes = F32 * rest * rows * s->profile->hidden;
    const double moved = in_group(s, s->model, 1, bytes) * fmax(1, (double)t / ROOTED),
                 own = work(s, s->model <= s->cluster.per_node, bytes, t - 1);
    double sum = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const double weights = product[i].inputs * product[i].outputs;
        sum += 2 * fmax(own, moved - rest * computing * weights / ALL_WEIGHTS);
    }
    return sum;
}

/* Beside the layers: rows are summed and scattered behind a divided embedding, gathered in front of the last layer, and each of
 * them once more in backward; gradients of what all ranks have whole are summed (12 h^2 of a layer and the table are not). */
static double around_layers(const lt_system *s, double rows)
{
    enum { TABLE = 4, SUM = 2 };
    const lt_plan_profile *p = s->profile;
    const double rest = (s->mesh.columns - 1.0) / s->mesh.columns;
    double whole = -(12 * p->hidden * p->layers + p->vocabulary) * p->hidden;
    for (size_t i = 0; i < p->buckets; i++)
        whole += (double)p->bucket[i].elements;
    const double table =
        p->vocabulary > 0 ? TABLE * in_group(s, s->model, 1, F32 * rest * rows * p->hidden) : 0;
    return table + (whole > 0 ? SUM * in_group(s, s->model, 1, F32 * rest * whole) : 0);
}

/* --- Grids --- */

typedef struct broadcast {
    double seconds, latency;
    bool inside;   /* a node */
    int in_flight; /* sums of so many steps at once, each through a card of its own */
} broadcast;

/* One block from a rank to the others of its row, or of its column; ranks of a row are neighbours. As many roots of
 * one step share a card as a node has ranks of one row, which is where the blocks of a column come from. */
static broadcast broadcast_of(const lt_system *s, bool along, double bytes)
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

/* A gradient of q steps has one operand broadcast, in b, and one summed, in s. Of sums through cards of their own two are in
 * flight: a step follows the one before by max(b, g), or the one before that by s + g; the longest way through them has
 * all of one kind, but for an odd step. Where ranks share a card, sums are one behind the other. */
static double gradient(int q, broadcast of, broadcast sum, double g)
{
    const double b = of.seconds + of.latency, s = sum.seconds + sum.latency, step = fmax(b, g);
    const int pairs = (q - 1) / 2, odd = (q - 1) % 2;
    const double apart = fmax((q - 1) * step, pairs * (s + g) + odd * step);
    return b + (sum.in_flight > 1 ? apart : (q - 1) * fmax(step, s)) + g + s;
}

/* A product on a grid of rows x rows ranks in as many steps. */
typedef struct grid_product {
    int rows;
    double x_bytes, w_bytes; /* of a block */
    double seconds;          /* of a step's own product */
} grid_product;

/* All three products, less what they compute, which is g a step. forward = f + l + (q - 1) max(g, m + l) + g, where f is the first
 * step's exchange, on the diagonal, whose card sends both blocks, and m any later one's. */
static double products_of_steps(const lt_system *s, const grid_product *p)
{
    const int q = p->rows;
    const double g = p->seconds;
    const broadcast x = broadcast_of(s, true, p->x_bytes), w = broadcast_of(s, false, p->w_bytes);
    const double most = fmax(x.seconds + x.latency, w.seconds + w.latency);
    const double first =
        x.inside == w.inside ? x.seconds + w.seconds + fmax(x.latency, w.latency) : most;
    const double forward = first + (q - 1) * fmax(g, most) + g;
    return forward + gradient(q, w, x, g) + gradient(q, x, w, g) - 3 * q * g;
}

/* A product of rows [rows, inputs] and weights [inputs, outputs], its two gradients too, less the seconds of computing of
 * each. What a step's messages compute takes turns with its product. */
static double product_on_grid(const lt_system *s, double rows, double inputs, double outputs,
                              double computing)
{
    const int q = s->mesh.rows;
    const double blocks = q * q;
    grid_product p = {.rows = q,
                      .x_bytes = F32 * rows * inputs / (blocks * s->mesh.depth),
                      .w_bytes = F32 * inputs * outputs / blocks,
                      .seconds = computing / q};
    const double rest = (q - 1.0) / q,
                 own = work(s, q <= s->cluster.per_node, rest * p.x_bytes, rest)
                       + work(s, q * q <= s->cluster.per_node, rest * p.w_bytes, rest);
    p.seconds += own;
    return products_of_steps(s, &p) + 3 * q * own;
}

/* Moments of the norms' rows, forward and backward, and gradients of gains, shifts and biases. */
static double norms_of_layer(const lt_system *s, double rows)
{
    enum { EXCHANGES = 4, MOMENTS = 2, VECTORS = 13, SUM = 2 };
    const int q = s->mesh.rows;
    const double sum = SUM * F32 * (q - 1.0) / q, own = rows / q / s->mesh.depth;
    return EXCHANGES * in_group(s, q, 1, sum * MOMENTS * own)
           + in_group(s, q, q, sum * VECTORS * s->profile->hidden / q);
}

/* A table of vocabulary x h: its columns are gathered, its terms of embedded rows summed and scattered, both backward again;
 * it is the last layer's weight, too. In depth gradients of weights are summed, a table's of both its uses. */
static double around_grid(const lt_system *s, double rows, double computing)
{
    enum { BOTH = 2, SUM = 2 };
    const int q = s->mesh.rows, d = s->mesh.depth;
    const double h = s->profile->hidden, table = s->profile->vocabulary * h,
                 weights = 12 * h * h * s->profile->layers + BOTH * table,
                 others = (q - 1.0) / q / q;
    const double sum = in_group(s, d, q * q, F32 * SUM * (d - 1.0) / d * weights / q / q);
    if (table <= 0)
        return sum;
    return sum + BOTH * in_group(s, q, q, F32 * others * table)
           + BOTH * in_group(s, q, 1, F32 * others * rows * h / d)
           + product_on_grid(s, rows, h, s->profile->vocabulary, computing / 3);
}

static double on_grid(const lt_system *s, double rows)
{
    const lt_plan_profile *p = s->profile;
    const double h = p->hidden, last = p->vocabulary / (12 * h), /* in layers, of the products */
        layer = lt_system_micro(s) / (p->layers + last);
    double seconds = norms_of_layer(s, rows);
    for (int i = 0; i < PRODUCTS; i++)
        seconds += product_on_grid(s, rows, product[i].inputs * h, product[i].outputs * h,
                                   layer * product[i].inputs * product[i].outputs / ALL_WEIGHTS);
    return seconds * p->layers + around_grid(s, rows, layer * last);
}

double lt_system_layers(const lt_system *s)
{
    if (s->model == 1)
        return 0;
    const double rows = (double)s->setup->batch_size * s->profile->tokens;
    const double layers = s->profile->layers;
    const double seconds = s->mesh.rows > 1
                               ? on_grid(s, rows)
                               : layers * in_one_dimension(s, rows, lt_system_micro(s) / layers)
                                     + around_layers(s, rows);
    return seconds * (double)s->accum;
}
