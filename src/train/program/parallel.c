/* The ranks of a run as the command line requests them: joining them, checking that their flags agree, averaging
 * gradients, sharding the optimizer's state. */

#include "parallel.h"

#include "base/hash.h"
#include "train/loop/mesh.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/log.h"
#include "lather/share.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Flags --- */

/* Returns true for flags that may differ between ranks: where a rank reads, writes and computes. */
static bool may_differ_between_ranks(const lt_trainer_program *program, const char *name)
{
    const char *const *own = program->local;
    static const char *const local[] = {"data",        "output",   "workers",   "threads",
                                        "device",      "progress", "log-every", "profile",
                                        "tensorboard", "verbose",  "plugin"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (!strcmp(local[i], name))
            return true;
    for (; own && *own; own++)
        if (!strcmp(*own, name))
            return true;
    return false;
}

/* Checks that versions and flags are the same on all ranks; otherwise names the first difference. */
static lt_status agree_flags(lt_ranks *r, const command_line *line)
{
    enum { TEXT = 1024 };
    char text[TEXT], name[64];
    uint64_t sum = LT_FNV1A_BEGIN;
    LT_TRY(lt_ranks_same_text(r, "the version", lt_version()));
    LT_TRY(lt_ranks_same_plugins(r));
    LT_TRY(lt_ranks_same_text(r, "--output", line->args.output.output ? "given" : "missing"));
    const lt_option *option;
    for (size_t i = 0; (option = lt_options_at(line->options, i)); i++)
        if (!may_differ_between_ranks(line->program, option->name)) {
            lt_options_text(line->options, option->name, text, TEXT);
            sum = lt_fnv1a(sum, text, strlen(text) + 1);
        }
    lt_status st = lt_ranks_same_hash(r, "the sum of all flags", sum);
    if (st != LT_E_ARG)
        return st;
    for (size_t i = 0; (option = lt_options_at(line->options, i));
         i++) { /* finds the first difference */
        if (may_differ_between_ranks(line->program, option->name))
            continue;
        snprintf(name, sizeof name, "--%s", option->name);
        lt_options_text(line->options, option->name, text, TEXT);
        LT_TRY(lt_ranks_same_text(r, name, text));
    }
    return st;
}

/* --- Ranks --- */

/* Returns the communicator: NCCL for GPUs, and for torchrun, which provides no other. */
static const char *communicator_kind(const command_line *line, lt_device *device)
{
    if (line->args.ranks.dist > DIST_MPI) /* registered by the program */
        return lt_options_choice(line->options, "dist");
    const bool on_gpu = !strncmp(lt_device_name(device), "cuda", strlen("cuda"));
    return on_gpu || !strcmp(lt_comm_launched_kind(), "nccl") ? "nccl" : "mpi";
}

/* Divides the machine's processors among its ranks. */
static lt_status share_threads(lt_ranks *r, int *workers, lt_device *device, const arguments *a)
{
    int threads;
    LT_TRY(lt_ranks_share_threads(r, &threads));
    if (!a->machine.threads)
        lt_device_set_threads(device, threads);
    if (!a->loader.workers)
        *workers = threads;
    return LT_OK;
}

lt_status lt_trainer_open_ranks(lt_ranks *r, int *workers, lt_device *device,
                                const command_line *line)
{
    const ranks_options *o = &line->args.ranks;
    double link[2];
    *r = LT_RANKS_ALONE;
    *workers = (int)line->args.loader.workers;
    if (o->dist == DIST_OFF || (o->dist == DIST_AUTO && !strcmp(lt_comm_launched_kind(), "self")))
        return lt_ranks_open_mesh(r, o);
    LT_TRY(lt_ranks_open(r, device, communicator_kind(line, device), o->comm_timeout));
    LT_TRY(agree_flags(r, line));
    LT_TRY(lt_ranks_find_nodes(r, o->ranks_per_node));
    LT_TRY(share_threads(r, workers, device, &line->args));
    LT_TRY(lt_ranks_parse_comm_model(o, link));
    if (o->comm_model) /* before the groups of a mesh, which have the same link */
        lt_comm_set_model(r->comm, link[0], link[1]);
    const lt_status st = o->sums == SUMS_ENGINE ? lt_comm_use_engine_sums(r->comm, true) : LT_OK;
    r->same_failure = st != LT_OK;
    return st ? st : lt_ranks_open_mesh(r, o);
}

lt_status lt_trainer_open_device_share(trainer_shared *s, lt_trainer *t)
{
    const ranks_options *o = &t->line.args.ranks;
    lt_ranks *r = &t->ranks;
    lt_share_config c = {
        .comm = r->comm, .device = lt_device_name(t->model.device), .deadline = o->comm_timeout};
    if (!o->share_device)
        return LT_OK;
    lt_status st = lt_share_parse(&c, o->share_device);
    if (!st)
        st = lt_share_open(&s->share, &c);
    r->same_failure = st == LT_E_ARG || st == LT_E_IO;
    return st ? lt_fail(st, "--share-device %s: %s", o->share_device, lt_error_message()) : LT_OK;
}

/* --- Collective parts --- */

/* Indexed by the choices of --grad-comm-dtype and --comm-dtype. */
static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};

