/* Private declarations of sharded parameters. */
#ifndef LT_DIST_SHARD_PARAMS_UNITS_H
#define LT_DIST_SHARD_PARAMS_UNITS_H

#include "lather/detail/shard_params_ops.h"

typedef struct lt_sp_member {
    lt_owned_param of;
    lt_tensor *attached; /* tensor gathered and released with the parameter; NULL if absent */
    size_t unit;         /* index of the unit that contains the parameter */
    bool is_ordered;     /* the member is already in lt_shard_params.order */
} lt_sp_member;

/* Parameters that are gathered together: members order[first] to order[first + count - 1]. */
typedef struct lt_sp_unit {
    size_t first, count;
    int64_t *count_by_rank; /* [ranks] elements of each rank's chunk */
    lt_tensor *own,
        *whole; /* this rank's chunk, and all chunks; have memory only while in flight */
    lt_request *request;
    bool is_begun;     /* the gather of the unit is in flight */
    bool is_present;   /* the unit is gathered; equal on all ranks */
    int64_t operation; /* last operation that read the unit */
} lt_sp_unit;

/* Knowledge of the order in which passes read units. */
typedef enum lt_sp_phase {
    LT_SP_UNORDERED, /* order unknown: each parameter is a unit */
    LT_SP_TRACING,   /* units are laid out; the first pass records trace */
    LT_SP_FOLLOWING  /* passes read units in the order of trace */
} lt_sp_phase;

struct lt_shard_params {
    lt_comm *comm; /* split from parent: gathers interleave with gradient reductions in any order */
    lt_comm *parent; /* the caller's communicator, whose byte counter also counts the gathers */
    lt_tape *tape;
    lt_device *device;
    lt_shard_params_config config;
    int rank, ranks;
    lt_sp_member *member;
    size_t members;
    size_t *order; /* [2 * members] member indices: the order in use, then the recorded one */
    size_t ordered;
    lt_sp_unit *unit;
    size_t units;
    lt_sp_phase phase;
    size_t *trace; /* units in the order in which a pass gathers them */
    size_t traced, trace_capacity;
    size_t next;  /* index in trace of the next unit to gather */
    bool is_held; /* all values are present until lt_shard_params_release() */
    lt_shard_params_stats stats;
};

/* units.c: lays out units of at most `bytes`, or of one larger parameter. */
LT_MUST_CHECK lt_status lt_sp_make_units(lt_shard_params *sp, size_t bytes);
void lt_sp_free_units(lt_shard_params *sp);
/* Begins the gather of a unit's values; waits for it and sets the values. */
LT_MUST_CHECK lt_status lt_sp_begin_gather(lt_shard_params *sp, lt_sp_unit *u);
LT_MUST_CHECK lt_status lt_sp_finish_gather(lt_shard_params *sp, lt_sp_unit *u);
/* Frees the memory of a unit's values that other ranks own; discards a gather in flight. */
void lt_sp_release_unit(lt_shard_params *sp, lt_sp_unit *u);
lt_sp_member *lt_sp_member_at(const lt_shard_params *sp, const lt_sp_unit *u, size_t i);

#endif
