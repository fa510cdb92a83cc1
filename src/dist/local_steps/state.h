/* Inside of local steps. */
#ifndef LT_DIST_LOCAL_STEPS_STATE_H
#define LT_DIST_LOCAL_STEPS_STATE_H

#include "dist/reducer/sparse_codec.h"

#include "lather/detail/backend.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/local_steps.h"

typedef enum lt_outer_values { LT_OUTER_F32, LT_OUTER_BF16, LT_OUTER_2BIT } lt_outer_values;

/* What is sent of a rank's part: --outer-compress. */
typedef struct lt_outer_code {
    double density; /* 0: all of it */
    lt_outer_values values;
} lt_outer_code;

struct lt_local_steps {
    lt_comm *node, *peers; /* owned */
    lt_device *device;
    lt_local_steps_config config;
    lt_outer_code code;
    const lt_params *all; /* borrowed */
    lt_param **param;     /* the trained ones */
    int64_t *begin;       /* [params + 1]: where their elements begin, one after the other */
    size_t params;
    int64_t statistics; /* elements of running statistics */
    int groups, group, locals, local;
    int *rank;      /* [groups * locals] in the communicator of all */
    int64_t *count; /* [locals]: elements of each rank's part */
    int64_t first;  /* where this rank's part begins */
    int64_t since;  /* inner steps of this round */
    lt_local_steps_bytes sent;
    lt_tensor *start;     /* of this rank's part: the values at the beginning of the round */
    lt_tensor *momentum;  /* NULL: none */
    lt_tensor *residual;  /* NULL: none */
    lt_tensor *change;    /* start - value, in an outer step */
    lt_tensor *statistic; /* all running statistics, in an outer step */
    lt_tensor **whole[3]; /* [params] of start, momentum, residual between unfold and fold; NULL */
};

/* flat.c: elements in the order of params and of memory. */
/* y = alpha x + beta y */
LT_MUST_CHECK lt_status lt_local_axpby(const lt_local_steps *local, double alpha, lt_view x,
                                       double beta, lt_view y);
/* This rank's part of the values into part; and whole, the elements of all, into the values. */
LT_MUST_CHECK lt_status lt_local_pack(const lt_local_steps *local, lt_tensor *part);
LT_MUST_CHECK lt_status lt_local_unpack(const lt_local_steps *local, const lt_tensor *whole);
/* The parts of a group's ranks, one after the other. Collective in it. Owns: you. */
LT_MUST_CHECK lt_status lt_local_gather(const lt_local_steps *local, const lt_tensor *part,
                                        lt_tensor **whole);
/* Running statistics become equal. Collective. */
LT_MUST_CHECK lt_status lt_local_merge_statistics(lt_local_steps *local);

/* sparse.c: number of `elements` that --outer-compress sends. */
LT_MUST_CHECK lt_status lt_outer_parse(lt_outer_code *out, const char *text);
lt_sparse lt_outer_plan(const lt_outer_code *code, int64_t elements);
/* change becomes the mean over groups of the part of residual that each sends. Collective among peers. */
LT_MUST_CHECK lt_status lt_local_exchange_sparse(lt_local_steps *local);

#endif
