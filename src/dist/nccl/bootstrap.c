/* Bootstrap of NCCL: rank 0's address is broadcast over MPI if mpirun or srun started the ranks, or is in torchrun's
 * environment variables. MPI is closed again before NCCL transfers data. */

#include "base/token.h"
#include "dist/comm/comm.h"
#include "dist/nccl/nccl.h"
#include "dist/rendezvous/rendezvous.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double timeout = 300; /* seconds until all ranks must have joined */

enum { HOST = 256, MOST_PORT = 65535 };
static const char loopback[] = "127.0.0.1";

/* Rank 0's address and token, which MPI sends to this job's ranks only; port < 0 if it cannot listen. */
typedef struct address {
    char host[HOST];
    char token[LT_TOKEN_NONCE];
    int32_t port;
} address;

static lt_status broadcast_address(lt_comm *mpi, address *a)
{
    lt_comm_call call = {
        .what = LT_COMM_BROADCAST, .dtype = LT_U8, .elements = sizeof *a, .in = a, .out = a};
    lt_request *request = NULL;
    LT_TRY(mpi->ops->begin(mpi, &call, &request));
    return lt_request_wait(&request);
}

/* Rank 0 listens and broadcasts its address over MPI; all join the rendezvous. */
static lt_status join_over_mpi(lt_comm *mpi, lt_nccl_start *start)
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
    lt_status said = broadcast_address(mpi, &a);
    st = st ? st : said;
    if (!st && a.port < 0)
        st = lt_fail(LT_E_COMM, "comm nccl: rank 0 cannot listen for the other ranks");
    c.address = a.host;
    c.port = a.port;
    c.token = a.token;
    start->rank = c.rank;
    start->size = c.size;
    return st || c.size == 1 ? st : lt_rendezvous_join(&start->rendezvous, &c);
}

static lt_status find_ranks_by_mpi(lt_nccl_start *start, lt_comm_opener *open)
{
    lt_device *host = NULL;
    lt_comm *mpi = NULL;
    LT_TRY(lt_device_open(&host, "cpu", NULL));
    lt_status st = open(&mpi, "mpi", host);
    if (!st)
        st = join_over_mpi(mpi, start);
    if (st)
        lt_rendezvous_close(&start->rendezvous);
    lt_comm_close(&mpi);
    lt_device_close(&host);
    return st;
}

static lt_status read_env_number(const char *name, long least, long most, int *out)
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

/* Returns the next port if torchrun's agent itself listens on the one it names. */
static int rendezvous_port(int port)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return port + (agent && !strcmp(agent, "True"));
}

/* Token of a job without MPI. */
typedef struct job {
    char token[LT_TOKEN_BYTES];
    char file[HOST]; /* file to which rank 0 writes a random token; "" if unused */
} job;

static const char *env_text(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Chooses the token's file, of mode 0600, for ranks on one machine. */
static void choose_token_file(job *j, int port)
{
    const char *folder = env_text("XDG_RUNTIME_DIR");
    if (!folder || access(folder, W_OK) != 0)
        folder = "/tmp";
    snprintf(j->file, sizeof j->file, "%s/lather-%u-%d.token", folder, (unsigned)geteuid(), port);
}

/* Uses the launcher's job id as token: it distinguishes jobs, but is no secret. */
static void use_job_id(job *j, int rank)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !*j->token; i++)
        if (env_text(names[i]))
            snprintf(j->token, sizeof j->token, "%s", getenv(names[i]));
    if (!rank)
        lt_log(LT_LOG_WARN, "dist",
               "comm nccl: any process that can connect to rank 0%s can join this job; set "
               "LATHER_JOB_TOKEN to a secret, or LATHER_JOB_TOKEN_FILE to a file with one",
               *j->token ? " and knows the launcher's job id" : "");
}

static lt_status find_token(job *j, const lt_rendezvous_config *c, bool is_local)
{
    const char *text = env_text("LATHER_JOB_TOKEN"), *file = env_text("LATHER_JOB_TOKEN_FILE");
    LT_TRY(lt_token_check(text, "comm nccl: LATHER_JOB_TOKEN"));
    if (text)
        snprintf(j->token, sizeof j->token, "%s", text);
    else if (file)
        return lt_token_read(j->token, file);
    else if (is_local)
        choose_token_file(j, c->port);
    else
        use_job_id(j, c->rank);
    return LT_OK;
}

/* Returns true if all ranks are on this machine, by the launcher's local size or a loopback address. */
static bool all_are_local(const lt_rendezvous_config *c)
{
    int local, locals;
    lt_comm_launched_local(&local, &locals);
    return locals == c->size || !strcmp(c->address, "localhost") || !strcmp(c->address, "::1")
           || !strncmp(c->address, "127.", 4);
}

/* Listens, then writes the token's file: a second job with the same port fails before it overwrites the file. */
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

static lt_status find_ranks_by_environment(lt_nccl_start *start)
{
    enum { MOST_RANKS = 1 << 20 };
    int port = 0;
    lt_rendezvous_config c = {.timeout = timeout, .address = getenv("MASTER_ADDR")};
    LT_TRY(read_env_number("WORLD_SIZE", 1, MOST_RANKS, &c.size));
    LT_TRY(read_env_number("RANK", 0, c.size - 1, &c.rank));
    start->rank = c.rank;
    start->size = c.size;
    if (c.size == 1)
        return LT_OK;
    if (!c.address || !*c.address)
        return lt_fail(LT_E_ARG, "comm nccl: the environment variable MASTER_ADDR is not set");
    LT_TRY(read_env_number("MASTER_PORT", 1, MOST_PORT - 1, &port));
    c.port = rendezvous_port(port);
    const bool is_local = all_are_local(&c);
    if (is_local && strcmp(c.address, "localhost") != 0 && strcmp(c.address, "::1") != 0)
        c.address = loopback; /* a host name may resolve to another interface */
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
        return find_ranks_by_mpi(start, open);
    return getenv("WORLD_SIZE") ? find_ranks_by_environment(start) : LT_OK;
}
