/* Parts of the cost model of a step; see lather/detail/plan.h. */
#ifndef LT_COST_MODEL_PARTS_H
#define LT_COST_MODEL_PARTS_H

#include "lather/detail/plan.h"

/* Inputs of a prediction, defaults applied. */
typedef struct lt_system {
    const lt_plan_profile *profile;
    const lt_plan_machine *machine;
    const lt_plan_setup *setup;
    lt_mesh_config mesh;
    lt_cost_cluster cluster; /* links and sizes of the run's nodes */
    int model;               /* ranks that share a model replica; 1: no mesh */
    int64_t accum;
    bool sharded; /* true if the optimizer's state is sharded */
    double slow;  /* slowdown against the profile, as ranks share cores */
} lt_system;

/* Returns the seconds of forward and backward of one micro-batch on a rank. */
double lt_system_micro_batch_seconds(const lt_system *s);
/* Returns the number of ranks (owners) over which the optimizer's state is sharded. */
int lt_system_owner_count(const lt_system *s);
/* Work of one owner of optimizer state: seconds of an update and of a root refresh, elements that it sends. */
typedef struct lt_system_owner {
    double update, refresh, elements;
} lt_system_owner;
/* Assigns blocks to owners. out: [owners], for lt_free(), NULL or not on failure. */
LT_MUST_CHECK lt_status lt_system_assign_blocks(lt_system_owner **out, const lt_system *s);
/* Returns the mean seconds of an update, of the slowest owner; share: the largest owner's share of the elements. */
double lt_system_update_seconds(const lt_system_owner *owner, const lt_system *s, double *share);
/* Returns the seconds per update of communication inside the layers that matrix products do not overlap. */
double lt_system_layer_comm_seconds(const lt_system *s);
/* Computes the seconds of communicating gradients and updates that backward does not overlap. */
LT_MUST_CHECK lt_status lt_system_exchange_seconds(double *seconds, const lt_system *s,
                                                   const lt_system_owner *owner);
/* Estimates from the spread of recorded steps the seconds that the slowest awaited rank takes beyond the mean
 * `seconds`; kept: the share of the samples that is used. */
LT_MUST_CHECK lt_status lt_system_predict_waiting(double *waiting, double *kept, const lt_system *s,
                                                  double seconds);
/* Compares two doubles, for qsort(). */
int lt_compare_ascending(const void *a, const void *b);

#endif
