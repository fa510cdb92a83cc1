/* Several ranks: processes that mpirun, srun or torchrun started train one model together. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/shard.h"
#include "lather/text.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "50,1": latency in microseconds and rate in Gbit/s. */
static lt_status set_link(session *s)
{
    double link[2];
    const char *text = s->args.comm_model;
    if (!text)
        return LT_OK;
    if (lt_text_numbers(text, link, 2) != 2 || !(link[1] > 0))
        return lt_fail(LT_E_ARG,
                       "--comm-model: '%s' is not LATENCY,RATE: microseconds of 0 or more, Gbit/s "
                       "above 0",
                       text);
    lt_comm_set_model(s->comm, link[0], link[1]);
    return LT_OK;
}

/* What a rank may use: its machine, and a bit for every processor. */
enum { MASK_WORDS = 16, WORD_BITS = 64 };
typedef struct seat {
    uint64_t machine; /* a hash of its name */
    uint64_t mask[MASK_WORDS];
} seat;

static void find_seat(seat *own)
{
    char name[256] = "";
    cpu_set_t set;
    *own = (seat){0};
    gethostname(name, sizeof name - 1);
    for (const char *c = name; *c; c++)
        own->machine = own->machine * 31 + (unsigned char)*c;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < MASK_WORDS * WORD_BITS && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            own->mask[i / WORD_BITS] |= UINT64_C(1) << i % WORD_BITS;
}

/* Each processor counts for a part of one, by how many ranks may use it. */
static double share_of(const seat *all, int ranks, int rank, int *local)
{
    double share = 0;
    *local = 0;
    for (int r = 0; r < ranks; r++)
        *local += all[r].machine == all[rank].machine;
    for (int i = 0; i < MASK_WORDS * WORD_BITS; i++) {
        int users = 0;
        for (int r = 0; r < ranks; r++)
            users += all[r].machine == all[rank].machine
                     && (all[r].mask[i / WORD_BITS] >> i % WORD_BITS & 1);
        if (all[rank].mask[i / WORD_BITS] >> i % WORD_BITS & 1)
            share += 1.0 / users;
    }
    return share;
}

static lt_status gather_seats(session *s, seat *all)
{
    seat own;
    int64_t *bytes = calloc((size_t)s->ranks, sizeof *bytes);
    if (!bytes)
        return lt_fail(LT_E_NOMEM, "ranks: no memory for %d", s->ranks);
    find_seat(&own);
    for (int r = 0; r < s->ranks; r++)
        bytes[r] = sizeof own;
    lt_status st = lt_comm_allgather_host(s->comm, &own, bytes, all);
    free(bytes);
    return st;
}

/* Ranks of one machine do not compute on each other's processors. */
static lt_status share_threads(session *s)
{
    int allowed = lt_cpu_threads();
    seat *all = calloc((size_t)s->ranks, sizeof *all);
    if (!all)
        return lt_fail(LT_E_NOMEM, "ranks: no memory for %d", s->ranks);
    lt_status st = gather_seats(s, all);
    if (!st) {
        double share = share_of(all, s->ranks, s->rank, &s->local_ranks);
        double quota = (double)allowed / s->local_ranks; /* a limit of the whole group of them */
        int own = 0;
        for (int i = 0; i < MASK_WORDS; i++)
            own += __builtin_popcountll(all[s->rank].mask[i]);
        if (allowed < own && quota < share)
            share = quota;
        int threads = share < 1 ? 1 : (int)(share + 1e-6);
        if (!s->args.threads)
            lt_device_set_threads(s->device, threads);
        if (!s->args.workers)
            s->workers = threads;
    }
    free(all);
    return st;
}

bool session_on_gpu(const session *s)
{
    return !strncmp(lt_device_name(s->device), "cuda", strlen("cuda"));
}

/* GPUs talk by NCCL; and what torchrun started has nothing else. */
static const char *communicator(const session *s)
{
    if (s->args.dist > DIST_MPI) /* one that the program registered */
        return lt_options_choice(s->options, "dist");
    return session_on_gpu(s) || !strcmp(lt_comm_launched_kind(), "nccl") ? "nccl" : "mpi";
}

