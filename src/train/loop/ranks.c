/* Ranks of a run: joining them, checking that they agree, and exchanging sums and lists. */

#include "ranks.h"

#include "base/alloc.h"
#include "base/os.h"
#include "option_rows.h"

#include "lather/detail/text.h"
#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/plugin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OF ranks_options
/* clang-format off */
static const lt_option rows[] = {
{"Ranks", PICK("dist-bn", dist_bn, "none|broadcast|reduce"), .value = "reduce", .help = "running statistics of batch norm before an evaluation or checkpoint: each rank's own (none), rank 0's (broadcast) or the mean (reduce)"},
{"Ranks", BOOL("sync-bn", sync_bn), .help = "compute batch norm over the batches of all ranks"},
{"Ranks", NUM("bucket-mib", bucket_mib, 0.001, 4096), .value = "25", .help = "bucket size of gradient collectives, in MiB"},
{"Ranks", BOOL("overlap", overlap), .value = "true", .help = "send gradients during the backward pass"},
{"Ranks", PICK("grad-comm-dtype", grad_comm_dtype, "f32|bf16|f16"), .help = "dtype of communicated gradients"},
{"Ranks", PICK("allreduce", allreduce, "auto|flat|two-level"), .help = "how gradients are averaged: flat: over all ranks at once; two-level: within each node, then between nodes; auto: two-level if several nodes have equal numbers of ranks"},
{"Ranks", PICK("sums", sums, "ordered|engine"), .help = "how floats of all ranks are added: in rank order, bitwise identical for any placement (ordered), or by MPI_Iallreduce (engine): bits then depend on MPI, its version and the nodes"},
{"Ranks", TEXT("compress", compress), .meta = "KIND:ARG", .value = "off", .help = "compress gradients, with error feedback: off, or a reducer and its argument"},
{"Ranks", INT("compress-warmup-epochs", compress_warmup_epochs, 0, 1000000), .value = "0", .applies = "--compress", .help = "epochs at the start without --compress"},
{"Ranks", INT("compress-until", compress_until, 0, 1000000), .value = "0", .meta = "EPOCH", .applies = "--compress", .help = "disable --compress after this epoch; 0: never"},
{"Ranks", BOOL("shard-optimizer", shard_optimizer), .common = true, .help = "shard the optimizer's state over the ranks (ZeRO-1); shampoo and muon always do"},
{"Ranks", BOOL("shard-gradients", shard_gradients), .help = "reduce-scatter gradients to the ranks that update them (ZeRO-2): two thirds of the bytes, the same updates"},
{"Ranks", BOOL("shard-params", shard_params), .help = "shard weights, gradients and state over the ranks (ZeRO-3, FSDP): layers gather their weights while in use, in units of --bucket-mib; the same updates"},
{"Ranks", PICK("comm-dtype", comm_dtype, "f32|bf16|f16"), .help = "dtype of gathered updates, with sharded state"},
{"Ranks", BOOL("communicate-params", communicate_params), .help = "gather parameters instead of updates"},
{"Ranks", TEXT("num-trainers-per-group", num_trainers_per_group), .value = "auto", .meta = "auto|N", .help = "ranks that share one copy of the sharded state; 0: all; auto: those of a node if several nodes have equal numbers of ranks, which sends no updates between nodes; bitwise identical"},
{"Ranks", TEXT("balance", balance), .value = "cost", .meta = "cost|memory|bytes|polynomial:C0,C1,..[:LEAST]", .help = "what sharding balances: modelled time, bytes of state, bytes gathered, or a polynomial of the dimensions of a block, in which a dimension n costs C0 + C1 n + C2 n^2 .., but at least LEAST"},
{"Ranks", NUM("comm-timeout", comm_timeout, 0, 1e6), .value = "600", .help = "seconds to wait for a missing rank before the run ends; 0: no limit"},
{"Ranks", INT("ranks-per-node", ranks_per_node, 0, 1000000), .value = "0", .help = "consecutive ranks that form a node; 0: ranks with the same boot id and host name"},
{"Ranks", INT("local-steps", local_steps, 0, 1000000000), .value = "0", .help = "train the ranks of each node separately, and synchronize the nodes in an outer step every N steps and at the end of an epoch, before the evaluation; 0: all ranks average each gradient"},
{"Ranks", NUM("outer-lr", outer_lr, 1e-6, 100), .value = "0.7", .applies = "--local-steps", .help = "learning rate of the outer step; 1 without momentum averages the nodes"},
{"Ranks", NUM("outer-momentum", outer_momentum, -1, 0.9999), .value = "-1", .applies = "--local-steps", .help = "Nesterov momentum of the outer step; -1: 0.9, with --outer-compress 0"},
{"Ranks", TEXT("outer-compress", outer_compress), .value = "off", .meta = "off|topk:DENSITY[,bf16|,2bit]", .applies = "--local-steps", .help = "send everything in an outer step (off), or the largest elements and the rest later; in f32, bf16 or 2 bits each"},
{"Ranks", TEXT("tensor-parallel", tensor_parallel), .value = "1", .meta = "T|QxQ|QxQxD", .help = "ranks that together hold a replica of the model: T ranks, a grid, or a grid with D layers; other ranks are further replicas, and --batch-size is per replica"},
{"Ranks", PICK("sequence-parallel", sequence_parallel, "on|off"), .applies = "--tensor-parallel", .help = "apply norms, dropout and residuals to a rank's own rows only; off: to all rows on each rank"},
{"Ranks", PICK("tp-overlap", tp_overlap, "on|off"), .applies = "--tensor-parallel", .help = "start matrix products before all of their operands arrive; off: complete collectives, then products, bitwise identical"},
{"Ranks", BOOL("force", force), .applies = "--tensor-parallel", .help = "allow the depth D of --tensor-parallel QxQxD to exceed Q"},
{"Ranks", TEXT("share-device", share_device), .meta = "NAME[:WEIGHT]", .help = "time-share devices with jobs of the same name: one computes while another communicates; WEIGHT: time slices per slice of a job of weight 1"},
{"Ranks", INT("backup-workers", backup_workers, 0, 1000000), .value = "0", .meta = "B", .help = "update with the gradients of the first ranks that finish, without the last B; these give up and apply the update too. Needs a message-based communicator: mpi"},
{"Ranks", TEXT("contributors", contributors), .meta = "FILE", .applies = "--backup-workers", .help = "take the contributing ranks of each update from this metrics.jsonl of a run, to repeat it bitwise"},
{"Ranks", TEXT("drop-compute", drop_compute), .value = "off", .meta = "off|auto|SECONDS", .help = "begin no micro-batch of --grad-accum later than this many seconds after an update began; auto: the deadline with the most micro-batches per second, by recorded latencies"},
{"Ranks", TEXT("comm-model", comm_model), .meta = "US,GBIT", .help = "delay messages as a link with this latency in microseconds and rate in Gbit/s would, for measurements"},
};
/* clang-format on */
OPTION_TABLE(lt_ranks_option_table, ranks_options, rows)

