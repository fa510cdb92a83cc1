/* How ranks that use NCCL find each other: they were started by mpirun or srun, and MPI carries the
 * address of rank 0, or by torchrun, whose environment variables have it. The data of a run then goes
 * by NCCL; MPI has been left by then. */

#include "base/alloc.h"
#include "base/token.h"
#include "dist/comm/comm.h"
#include "dist/nccl/nccl.h"
#include "dist/rendezvous/rendezvous.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double timeout = 300; /* seconds for all to come */

enum { HOST = 256, MOST_PORT = 65535 };
static const char loopback[] = "127.0.0.1";

/* Where rank 0 is, and the token, which MPI keeps to the job; port < 0: it could not listen. */
typedef struct address {
    char host[HOST];
    char token[LT_TOKEN_NONCE];
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
    lt_rendezvous_config c = {.rank = mpi->rank, .size = mpi->size, .timeout = timeout};
    lt_status st = LT_OK;
    lt_comm_launched_local(&local, &locals);
    if (!c.rank) {
        c.address = locals == c.size ? loopback : NULL;
        c.token = a.token;
        st = lt_token_draw(a.token);
        st = st ? st : lt_rendezvous_listen(&start->rendezvous, &c, &port);
        a.port = st ? -1 : port;
        if (locals == c.size)
            snprintf(a.host, sizeof a.host, "%s", loopback);
        else
            gethostname(a.host, sizeof a.host - 1);
    }
    lt_status said = say_address(mpi, &a);
    st = st ? st : said;
    if (!st && a.port < 0)
        st = lt_fail(LT_E_COMM, "comm nccl: rank 0 could not listen for the others");
    c.address = a.host;
    c.port = a.port;
    c.token = a.token;
    start->rank = c.rank;
    start->size = c.size;
    return st || c.size == 1 ? st : lt_rendezvous_join(&start->rendezvous, &c);
}

static lt_status by_mpi(lt_nccl_start *start, lt_comm_opener *open)
{
    lt_device *host = NULL;
    lt_comm *mpi = NULL;
    LT_TRY(lt_device_open(&host, "cpu", NULL));
    lt_status st = open(&mpi, "mpi", host);
    if (!st)
        st = meet(mpi, start);
    if (st)
        lt_rendezvous_close(&start->rendezvous);
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

/* The token of ranks that no MPI connects. */
typedef struct job {
    char token[LT_TOKEN_BYTES];
    char file[HOST]; /* rank 0 draws it, and this is where */
} job;

static const char *set_one(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* On one machine a file of mode 0600 is enough. */
static void choose_file(job *j, int port)
{
    const char *folder = set_one("XDG_RUNTIME_DIR");
    if (!folder || access(folder, W_OK) != 0)
        folder = "/tmp";
    snprintf(j->file, sizeof j->file, "%s/lather-%u-%d.token", folder, (unsigned)geteuid(), port);
}

/* The launcher's name of the job, which keeps jobs apart but is no secret. */
static void take_name(job *j, int rank)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !*j->token; i++)
        if (set_one(names[i]))
            snprintf(j->token, sizeof j->token, "%s", getenv(names[i]));
    if (!rank)
        lt_log(LT_LOG_WARN, "dist",
               "comm nccl: whoever reaches rank 0's port and %s can join; a secret in "
               "LATHER_JOB_TOKEN, or in a file that LATHER_JOB_TOKEN_FILE names, keeps others out",
               *j->token ? "guesses the launcher's job id" : "speaks its protocol");
}

static lt_status find_token(job *j, const lt_rendezvous_config *c, bool is_local)
{
    const char *text = set_one("LATHER_JOB_TOKEN"), *file = set_one("LATHER_JOB_TOKEN_FILE");
    LT_TRY(lt_token_check(text, "comm nccl: LATHER_JOB_TOKEN"));
    if (text)
        snprintf(j->token, sizeof j->token, "%s", text);
    else if (file)
        return lt_token_read(j->token, file);
    else if (is_local)
        choose_file(j, c->port);
    else
        take_name(j, c->rank);
    return LT_OK;
}

/* Whether rank 0 is on this machine for every rank: the launcher says so, or the address does. */
static bool all_are_local(const lt_rendezvous_config *c)
{
    int local, locals;
    lt_comm_launched_local(&local, &locals);
    return locals == c->size || !strcmp(c->address, "localhost") || !strcmp(c->address, "::1")
           || !strncmp(c->address, "127.", 4);
}

/* The token's file is written once the port is had: a second job with the same port fails before. */
static lt_status listen_with_token(lt_nccl_start *start, const lt_rendezvous_config *c, job *j,
                                   bool is_local)
{
    lt_rendezvous_config own = *c;
    int port;
    own.address = is_local ? c->address : NULL;
    if (*j->file)
        LT_TRY(lt_token_draw(j->token));
    LT_TRY(lt_rendezvous_listen(&start->rendezvous, &own, &port));
    lt_status st = *j->file ? lt_token_write(j->file, j->token) : LT_OK;
    if (st)
        lt_rendezvous_close(&start->rendezvous);
    return st;
}

static lt_status by_environment(lt_nccl_start *start)
{
    enum { MOST_RANKS = 1 << 20 };
    int port = 0;
    lt_rendezvous_config c = {.timeout = timeout, .address = getenv("MASTER_ADDR")};
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
    const bool is_local = all_are_local(&c);
    if (is_local && strcmp(c.address, "localhost") != 0 && strcmp(c.address, "::1") != 0)
        c.address = loopback; /* a name may be that of another interface */
    job j = {.token = ""};
    LT_TRY(find_token(&j, &c, is_local));
    c.token = j.token;
    c.token_file = *j.file ? j.file : NULL;
    if (!c.rank)
        LT_TRY(listen_with_token(start, &c, &j, is_local));
    return lt_rendezvous_join(&start->rendezvous, &c);
}

lt_status lt_nccl_find_ranks(lt_nccl_start *start, lt_comm_opener *open)
{
    *start = (lt_nccl_start){.size = 1};
    if (lt_launched_size() > 1)
        return by_mpi(start, open);
    return getenv("WORLD_SIZE") ? by_environment(start) : LT_OK;
}
