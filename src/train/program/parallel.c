/* The ranks of a run as the command line requests them: joining them, checking that their flags agree, averaging
 * gradients, sharding the optimizer's state. */

#include "base/hash.h"
#include "train/loop/mesh.h"
#include "trainer.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/log.h"
#include "lather/share.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Flags --- */

/* Returns true for flags that may differ between ranks: where a rank reads, writes and computes. */
static bool is_local(const lt_trainer *t, const char *name)
{
    const char *const *own = t->program->local;
    static const char *const local[] = {"data",        "output",   "workers",   "threads",
                                        "device",      "progress", "log-every", "profile",
                                        "tensorboard", "verbose"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (!strcmp(local[i], name))
            return true;
    for (; own && *own; own++)
        if (!strcmp(*own, name))
            return true;
    return false;
}

/* Checks that versions and flags are the same on all ranks; otherwise names the first difference. */
static lt_status agree_flags(lt_trainer *t)
{
    enum { TEXT = 1024 };
    char text[TEXT], name[64];
    uint64_t sum = LT_FNV1A_BEGIN;
    lt_ranks *r = &t->ranks;
    LT_TRY(lt_ranks_same_text(r, "the version", lt_version()));
    LT_TRY(lt_ranks_same_text(r, "--output", t->args.output.output ? "given" : "missing"));
    const lt_option *option;
    for (size_t i = 0; (option = lt_options_at(t->options, i)); i++)
        if (!is_local(t, option->name)) {
            lt_options_text(t->options, option->name, text, TEXT);
            sum = lt_fnv1a(sum, text, strlen(text) + 1);
        }
    lt_status st = lt_ranks_same_hash(r, "the sum of all flags", sum);
    if (st != LT_E_ARG)
        return st;
    for (size_t i = 0; (option = lt_options_at(t->options, i));
         i++) { /* finds the first difference */
        if (is_local(t, option->name))
            continue;
        snprintf(name, sizeof name, "--%s", option->name);
        lt_options_text(t->options, option->name, text, TEXT);
        LT_TRY(lt_ranks_same_text(r, name, text));
    }
    return st;
}

/* --- Ranks --- */

/* Returns the communicator: NCCL for GPUs, and for torchrun, which provides no other. */
static const char *communicator(const lt_trainer *t)
{
    if (t->args.ranks.dist > DIST_MPI) /* registered by the program */
        return lt_options_choice(t->options, "dist");
    const bool on_gpu = !strncmp(lt_device_name(t->device), "cuda", strlen("cuda"));
    return on_gpu || !strcmp(lt_comm_launched_kind(), "nccl") ? "nccl" : "mpi";
}

/* Divides the machine's processors among its ranks. */
static lt_status share_threads(lt_trainer *t)
{
    int threads;
    LT_TRY(lt_ranks_share_threads(&t->ranks, &threads));
    if (!t->args.machine.threads)
        lt_device_set_threads(t->device, threads);
    if (!t->args.loader.workers)
        t->shared.workers = threads;
    return LT_OK;
}

lt_status lt_trainer_open_ranks(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    double link[2];
    t->ranks = LT_RANKS_ALONE;
    t->shared.workers = (int)t->args.loader.workers;
    if (o->dist == DIST_OFF || (o->dist == DIST_AUTO && !strcmp(lt_comm_launched_kind(), "self")))
        return lt_ranks_open_mesh(&t->ranks, o);
    LT_TRY(lt_ranks_open(&t->ranks, t->device, communicator(t), o->comm_timeout));
    LT_TRY(agree_flags(t));
    LT_TRY(lt_ranks_find_nodes(&t->ranks, o->ranks_per_node));
    LT_TRY(share_threads(t));
    LT_TRY(lt_ranks_link(o, link));
    if (o->comm_model) /* before the groups of a mesh, which have the same link */
        lt_comm_set_model(t->ranks.comm, link[0], link[1]);
    return lt_ranks_open_mesh(&t->ranks, o);
}

lt_status lt_trainer_open_share(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    lt_share_config c = {
        .comm = t->ranks.comm, .device = lt_device_name(t->device), .deadline = o->comm_timeout};
    if (!o->share_device)
        return LT_OK;
    lt_status st = lt_share_parse(&c, o->share_device);
    if (!st)
        st = lt_share_open(&t->shared.share, &c);
    t->ranks.same_failure = st == LT_E_ARG || st == LT_E_IO;
    return st ? lt_fail(st, "--share-device %s: %s", o->share_device, lt_error_message()) : LT_OK;
}

/* --- Collective parts --- */

/* Indexed by the choices of --grad-comm-dtype and --comm-dtype. */
static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};

