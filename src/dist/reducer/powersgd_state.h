/* Inside of PowerSGD. */
#ifndef LT_DIST_REDUCER_POWERSGD_STATE_H
#define LT_DIST_REDUCER_POWERSGD_STATE_H

#include "dist/reducer/hierarchical.h"

#include "lather/ext/reducer.h"

/* What is in use, and what commit puts in its place. */
enum { LT_POWERSGD_NOW, LT_POWERSGD_NEXT, LT_POWERSGD_TURNS };

typedef struct lt_powersgd_matrix {
    const lt_param *param;
    int64_t rows, cols;
    /* Of the master dtype: as the gradient (LT_POWERSGD_NEXT: X meanwhile), and [rank, cols]. */
    lt_tensor *residual[LT_POWERSGD_TURNS], *q[LT_POWERSGD_TURNS];
} lt_powersgd_matrix;

/* A part of a bucket that is compressed. */
typedef struct lt_powersgd_piece {
    lt_powersgd_matrix *matrix;
    size_t part;
    int64_t p_at, q_at; /* in state.p, state.q */
} lt_powersgd_piece;

/* What a bucket waits for. */
typedef enum lt_powersgd_stage {
    LT_POWERSGD_FIRST,  /* the mean of P */
    LT_POWERSGD_SECOND, /* the mean of Q */
    LT_POWERSGD_DENSE,  /* the mean of all */
    LT_POWERSGD_STAGES,
    LT_POWERSGD_IDLE = LT_POWERSGD_STAGES
} lt_powersgd_stage;

typedef struct lt_powersgd_state {
    lt_powersgd_piece *piece;
    size_t pieces;
    int64_t kept;                           /* elements that are not compressed, flags included */
    lt_tensor *p, *q;                       /* of all pieces, master dtype */
    lt_tensor *out, *back;                  /* what is sent: kept and p, q; communication dtype */
    lt_level_mean mean[LT_POWERSGD_STAGES]; /* of out, back, and the bucket */
    lt_powersgd_stage stage;
} lt_powersgd_state;

typedef struct lt_powersgd {
    lt_reducer base;
    int64_t rank;
    bool feedback;
    lt_dtype master;
    lt_powersgd_matrix *matrix;
    size_t matrices;
    size_t begun;       /* buckets of this update */
    double scale;       /* R s of this update */
    lt_tensor *scratch; /* of the largest matrix; NULL: the communication dtype is the master's */
    lt_levels levels;
} lt_powersgd;

/* powersgd_state.c: the table's entries. */
lt_status lt_powersgd_configure(lt_reducer *self);
lt_status lt_powersgd_open(lt_reducer *self);
void lt_powersgd_close(lt_reducer *self);
lt_status lt_powersgd_visit(lt_reducer *self, lt_state_visitor *visitor);

/* Values of the master dtype (count of them, f32 or f64) from double, which is overwritten. */
lt_status lt_powersgd_put(lt_tensor *t, double *values);

#endif