static lt_status open_local_steps(lt_local_steps **out, const ranks_options *o, lt_ranks *r,
                                  const lt_params *params)
{
    const lt_local_steps_config c = lt_ranks_local_steps_config(o);
    if (!c.every)
        return LT_OK;
    if (!r->comm) {
        r->same_failure = true;
        return lt_fail(LT_E_ARG,
                       "--local-steps %lld: groups are nodes, but this is one process alone: start "
                       "several with mpirun or srun, without --dist off",
                       (long long)c.every);
    }
    lt_status st = lt_local_steps_new(out, r->comm, &r->nodes, params, &c);
    r->same_failure = st == LT_E_ARG;
    return st == LT_E_ARG
               ? lt_fail(st, "--local-steps %lld: %s", (long long)c.every, lt_error_message())
               : st;
}

/* Returns the communicator over which gradients are averaged in every step. */
static lt_comm *averaging_communicator(const trainer_shared *s, const lt_ranks *r)
{
    return s->local ? lt_local_steps_comm(s->local) : r->data;
}

/* Returns the bucket size of gradients and sharded weights. */
static size_t bucket_bytes(const ranks_options *o)
{
    return (size_t)(o->bucket_mib * 0x1p20);
}

static bool is_switched_on(const char *text)
{
    return text && strcmp(text, "off") != 0;
}

/* Checks the reducer of --compress, of which one process alone makes no use. */
static lt_status check_reducer(trainer_model *m, const char *compress)
{
    lt_comm *self;
    lt_nodes nodes = {0};
    lt_data_parallel *dp = NULL;
    const lt_data_parallel_config c = {.compress = compress, .nodes = &nodes};
    if (!is_switched_on(compress))
        return LT_OK;
    LT_TRY(lt_comm_open(&self, "self", m->device));
    lt_status st = lt_comm_nodes(&nodes, self, 0);
    if (!st)
        st = lt_data_parallel_new(&dp, self, &m->params, m->tape, &c);
    lt_data_parallel_free(&dp);
    lt_nodes_clear(&nodes);
    lt_comm_close(&self);
    return st == LT_E_UNSUPPORTED ? LT_OK : st; /* by this device */
}

static lt_status open_data_parallel(trainer_shared *s, const arguments *a, const lt_ranks *r,
                                    trainer_model *m, lt_data_parallel_config *c)
{
    const int64_t accum = a->training.grad_accum;
    lt_straggler_config late;
    bool on;
    LT_TRY(lt_ranks_parse_stragglers(&a->ranks, &late, &on));
    if (on && !r->comm)
        return lt_fail(LT_E_ARG,
                       "--%s: this is one process alone; start several with "
                       "mpirun or srun, without --dist off",
                       late.drop_compute ? "drop-compute" : "backup-workers");
    if (!r->comm)
        return check_reducer(m, c->compress);
    LT_TRY(lt_stragglers_check(&late, r->count, accum));
    lt_stragglers_set_dp_config(&late, r->count, accum, c);
    LT_TRY(lt_data_parallel_new(&s->dp, averaging_communicator(s, r), &m->params, m->tape, c));
    return on ? lt_stragglers_new(&s->stragglers, &late, s->dp, r->comm, accum) : LT_OK;
}

/* The noise scale compares two batch sizes. */
static lt_status check_noise(const arguments *a, lt_ranks *r)
{
    const training_options *o = &a->training;
    if (!o->gradient_noise || r->data_count > 1 || o->grad_accum > 1)
        return LT_OK;
    r->same_failure = true;
    return lt_fail(LT_E_ARG,
                   "--gradient-noise: one rank with one micro-batch per update has gradients of "
                   "one batch size; use --grad-accum 2 with --batch-size %lld",
                   (long long)(a->batch_size + 1) / 2);
}

