/* Ranks that go through the rounds of buckets. A round is a collective's half: each rank sends a message to every
 * other one of a group, and is through when it has all of theirs and its own have left.
 *
 * 1. Within a node each rank has a link of its own, to other nodes its node's card, which ranks share alike.
 * 2. In slot s rank (node, local) sends to (node + 1 + s / per_node, local + s): every rank gets one message in
 *    each slot, so that cards that have equally much to send are done at the same time.
 * 3. Round r of bucket b begins when round r - 1 of b is through, and, where it is the first of a stage, that stage
 *    of bucket b - 1.
 * 4. Shared cores have jobs besides: backward, from one bucket's begin to the next one's, and, from a bucket's begin on,
 *    what its messages to other nodes compute. Within a node cores are the link: what its messages compute, their
 *    copies and sums, is a round of its own behind them. */

#include "base/alloc.h"
#include "plan/events.h"
#include "plan/simulate.h"

#include <stdbool.h>

typedef enum group { ALL, NODE, PEERS, COMPUTING } group; /* COMPUTING: no messages */
typedef enum parts {
    OTHERS,
    OWN,
    SPARSE
} parts; /* of the elements: each one's chunk, the sender's, the largest */

typedef struct round_of {
    group group;
    parts parts;
    int stage;
    double seconds;          /* COMPUTING */
    const double *of_rank;   /* COMPUTING: [ranks] instead of seconds */
    const int64_t *segments; /* OWN: [ranks] instead of chunks */
    int64_t elements;
    int element_bytes;
} round_of;

enum { MAX_ROUNDS = 16, LINKS = 2, WITHIN = 0, BETWEEN = 1 };

typedef struct queue_of { /* a bucket, or what follows them all */
    round_of round[MAX_ROUNDS];
    int rounds;
} queue_of;

typedef struct place { /* a rank's in a bucket */
    int round;         /* that it is in; -1: the bucket is not ready */
    bool waits;        /* for the stage to be free */
} place;

typedef struct simulation {
    const lt_cost_plan *plan;
    const lt_cost_cluster *cluster;
    lt_events *events;
    queue_of *queue;
    place *place; /* [queues][ranks] */
    int *left;    /* [queues][MAX_ROUNDS][ranks]: messages and streams until the round is through */
    int *slot;    /* [queues][ranks][LINKS]: of a stream, the next */
    int *pending; /* [ranks]: buckets, what their messages compute, and backward */
    int ranks, queues;
    double last;
    const lt_cost_bucket *bucket;
    double backward;
} simulation;

/* --- Ids of notices: a queue's begin, a stream's message has left, a message is there, what messages compute is done --- */

enum { BEGIN, LEFT, THERE, WORKED, KINDS };

static int id_of(const simulation *s, int kind, int queue, int number, int rank)
{
    return ((queue * MAX_ROUNDS + number) * s->ranks + rank) * KINDS + kind;
}

static int *left_of(const simulation *s, int queue, int round, int rank)
{
    return &s->left[(queue * MAX_ROUNDS + round) * s->ranks + rank];
}

static place *place_of(const simulation *s, int queue, int rank)
{
    return &s->place[queue * s->ranks + rank];
}

static int *slot_of(const simulation *s, int queue, int rank, int link)
{
    return &s->slot[(queue * s->ranks + rank) * LINKS + link];
}

/* Resources: links within nodes by rank, cores by rank, cards by node. */
static int resource_of(const simulation *s, int rank, int link)
{
    return link == WITHIN ? rank : 2 * s->ranks + rank / s->cluster->per_node;
}

static int core_of(const simulation *s, int rank)
{
    return s->ranks + rank;
}

/* --- Messages --- */

/* How many messages a rank sends over a link in a round. */
static int messages(const simulation *s, const round_of *r, int link)
{
    const int nodes = s->cluster->nodes, per_node = s->cluster->per_node;
    if (link == WITHIN)
        return r->group == ALL || r->group == NODE ? per_node - 1 : 0;
    if (r->group == PEERS)
        return nodes - 1;
    return r->group == ALL ? (nodes - 1) * per_node : 0;
}

