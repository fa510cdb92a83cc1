/* How ranks that use NCCL find each other: they were started by mpirun or srun, and MPI carries the
 * address of rank 0, or by torchrun, whose environment variables have it. The data of a run then goes
 * by NCCL; MPI has been left by then. */

#include "base/alloc.h"
#include "dist/comm.h"
#include "dist/nccl.h"
#include "dist/star.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double patience = 300; /* seconds for all to come */

enum { HOST = 256, MOST_PORT = 65535 };

/* Where rank 0 is; port < 0: it could not listen. */
typedef struct address {
    char host[HOST];
    int32_t port;
} address;

static lt_status say_address(lt_comm *mpi, address *a)
{
    lt_comm_call call = {
        .what = LT_COMM_BROADCAST, .dtype = LT_U8, .elements = sizeof *a, .in = a, .out = a};
    lt_request *request = NULL;
    LT_TRY(mpi->ops->begin(mpi, &call, &request));
    return lt_request_wait(&request);
}

static lt_status meet(lt_comm *mpi, lt_nccl_start *start)
{
    int local, locals, port = 0;
    address a = {.port = -1};
    lt_star_config c = {.rank = mpi->rank, .size = mpi->size, .patience = patience};
    lt_status st = LT_OK;
    lt_comm_launched_local(&local, &locals);
    if (!c.rank) {
        st = lt_star_listen(&start->star, &c, &port);
        a.port = st ? -1 : port;
        if (locals == c.size)
            snprintf(a.host, sizeof a.host, "127.0.0.1");
        else
            gethostname(a.host, sizeof a.host - 1);
    }
    lt_status said = say_address(mpi, &a);
    st = st ? st : said;
    if (!st && a.port < 0)
        st = lt_fail(LT_E_COMM, "comm nccl: rank 0 could not listen for the others");
    c.address = a.host;
    c.port = a.port;
    start->rank = c.rank;
    start->size = c.size;
    return st || c.size == 1 ? st : lt_star_join(&start->star, &c);
}

static lt_status by_mpi(lt_nccl_start *start)
{
    lt_device *host = NULL;
    lt_comm *mpi = NULL;
    LT_TRY(lt_device_open(&host, "cpu", NULL));
    lt_status st = lt_comm_open(&mpi, "mpi", host);
    if (!st)
        st = meet(mpi, start);
    if (st)
        lt_star_close(&start->star);
    lt_comm_close(&mpi);
    lt_device_close(&host);
    return st;
}

static lt_status number(const char *name, long least, long most, int *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long n = text && *text ? strtol(text, &end, 10) : 0;
    if (!end || *end || n < least || n > most)
        return lt_fail(LT_E_ARG, "comm nccl: the environment variable %s is '%s', want %ld to %ld",
                       name, text ? text : "", least, most);
    *out = (int)n;
    return LT_OK;
}

/* torchrun's agent may itself listen on the port that it names; then the next one is ours. */
static int own_port(int port)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return port + (agent && !strcmp(agent, "True"));
}

static lt_status by_environment(lt_nccl_start *start)
{
    enum { MOST_RANKS = 1 << 20 };
    int port = 0;
    lt_star_config c = {.patience = patience, .address = getenv("MASTER_ADDR")};
    LT_TRY(number("WORLD_SIZE", 1, MOST_RANKS, &c.size));
    LT_TRY(number("RANK", 0, c.size - 1, &c.rank));
    start->rank = c.rank;
    start->size = c.size;
    if (c.size == 1)
        return LT_OK;
    if (!c.address || !*c.address)
        return lt_fail(LT_E_ARG, "comm nccl: the environment variable MASTER_ADDR is not set");
    LT_TRY(number("MASTER_PORT", 1, MOST_PORT - 1, &port));
    c.port = own_port(port);
    if (!c.rank) {
        const lt_star_config any = {.size = c.size, .patience = c.patience, .port = c.port};
        LT_TRY(lt_star_listen(&start->star, &any, &port));
    }
    return lt_star_join(&start->star, &c);
}

lt_status lt_nccl_find_ranks(lt_nccl_start *start)
{
    *start = (lt_nccl_start){.size = 1};
    if (lt_launched_size() > 1)
        return by_mpi(start);
    return getenv("WORLD_SIZE") ? by_environment(start) : LT_OK;
}