/* Warns, on rank 0, that an adaptive optimizer computes its statistics from sparse gradients. */
static void warn_of_sparse_gradients(const arguments *a)
{
    static const char *const linear[] = {"sgd", "lars", "lamb"}, kind[] = "topk";
    const char *compress = a->ranks.compress, *name = a->optim.family->name;
    if (!compress || strncmp(compress, kind, sizeof kind - 1) != 0)
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

lt_status lt_trainer_open_parallel(trainer_shared *s, const command_line *line, lt_ranks *r,
                                   trainer_model *m)
{
    const arguments *a = &line->args;
    const ranks_options *o = &a->ranks;
    const bool in_parts = o->shard_gradients || o->shard_params;
    const bool flat = (in_parts || o->sums == SUMS_ENGINE || lt_device_is_reproducible(m->device))
                      && o->allreduce == ALLREDUCE_AUTO;
    lt_data_parallel_config c = {.bucket_bytes = bucket_bytes(o),
                                 .dtype = dtypes[o->grad_comm_dtype],
                                 .no_overlap = !o->overlap,
                                 .dist_bn = (lt_dist_bn)o->dist_bn,
                                 .sync_bn = o->sync_bn,
                                 .alone_too = o->dist >= DIST_MPI,
                                 .norms = a->training.gradient_noise,
                                 .allreduce =
                                     flat ? "flat" : lt_options_choice(line->options, "allreduce"),
                                 .compress = o->compress,
                                 .nodes = &r->nodes};
    LT_TRY(check_noise(a, r));
    LT_TRY(open_local_steps(&s->local, o, r, &m->params));
    if (s->local || r->mesh) { /* the reducer averages within a node, or between replicas */
        c.allreduce = NULL;
        c.nodes = NULL;
    }
    lt_status st = open_data_parallel(s, a, r, m, &c);
    if (!st && s->dp && !r->rank)
        warn_of_sparse_gradients(a);
    r->same_failure = st == LT_E_ARG;
    return st;
}

void lt_trainer_log_unused_flags(lt_run *run, const ranks_options *o, int ranks)
{
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
        {o->sums != SUMS_ORDERED, "sums"},
        {is_switched_on(o->compress), "compress"},
        {o->shard_optimizer, "shard-optimizer"},
        {o->comm_dtype != COMM_F32, "comm-dtype"},
        {o->communicate_params, "communicate-params"},
        {lt_ranks_has_groups(o), "num-trainers-per-group"},
        {lt_ranks_has_custom_balance(o), "balance"},
        {o->ranks_per_node, "ranks-per-node"},
        {o->comm_model, "comm-model"},
    };
    char text[256] = "";
    size_t used = 0;
    if (ranks > 1 || o->dist >= DIST_MPI)
        return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].given)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s--%s", used ? ", " : "",
                                     list[i].flag);
    if (used)
        lt_run_note(run, "no effect with one rank: %s", text);
}

void lt_trainer_switch_compression(const trainer_shared *s, const ranks_options *o, int64_t epoch)
{
    if (s->dp)
        lt_data_parallel_compress(s->dp, epoch >= o->compress_warmup_epochs
                                             && (!o->compress_until || epoch < o->compress_until));
}

/* Returns true if each rank may update its shards in place: no other option shards the state over replicas. */
static bool may_update_shards_in_place(const arguments *a)
{
    const ranks_options *o = &a->ranks;
    return !a->optim.family->divided && !o->shard_optimizer && !lt_ranks_has_custom_balance(o)
           && o->comm_dtype == COMM_F32 && !o->communicate_params
           && a->training.state_dtype == LT_STATE_F32 && !a->training.state_memory;
}

/* Makes an optimizer over whole parameters, unless it can update shards in place. */
static lt_status make_mesh_optimizer(trainer_shared *s, lt_optim **optim, const lt_params **whole,
                                     arguments *a, lt_ranks *r)
{
    const lt_params *shards = *whole;
    lt_status st =
        lt_sharded_optim_new(&s->sharded, shards, r->comm, lt_mesh_comm(r->mesh, LT_MESH_MODEL));
    r->same_failure = st == LT_E_ARG;
    LT_TRY(st);
    if (may_update_shards_in_place(a)) {
        LT_TRY(lt_trainer_open_optimizer(optim, a, shards, r->rank));
        if ((*optim)->ops->elementwise)
            return LT_OK;
        lt_optim_free(optim);
    }
    *whole = lt_sharded_optim_params(s->sharded);
    return lt_trainer_open_optimizer(optim, a, *whole, r->rank);
}