lt_status session_open_ranks(session *s)
{
    const arguments *a = &s->args;
    s->ranks = s->local_ranks = 1;
    s->workers = (int)a->workers;
    if (a->dist == DIST_OFF || (a->dist == DIST_AUTO && !strcmp(lt_comm_launched_kind(), "self")))
        return LT_OK;
    LT_TRY(lt_comm_open(&s->comm, communicator(s), s->device));
    s->rank = lt_comm_rank(s->comm);
    s->ranks = lt_comm_size(s->comm);
    lt_comm_set_deadline(s->comm, a->comm_timeout);
    if (a->save_logits && s->ranks > 1)
        return lt_fail(LT_E_UNSUPPORTED, "--save-logits: on one rank only, these are %d", s->ranks);
    LT_TRY(lt_tensor_new(&s->totals, s->device, LT_F64, LT_SHAPE(MAX_TOTALS)));
    LT_TRY(session_agree_flags(s));
    LT_TRY(share_threads(s));
    return set_link(s);
}

/* By the choices of --grad-comm-dtype and --comm-dtype. */
static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};

lt_status session_open_parallel(session *s)
{
    const arguments *a = &s->args;
    lt_data_parallel_config c = {.bucket_bytes = (size_t)(a->bucket_mib * 0x1p20),
                                 .dtype = dtypes[a->grad_comm_dtype],
                                 .no_overlap = !a->overlap,
                                 .dist_bn = (lt_dist_bn)a->dist_bn,
                                 .sync_bn = a->sync_bn,
                                 .alone_too = a->dist >= DIST_MPI};
    if (!s->comm)
        return LT_OK;
    lt_status st = lt_data_parallel_new(&s->dp, s->comm, &s->params, s->tape, &c);
    s->everywhere = st == LT_E_ARG;
    return st;
}

lt_status session_divide_optimizer(session *s)
{
    const arguments *a = &s->args;
    if (!s->comm || (!a->optim.family->divided && !a->shard_optimizer))
        return LT_OK;
    lt_shard_config c = {.comm = s->comm,
                         .balance = (lt_balance)a->balance,
                         .group = (int)a->num_trainers_per_group,
                         .dtype = dtypes[a->comm_dtype],
                         .gather_params = a->communicate_params};
    lt_status st = lt_optim_shard(s->optim, &c);
    s->everywhere = st == LT_E_ARG;
    return st;
}

lt_status session_sum_begin(session *s, const double *values, int count)
{
    double all[MAX_TOTALS] = {0};
    if (!s->comm)
        return LT_OK;
    memcpy(all, values, (size_t)count * sizeof *all);
    LT_TRY(lt_tensor_write(s->totals, all, sizeof all));
    return lt_comm_allreduce_begin(s->comm, s->totals, LT_REDUCE_SUM, &s->totalling);
}

lt_status session_sum_finish(session *s, double *values, int count)
{
    double all[MAX_TOTALS];
    if (!s->comm)
        return LT_OK;
    LT_TRY(lt_request_wait(&s->totalling));
    LT_TRY(lt_tensor_read(s->totals, all, sizeof all));
    memcpy(values, all, (size_t)count * sizeof *all);
    return LT_OK;
}

lt_status session_sum(session *s, double *values, int count)
{
    LT_TRY(session_sum_begin(s, values, count));
    return session_sum_finish(s, values, count);
}

lt_status session_gather_statistics(session *s)
{
    if (!s->dp)
        return LT_OK;
    LT_TRY(lt_data_parallel_statistics(s->dp));
    if (!s->ema)
        return LT_OK;
    LT_TRY(session_swap_ema(s));
    lt_status st = lt_data_parallel_statistics(s->dp);
    lt_status back = session_swap_ema(s);
    return st ? st : back;
}

void session_leave_ranks(session *s, lt_status failure)
{
    if (failure && s->comm && !s->everywhere)
        lt_comm_abort(s->comm);
    if (s->totalling)
        (void)!lt_request_wait(&s->totalling);
}

void session_close_ranks(session *s)
{
    lt_data_parallel_free(&s->dp);
    lt_tensor_free(&s->totals);
    lt_comm_close(&s->comm);
}
