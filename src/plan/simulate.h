/* Steps as events: every message of every rank, through the card of its node. Nothing here uses the closed forms of
 * seconds, which are checked against it. */
#ifndef LT_PLAN_SIMULATE_H
#define LT_PLAN_SIMULATE_H

#include "lather/comm_cost.h"

/* What follows the buckets on each rank. NULL: nothing. */
typedef struct lt_simulated_update {
    const double *seconds; /* [ranks] of the update */
    const int64_t *
        elements; /* [ranks] of f32 that a rank has updated and sends to all others (local steps: of its node); NULL: none */
    double burst; /* bytes that a node's card sends at once after a pause */
} lt_simulated_update;

/* An exchange of buckets, in seconds from backward's begin until all ranks have all. Stages of a bucket follow one
 * another on a rank, and a stage takes one bucket at a time; the messages of a stage go to the next rank first, and
 * so round. Local steps' round ends are not in it: lt_simulate_round(). Errors: LT_E_ARG, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_simulate_exchange(double *seconds, const lt_cost_plan *plan,
                                             const lt_cost_cluster *cluster,
                                             const lt_cost_bucket *bucket, size_t count,
                                             double backward, const lt_simulated_update *update);
/* The end of a round of local steps, with so many elements in all buckets. */
LT_MUST_CHECK lt_status lt_simulate_round(double *seconds, const lt_cost_cluster *cluster,
                                          int64_t elements);

enum { LT_PRODUCT_FORWARD, LT_PRODUCT_DX, LT_PRODUCT_DW, LT_PRODUCT_KINDS };
/* A product on grids of rows x rows ranks, each `rows` steps; the ranks of a row are neighbours. */
typedef struct lt_simulated_product {
    int kind; /* LT_PRODUCT_FORWARD, ... */
    int rows;
    double x_bytes, w_bytes; /* of a block */
    double seconds;          /* of a step's own product */
} lt_simulated_product;
/* All ranks of the cluster have a grid, those of depth and of copies too. */
LT_MUST_CHECK lt_status lt_simulate_product(double *seconds, const lt_cost_cluster *cluster,
                                            const lt_simulated_product *product);

#endif