/* Shards the optimizer's state over all ranks of the mesh. */
static lt_status shard_mesh_optimizer(const trainer_shared *s, lt_optim *optim, const arguments *a,
                                      lt_ranks *r)
{
    const ranks_options *o = &a->ranks;
    lt_shard_config c = {
        .comm = r->comm, .dtype = dtypes[o->comm_dtype], .gather_params = o->communicate_params};
    LT_TRY(lt_ranks_parse_balance(o, &c.balance, &c.polynomial));
    const bool boxes = may_update_shards_in_place(a) && optim->ops->elementwise;
    lt_status st = boxes ? lt_sharded_optim_attach_shards(s->sharded, optim)
                         : lt_sharded_optim_attach(s->sharded, optim, &c);
    r->same_failure = st == LT_E_ARG;
    return st;
}

/* Chooses the ranks that share a copy of the state; 0: all. auto: those of a node, where gradients are averaged in two
 * levels, so that no update crosses the network. */
static int choose_state_group(const ranks_options *o, lt_ranks *r, lt_comm *comm)
{
    int ranks = 0;
    const lt_nodes *n = &r->nodes;
    const bool by_node = comm == r->comm && !o->shard_gradients && !o->shard_params
                         && o->allreduce != ALLREDUCE_FLAT && n->count > 1 && n->contiguous
                         && n->ranks_per_node > 1;
    const lt_status st = lt_ranks_parse_groups(o, &ranks); /* checked before */
    if (st || ranks == GROUPS_AUTO)
        ranks = by_node ? n->ranks_per_node : 0;
    r->state_ranks = ranks ? ranks : lt_comm_size(comm);
    return ranks;
}

/* Gathers updates in two levels where gradients are averaged so. */
static lt_status gather_in_two_levels(lt_optim *optim, const lt_shard_config *c,
                                      const ranks_options *o, const lt_ranks *r)
{
    return c->comm == r->comm && o->allreduce != ALLREDUCE_FLAT
               ? lt_optim_shard_two_level(optim, &r->nodes)
               : LT_OK;
}

lt_status lt_trainer_shard_optim(const trainer_shared *s, lt_optim *optim, const arguments *a,
                                 lt_ranks *r, lt_tape *tape)
{
    const ranks_options *o = &a->ranks;
    if (s->sharded)
        return shard_mesh_optimizer(s, optim, a, r);
    const bool alone = !r->comm || (s->local && lt_comm_size(averaging_communicator(s, r)) == 1);
    const bool scattered = o->shard_gradients || o->shard_params;
    if (alone && scattered) /* its norm is computed as with any number of ranks */
        return lt_optim_shard_gradients(optim, NULL);
    if (alone || (!a->optim.family->divided && !o->shard_optimizer && !o->shard_params))
        return LT_OK;
    lt_comm *comm = averaging_communicator(s, r);
    lt_shard_config c = {.comm = comm,
                         .group = choose_state_group(o, r, comm),
                         .dtype = dtypes[o->comm_dtype],
                         .gather_params = o->communicate_params,
                         .shard_params = o->shard_params};
    const lt_shard_params_config units = {.unit_bytes = bucket_bytes(o),
                                          .no_prefetch = !o->overlap};
    LT_TRY(lt_ranks_parse_balance(o, &c.balance, &c.polynomial));
    lt_status st = lt_optim_shard(optim, &c);
    if (!st)
        st = scattered ? lt_optim_shard_gradients(optim, s->dp)
                       : gather_in_two_levels(optim, &c, o, r);
    if (!st && o->shard_params)
        st = lt_optim_shard_params(optim, tape, &units);
    r->same_failure = st == LT_E_ARG;
    return st;
}

lt_status lt_trainer_make_optim(trainer_shared *s, lt_optim **optim, arguments *a, lt_ranks *r,
                                trainer_model *m)
{
    const lt_params *params = &m->params; /* whole ones, or shards */
    LT_TRY(r->mesh ? make_mesh_optimizer(s, optim, &params, a, r)
                   : lt_trainer_open_optimizer(optim, a, params, r->rank));
    return lt_param_groups_apply(params, *optim, a->optim.lr, &a->groups);
}

void lt_trainer_close_shared(trainer_shared *s)
{
    lt_sharded_optim_free(&s->sharded);
    lt_stragglers_free(&s->stragglers);
    lt_data_parallel_free(&s->dp);
    lt_local_steps_free(&s->local);
    lt_share_close(&s->share);
}
