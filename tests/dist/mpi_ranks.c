/* One rank of a test that mpirun starts: mpi_ranks cases|wrong|abort|late|differ|killed|stopped|sums RANKS, or the mode with "-engine": sums
 * by MPI. Exit status 0 if this rank got the expected results. */

#include "cases.h"

#include "lather/ext/comm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A sum so large that messages are in flight during an abort. */
static lt_status large_sum(const rank_case *c)
{
    return case_sum(c, 4 << 20);
}

/* The last rank aborts while the others wait for it. */
static int abort_group(rank_case *c)
{
    char want[256], host[64] = "";
    int last = lt_comm_size(c->comm) - 1;
    gethostname(host, sizeof host - 1);
    snprintf(want, sizeof want, "rank %d of %d (%s) aborted", last, last + 1, host);
    lt_status first = large_sum(c); /* may still run here when it is done on the last rank */
    if (first && rank_fails_with(c, first, want))
        return 1;
    if (lt_comm_rank(c->comm) == last)
        lt_comm_abort(c->comm);
    int bad = rank_fails_with(c, large_sum(c), want);
    return rank_fails_with(c, lt_comm_barrier(c->comm), want) || bad; /* all later calls fail too */
}

/* The last rank never joins the barrier. */
static int late(rank_case *c)
{
    int last = lt_comm_size(c->comm) - 1;
    if (lt_comm_rank(c->comm) == last) {
        lt_comm_set_deadline(c->comm, 60);
        lt_tensor *t = NULL;
        lt_request *request = NULL;
        if (lt_tensor_new(&t, c->device, LT_F32, LT_SCALAR))
            return 1;
        /* No rank sends this: it fails when another rank exceeds its deadline. */
        lt_status st = lt_comm_recv_begin(c->comm, t, 0, &request);
        if (!st)
            st = lt_request_wait(&request);
        lt_tensor_free(&t);
        return rank_fails_with(c, st, "barrier");
    }
    lt_comm_set_deadline(c->comm, 0.5);
    return rank_fails_with(c, lt_comm_barrier(c->comm), "barrier");
}

static int differ(rank_case *c)
{
    if (lt_comm_rank(c->comm) == 0)
        return rank_fails_with(c, lt_comm_barrier(c->comm), "is barrier on rank 0");
    return rank_fails_with(c, large_sum(c), "is barrier on rank 0");
}

/* A rank dies: the launcher must end this one within seconds, else it would wait forever. */
static int killed(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 0);
    if (lt_comm_barrier(c->comm))
        return rank_complains(c, lt_error_message());
    if (lt_comm_rank(c->comm) == lt_comm_size(c->comm) - 1)
        raise(SIGKILL);
    return rank_fails_with(c, large_sum(c), "");
}

static void stop_process(int signal)
{
    (void)signal;
    raise(SIGSTOP);
}

/* A rank stops some time during sums: the deadline of the others holds, whether its header or its data are missing. */
static int stopped(rank_case *c)
{
    lt_status st = LT_OK;
    lt_comm_set_deadline(c->comm, 1);
    if (lt_comm_rank(c->comm) == lt_comm_size(c->comm) - 1) {
        signal(SIGALRM, stop_process);
        alarm(1);
    }
    while (!st)
        st = large_sum(c);
    return rank_complains(c, lt_error_message());
}

/* Returns term i of a rank, so small that sums are exact in any order. */
static float term(int rank, int i)
{
    return (float)(rank + 1 + i % 7);
}

enum { SUMS = 6, FIRST_SUM = 100 };

static lt_status start_sum(const rank_case *c, int count, lt_reduce op, lt_tensor **t,
                           lt_request **request)
{
    float *value = calloc((size_t)count, sizeof *value);
    for (int i = 0; value && i < count; i++)
        value[i] = term(lt_comm_rank(c->comm), i);
    lt_status st = value ? lt_tensor_new(t, c->device, LT_F32, LT_SHAPE(count)) : LT_E_NOMEM;
    if (!st)
        st = lt_tensor_write(*t, value, (size_t)count * sizeof *value);
    free(value);
    return st ? st : lt_comm_allreduce_begin(c->comm, *t, op, request);
}

static bool is_sum(const lt_tensor *t, int count, int ranks, lt_reduce op)
{
    bool same = true;
    float *value = calloc((size_t)count, sizeof *value);
    if (!value || lt_tensor_read(t, value, (size_t)count * sizeof *value))
        same = false;
    for (int i = 0; same && i < count; i++) {
        float want = 0;
        for (int r = 0; r < ranks; r++)
            want += term(r, i);
        want = op == LT_REDUCE_MEAN ? want / (float)ranks : want;
        same = value[i] <= want && value[i] >= want;
    }
    free(value);
    return same;
}

/* Several at once, of 400 bytes to 1.3 MB; every other one is a mean. */
static int sums(rank_case *c)
{
    lt_tensor *t[SUMS] = {NULL};
    lt_request *request[SUMS] = {NULL};
    lt_comm *group = NULL;
    if (lt_comm_split(c->comm, 0, 0, &group))
        return rank_complains(c, lt_error_message());
    int bad =
        lt_comm_use_engine_sums(group, true) == LT_E_UNSUPPORTED
                && strstr(lt_error_message(), "comm mpi: --sums engine needs mpi and all ranks")
            ? 0
            : rank_complains(c, "sums of a group");
    lt_comm_close(&group);
    for (int i = 0, count = FIRST_SUM; i < SUMS; i++, count *= 5)
        if (start_sum(c, count, i % 2 ? LT_REDUCE_MEAN : LT_REDUCE_SUM, &t[i], &request[i]))
            return rank_complains(c, lt_error_message());
    for (int i = 0, count = FIRST_SUM; i < SUMS; i++, count *= 5) {
        if (lt_request_wait(&request[i]))
            return rank_complains(c, lt_error_message());
        if (!is_sum(t[i], count, lt_comm_size(c->comm), i % 2 ? LT_REDUCE_MEAN : LT_REDUCE_SUM))
            bad = rank_complains(c, "wrong sum");
        lt_tensor_free(&t[i]);
    }
    return bad;
}

static const struct {
    const char *name;
    int (*run)(rank_case *c);
} modes[] = {{"cases", rank_cases}, {"wrong", rank_wrong}, {"abort", abort_group},
             {"late", late},        {"differ", differ},    {"killed", killed},
             {"sums", sums},        {"stopped", stopped}};

int main(int argc, char **argv)
{
    rank_case c = {0};
    int bad = 2, ranks = argc == 3 ? atoi(argv[2]) : 0;
    if (strcmp(lt_comm_launched_kind(), ranks > 1 ? "mpi" : "self") != 0) {
        fprintf(stderr, "mpi_ranks: launched kind %s for %d ranks\n", lt_comm_launched_kind(),
                ranks);
        return 2;
    }
    if (lt_device_open(&c.device, "ref", NULL) || lt_comm_open(&c.comm, "mpi", c.device)) {
        fprintf(stderr, "mpi_ranks: %s\n", lt_error_message());
        return 2;
    }
    if (lt_comm_size(c.comm) != ranks)
        return rank_complains(&c, "wrong number of ranks");
    const size_t name = strcspn(argv[1], "-");
    if (argv[1][name] && lt_comm_use_engine_sums(c.comm, true))
        return rank_complains(&c, lt_error_message());
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strlen(modes[i].name) == name && !strncmp(argv[1], modes[i].name, name))
            bad = modes[i].run(&c);
    lt_comm_close(&c.comm);
    lt_device_close(&c.device);
    return bad;
}