static lt_status open_local_steps(lt_trainer *t)
{
    const lt_local_steps_config c = lt_ranks_local_steps(&t->args.ranks);
    if (!c.every)
        return LT_OK;
    if (!t->ranks.comm) {
        t->ranks.same_failure = true;
        return lt_fail(LT_E_ARG,
                       "--local-steps %lld: groups are nodes, but this is one process alone: start "
                       "several with mpirun or srun, without --dist off",
                       (long long)c.every);
    }
    lt_status st =
        lt_local_steps_new(&t->shared.local, t->ranks.comm, &t->ranks.nodes, &t->params, &c);
    t->ranks.same_failure = st == LT_E_ARG;
    return st == LT_E_ARG
               ? lt_fail(st, "--local-steps %lld: %s", (long long)c.every, lt_error_message())
               : st;
}

/* Returns the communicator over which gradients are averaged in every step. */
static lt_comm *averaging(const lt_trainer *t)
{
    return t->shared.local ? lt_local_steps_comm(t->shared.local) : t->ranks.data;
}

/* Returns the bucket size of gradients and sharded weights. */
static size_t bucket_bytes(const lt_trainer *t)
{
    return (size_t)(t->args.ranks.bucket_mib * 0x1p20);
}

static bool is_on(const char *text)
{
    return text && strcmp(text, "off") != 0;
}

/* Checks the reducer of --compress, of which one process alone makes no use. */
static lt_status check_reducer(const lt_trainer *t, const char *compress)
{
    lt_comm *self;
    lt_nodes nodes = {0};
    lt_data_parallel *dp = NULL;
    const lt_data_parallel_config c = {.compress = compress, .nodes = &nodes};
    if (!is_on(compress))
        return LT_OK;
    LT_TRY(lt_comm_open(&self, "self", t->device));
    lt_status st = lt_comm_nodes(&nodes, self, 0);
    if (!st)
        st = lt_data_parallel_new(&dp, self, &t->params, t->tape, &c);
    lt_data_parallel_free(&dp);
    lt_nodes_clear(&nodes);
    lt_comm_close(&self);
    return st == LT_E_UNSUPPORTED ? LT_OK : st; /* by this device */
}

static lt_status open_data_parallel(lt_trainer *t, lt_data_parallel_config *c)
{
    const int64_t accum = t->args.training.grad_accum;
    lt_straggler_config s;
    bool on;
    LT_TRY(lt_ranks_stragglers(&t->args.ranks, &s, &on));
    if (on && !t->ranks.comm)
        return lt_fail(LT_E_ARG,
                       "--%s: this is one process alone; start several with "
                       "mpirun or srun, without --dist off",
                       s.drop_compute ? "drop-compute" : "backup-workers");
    if (!t->ranks.comm)
        return check_reducer(t, c->compress);
    LT_TRY(lt_stragglers_check(&s, t->ranks.count, accum));
    lt_stragglers_configure(&s, t->ranks.count, accum, c);
    LT_TRY(lt_data_parallel_new(&t->shared.dp, averaging(t), &t->params, t->tape, c));
    return on ? lt_stragglers_new(&t->shared.stragglers, &s, t->shared.dp, t->ranks.comm, accum)
              : LT_OK;
}

