/* Exchanges inside the layers of a divided model, of which a part is behind products. */

#include "plan/simulate.h"
#include "plan/system.h"

#include "lather/ext/fail.h"

#include <math.h>

enum { F32 = 4 };

/* The products of a layer, in h^2 weights: of 36 forward and backward. */
static const struct {
    int inputs, outputs;
} product[] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
enum { PRODUCTS = sizeof product / sizeof *product, ALL_WEIGHTS = 36 };

/* Core seconds of what a rank sends and gets, where no core is spare for them. */
static double work(const lt_system *s, double bytes, double messages)
{
    const lt_cost_cluster *c = &s->cluster;
    return lt_cost_shares_cores(c) ? 2 * (c->copy * bytes + c->wake * messages) / c->cores : 0;
}

/* --- One dimension --- */

enum { ROOTED = 8 }; /* broadcasts, or sums at one rank, that are under way at once */

/* Seconds in which each rank of a copy sends bytes to the others. */
static double all_to_all(const lt_system *s, double bytes)
{
    const bool inside = s->model <= s->cluster.per_node;
    const lt_cost_link *l = inside ? &s->cluster.within : &s->cluster.between;
    const int sharers = inside ? 1 : s->cluster.per_node;
    return l->latency + sharers * ((s->model - 1) * l->message + bytes / l->bandwidth);
}

/* Rows are gathered in front of a product, or summed and scattered behind it, piece by piece, all at once as far as there
 * are no more than ROOTED of them. The own piece's product hides nothing; what messages compute takes turns with
 * products. Twice, as backward has the same. */
static double in_one_dimension(const lt_system *s, double rows, double computing)
{
    const int t = s->mesh.columns;
    const double rest = (t - 1.0) / t;
    const double bytes = F32 * rest * rows * s->profile->hidden;
    const double moved = all_to_all(s, bytes) * fmax(1, (double)t / ROOTED),
                 own = work(s, bytes, t - 1);
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
        p->vocabulary > 0 ? TABLE * all_to_all(s, F32 * rest * rows * p->hidden) : 0;
    return table + (whole > 0 ? SUM * all_to_all(s, F32 * rest * whole) : 0);
}

/* --- Grids --- */

typedef struct broadcast {
    double seconds, latency;
    bool inside;      /* a node */
    double in_flight; /* sums of so many steps at once, each through a card of its own */
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

/* All three products, less what they compute, which is g a step. forward = f + l + (q - 1) max(g, m + l) + g, where f is the first
 * step's exchange, on the diagonal, whose card sends both blocks, and m any later one's. A gradient has one operand
 * broadcast, in b, and one summed, in s, of which n are in flight: b + (q - 1) max(g, b, s / n) + g + s. */
static double products_of_steps(const lt_system *s, const lt_simulated_product *p)
{
    const int q = p->rows;
    const double g = p->seconds;
    const broadcast x = broadcast_of(s, true, p->x_bytes), w = broadcast_of(s, false, p->w_bytes);
    const double a = x.seconds + x.latency, b = w.seconds + w.latency, most = fmax(a, b);
    const double first =
        x.inside == w.inside ? x.seconds + w.seconds + fmax(x.latency, w.latency) : most;
    const double forward = first + (q - 1) * fmax(g, most) + g;
    const double dx = b + (q - 1) * fmax(g, fmax(b, a / x.in_flight)) + g + a;
    const double dw = a + (q - 1) * fmax(g, fmax(a, b / w.in_flight)) + g + b;
    return forward + dx + dw - 3 * q * g;
}

static lt_status simulate_products(double *seconds, const lt_system *s, lt_simulated_product p)
{
    *seconds = -3 * p.rows * p.seconds;
    for (p.kind = 0; p.kind < LT_PRODUCT_KINDS; p.kind++) {
        double one;
        LT_TRY(lt_simulate_product(&one, &s->cluster, &p));
        *seconds += one;
    }
    return LT_OK;
}

/* What a step's messages compute takes turns with its product. */
static lt_status on_grid(double *seconds, const lt_system *s, double rows, double computing)
{
    const int q = s->mesh.rows;
    const double h = s->profile->hidden, blocks = q * q;
    *seconds = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const double weights = product[i].inputs * product[i].outputs;
        lt_simulated_product p = {.rows = q,
                                  .x_bytes =
                                      F32 * rows * product[i].inputs * h / (blocks * s->mesh.depth),
                                  .w_bytes = F32 * weights * h * h / blocks,
                                  .seconds = computing * weights / ALL_WEIGHTS / q};
        const double own = work(s, (q - 1.0) / q * (p.x_bytes + p.w_bytes), 2 * (q - 1.0) / q);
        p.seconds += own;
        double all = products_of_steps(s, &p);
        if (s->events)
            LT_TRY(simulate_products(&all, s, p));
        *seconds += all + 3 * q * own;
    }
    return LT_OK;
}

lt_status lt_system_layers(double *seconds, const lt_system *s)
{
    *seconds = 0;
    if (s->model == 1)
        return LT_OK;
    const double rows = (double)s->setup->batch_size * s->profile->tokens;
    const double computing = lt_system_micro(s) / s->profile->layers;
    if (s->mesh.rows > 1)
        LT_TRY(on_grid(seconds, s, rows, computing));
    else
        *seconds = in_one_dimension(s, rows, computing);
    *seconds *= s->profile->layers;
    *seconds += s->mesh.rows > 1 ? 0 : around_layers(s, rows);
    *seconds *= (double)s->accum;
    return LT_OK;
}