/* Invariant 2. */
static int receiver(const simulation *s, const round_of *r, int rank, int link, int slot)
{
    const int nodes = s->cluster->nodes, per_node = s->cluster->per_node;
    const int node = rank / per_node, local = rank % per_node;
    if (link == WITHIN)
        return node * per_node + (local + 1 + slot) % per_node;
    if (r->group == PEERS)
        return (node + 1 + slot) % nodes * per_node + local;
    return (node + 1 + slot / per_node) % nodes * per_node + (local + slot) % per_node;
}

static int64_t chunk(const simulation *s, const round_of *r, int rank)
{
    const int nodes = s->cluster->nodes, per_node = s->cluster->per_node;
    if (r->segments)
        return r->segments[rank];
    if (r->group == ALL)
        return lt_cost_chunk(r->elements, s->ranks, rank);
    const int64_t shard = lt_cost_chunk(r->elements, per_node, rank % per_node);
    return r->group == NODE ? shard : lt_cost_chunk(shard, nodes, rank / per_node);
}

static double bytes(const simulation *s, const round_of *r, int from, int to)
{
    if (r->parts == SPARSE) {
        const int64_t shard =
            lt_cost_chunk(r->elements, s->cluster->per_node, from % s->cluster->per_node);
        return (double)lt_cost_sparse_bytes(shard, s->plan->density, r->element_bytes);
    }
    return (double)chunk(s, r, r->parts == OWN ? from : to) * r->element_bytes;
}

static void send_next(simulation *s, int queue, int rank, int link)
{
    const int n = place_of(s, queue, rank)->round;
    const round_of *r = &s->queue[queue].round[n];
    int *slot = slot_of(s, queue, rank, link);
    const lt_cost_link *l = link == WITHIN ? &s->cluster->within : &s->cluster->between;
    const double rate = r->segments ? lt_cost_gather_rate(l) : l->bandwidth;
    const int to = receiver(s, r, rank, link, (*slot)++);
    const lt_events_job job = {.resource = resource_of(s, rank, link),
                               .seconds = l->message + bytes(s, r, rank, to) / rate,
                               .latency = l->latency,
                               .done = id_of(s, LEFT, queue, link, rank),
                               .there = id_of(s, THERE, queue, n, to)};
    lt_events_begin(s->events, &job);
}

/* --- Rounds --- */

static void begin_round(simulation *s, int queue, int rank);

/* Whether a rank may begin a round: invariant 3. */
static bool is_free(const simulation *s, int queue, int rank, int number)
{
    const queue_of *q = &s->queue[queue];
    const int stage = q->round[number].stage;
    if (!queue || (number && q->round[number - 1].stage == stage))
        return true;
    const queue_of *before = &s->queue[queue - 1];
    const int at = place_of(s, queue - 1, rank)->round;
    return at >= before->rounds || (at >= 0 && before->round[at].stage > stage);
}

static void enter(simulation *s, int queue, int rank)
{
    place *p = place_of(s, queue, rank);
    p->waits = !is_free(s, queue, rank, p->round);
    if (!p->waits)
        begin_round(s, queue, rank);
}

/* A bucket, or backward: what follows begins behind them all. */
static void finish_one(simulation *s, int rank)
{
    const int update = s->queues - 1;
    if (--s->pending[rank] == 0) {
        place_of(s, update, rank)->round = 0;
        begin_round(s, update, rank);
    }
}

static void finish_queue(simulation *s, int queue, int rank)
{
    if (queue < s->queues - 1)
        finish_one(s, rank);
    else if (lt_events_now(s->events) > s->last)
        s->last = lt_events_now(s->events);
}

static void advance(simulation *s, int queue, int rank)
{
    place *p = place_of(s, queue, rank);
    const int buckets = s->queues - 1;
    p->round++;
    if (p->round < s->queue[queue].rounds)
        enter(s, queue, rank);
    else
        finish_queue(s, queue, rank);
    if (queue + 1 < buckets && place_of(s, queue + 1, rank)->waits)
        enter(s, queue + 1, rank);
}