/* The noise scale compares two batch sizes. */
static lt_status check_noise(lt_trainer *t)
{
    const training_options *o = &t->args.training;
    if (!o->gradient_noise || t->ranks.data_count > 1 || o->grad_accum > 1)
        return LT_OK;
    t->ranks.same_failure = true;
    return lt_fail(LT_E_ARG,
                   "--gradient-noise: one rank with one micro-batch per update has gradients of "
                   "one batch size; use --grad-accum 2 with --batch-size %lld",
                   (long long)(t->args.batch_size + 1) / 2);
}

/* Warns, on rank 0, that an adaptive optimizer computes its statistics from sparse gradients. */
static void warn_of_sparse_gradients(const lt_trainer *t)
{
    static const char *const linear[] = {"sgd", "lars", "lamb"}, kind[] = "topk";
    const char *compress = t->args.ranks.compress, *name = t->args.optim.family->name;
    if (!t->shared.dp || t->ranks.rank || !compress
        || strncmp(compress, kind, sizeof kind - 1) != 0)
        return;
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        if (!strcmp(name, linear[i]))
            return;
    lt_log(
        LT_LOG_WARN, "train",
        "--compress %s with --optim %s: its gradient statistics are computed from sparse gradients, "
        "which trains worse: use sgd, lars or lamb, or --local-steps with %s",
        compress, name, name);
}

lt_status lt_trainer_open_parallel(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    const bool scattered =
        (o->shard_gradients || o->shard_params) && o->allreduce == ALLREDUCE_AUTO;
    lt_data_parallel_config c = {
        .bucket_bytes = bucket_bytes(t),
        .dtype = dtypes[o->grad_comm_dtype],
        .no_overlap = !o->overlap,
        .dist_bn = (lt_dist_bn)o->dist_bn,
        .sync_bn = o->sync_bn,
        .alone_too = o->dist >= DIST_MPI,
        .norms = t->args.training.gradient_noise,
        .allreduce = scattered ? "flat" : lt_options_choice(t->options, "allreduce"),
        .compress = o->compress,
        .nodes = &t->ranks.nodes};
    LT_TRY(check_noise(t));
    LT_TRY(open_local_steps(t));
    if (t->shared.local
        || t->ranks.mesh) { /* the reducer averages within a node, or between replicas */
        c.allreduce = NULL;
        c.nodes = NULL;
    }
    lt_status st = open_data_parallel(t, &c);
    if (!st)
        warn_of_sparse_gradients(t);
    t->ranks.same_failure = st == LT_E_ARG;
    return st;
}

void lt_trainer_note_alone(const lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    const struct {
        bool given;
        const char *flag;
    } list[] = {
        {o->dist_bn != LT_DIST_BN_REDUCE, "dist-bn"},
        {o->sync_bn, "sync-bn"},
        {fabs(o->bucket_mib - 25) > 0, "bucket-mib"},
        {!o->overlap, "no-overlap"},
        {o->grad_comm_dtype != COMM_F32, "grad-comm-dtype"},
        {o->allreduce != ALLREDUCE_AUTO, "allreduce"},
        {is_on(o->compress), "compress"},
        {o->shard_optimizer, "shard-optimizer"},
        {o->comm_dtype != COMM_F32, "comm-dtype"},
        {o->communicate_params, "communicate-params"},
        {o->num_trainers_per_group, "num-trainers-per-group"},
        {lt_ranks_has_balance(o), "balance"},
        {o->ranks_per_node, "ranks-per-node"},
        {o->comm_model, "comm-model"},
    };
    char text[256] = "";
    size_t used = 0;
    if (t->ranks.count > 1 || o->dist >= DIST_MPI)
        return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].given)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s--%s", used ? ", " : "",
                                     list[i].flag);
    if (used)
        lt_run_note(t->run, "no effect with one rank: %s", text);
}

void lt_trainer_begin_compression(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    const int64_t epoch = t->state.now.epoch;
    if (t->shared.dp)
        lt_data_parallel_compress(t->shared.dp,
                                  epoch >= o->compress_warmup_epochs
                                      && (!o->compress_until || epoch < o->compress_until));
}

