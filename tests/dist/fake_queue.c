/* Queues of the fake NCCL: each group's thread runs its calls with those of the other ranks. */

#include "fake_queue.h"

#include "dist/collectives/collectives.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_news = PTHREAD_COND_INITIALIZER;

/* Waits until the condition holds or the group is aborted. The caller holds the mutex. */
#define WAIT_FOR(group, condition)            \
    while (!(condition) && !(group)->aborted) \
    pthread_cond_wait(&fake_news, &fake_mutex)

static size_t bytes_of(const lt_comm_call *c, int64_t elements)
{
    return (size_t)elements * lt_dtype_size(c->dtype);
}

/* Computes a collective for all ranks, on the last one to arrive. */
static void compute(fake_world *w)
{
    const fake_op *first = w->posted[0];
    const lt_comm_call *c = &first->call;
    const void *term[RANKS];
    char *sum = malloc(bytes_of(c, c->elements) + 1);
    const size_t part = bytes_of(c, c->elements / w->size);
    const bool reduces = c->what == LT_COMM_ALLREDUCE || c->what == LT_COMM_REDUCESCATTER;
    for (int r = 0; r < w->size; r++)
        term[r] = w->posted[r]->call.in;
    if (reduces)
        lt_reduce_terms(sum, term, w->size, c->elements, c);
    else if (c->what == LT_COMM_BROADCAST)
        memcpy(sum, term[c->root], bytes_of(c, c->elements));
    else if (c->what == LT_COMM_ALLGATHER)
        for (int r = 0; r < w->size; r++)
            memcpy(sum + (size_t)r * part, term[r], part);
    for (int r = 0; r < w->size && c->what != LT_COMM_BARRIER; r++) {
        void *out = w->posted[r]->call.out;
        if (first->reduce && r == c->root)
            memcpy(out, sum, bytes_of(c, c->elements));
        else if (!first->reduce && c->what == LT_COMM_REDUCESCATTER)
            memcpy(out, sum + (size_t)r * part, part);
        else if (!first->reduce)
            memcpy(out, sum, bytes_of(c, c->elements));
    }
    free(sum);
}

static void run_collective(lt_nccl_group *g, const fake_op *op)
{
    fake_world *w = g->world;
    const uint64_t round = w->round;
    w->posted[g->rank] = op;
    if (++w->arrived < g->size) {
        WAIT_FOR(g, w->round != round);
        if (w->round == round) {
            w->arrived--;
            w->posted[g->rank] = NULL;
        }
        return;
    }
    compute(w);
    w->arrived = 0;
    w->round++;
    pthread_cond_broadcast(&fake_news);
}

/* State of a message. */
typedef enum stage { NEW, POSTED, GONE } stage;

/* Returns true if an earlier message of the batch has the same direction and peer. */
static bool must_wait(const fake_batch *b, const stage *at, int i)
{
    for (int q = 0; q < i; q++)
        if (at[q] != GONE && b->op[q].call.what == b->op[i].call.what
            && b->op[q].call.root == b->op[i].call.root)
            return true;
    return false;
}

static void move_message(lt_nccl_group *g, const lt_comm_call *c, stage *at)
{
    const bool sends = c->what == LT_COMM_SEND;
    const lt_comm_call **slot =
        sends ? &g->world->message[g->rank][c->root] : &g->world->message[c->root][g->rank];
    const stage before = *at;
    if (sends && *at == NEW && !*slot) {
        *slot = c;
        *at = POSTED;
    } else if (sends && *at == POSTED && *slot != c) {
        *at = GONE;
    } else if (!sends && *slot) {
        memcpy(c->out, (*slot)->in, bytes_of(c, c->elements));
        *slot = NULL;
        *at = GONE;
    }
    if (*at != before)
        pthread_cond_broadcast(&fake_news);
}

/* Runs all messages of a batch concurrently; those with the same direction and peer in order. */
static void run_messages(lt_nccl_group *g, const fake_batch *b)
{
    stage at[BATCH] = {NEW};
    for (;;) {
        bool moved = false, left = false;
        for (int i = 0; i < b->count; i++) {
            const stage before = at[i];
            if (before != GONE && !must_wait(b, at, i))
                move_message(g, &b->op[i].call, &at[i]);
            moved |= at[i] != before;
            left |= at[i] != GONE;
        }
        if (!left || g->aborted)
            break;
        if (!moved)
            pthread_cond_wait(&fake_news, &fake_mutex);
    }
    for (int i = 0; i < b->count; i++)
        if (at[i] == POSTED && g->world->message[g->rank][b->op[i].call.root] == &b->op[i].call)
            g->world->message[g->rank][b->op[i].call.root] = NULL;
}

static void run_batch(lt_nccl_group *g, const fake_batch *b)
{
    const lt_comm_call_kind what = b->count ? b->op[0].call.what : LT_COMM_BARRIER;
    if (what == LT_COMM_SEND || what == LT_COMM_RECV) {
        run_messages(g, b);
        return;
    }
    for (int i = 0; i < b->count && !g->aborted; i++)
        run_collective(g, &b->op[i]);
}

void *fake_work(void *context)
{
    lt_nccl_group *g = context;
    pthread_mutex_lock(&fake_mutex);
    for (;;) {
        WAIT_FOR(g, g->done < g->issued || g->stop);
        if (g->aborted || g->done == g->issued)
            break;
        fake_batch *b = g->batch[g->done % QUEUE];
        run_batch(g, b);
        free(b);
        g->done++;
        pthread_cond_broadcast(&fake_news);
    }
    pthread_mutex_unlock(&fake_mutex);
    return NULL;
}