lt_option_table lt_ranks_dist_option(ranks_options *o)
{
    const char *name;
    const size_t size = sizeof o->dists;
    size_t used = (size_t)snprintf(o->dists, size, "auto|off|mpi");
    for (size_t i = 0; (name = lt_comm_registered(i)) && used < size; i++)
        used += (size_t)snprintf(o->dists + used, size - used, "|%s", name);
    o->dist_row =
        (lt_option){"Ranks", PICK("dist", dist, o->dists),
                    .help = "auto: one run of all processes that mpirun or srun started; off: "
                            "each process alone; mpi: ranks in any case, if only one"};
    return (lt_option_table){&o->dist_row, 1, o};
}

/* Parses "C0,C1,..[:LEAST]". */
static bool read_polynomial(const char *text, lt_balance_polynomial *p)
{
    char numbers[256];
    const char *least = strchr(text, ':');
    snprintf(numbers, sizeof numbers, "%.*s", (int)strcspn(text, ":"), text);
    return lt_text_numbers(numbers, p->coefficient, LT_BALANCE_COEFFICIENTS) >= 1
           && (!least || lt_text_numbers(least + 1, &p->least, 1) == 1);
}

lt_status lt_ranks_parse_balance(const ranks_options *o, lt_balance *kind, lt_balance_polynomial *p)
{
    static const char *const names[] = {
        [LT_BALANCE_COST] = "cost", [LT_BALANCE_MEMORY] = "memory", [LT_BALANCE_BYTES] = "bytes"};
    static const char polynomial[] = "polynomial:";
    const size_t bytes = sizeof polynomial - 1;
    *p = (lt_balance_polynomial){{0}, 0};
    for (*kind = LT_BALANCE_COST; *kind < LT_BALANCE_POLYNOMIAL; (*kind)++)
        if (!strcmp(o->balance, names[*kind]))
            return LT_OK;
    if (!strncmp(o->balance, polynomial, bytes) && read_polynomial(o->balance + bytes, p))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--balance '%s': expected cost, memory, bytes, or polynomial:C0,C1,..[:LEAST] "
                   "of 1 to %d numbers of 0 or more",
                   o->balance, (int)LT_BALANCE_COEFFICIENTS);
}

