/* One rank of a test of the communicator "nccl" on devices cuda:0, cuda:1, ...: gpu_ranks MODE RANKS, started by mpirun
 * or with torchrun's variables. Exit status 0 if this rank got the expected results, 77 without enough devices. */

#include "cases.h"

#include "lather/ext/fail.h"
#include "lather/graph.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step with communication: x becomes the sum over ranks of x, and y the next rank's previous x. */
enum { ELEMENTS = 70000, STEPS = 6, MOST_GATHERED = 64 };
typedef struct step {
    rank_case *c;
    lt_graph *graph;
    lt_tensor *x, *y, *sent, *whole;
    int64_t count[MOST_GATHERED];
} step;

static lt_status messages(step *s)
{
    const int rank = lt_comm_rank(s->c->comm), size = lt_comm_size(s->c->comm);
    lt_request *request[2] = {NULL, NULL};
    if (size == 1)
        return lt_tensor_copy(s->y, s->sent);
    lt_status st = lt_comm_send_begin(s->c->comm, s->sent, (rank + size - 1) % size, &request[0]);
    if (!st)
        st = lt_comm_recv_begin(s->c->comm, s->y, (rank + 1) % size, &request[1]);
    for (int i = 0; i < 2 && !st; i++)
        st = lt_request_wait(&request[i]);
    return st;
}

/* Local work before, during and after communication. */
static lt_status talk(void *context)
{
    step *s = context;
    lt_request *sum = NULL, *parts = NULL;
    lt_status st = lt_tensor_copy(s->sent, s->x);
    if (!st)
        st = lt_comm_allreduce_begin(s->c->comm, s->x, LT_REDUCE_SUM, &sum);
    if (!st)
        st = lt_comm_allgather_begin(s->c->comm, s->sent, s->whole, s->count, &parts);
    if (!st)
        st = lt_tensor_fill(s->y, -1);
    if (!st)
        st = lt_request_wait(&sum);
    if (!st)
        st = lt_request_wait(&parts);
    return st ? st : messages(s);
}

static int make(step *s, rank_case *c)
{
    const int rank = lt_comm_rank(c->comm), size = lt_comm_size(c->comm);
    *s = (step){.c = c};
    for (int r = 0; r < size; r++)
        s->count[r] = ELEMENTS;
    const bool bad = lt_tensor_new(&s->x, c->device, LT_F32, LT_SHAPE(ELEMENTS))
                     || lt_tensor_new(&s->y, c->device, LT_F32, LT_SHAPE(ELEMENTS))
                     || lt_tensor_new(&s->sent, c->device, LT_F32, LT_SHAPE(ELEMENTS))
                     || lt_tensor_new(&s->whole, c->device, LT_F32, LT_SHAPE(ELEMENTS * size))
                     || lt_tensor_fill(s->x, rank + 1);
    return bad ? rank_complains(c, lt_error_message()) : 0;
}

static void clear(step *s)
{
    lt_graph_free(&s->graph);
    lt_tensor_free(&s->x);
    lt_tensor_free(&s->y);
    lt_tensor_free(&s->sent);
    lt_tensor_free(&s->whole);
}

/* Checks x and y, and in whole the last rank's elements. */
static int check(const step *s, float want_x, float want_y, float want_last)
{
    const int size = lt_comm_size(s->c->comm);
    const size_t bytes = ELEMENTS * sizeof(float);
    float *x = malloc(bytes * (size_t)(size + 2)), *y = x + ELEMENTS, *whole = y + ELEMENTS;
    int bad = lt_tensor_read(s->x, x, bytes) || lt_tensor_read(s->y, y, bytes)
              || lt_tensor_read(s->whole, whole, bytes * (size_t)size);
    if (bad)
        rank_complains(s->c, lt_error_message());
    for (int i = 0; i < ELEMENTS && !bad; i++) {
        const float last = whole[(size - 1) * ELEMENTS + i];
        bad = x[i] != want_x || y[i] != want_y || last != want_last;
        if (bad)
            fprintf(stderr, "element %d: %g, %g, %g, want %g, %g, %g; ", i, (double)x[i],
                    (double)y[i], (double)last, (double)want_x, (double)want_y, (double)want_last);
    }
    free(x);
    return bad ? rank_complains(s->c, "a captured step has other results") : 0;
}