/* Returns true if each rank may update its shards in place: no other option shards the state over replicas. */
static bool may_update_boxes(const lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    return !t->args.optim.family->divided && !o->shard_optimizer && !lt_ranks_has_balance(o)
           && o->comm_dtype == COMM_F32 && !o->communicate_params
           && t->args.training.state_dtype == LT_STATE_F32 && !t->args.training.state_memory;
}

/* Makes an optimizer over whole parameters, unless it can update shards in place. */
static lt_status make_placed(lt_trainer *t, const lt_params **params)
{
    const lt_ranks *r = &t->ranks;
    lt_status st = lt_sharded_optim_new(&t->shared.placed, &t->params, r->comm,
                                        lt_mesh_comm(r->mesh, LT_MESH_MODEL));
    t->ranks.same_failure = st == LT_E_ARG;
    LT_TRY(st);
    if (may_update_boxes(t)) {
        LT_TRY(lt_trainer_open_optimizer(t, &t->params));
        if (t->optim->ops->elementwise)
            return LT_OK;
        lt_optim_free(&t->optim);
    }
    *params = lt_sharded_optim_params(t->shared.placed);
    return lt_trainer_open_optimizer(t, *params);
}

lt_status lt_trainer_make_optimizer(lt_trainer *t, const lt_params **params)
{
    *params = &t->params;
    return t->ranks.mesh ? make_placed(t, params) : lt_trainer_open_optimizer(t, *params);
}

/* Shards the optimizer's state over all ranks of the mesh. */
static lt_status divide_placed(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    lt_shard_config c = {.comm = t->ranks.comm,
                         .dtype = dtypes[o->comm_dtype],
                         .gather_params = o->communicate_params};
    LT_TRY(lt_ranks_balance(o, &c.balance, &c.polynomial));
    const bool boxes = may_update_boxes(t) && t->optim->ops->elementwise;
    lt_status st = boxes ? lt_sharded_optim_attach_shards(t->shared.placed, t->optim)
                         : lt_sharded_optim_attach(t->shared.placed, t->optim, &c);
    t->ranks.same_failure = st == LT_E_ARG;
    return st;
}

lt_status lt_trainer_divide_optimizer(lt_trainer *t)
{
    const ranks_options *o = &t->args.ranks;
    if (t->shared.placed)
        return divide_placed(t);
    const bool alone = !t->ranks.comm || (t->shared.local && lt_comm_size(averaging(t)) == 1);
    const bool scattered = o->shard_gradients || o->shard_params;
    if (alone && scattered) /* its norm is computed as with any number of ranks */
        return lt_optim_shard_gradients(t->optim, NULL);
    if (alone || (!t->args.optim.family->divided && !o->shard_optimizer && !o->shard_params))
        return LT_OK;
    lt_shard_config c = {.comm = averaging(t),
                         .group = (int)o->num_trainers_per_group,
                         .dtype = dtypes[o->comm_dtype],
                         .gather_params = o->communicate_params,
                         .shard_params = o->shard_params};
    const lt_shard_params_config units = {.unit_bytes = bucket_bytes(t),
                                          .no_prefetch = !o->overlap};
    LT_TRY(lt_ranks_balance(o, &c.balance, &c.polynomial));
    lt_status st = lt_optim_shard(t->optim, &c);
    if (!st && scattered)
        st = lt_optim_shard_gradients(t->optim, t->shared.dp);
    if (!st && o->shard_params)
        st = lt_optim_shard_params(t->optim, t->tape, &units);
    t->ranks.same_failure = st == LT_E_ARG;
    return st;
}

void lt_trainer_close_ranks(lt_trainer *t)
{
    trainer_shared *s = &t->shared;
    lt_sharded_optim_free(&s->placed);
    lt_stragglers_free(&s->stragglers);
    lt_data_parallel_free(&s->dp);
    lt_local_steps_free(&s->local);
    lt_share_close(&s->share);
    lt_ranks_close(&t->ranks);
}