static void through_one(simulation *s, int queue, int round, int rank)
{
    if (--*left_of(s, queue, round, rank) == 0)
        advance(s, queue, rank);
}

static void begin_round(simulation *s, int queue, int rank)
{
    const int n = place_of(s, queue, rank)->round;
    if (n >= s->queue[queue].rounds) {
        finish_queue(s, queue, rank);
        return;
    }
    const round_of *r = &s->queue[queue].round[n];
    if (r->group == COMPUTING) {
        const lt_events_job job = {.resource = core_of(s, rank),
                                   .seconds = r->of_rank ? r->of_rank[rank] : r->seconds,
                                   .done = -1,
                                   .there = id_of(s, THERE, queue, n, rank)};
        lt_events_begin(s->events, &job);
        return;
    }
    for (int link = 0; link < LINKS; link++) {
        *slot_of(s, queue, rank, link) = 0;
        if (messages(s, r, link))
            send_next(s, queue, rank, link);
    }
    through_one(s, queue, n, rank); /* one is the begin itself: messages may all be there already */
}

static void message_left(simulation *s, int queue, int rank, int link)
{
    const int n = place_of(s, queue, rank)->round;
    if (*slot_of(s, queue, rank, link) < messages(s, &s->queue[queue].round[n], link))
        send_next(s, queue, rank, link);
    else
        through_one(s, queue, n, rank);
}

/* --- Shared cores: invariant 4 --- */

static void compute(simulation *s, int rank, double seconds, int done)
{
    const lt_events_job job = {
        .resource = core_of(s, rank), .seconds = seconds, .done = done, .there = -1};
    lt_events_begin(s->events, &job);
}

/* Backward up to the begin of a queue. */
static void go_back(simulation *s, int queue, int rank)
{
    const double to = queue < s->queues - 1 ? s->bucket[queue].ready : s->backward;
    double from = 0;
    for (int q = 0; q < queue; q++)
        from = s->bucket[q].ready > from ? s->bucket[q].ready : from;
    compute(s, rank, to > from ? to - from : 0, id_of(s, BEGIN, queue, 0, rank));
}

/* Of what a rank sends for a bucket, and of as much that comes; rounds within nodes have theirs. */
static double work_of(const simulation *s, int queue, int rank)
{
    const queue_of *q = &s->queue[queue];
    const lt_cost_cluster *c = s->cluster;
    const double byte[LINKS] = {[WITHIN] = c->copy + c->carry, [BETWEEN] = c->copy};
    double one_way = 0;
    for (int n = 0; n < q->rounds; n++)
        for (int link = 0; link < LINKS && q->round[n].group != NODE; link++)
            for (int i = 0; i < messages(s, &q->round[n], link); i++)
                one_way +=
                    c->wake
                    + byte[link]
                          * bytes(s, &q->round[n], rank, receiver(s, &q->round[n], rank, link, i));
    return 2 * one_way;
}

static void begin_queue(simulation *s, int queue, int rank)
{
    const bool shared = lt_cost_shares_cores(s->cluster), is_bucket = queue < s->queues - 1;
    if (shared && is_bucket) {
        go_back(s, queue + 1, rank);
        compute(s, rank, work_of(s, queue, rank), id_of(s, WORKED, queue, 0, rank));
    }
    if (!is_bucket) { /* backward is done */
        finish_one(s, rank);
        return;
    }
    place_of(s, queue, rank)->round = 0;
    enter(s, queue, rank);
}

static void notice(void *context, int id)
{
    simulation *s = context;
    const int kind = id % KINDS, rank = id / KINDS % s->ranks,
              number = id / KINDS / s->ranks % MAX_ROUNDS,
              queue = id / KINDS / s->ranks / MAX_ROUNDS;
    if (kind == LEFT) {
        message_left(s, queue, rank, number);
    } else if (kind == THERE) {
        through_one(s, queue, number, rank);
    } else if (kind == WORKED) {
        finish_one(s, rank);
    } else {
        begin_queue(s, queue, rank);
    }
}

/* --- What a bucket goes through --- */

static void add(queue_of *q, round_of r)
{
    q->round[q->rounds++] = r;
}

