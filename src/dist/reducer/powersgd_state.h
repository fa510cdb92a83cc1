/* Private declarations of PowerSGD. */
#ifndef LT_DIST_REDUCER_POWERSGD_STATE_H
#define LT_DIST_REDUCER_POWERSGD_STATE_H

#include "dist/reducer/hierarchical.h"

#include "lather/ext/reducer.h"

/* Versions of error feedback and Q: current, and the one that commit makes current. */
enum { LT_POWERSGD_CURRENT, LT_POWERSGD_NEXT, LT_POWERSGD_VERSIONS };

typedef struct lt_powersgd_matrix {
    const lt_param *param;
    int64_t rows, cols;
    /* Master dtype. residual: error feedback; NEXT holds X during an update. q: [rank, cols]. */
    lt_tensor *residual[LT_POWERSGD_VERSIONS], *q[LT_POWERSGD_VERSIONS];
} lt_powersgd_matrix;

/* A compressed gradient of a bucket. */
typedef struct lt_powersgd_slice {
    lt_powersgd_matrix *matrix;
    size_t part;        /* index of the bucket's part */
    int64_t p_at, q_at; /* element offsets in state.p, state.q */
} lt_powersgd_slice;

/* The mean that a bucket waits for. */
typedef enum lt_powersgd_stage {
    LT_POWERSGD_FIRST,  /* mean of P and of all that is not compressed */
    LT_POWERSGD_SECOND, /* mean of Q */
    LT_POWERSGD_DENSE,  /* mean of the bucket, uncompressed */
    LT_POWERSGD_STAGES,
    LT_POWERSGD_IDLE = LT_POWERSGD_STAGES
} lt_powersgd_stage;

typedef struct lt_powersgd_state {
    lt_powersgd_slice *slice;
    size_t slices;
    int64_t uncompressed;                  /* elements that are not compressed, flags included */
    lt_tensor *p, *q;                      /* factors P and Q of all slices, master dtype */
    lt_tensor *sent_p, *sent_q;            /* uncompressed elements and p; q; communication dtype */
    lt_hier_mean mean[LT_POWERSGD_STAGES]; /* means of sent_p, sent_q and the bucket */
    lt_powersgd_stage stage;
} lt_powersgd_state;

typedef struct lt_powersgd {
    lt_reducer base;
    int64_t rank;
    bool feedback;
    lt_dtype master;
    lt_powersgd_matrix *matrix;
    size_t matrices;
    size_t begun; /* buckets begun in this update */
    double scale; /* ranks * loss scale in this update, the divisor of gradients */
    lt_tensor *
        workspace; /* elements of the largest matrix; NULL if the communication dtype is the master dtype */
    lt_hier hier;
} lt_powersgd;

/* powersgd_state.c: functions of the reducer's table. */
lt_status lt_powersgd_configure(lt_reducer *self);
lt_status lt_powersgd_open(lt_reducer *self);
void lt_powersgd_close(lt_reducer *self);
lt_status lt_powersgd_visit(lt_reducer *self, lt_state_visitor *visitor);

/* Writes doubles to a tensor of the master dtype, f32 or f64; overwrites values. */
lt_status lt_powersgd_write_doubles(lt_tensor *t, double *values);

#endif