bool lt_ranks_has_custom_balance(const ranks_options *o)
{
    return strcmp(o->balance, "cost") != 0;
}

lt_status lt_ranks_parse_groups(const ranks_options *o, int *ranks)
{
    double number;
    const double most = 1e6;
    *ranks = GROUPS_AUTO;
    if (!strcmp(o->num_trainers_per_group, "auto"))
        return LT_OK;
    if (lt_text_numbers(o->num_trainers_per_group, &number, 1) != 1 || number > most
        || number > floor(number))
        return lt_fail(LT_E_ARG,
                       "--num-trainers-per-group '%s': expected auto, or a whole number of 0 to %g",
                       o->num_trainers_per_group, most);
    *ranks = (int)number;
    return LT_OK;
}

bool lt_ranks_has_groups(const ranks_options *o)
{
    int ranks;
    return !lt_ranks_parse_groups(o, &ranks) && ranks > 0;
}

/* --- Opening and leaving --- */

void lt_ranks_join(lt_ranks *r, lt_comm *comm)
{
    r->comm = r->data = comm;
    r->rank = r->data_rank = lt_comm_rank(comm);
    r->count = r->data_count = lt_comm_size(comm);
}

lt_status lt_ranks_open(lt_ranks *r, lt_device *device, const char *kind, double deadline)
{
    lt_comm *comm;
    *r = LT_RANKS_ALONE;
    LT_TRY(lt_comm_open(&comm, kind, device));
    lt_ranks_join(r, comm);
    lt_comm_set_deadline(comm, deadline);
    return lt_tensor_new(&r->sums, device, LT_F64, LT_SHAPE(RANK_SUMS));
}

void lt_ranks_abort_others(lt_ranks *r, lt_status failure)
{
    if (failure && r->comm && !r->same_failure)
        lt_comm_abort(r->comm);
}

void lt_ranks_close(lt_ranks *r)
{
    lt_tensor_free(&r->sums);
    lt_nodes_clear(&r->nodes);
    if (r->mesh)
        lt_mesh_free(&r->mesh);
    lt_comm_close(&r->comm);
}

lt_status lt_ranks_find_nodes(lt_ranks *r, int64_t ranks_per_node)
{
    lt_status st = lt_comm_nodes(&r->nodes, r->comm, (int)ranks_per_node);
    r->same_failure = st == LT_E_ARG;
    return st == LT_E_ARG ? lt_fail(st, "--ranks-per-node: %s", lt_error_message()) : st;
}