static void add_computing(queue_of *q, int stage, double seconds)
{
    if (seconds > 0)
        add(q, (round_of){.group = COMPUTING, .stage = stage, .seconds = seconds});
}

static void add_half(queue_of *q, group g, parts p, int stage, int64_t elements, int element_bytes)
{
    add(q, (round_of){.group = g,
                      .parts = p,
                      .stage = stage,
                      .elements = elements,
                      .element_bytes = element_bytes});
}

/* Invariant 4. */
static void add_node_half(queue_of *q, const lt_cost_cluster *c, parts p, int stage,
                          int64_t elements, int element_bytes)
{
    const double others = c->per_node - 1,
                 bytes = others / c->per_node * (double)elements * element_bytes;
    add_half(q, NODE, p, stage, elements, element_bytes);
    if (lt_cost_shares_cores(c))
        add_computing(q, stage, 2 * ((c->copy + c->carry) * bytes + c->wake * others));
}

/* As src/dist/reducer makes them. */
static void add_sparse(queue_of *q, const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d)
{
    const int64_t shard = lt_cost_chunk(d, c->per_node, 0);
    const bool sparse = p->scheme == LT_COST_TOPK
                        && c->nodes * lt_cost_sparse_bytes(shard, p->density, p->element_bytes)
                               < 2 * shard * p->element_bytes;
    if (sparse)
        add_computing(q, 1, c->select * (double)shard);
    else
        add_half(q, PEERS, OTHERS, 2, d, p->element_bytes);
    add_half(q, PEERS, sparse ? SPARSE : OWN, 2, d, p->element_bytes);
}

static void add_levels(queue_of *q, const lt_cost_cluster *c, int stage, int64_t elements,
                       int element_bytes)
{
    add_node_half(q, c, OTHERS, stage, elements, element_bytes);
    add_half(q, PEERS, OTHERS, stage, elements, element_bytes);
    add_half(q, PEERS, OWN, stage, elements, element_bytes);
    add_node_half(q, c, OWN, stage, elements, element_bytes);
}

static void make_queue(queue_of *q, const lt_cost_plan *p, const lt_cost_cluster *c,
                       const lt_cost_bucket *b)
{
    const int64_t d = b->elements;
    const int e = p->element_bytes;
    switch (p->scheme) {
    case LT_COST_TWO_LEVEL:
    case LT_COST_TOPK:
        add_node_half(q, c, OTHERS, 0, d, e);
        add_sparse(q, p, c, d);
        add_node_half(q, c, OWN, 3, d, e);
        break;
    case LT_COST_POWERSGD:
        add_computing(q, 0, c->factor * p->rank * (double)(d - b->dense));
        add_levels(q, c, 1, p->rank * b->rows + b->dense, e);
        add_levels(q, c, 2, p->rank * b->columns, e);
        break;
    case LT_COST_LOCAL_STEPS:
        add_node_half(q, c, OTHERS, 0, d, e);
        add_node_half(q, c, OWN, 0, d, e);
        break;
    case LT_COST_SHARD_GRADIENTS:
        add_half(q, ALL, OTHERS, 0, d, e);
        break;
    case LT_COST_FLAT:
    case LT_COST_SCHEMES:
        add_half(q, ALL, OTHERS, 0, d, e);
        add_half(q, ALL, OWN, 0, d, e);
        break;
    }
}

/* --- All of it --- */

/* One for the begin, the rest as invariants say. */
static void count_messages(const simulation *s)
{
    for (int q = 0; q < s->queues; q++)
        for (int n = 0; n < s->queue[q].rounds; n++)
            for (int r = 0; r < s->ranks; r++) {
                const round_of *round = &s->queue[q].round[n];
                const int in = messages(s, round, WITHIN), out = messages(s, round, BETWEEN);
                *left_of(s, q, n, r) = 1 + in + out + (in > 0) + (out > 0);
            }
}

