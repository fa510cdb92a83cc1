/* Products of a grid of ranks, as src/tensor/ops/summa.c makes them: step t's blocks come while step t - 1 is
 * multiplied. Counters go down, and what they are for begins at 0:
 *
 *     TAKE     blocks of step t are there, or sent, and the product before is done: t + 1 is posted
 *     MULTIPLY that, and the sum of step t - 2 has left its memory
 *     SUMMED   a rank's part in the sum of step t
 *
 * A broadcast's messages share the card of the root's node, a sum's the card of its root's node on the way in. */

#include "base/alloc.h"
#include "plan/events.h"
#include "plan/simulate.h"

#include <stdbool.h>

enum { TAKE, MULTIPLY, SUMMED, MULTIPLIED, KINDS };
enum { IN_FLIGHT = 2 }; /* steps */
enum { OUT, IN };       /* directions of a card */

typedef struct grid {
    const lt_simulated_product *product;
    const lt_cost_cluster *cluster;
    lt_events *events;
    int *left; /* [steps][ranks][KINDS] */
    int q, ranks;
} grid;

typedef struct operand {
    bool moves, sums; /* broadcast to all, or summed at one */
    bool along;       /* a row; else down a column */
    double bytes;
} operand;

static operand operand_of(const grid *g, int number)
{
    const lt_simulated_product *p = g->product;
    const bool is_x = number == 0;
    return (operand){.moves = p->kind != (is_x ? LT_PRODUCT_DX : LT_PRODUCT_DW),
                     .sums = p->kind == (is_x ? LT_PRODUCT_DX : LT_PRODUCT_DW),
                     .along = is_x,
                     .bytes = is_x ? p->x_bytes : p->w_bytes};
}

static int id_of(const grid *g, int kind, int step, int rank)
{
    return (step * g->ranks + rank) * KINDS + kind;
}

/* The index of a rank in its row, or in its column. */
static int index_in(const grid *g, int rank, bool along)
{
    return along ? rank % g->q : rank / g->q % g->q;
}

static int member(const grid *g, int rank, bool along, int index)
{
    return rank + (index - index_in(g, rank, along)) * (along ? 1 : g->q);
}

/* Resources: cores, links within nodes both ways, cards both ways. at: whose card decides. */
static void send(grid *g, int from, int to, int way, const operand *o, const lt_events_job *job)
{
    const int per_node = g->cluster->per_node, nodes = g->cluster->nodes;
    const int at = way == OUT ? from : to;
    const bool inside = from / per_node == to / per_node;
    const lt_cost_link *l = inside ? &g->cluster->within : &g->cluster->between;
    lt_events_job whole = *job;
    whole.resource =
        inside ? g->ranks * (1 + way) + at : 3 * g->ranks + nodes * way + at / per_node;
    whole.seconds = l->message + o->bytes / l->bandwidth;
    whole.latency = l->latency;
    lt_events_begin(g->events, &whole);
}

static void count_down(grid *g, int kind, int step, int rank);

/* Rank is in the broadcasts of a step: its messages, if it is the root. */
static void post(grid *g, int step, int rank)
{
    for (int i = 0; i < 2 && step < g->q; i++) {
        const operand o = operand_of(g, i);
        if (!o.moves || index_in(g, rank, o.along) != step)
            continue;
        for (int k = 1; k < g->q; k++) {
            const int to = member(g, rank, o.along, (step + k) % g->q);
            const lt_events_job job = {.done = id_of(g, TAKE, step, rank),
                                       .there = id_of(g, TAKE, step, to)};
            send(g, rank, to, OUT, &o, &job);
        }
    }
}

static void multiply(grid *g, int step, int rank)
{
    const lt_events_job job = {.resource = rank,
                               .seconds = g->product->seconds,
                               .done = id_of(g, MULTIPLIED, step, rank),
                               .there = -1};
    lt_events_begin(g->events, &job);
}

static void add_up(grid *g, int step, int rank)
{
    for (int i = 0; i < 2; i++) {
        const operand o = operand_of(g, i);
        if (!o.sums)
            continue;
        const int root = member(g, rank, o.along, step);
        if (root == rank)
            count_down(g, SUMMED, step, rank);
        const lt_events_job job = {.done = id_of(g, SUMMED, step, rank),
                                   .there = id_of(g, SUMMED, step, root)};
        if (root != rank)
            send(g, rank, root, IN, &o, &job);
    }
}

static void count_down(grid *g, int kind, int step, int rank)
{
    if (kind == MULTIPLIED) {
        add_up(g, step, rank);
        if (step + 1 < g->q)
            count_down(g, TAKE, step + 1, rank);
        return;
    }
    if (--g->left[id_of(g, kind, step, rank)] > 0)
        return;
    if (kind == TAKE) {
        post(g, step + 1, rank);
        count_down(g, MULTIPLY, step, rank);
    } else if (kind == MULTIPLY) {
        multiply(g, step, rank);
    } else if (step + IN_FLIGHT < g->q) {
        count_down(g, MULTIPLY, step + IN_FLIGHT, rank);
    }
}

static void notice(void *context, int id)
{
    grid *g = context;
    count_down(g, id % KINDS, id / KINDS / g->ranks, id / KINDS % g->ranks);
}

/* How many notices of each kind there will be. */
static void count_notices(grid *g, int step, int rank)
{
    int *left = &g->left[id_of(g, 0, step, rank)];
    left[TAKE] = left[MULTIPLY] = 1; /* the product before; the blocks */
    left[SUMMED] = 1;                /* it has left */
    for (int i = 0; i < 2; i++) {
        const operand o = operand_of(g, i);
        const bool is_root = index_in(g, rank, o.along) == step;
        if (o.moves && g->q > 1)
            left[TAKE] += is_root ? g->q - 1 : 1;
        if (o.sums && step >= IN_FLIGHT)
            left[MULTIPLY]++;
        if (o.sums && is_root)
            left[SUMMED] = g->q; /* and its own */
    }
}

static lt_status play(grid *g)
{
    for (int t = 0; t < g->q; t++)
        for (int r = 0; r < g->ranks; r++)
            count_notices(g, t, r);
    for (int r = 0; r < g->ranks; r++) {
        post(g, 0, r);
        lt_events_tell(g->events, 0, id_of(g, TAKE, 0, r));
    }
    return lt_events_run(g->events);
}

lt_status lt_simulate_product(double *seconds, const lt_cost_cluster *cluster,
                              const lt_simulated_product *product)
{
    grid g = {.product = product,
              .cluster = cluster,
              .q = product->rows,
              .ranks = cluster->nodes * cluster->per_node};
    if (g.q < 1 || g.ranks % (g.q * g.q) || (double)g.ranks * g.q > INT32_MAX / KINDS)
        return lt_fail(LT_E_ARG, "plan: %d ranks are no grids of %d x %d", g.ranks, g.q, g.q);
    g.left = lt_alloc((size_t)g.ranks * (size_t)g.q * KINDS, sizeof *g.left);
    lt_status st = g.left ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = lt_events_new(&g.events, 3 * g.ranks + 2 * cluster->nodes, notice, &g);
    if (!st)
        st = play(&g);
    if (!st)
        *seconds = lt_events_now(g.events);
    lt_events_free(&g.events);
    lt_free(g.left);
    return st;
}