lt_status lt_ranks_parse_comm_model(const ranks_options *o, double link[2])
{
    link[0] = link[1] = 0;
    if (o->comm_model && (lt_text_numbers(o->comm_model, link, 2) != 2 || !(link[1] > 0)))
        return lt_fail(LT_E_ARG,
                       "--comm-model: '%s' is not LATENCY,RATE: microseconds of 0 or more, Gbit/s "
                       "above 0",
                       o->comm_model);
    return LT_OK;
}

lt_status lt_ranks_parse_stragglers(const ranks_options *o, lt_straggler_config *out, bool *on)
{
    const char *drop =
        o->drop_compute && strcmp(o->drop_compute, "off") != 0 ? o->drop_compute : NULL;
    *out = (lt_straggler_config){.backup_workers = (int)o->backup_workers,
                                 .contributors = o->contributors,
                                 .drop_compute = drop};
    *on = o->backup_workers || o->contributors || drop;
    if (!drop || !strcmp(drop, "auto"))
        return LT_OK;
    if (lt_text_numbers(drop, &out->deadline, 1) != 1 || !(out->deadline > 0))
        return lt_fail(
            LT_E_ARG,
            "--drop-compute: expected off, auto, or a number of seconds above 0, got '%s'", drop);
    return LT_OK;
}

lt_local_steps_config lt_ranks_local_steps_config(const ranks_options *o)
{
    const double usual = 0.9, kept = 0.95; /* the latter: SparseLoCo's */
    const bool sends_all = !o->outer_compress || !strcmp(o->outer_compress, "off");
    return (lt_local_steps_config){.every = o->local_steps,
                                   .lr = o->outer_lr,
                                   .momentum = o->outer_momentum >= 0 ? o->outer_momentum
                                               : sends_all            ? usual
                                                                      : 0,
                                   .compress = o->outer_compress,
                                   .decay = kept,
                                   .dist_bn = (lt_dist_bn)o->dist_bn};
}

/* --- Sums and lists --- */

lt_status lt_ranks_sum(lt_ranks *r, double *values, int count)
{
    double all[RANK_SUMS] = {0};
    lt_request *request = NULL;
    if (!r->comm)
        return LT_OK;
    memcpy(all, values, (size_t)count * sizeof *all);
    LT_TRY(lt_tensor_write(r->sums, all, sizeof all));
    LT_TRY(lt_comm_allreduce_begin(r->comm, r->sums, LT_REDUCE_SUM, &request));
    LT_TRY(lt_request_wait(&request));
    LT_TRY(lt_tensor_read(r->sums, all, sizeof all));
    memcpy(values, all, (size_t)count * sizeof *all);
    return LT_OK;
}

/* Gathers the same number of bytes from each rank. */
static lt_status allgather_equal(lt_ranks *r, const void *own, int64_t bytes, void *all)
{
    int64_t *count;
    LT_TRY(LT_ALLOC(&count, r->count));
    for (int i = 0; i < r->count; i++)
        count[i] = bytes;
    lt_status st = lt_comm_allgather_host(r->comm, own, count, all);
    lt_free(count);
    return st;
}

/* Gathers parts of any size. Each is sent with one more byte, so that none is empty; count includes it. */
static lt_status gather_parts(lt_ranks *r, const void *own, size_t bytes, int64_t *count,
                              char **all)
{
    const int64_t sent = (int64_t)bytes + 1;
    char *part;
    LT_TRY(LT_ALLOC(&part, sent));
    if (bytes)
        memcpy(part, own, bytes);
    if (!r->comm) {
        *count = sent;
        *all = part;
        return LT_OK;
    }
    int64_t total = 1;
    lt_status st = allgather_equal(r, &sent, sizeof sent, count);
    for (int i = 0; i < r->count && !st; i++)
        total += count[i];
    if (!st)
        st = LT_ALLOC(all, total);
    if (!st)
        st = lt_comm_allgather_host(r->comm, part, count, *all);
    lt_free(part);
    return st;
}

