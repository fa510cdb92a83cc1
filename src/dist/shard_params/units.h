/* Inside of divided parameters. */
#ifndef LT_DIST_SHARD_PARAMS_UNITS_H
#define LT_DIST_SHARD_PARAMS_UNITS_H

#include "lather/detail/shard_params_ops.h"

typedef struct lt_sp_member {
    lt_owned_param of;
    lt_tensor *follower; /* NULL: none */
    size_t unit;         /* its index */
    bool is_ordered;     /* a pass has read it */
} lt_sp_member;

/* Parameters that are gathered together: members order[first] to order[first + count - 1]. */
typedef struct lt_sp_unit {
    size_t first, count;
    int64_t *share; /* elements of each rank's */
    lt_tensor *own,
        *whole; /* in flight: this rank's segment, and all in rank order; else without memory */
    lt_request *request;
    bool is_begun;     /* in flight */
    bool is_present;   /* gathered; the same on all ranks, whoever owns what */
    int64_t operation; /* that read it last */
} lt_sp_unit;

/* What is known of the order in which passes read units. */
typedef enum lt_sp_phase {
    LT_SP_UNORDERED, /* nothing: a unit is a parameter */
    LT_SP_TRACING,   /* units are laid out; trace is being written */
    LT_SP_FOLLOWING  /* trace is what a pass reads */
} lt_sp_phase;

struct lt_shard_params {
    lt_comm *comm;   /* of its own: gathers interleave with gradients in any order */
    lt_comm *parent; /* that counts the bytes */
    lt_tape *tape;
    lt_device *device;
    lt_shard_params_config config;
    int rank, ranks;
    lt_sp_member *member;
    size_t members;
    size_t *order; /* of members */
    size_t ordered;
    lt_sp_unit *unit;
    size_t units;
    lt_sp_phase phase;
    size_t *trace; /* units in the order in which a pass gathers them */
    size_t traced, trace_capacity;
    size_t next; /* of trace: the unit that is gathered next */
    bool is_held;
    lt_shard_params_stats stats;
};

/* units.c: lays units out, of at most `bytes` each, or one parameter. */
LT_MUST_CHECK lt_status lt_sp_make_units(lt_shard_params *sp, size_t bytes);
void lt_sp_free_units(lt_shard_params *sp);
/* Begins the gather of a unit's values; waits for one that was begun, after which they are present. */
LT_MUST_CHECK lt_status lt_sp_begin(lt_shard_params *sp, lt_sp_unit *u);
LT_MUST_CHECK lt_status lt_sp_finish(lt_shard_params *sp, lt_sp_unit *u);
/* Takes the memory of the values that other ranks own. */
void lt_sp_drop(lt_shard_params *sp, lt_sp_unit *u);
lt_sp_member *lt_sp_member_at(const lt_shard_params *sp, const lt_sp_unit *u, size_t i);

#endif
