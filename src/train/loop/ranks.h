/* Several ranks: processes that mpirun, srun or torchrun started and that train one model together. */
#ifndef LT_TRAIN_RANKS_H
#define LT_TRAIN_RANKS_H

#include "lather/comm.h"
#include "lather/detail/topology.h"
#include "lather/local_steps.h"
#include "lather/mesh.h"
#include "lather/options.h"
#include "lather/shard.h"
#include "lather/stragglers.h"
#include "lather/tensor_parallel.h"

/* Indices of the choices, in the order of the rows; values after DIST_MPI are the program's own communicators. */
enum { DIST_AUTO, DIST_OFF, DIST_MPI };
enum { COMM_F32, COMM_BF16, COMM_F16 };
enum { SWITCH_ON, SWITCH_OFF };
enum { ALLREDUCE_AUTO, ALLREDUCE_FLAT, ALLREDUCE_TWO_LEVEL };
enum { SUMS_ORDERED, SUMS_ENGINE };

typedef struct ranks_options {
    lt_option dist_row; /* row of --dist; its choices are in dists */
    char dists[256];
    int dist, dist_bn, comm_dtype, grad_comm_dtype, allreduce, sums;
    bool sync_bn, overlap, communicate_params, shard_optimizer, shard_gradients, shard_params;
    double bucket_mib, comm_timeout;
    int64_t ranks_per_node;
    const char *num_trainers_per_group; /* "auto" or a number */
    const char *balance;
    const char *drop_compute, *contributors;
    int64_t backup_workers;
    const char *comm_model, *compress, *share_device;
    int64_t compress_warmup_epochs, compress_until;
    int64_t local_steps;
    double outer_lr, outer_momentum;
    const char *outer_compress;
    const char *tensor_parallel; /* value of --tensor-parallel, for lt_mesh_flag_parse() */
    int sequence_parallel, tp_overlap;
    bool force;
} ranks_options;
/* Return the row of --dist, with the communicators that the program registered, and the other rows. */
lt_option_table lt_ranks_dist_option(ranks_options *o);
lt_option_table lt_ranks_option_table(ranks_options *o);

/* Parses --balance. Errors: LT_E_ARG. */
lt_status lt_ranks_parse_balance(const ranks_options *o, lt_balance *kind,
                                 lt_balance_polynomial *p);
bool lt_ranks_has_custom_balance(
    const ranks_options *o); /* --balance differs from its default, "cost" */
/* Parses --num-trainers-per-group: GROUPS_AUTO, or the ranks of a group, 0: all. Errors: LT_E_ARG. */
enum { GROUPS_AUTO = -1 };
lt_status lt_ranks_parse_groups(const ranks_options *o, int *ranks);
/* Returns true if the flag names groups of ranks. */
bool lt_ranks_has_groups(const ranks_options *o);

typedef struct lt_ranks {
    lt_comm *comm;   /* communicator of all ranks; NULL: one rank */
    int rank, count; /* this rank and the number of ranks; 0 of 1 without comm */
    int local;       /* ranks on this machine, whatever --ranks-per-node says */
    lt_nodes nodes;  /* nodes of the ranks; set by lt_ranks_find_nodes() */
    int state_ranks; /* ranks that share a copy of the optimizer's state; 0: it is not sharded */
    /* the failure is the same on all ranks: rank 0 reports it, no rank is aborted */
    bool same_failure;
    bool stop;       /* some rank was asked to stop */
    lt_tensor *sums; /* f64 [RANK_SUMS], buffer of lt_ranks_sum() */

    lt_mesh *mesh; /* replicas of a sharded model; NULL: each rank holds a whole one */
    lt_tensor_parallel parallel; /* the mesh as the model sees it */
    /* ranks with other samples, over which gradients are averaged */
    lt_comm *data;
    int data_rank, data_count; /* this rank among them; their number, which is that of replicas */
    /* true on one of the ranks that have the same samples: sums over ranks include its numbers */
    bool is_counted;
} lt_ranks;

enum { RANK_SUMS = 8 };

/* One rank, without a communicator. */
#define LT_RANKS_ALONE \
    ((lt_ranks){       \
        .count = 1, .local = 1, .nodes = LT_NODES_ALONE, .data_count = 1, .is_counted = true})
/* Sets the ranks of a communicator, borrowed; each holds a replica. */
void lt_ranks_join(lt_ranks *ranks, lt_comm *comm);
/* Joins all ranks that the launcher started; deadline in seconds, as in lt_comm_set_deadline(). Collective. */
lt_status lt_ranks_open(lt_ranks *ranks, lt_device *device, const char *kind, double deadline);
/* Groups the ranks into nodes by --ranks-per-node; 0: by machine. Collective. */
lt_status lt_ranks_find_nodes(lt_ranks *ranks, int64_t ranks_per_node);
/* Parses --comm-model: "50,1" is 50 microseconds of latency and 1 Gbit/s; zeros without it. Errors: LT_E_ARG. */
lt_status lt_ranks_parse_comm_model(const ranks_options *options, double link[2]);
/* Returns this rank's share of its machine's processors as a number of threads. Collective. */
lt_status lt_ranks_share_threads(lt_ranks *ranks, int *threads);
/* Parses --backup-workers, --contributors and --drop-compute; *on: any is given. Errors: LT_E_ARG (not a number of
 * seconds). */
lt_status lt_ranks_parse_stragglers(const ranks_options *options, lt_straggler_config *out,
                                    bool *on);
/* Returns the settings of --local-steps and --outer-*. */
lt_local_steps_config lt_ranks_local_steps_config(const ranks_options *options);
/* Call after a failure of this rank: aborts the others, unless all ranks have the same failure. */
void lt_ranks_abort_others(lt_ranks *ranks, lt_status failure);
void lt_ranks_close(lt_ranks *ranks);

/* Sums up to RANK_SUMS values over all ranks, in rank order; no-op for one rank. Collective. */
lt_status lt_ranks_sum(lt_ranks *ranks, double *values, int count);
/* Gathers bytes of all ranks, in rank order; free *all with lt_free(). Collective. */
lt_status lt_ranks_gather(lt_ranks *ranks, const void *own, size_t bytes, char **all,
                          size_t *total);
/* Check that a text, number or hash is the same on all ranks. Errors: LT_E_ARG, naming `what` and both values.
 * Collective. */
lt_status lt_ranks_same_text(lt_ranks *ranks, const char *what, const char *text);
lt_status lt_ranks_same_number(lt_ranks *ranks, const char *what, int64_t value);
lt_status lt_ranks_same_hash(lt_ranks *ranks, const char *what, uint64_t value);
/* Checks that all ranks have loaded the same plugins. Errors: LT_E_ARG, naming both hashes. Collective. */
lt_status lt_ranks_same_plugins(lt_ranks *ranks);

#endif