lt_status lt_ranks_gather(lt_ranks *r, const void *own, size_t bytes, char **all, size_t *total)
{
    int64_t *count;
    *all = NULL;
    *total = 0;
    LT_TRY(LT_ALLOC(&count, r->count));
    lt_status st = gather_parts(r, own, bytes, count, all);
    const char *from = *all;
    for (int i = 0; !st && i < r->count; i++) { /* drops the extra bytes */
        memmove(*all + *total, from, (size_t)count[i] - 1);
        *total += (size_t)count[i] - 1;
        from += count[i];
    }
    lt_free(count);
    if (st) {
        lt_free(*all);
        *all = NULL;
    }
    return st;
}

/* --- Agreement of all ranks --- */

lt_status lt_ranks_same_text(lt_ranks *r, const char *what, const char *text)
{
    if (!r->comm)
        return LT_OK;
    lt_status st = lt_comm_check_same(r->comm, what, text);
    r->same_failure = st == LT_E_ARG;
    return st;
}

lt_status lt_ranks_same_number(lt_ranks *r, const char *what, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return lt_ranks_same_text(r, what, text);
}

lt_status lt_ranks_same_hash(lt_ranks *r, const char *what, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    return lt_ranks_same_text(r, what, text);
}

lt_status lt_ranks_same_plugins(lt_ranks *r)
{
    size_t count = 0;
    char what[128];
    const lt_plugin_info *p;
    while (lt_plugin_at(count))
        count++;
    LT_TRY(lt_ranks_same_number(r, "the number of plugins", (int64_t)count));
    for (size_t i = 0; (p = lt_plugin_at(i)); i++) {
        snprintf(what, sizeof what, "the SHA-256 of plugin %.80s", p->path);
        LT_TRY(lt_ranks_same_text(r, what, p->sha256));
    }
    return LT_OK;
}

/* --- Processors --- */

/* CPU affinity of a rank: a bit for each processor that it may use. */
enum { MASK_WORDS = 16, WORD_BITS = 64 };
typedef struct cpu_affinity {
    uint64_t mask[MASK_WORDS];
} cpu_affinity;

static bool may_use(const cpu_affinity *a, int processor)
{
    return a->mask[processor / WORD_BITS] >> processor % WORD_BITS & 1;
}

static void find_affinity(cpu_affinity *own)
{
    lt_os_affinity(own->mask, MASK_WORDS);
}

/* Returns a rank's share of the machine's processors: each counts 1/n if n of the machine's ranks may use it. */
static double processor_share(const cpu_affinity *all, const lt_nodes *machines, int ranks,
                              int rank)
{
    double share = 0;
    for (int i = 0; i < MASK_WORDS * WORD_BITS; i++) {
        int users = 0;
        for (int r = 0; r < ranks; r++)
            users += machines->of[r] == machines->index && may_use(&all[r], i);
        if (may_use(&all[rank], i))
            share += 1.0 / users;
    }
    return share;
}

/* Returns the number of threads. A quota of processor time (a control group's) is for all ranks of the machine
 * together. */
static int count_threads(const cpu_affinity *own, double share, int local)
{
    const int allowed = lt_cpu_threads();
    const double quota = (double)allowed / local;
    int processors = 0;
    for (int i = 0; i < MASK_WORDS; i++)
        processors += __builtin_popcountll(own->mask[i]);
    if (allowed < processors && quota < share)
        share = quota;
    return share < 1 ? 1 : (int)(share + 1e-6);
}

lt_status lt_ranks_share_threads(lt_ranks *r, int *threads)
{
    lt_nodes machines = {0};
    cpu_affinity own, *all;
    LT_TRY(LT_ALLOC(&all, r->count));
    find_affinity(&own);
    lt_status st = allgather_equal(r, &own, sizeof own, all);
    if (!st)
        st = lt_comm_nodes(&machines, r->comm, 0);
    if (!st) {
        r->local = machines.locals;
        *threads =
            count_threads(&own, processor_share(all, &machines, r->count, r->rank), r->local);
    }
    lt_nodes_clear(&machines);
    lt_free(all);
    return st;
}