static int recorded(rank_case *c)
{
    const int rank = lt_comm_rank(c->comm), size = lt_comm_size(c->comm);
    step s;
    int bad = make(&s, c);
    float sum = (float)(size * (size + 1) / 2), before = (float)((rank + 1) % size + 1);
    float last = (float)size;
    for (int i = 0; i < STEPS && !bad; i++) {
        if (lt_graph_run(c->device, &s.graph, (lt_graph_key){0}, talk, &s))
            bad = rank_complains(c, lt_error_message());
        else
            bad = check(&s, sum, before, last);
        before = last = sum;
        sum *= (float)size;
    }
    const lt_graph_stats stats = lt_graph_statistics(s.graph);
    if (!bad && (stats.captures != 1 || stats.replays < 3))
        bad = rank_complains(c, "the step was not captured");
    clear(&s);
    return bad;
}

static lt_status run_steps(step *s, int count)
{
    for (int i = 0; i < count; i++) {
        LT_TRY(lt_graph_run(s->c->device, &s->graph, (lt_graph_key){0}, talk, s));
        LT_TRY(lt_comm_barrier(s->c->comm));
    }
    return LT_OK;
}

/* Replays once more, reads and synchronizes. The read ends in any case, possibly with incomplete data. */
static lt_status replay(step *s)
{
    float x[ELEMENTS];
    LT_TRY(lt_graph_run(s->c->device, &s->graph, (lt_graph_key){0}, talk, s));
    LT_TRY(lt_tensor_read(s->x, x, sizeof x));
    return lt_comm_barrier(s->c->comm);
}

/* The last rank dies between two replays, when the others are within one. */
static int killed(rank_case *c)
{
    const int last = lt_comm_size(c->comm) - 1;
    char want[32];
    step s;
    int bad = make(&s, c);
    if (bad || run_steps(&s, STEPS - 1))
        return rank_complains(c, lt_error_message());
    lt_status st = run_steps(&s, 1); /* fails if another rank is already gone */
    if (lt_comm_rank(c->comm) == last)
        raise(SIGKILL);
    snprintf(want, sizeof want, "rank %d", last);
    bad = rank_fails_with(c, st ? st : replay(&s), want);
    if (!bad) /* all later replays fail too */
        bad = rank_fails_with(c, lt_graph_run(c->device, &s.graph, (lt_graph_key){0}, talk, &s),
                              want);
    clear(&s);
    return bad;
}

/* Makes empty calls, which involve no other rank, until one fails. */
static lt_status idle(const rank_case *c)
{
    const int64_t none[MOST_GATHERED] = {0};
    lt_request *request = NULL;
    lt_status st = LT_OK;
    while (!st && !sched_yield())
        st = lt_comm_allgather_begin(c->comm, NULL, NULL, none, &request);
    return st;
}

/* The last rank does not join the others' replay. */
static int silent(rank_case *c)
{
    const bool leaves = lt_comm_rank(c->comm) == lt_comm_size(c->comm) - 1;
    step s;
    lt_comm_set_deadline(c->comm, 2);
    int bad = make(&s, c);
    if (bad || run_steps(&s, STEPS))
        return rank_complains(c, lt_error_message());
    bad = rank_fails_with(c, leaves ? idle(c) : replay(&s), "a captured step on rank");
    clear(&s);
    return bad;
}

static const struct {
    const char *name;
    int (*run)(rank_case *c);
} modes[] = {{"cases", rank_cases},
             {"wrong", rank_wrong},
             {"recorded", recorded},
             {"killed", killed},
             {"silent", silent}};

int main(int argc, char **argv)
{
    rank_case c = {0};
    char name[16];
    int bad = 2, local, locals, ranks = argc == 3 ? atoi(argv[2]) : 0;
    lt_comm_launched_local(&local, &locals);
    snprintf(name, sizeof name, "cuda:%d", local);
    if (lt_device_open(&c.device, name, NULL) || lt_comm_open(&c.comm, "nccl", c.device)) {
        fprintf(stderr, "gpu_ranks: %s\n", lt_error_message());
        return 77;
    }
    if (lt_comm_size(c.comm) != ranks)
        return rank_complains(&c, "wrong number of ranks");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[1], modes[i].name))
            bad = modes[i].run(&c);
    lt_comm_close(&c.comm);
    lt_device_close(&c.device);
    return bad;
}
