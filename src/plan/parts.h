/* Parts of a step's cost. */
#ifndef LT_PLAN_PARTS_H
#define LT_PLAN_PARTS_H

#include "lather/detail/plan.h"

/* A way to run, on a machine, of what was profiled; without zeros that mean something. */
typedef struct lt_system {
    const lt_plan_profile *profile;
    const lt_plan_machine *machine;
    const lt_plan_setup *setup;
    lt_mesh_config mesh;
    lt_cost_cluster cluster; /* nodes and ranks of the run */
    int model;               /* ranks of a copy; 1: no mesh */
    int64_t accum;
    bool divided; /* the optimizer's state */
    double slow;  /* seconds here of a second in the profile */
} lt_system;

/* Checks all fields. */
LT_MUST_CHECK lt_status lt_system_open(lt_system *out, const lt_plan_profile *profile,
                                       const lt_plan_machine *machine, const lt_plan_setup *setup);

/* Seconds of forward and backward of one micro-batch on a rank. */
double lt_system_micro(const lt_system *s);
/* How many ranks the optimizer's state is divided over; those of a grid where each has its box's. */
int lt_system_owners(const lt_system *s);
/* Updates between new roots; INFINITY: there are none. */
double lt_system_frequency(const lt_system *s);
/* What one of them has to do, in seconds, and what it sends then. */
typedef struct lt_system_owner {
    double update, refresh, elements;
} lt_system_owner;
/* out: [owners], for lt_free(), also if it fails, unless NULL. */
LT_MUST_CHECK lt_status lt_system_deal(lt_system_owner **out, const lt_system *s);
/* The slowest owner's seconds, and the largest share of all elements that one has. */
double lt_system_update(const lt_system_owner *owner, const lt_system *s, double *share);
/* Exchange inside the layers, in an update, that products do not hide. */
double lt_system_layers(const lt_system *s);
/* Exchange of gradients and updates that is not behind backward. */
LT_MUST_CHECK lt_status lt_system_exchange(double *seconds, const lt_system *s,
                                           const lt_system_owner *owner);
/* From the spread of recorded steps: by how much the awaited rank is slower than the mean of `seconds`, and the
 * share of the samples that is used. */
LT_MUST_CHECK lt_status lt_system_waiting(double *waiting, double *kept, const lt_system *s,
                                          double seconds);
/* Bytes of the rank that needs the most; share: of the elements, an owner's. */
double lt_system_memory(const lt_system *s, double share);

#endif
