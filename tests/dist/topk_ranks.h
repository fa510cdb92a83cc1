/* Ranks that are threads, each with a reducer and buckets of its own. */
#ifndef LT_TESTS_DIST_TOPK_RANKS_H
#define LT_TESTS_DIST_TOPK_RANKS_H

#include "dist/reducer/reducer.h"
#include "ranks.h"

#include "lather/ext/backend.h"
#include "lather/topology.h"

enum { RANKS = 8, PARAMS = 3, BUCKETS = 2, MOST = 1200, STEPS = 50 };

/* Parameters as the buckets have them: the last two in the first one. */
extern const int64_t sizes[PARAMS];
extern const size_t first_of[BUCKETS], count_of[BUCKETS];
enum { ALL = 108 + 997 + 13 };

typedef struct rank rank;
typedef double gradient_fn(const rank *r, int step, int64_t i);

/* What all ranks do. */
typedef struct scene {
    int nodes, per_node;
    const char *compress;
    lt_dtype dtype; /* LT_F64: on devices of doubles */
    gradient_fn *gradient;
    lt_status (*play)(rank *r);
} scene;

struct rank {
    test_rank at;
    const scene *s;
    lt_nodes nodes;
    lt_param param[PARAMS];
    lt_params params;
    lt_reducer *reducer;
    lt_tensor *scale;       /* f64 0-D */
    double out[ALL];        /* the last update's mean, by parameters, not unscaled */
    double in[ALL];         /* sum of this rank's gradients */
    double applied[ALL];    /* sum of means */
    double residual[ALL];   /* of its node; read_residual() */
    lt_reducer_bytes bytes; /* sent */
};

/* Where a parameter begins in arrays of ALL. */
int64_t start_of(size_t param);
/* LT_E_FORMAT, which says what is wrong. */
lt_status differs(const char *what, double got, double want);
/* A reducer as the scene says, and its buckets. */
lt_status lay_out(rank *r);
lt_status open_reducer(rank *r);
/* A mean, not yet committed; scale 0: there is no loss scale. */
lt_status reduce(rank *r, int step, double scale);
/* The same, committed and applied. */
lt_status update(rank *r, int step, double scale);
/* Residuals into or from r->residual, as checkpoints see them. */
lt_status visit(rank *r, bool load);
lt_status read_residual(rank *r);
/* Ranks that play the scene, for open_ranks() and so on. */
rank_group group_of(const scene *s, rank *ranks);
/* All ranks, of which none may complain; what they leave stays readable. */
void run(const scene *s, rank *ranks);

#endif
