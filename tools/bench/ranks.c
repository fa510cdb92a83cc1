/* Ranks of a benchmark: threads of this process, or the processes of a launcher. */

#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct player {
    bench_run_fn *run;
    lt_device *device;
    lt_comm *comm;
    lt_status status;
    char message[256];
    pthread_t thread;
} player;

static void *play(void *argument)
{
    player *p = argument;
    p->status = p->run(p->device, p->comm);
    if (p->status) {
        snprintf(p->message, sizeof p->message, "%s", lt_error_message());
        lt_comm_abort(p->comm);
    }
    lt_comm_close(&p->comm);
    return NULL;
}

static lt_status set_link(const char *link, lt_comm *comm)
{
    char *end;
    if (!link)
        return LT_OK;
    const double latency = strtod(link, &end);
    const double gbit = *end == ',' ? strtod(end + 1, &end) : 0;
    if (*end || !(latency >= 0) || !(gbit > 0))
        return lt_fail(LT_E_ARG, "--comm-model: got '%s', want LATENCY,RATE", link);
    lt_comm_set_model(comm, latency, gbit);
    return LT_OK;
}

static lt_status play_process(const bench_common *c, player *p, const lt_device_config *config)
{
    LT_TRY(lt_device_open(&p->device, c->device, config));
    lt_status st = lt_comm_open(&p->comm, "mpi", p->device);
    if (!st)
        st = set_link(c->link, p->comm);
    if (!st) {
        play(p);
        st = p->status ? lt_fail(p->status, "%s", p->message) : LT_OK;
    }
    lt_comm_close(&p->comm);
    lt_device_close(&p->device);
    return st;
}

/* Gives each player its communicator, also if the link is refused. */
static lt_status take_comms(player *p, lt_comm *const *comm, int count, const char *link)
{
    for (int r = 0; r < count; r++)
        p[r].comm = comm[r];
    for (int r = 0; r < count; r++)
        LT_TRY(set_link(link, comm[r]));
    return LT_OK;
}

static lt_status play_threads(const bench_common *c, player *p, const lt_device_config *config)
{
    const int count = (int)c->ranks;
    lt_device *device[BENCH_MAX_RANKS];
    lt_comm *comm[BENCH_MAX_RANKS];
    lt_status st = LT_OK;
    int opened = 0;
    for (; opened < count && !st; opened++) {
        st = lt_device_open(&p[opened].device, c->device, config);
        device[opened] = p[opened].device;
    }
    if (!st)
        st = lt_comm_open_threads(comm, device, count);
    if (!st)
        st = take_comms(p, comm, count, c->link);
    for (int r = 0; r < count && !st; r++)
        if (pthread_create(&p[r].thread, NULL, play, &p[r]))
            abort();
    const player *failed = NULL;
    for (int r = 0; r < count && !st; r++) {
        pthread_join(p[r].thread, NULL);
        failed = !failed && p[r].status ? &p[r] : failed;
    }
    for (int r = 0; r < opened; r++) {
        lt_comm_close(&p[r].comm); /* still open if set_link() failed */
        lt_device_close(&p[r].device);
    }
    return failed ? lt_fail(failed->status, "%s", failed->message) : st;
}

lt_status bench_play(const bench_common *c, bench_run_fn *run)
{
    player p[BENCH_MAX_RANKS];
    const bool launched = strcmp(lt_comm_launched_kind(), "self") != 0;
    int here = (int)c->ranks, place;
    if (launched)
        lt_comm_launched_local(&place, &here);
    const int share = lt_cpu_threads() / here; /* ranks share the machine */
    const int threads = c->threads ? (int)c->threads : share > 1 ? share : 1;
    const lt_device_config config = {.threads = threads};
    for (int r = 0; r < BENCH_MAX_RANKS; r++)
        p[r] = (player){.run = run};
    return launched ? play_process(c, p, &config) : play_threads(c, p, &config);
}