static lt_status open_simulation(simulation *s, size_t count)
{
    const int most = INT32_MAX / (MAX_ROUNDS * KINDS);
    s->ranks = s->cluster->nodes * s->cluster->per_node;
    if (count > 1000000 || (double)(count + 1) * s->ranks > most)
        return lt_fail(LT_E_ARG, "plan: %zu buckets of %d ranks are too many to simulate", count,
                       s->ranks);
    s->queues = (int)count + 1;
    const size_t ranks = (size_t)s->ranks, queues = (size_t)s->queues;
    s->queue = lt_alloc(queues, sizeof *s->queue);
    s->place = lt_alloc(queues * ranks, sizeof *s->place);
    s->left = lt_alloc(queues * ranks * MAX_ROUNDS, sizeof *s->left);
    s->slot = lt_alloc(queues * ranks * LINKS, sizeof *s->slot);
    s->pending = lt_alloc(ranks, sizeof *s->pending);
    if (!s->queue || !s->place || !s->left || !s->slot || !s->pending)
        return LT_E_NOMEM;
    return lt_events_new(&s->events, 2 * s->ranks + s->cluster->nodes, notice, s);
}

static void close_simulation(simulation *s)
{
    lt_free(s->queue);
    lt_free(s->place);
    lt_free(s->left);
    lt_free(s->slot);
    lt_free(s->pending);
    lt_events_free(&s->events);
}

static void begin_rank(simulation *s, int rank)
{
    const bool shared = lt_cost_shares_cores(s->cluster);
    const int update = s->queues - 1;
    s->pending[rank] = shared ? s->queues + update : s->queues;
    for (int q = 0; q < s->queues; q++) {
        place_of(s, q, rank)->round = -1;
        if (!shared)
            lt_events_tell(s->events, q == update ? s->backward : s->bucket[q].ready,
                           id_of(s, BEGIN, q, 0, rank));
    }
    if (!shared)
        return;
    lt_events_widen(s->events, core_of(s, rank), s->cluster->cores);
    go_back(s, 0, rank);
}

static lt_status play(simulation *s, const lt_cost_bucket *bucket, double backward)
{
    s->bucket = bucket;
    s->backward = backward;
    count_messages(s);
    for (int r = 0; r < s->ranks; r++)
        begin_rank(s, r);
    return lt_events_run(s->events);
}

lt_status lt_simulate_exchange(double *seconds, const lt_cost_plan *plan,
                               const lt_cost_cluster *cluster, const lt_cost_bucket *bucket,
                               size_t count, double backward, const lt_simulated_update *update)
{
    simulation s = {.plan = plan, .cluster = cluster};
    lt_status st = open_simulation(&s, count);
    for (size_t i = 0; !st && i < count; i++)
        make_queue(&s.queue[i], plan, cluster, &bucket[i]);
    if (!st && update && update->seconds)
        add(&s.queue[count], (round_of){.group = COMPUTING, .of_rank = update->seconds});
    if (!st && update && update->elements)
        add(&s.queue[count], (round_of){.group = plan->scheme == LT_COST_LOCAL_STEPS ? NODE : ALL,
                                        .parts = OWN,
                                        .segments = update->elements,
                                        .element_bytes = sizeof(float)});
    for (int n = 0; !st && update && n < cluster->nodes; n++)
        lt_events_save_up(s.events, resource_of(&s, n * cluster->per_node, BETWEEN),
                          update->burst / cluster->between.bandwidth);
    if (!st)
        st = play(&s, bucket, backward);
    *seconds = s.last;
    close_simulation(&s);
    return st;
}

lt_status lt_simulate_round(double *seconds, const lt_cost_cluster *cluster, int64_t elements)
{
    static const lt_cost_plan none = {.scheme = LT_COST_LOCAL_STEPS};
    simulation s = {.plan = &none, .cluster = cluster};
    lt_status st = open_simulation(&s, 0);
    if (!st) {
        add_half(&s.queue[0], PEERS, OTHERS, 0, elements, sizeof(float));
        add_half(&s.queue[0], PEERS, OWN, 0, elements, sizeof(float));
        add_half(&s.queue[0], NODE, OWN, 0, elements, sizeof(float));
        st = play(&s, NULL, 0);
    }
    *seconds = s.last;
    close_simulation(&s);
    return st;
}
