/* PowerSGD: Vogels, Karimireddy & Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
 * optimization", NeurIPS 2019 (arXiv 1905.13727), algorithms 1 and 2: one power iteration an update, that starts
 * where the last one ended, with error feedback.
 *
 * A gradient [out, ...] is a matrix M [out, rest] of its memory's order. Of R ranks, rank r has
 *
 *   X = g + R e s        its gradient, and what earlier updates left over, times the loss scale s
 *   P = mean of X Q^T,  columns made orthonormal
 *   Q = mean of P^T X
 *   g = P Q,  e = (X - P Q) / (R s)
 *
 * so that the sum over ranks of g / (R s) + e is what is applied and the sum of the new e. P Q depends on the
 * sum of e alone, whichever rank has it: so each rank keeps its own, and a two-level exchange needs no residual
 * of the node. What has no use of it (vectors, and matrices with rank (rows + cols) >= rows cols), and the flags,
 * goes along with P in one all-reduce.
 *
 * Invariants: 1. what decides, and all of P, Q and the result, is computed of the same bits on all ranks. 2. calls
 * of the communicator go by buckets and stages alone. 3. residuals and starts that are in use are written by
 * commit only. */

#include "base/alloc.h"
#include "dist/comm/flat.h"
#include "dist/reducer/costs.h"
#include "dist/reducer/kinds.h"
#include "dist/reducer/lowrank.h"
#include "dist/reducer/powersgd_state.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"

#include <string.h>

static lt_powersgd_state *state_of(const lt_reducer *self, size_t bucket)
{
    return self->bucket[bucket].own;
}

/* --- Views --- */

/* The same elements as one [rows,cols] of a batch. */
static lt_view as_matrix(lt_view v, int64_t rows, int64_t cols)
{
    v.shape = LT_SHAPE(1, rows, cols);
    v.stride[0] = 0;
    v.stride[1] = cols;
    v.stride[2] = 1;
    return v;
}

static lt_view transposed(lt_view v)
{
    const int64_t rows = v.shape.dim[1], stride = v.stride[1];
    v.shape.dim[1] = v.shape.dim[2];
    v.shape.dim[2] = rows;
    v.stride[1] = v.stride[2];
    v.stride[2] = stride;
    return v;
}

static lt_status cast(const lt_powersgd *s, lt_view from, lt_view to)
{
    const lt_device *device = s->base.device;
    return device->backend->cast(device->ctx, &from, &to);
}

/* y = alpha a + beta y */
static lt_status axpby(const lt_powersgd *s, double alpha, lt_view a, double beta, lt_view y)
{
    const lt_device *device = s->base.device;
    const lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = alpha, .beta = beta, .a = a, .y = y};
    return device->backend->vec(device->ctx, &job, 1, NULL);
}

/* --- Products --- */

typedef enum product { PROJECT, BACK, EXPAND } product;

static lt_status multiply(const lt_powersgd *s, product which, const lt_powersgd_piece *x,
                          lt_view m, lt_view p, lt_view q)
{
    const lt_device *device = s->base.device;
    const lt_backend *be = device->backend;
    const int64_t rows = x->matrix->rows, cols = x->matrix->cols;
    if (be->host_memory && m.dtype == LT_F32) {
        const lt_lowrank job = {m.data, p.data, q.data, rows, cols, s->rank};
        void (*const fn[])(const lt_lowrank *) = {lt_lowrank_project, lt_lowrank_back,
                                                  lt_lowrank_expand};
        fn[which](&job);
        return LT_OK;
    }
    m = as_matrix(m, rows, cols);
    p = as_matrix(p, rows, s->rank);
    q = as_matrix(q, s->rank, cols);
    const lt_view qt = transposed(q), pt = transposed(p);
    switch (which) {
    case PROJECT:
        return be->matmul(device->ctx, &m, &qt, &p);
    case BACK:
        return be->matmul(device->ctx, &pt, &m, &q);
    case EXPAND:
        break;
    }
    return be->matmul(device->ctx, &p, &q, &m);
}

static lt_view p_of(const lt_powersgd *s, const lt_powersgd_state *t, const lt_powersgd_piece *x)
{
    return lt_flat_slice(t->p, x->p_at, x->matrix->rows * s->rank);
}

static lt_view q_of(const lt_powersgd *s, const lt_powersgd_state *t, const lt_powersgd_piece *x)
{
    return lt_flat_slice(t->q, x->q_at, x->matrix->cols * s->rank);
}

/* The numbers of a tensor of the master dtype in double. */
static lt_status to_host(const lt_tensor *t, double **out)
{
    const int64_t count = lt_tensor_count(t);
    double *values = lt_alloc((size_t)count, sizeof *values);
    if (!values)
        return LT_E_NOMEM;
    lt_status st = lt_tensor_read(t, values, lt_tensor_bytes(t));
    const float *narrow = (const float *)values;
    for (int64_t i = count; i-- > 0 && !st && lt_tensor_dtype(t) == LT_F32;) {
        float x;
        memcpy(&x, narrow + i, sizeof x);
        values[i] = (double)x;
    }
    if (st)
        lt_free(values);
    else
        *out = values;
    return st;
}

/* --- Begin: X, and P of all matrices of a bucket --- */

static lt_status start(lt_powersgd_state *t, lt_powersgd_stage stage)
{
    LT_TRY(lt_level_mean_begin(&t->mean[stage]));
    t->stage = stage;
    return LT_OK;
}

/* X of a piece, from its slice of the bucket. */
static lt_status add_residual(const lt_powersgd *s, const lt_reducer_bucket *b,
                              const lt_powersgd_piece *x)
{
    const lt_reducer_part *part = &b->part[x->part];
    const lt_view next = lt_flat(x->matrix->residual[LT_POWERSGD_NEXT]);
    LT_TRY(cast(s, lt_flat_slice(b->flat, part->offset, part->elements), next));
    return axpby(s, s->scale, lt_flat(x->matrix->residual[LT_POWERSGD_NOW]), 1, next);
}

/* Copies what is not compressed between flat and the head of out. */
static lt_status copy_kept(const lt_powersgd *s, const lt_reducer_bucket *b, bool back)
{
    const lt_powersgd_state *t = b->own;
    int64_t from = 0, at = 0;
    for (size_t i = 0; i <= t->pieces; i++) {
        const lt_reducer_part *part = i < t->pieces ? &b->part[t->piece[i].part] : NULL;
        const int64_t end = part ? part->offset : b->elements + (int64_t)b->parts;
        if (end > from) {
            const lt_view here = lt_flat_slice(b->flat, from, end - from),
                          there = lt_flat_slice(t->out, at, end - from);
            LT_TRY(back ? cast(s, there, here) : cast(s, here, there));
        }
        at += end - from;
        from = part ? part->offset + part->elements : end;
    }
    return LT_OK;
}

static lt_status begin_pieces(lt_powersgd *s, lt_reducer_bucket *b)
{
    lt_powersgd_state *t = b->own;
    for (size_t i = 0; i < t->pieces; i++) {
        const lt_powersgd_piece *x = &t->piece[i];
        LT_TRY(add_residual(s, b, x));
        LT_TRY(multiply(s, PROJECT, x, lt_flat(x->matrix->residual[LT_POWERSGD_NEXT]),
                        p_of(s, t, x), lt_flat(x->matrix->q[LT_POWERSGD_NOW])));
    }
    LT_TRY(copy_kept(s, b, false));
    LT_TRY(cast(s, lt_flat(t->p), lt_flat_slice(t->out, t->kept, lt_tensor_count(t->p))));
    return start(t, LT_POWERSGD_FIRST);
}

/* All of the bucket, and what was left over. */
static lt_status begin_dense(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    for (size_t i = 0; i < t->pieces; i++) {
        const lt_reducer_part *part = &b->part[t->piece[i].part];
        LT_TRY(add_residual(s, b, &t->piece[i]));
        LT_TRY(cast(s, lt_flat(t->piece[i].matrix->residual[LT_POWERSGD_NEXT]),
                    lt_flat_slice(b->flat, part->offset, part->elements)));
    }
    return start(b->own, LT_POWERSGD_DENSE);
}

static lt_status read_scale(lt_powersgd *s)
{
    double loss_scale = 1;
    if (s->base.loss_scale)
        LT_TRY(lt_tensor_read(s->base.loss_scale, &loss_scale, sizeof loss_scale));
    s->scale = (double)lt_comm_size(s->base.comm) * loss_scale;
    return LT_OK;
}

/* --- Finish: orthonormal P, then Q, then the result --- */

static lt_status orthonormalise(const lt_powersgd *s, const lt_powersgd_state *t)
{
    double *values = NULL;
    LT_TRY(cast(s, lt_flat_slice(t->out, t->kept, lt_tensor_count(t->p)), lt_flat(t->p)));
    LT_TRY(to_host(t->p, &values));
    for (size_t i = 0; i < t->pieces; i++)
        lt_lowrank_orthonormalise(values + t->piece[i].p_at, t->piece[i].matrix->rows, s->rank);
    lt_status st = lt_powersgd_put(t->p, values);
    lt_free(values);
    return st;
}

static lt_status begin_back(lt_powersgd *s, lt_powersgd_state *t)
{
    LT_TRY(orthonormalise(s, t));
    for (size_t i = 0; i < t->pieces; i++) {
        const lt_powersgd_piece *x = &t->piece[i];
        LT_TRY(multiply(s, BACK, x, lt_flat(x->matrix->residual[LT_POWERSGD_NEXT]), p_of(s, t, x),
                        q_of(s, t, x)));
    }
    LT_TRY(cast(s, lt_flat(t->q), lt_flat(t->back)));
    return start(t, LT_POWERSGD_SECOND);
}

/* P Q into the bucket, and what it lacks of X; a gradient that no rank has is not applied. */
static lt_status finish_piece(lt_powersgd *s, lt_reducer_bucket *b, const lt_powersgd_piece *x,
                              double flag)
{
    const lt_powersgd_state *t = b->own;
    const lt_reducer_part *part = &b->part[x->part];
    const lt_view to = lt_flat_slice(b->flat, part->offset, part->elements);
    const lt_view next = lt_flat(x->matrix->residual[LT_POWERSGD_NEXT]),
                  now = lt_flat(x->matrix->residual[LT_POWERSGD_NOW]);
    lt_view made = to;
    if (!(flag > 0))
        return cast(s, now, next);
    if (s->scratch)
        made = lt_flat_slice(s->scratch, 0, part->elements);
    LT_TRY(multiply(s, EXPAND, x, made, p_of(s, t, x), q_of(s, t, x)));
    if (s->scratch) { /* what is applied is rounded */
        LT_TRY(cast(s, made, to));
        LT_TRY(cast(s, to, made));
    }
    if (!s->feedback)
        return axpby(s, 0, now, 0, next);
    return axpby(s, -1 / s->scale, made, 1 / s->scale, next);
}

/* Where the next update starts: a gradient that no rank has leaves it. */
static lt_status warm(lt_powersgd *s, const lt_powersgd_state *t, const double *flags)
{
    double *values = NULL;
    LT_TRY(to_host(t->q, &values));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->pieces && !st; i++) {
        const lt_powersgd_piece *x = &t->piece[i];
        const lt_powersgd_matrix *m = x->matrix;
        lt_lowrank_warm(values + x->q_at, s->rank, m->cols, m->param->name);
        st = flags[x->part] > 0
                 ? LT_OK
                 : cast(s, lt_flat(m->q[LT_POWERSGD_NOW]), lt_flat(m->q[LT_POWERSGD_NEXT]));
    }
    for (size_t i = 0; i < t->pieces && !st; i++) {
        const lt_powersgd_piece *x = &t->piece[i];
        if (flags[x->part] > 0)
            st = lt_powersgd_put(x->matrix->q[LT_POWERSGD_NEXT], values + x->q_at);
    }
    lt_free(values);
    return st;
}

/* The mean of each part's flag: b->parts numbers. */
static lt_status read_flags(const lt_powersgd *s, const lt_reducer_bucket *b, double **out)
{
    lt_tensor *wide = NULL;
    const int64_t parts = (int64_t)b->parts;
    LT_TRY(lt_tensor_new(&wide, s->base.device, LT_F64, LT_SHAPE(parts)));
    lt_status st = cast(s, lt_flat_slice(b->flat, b->elements, parts), lt_flat(wide));
    if (!st)
        st = to_host(wide, out);
    lt_tensor_free(&wide);
    return st;
}

static lt_status finish_pieces(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    double *flags = NULL;
    LT_TRY(copy_kept(s, b, true));
    LT_TRY(cast(s, lt_flat(t->back), lt_flat(t->q)));
    LT_TRY(read_flags(s, b, &flags));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->pieces && !st; i++)
        st = finish_piece(s, b, &t->piece[i], flags[t->piece[i].part]);
    if (!st)
        st = warm(s, t, flags);
    lt_free(flags);
    return st;
}

/* What was left over went with the dense update; it stays where there was none. */
static lt_status finish_dense(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    double *flags = NULL;
    if (!t->pieces)
        return LT_OK;
    LT_TRY(read_flags(s, b, &flags));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->pieces && !st; i++) {
        const lt_powersgd_matrix *m = t->piece[i].matrix;
        const double rest = flags[t->piece[i].part] > 0 ? 0 : 1;
        st = axpby(s, rest, lt_flat(m->residual[LT_POWERSGD_NOW]), 0,
                   lt_flat(m->residual[LT_POWERSGD_NEXT]));
        if (!st)
            st = cast(s, lt_flat(m->q[LT_POWERSGD_NOW]), lt_flat(m->q[LT_POWERSGD_NEXT]));
    }
    lt_free(flags);
    return st;
}

/* --- Stages --- */

/* Waits for a hop of a bucket's mean, and does what comes behind it. */
static lt_status advance(lt_powersgd *s, size_t bucket)
{
    lt_reducer_bucket *b = &s->base.bucket[bucket];
    lt_powersgd_state *t = b->own;
    const lt_powersgd_stage stage = t->stage;
    bool done = false;
    t->stage = LT_POWERSGD_IDLE;
    LT_TRY(lt_level_mean_step(&t->mean[stage], &done));
    if (!done) {
        t->stage = stage;
        return LT_OK;
    }
    switch (stage) {
    case LT_POWERSGD_FIRST:
        return begin_back(s, t);
    case LT_POWERSGD_SECOND:
        return finish_pieces(s, b);
    case LT_POWERSGD_DENSE:
        return finish_dense(s, b);
    case LT_POWERSGD_STAGES:
        break;
    }
    return LT_OK;
}

/* Buckets before this one have had the time of a bucket's backward for a hop. */
static lt_status begin(lt_reducer *self, size_t bucket)
{
    lt_powersgd *s = (lt_powersgd *)self;
    lt_reducer_bucket *b = &self->bucket[bucket];
    const lt_powersgd_state *t = b->own;
    if (bucket == 0)
        LT_TRY(read_scale(s));
    s->begun = bucket + 1;
    for (size_t i = 0; i < bucket; i++)
        if (state_of(self, i)->stage == LT_POWERSGD_FIRST)
            LT_TRY(advance(s, i));
    return self->dense || !t->pieces ? begin_dense(s, b) : begin_pieces(s, b);
}

/* All that are in flight go on, so that one's hop is beside the others'. */
static lt_status finish(lt_reducer *self, size_t bucket)
{
    lt_powersgd *s = (lt_powersgd *)self;
    while (state_of(self, bucket)->stage != LT_POWERSGD_IDLE)
        for (size_t i = bucket; i < s->begun; i++)
            if (i == bucket || state_of(self, i)->stage == LT_POWERSGD_FIRST)
                LT_TRY(advance(s, i));
    return LT_OK;
}

static void turn(lt_tensor *tensor[LT_POWERSGD_TURNS])
{
    lt_tensor *const next = tensor[LT_POWERSGD_NEXT];
    tensor[LT_POWERSGD_NEXT] = tensor[LT_POWERSGD_NOW];
    tensor[LT_POWERSGD_NOW] = next;
}

static lt_status commit(lt_reducer *self, bool applied)
{
    for (size_t i = 0; i < self->buckets && applied; i++) {
        const lt_powersgd_state *t = state_of(self, i);
        for (size_t k = 0; k < t->pieces; k++) {
            turn(t->piece[k].matrix->residual);
            turn(t->piece[k].matrix->q);
        }
    }
    return LT_OK;
}

static void sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    lt_levels_sent(&((const lt_powersgd *)self)->levels, out);
}

const lt_reducer_ops lt_reducer_powersgd = {
    .kind = "powersgd",
    .cost = &lt_cost_powersgd,
    .bytes = sizeof(lt_powersgd),
    .bucket_bytes = sizeof(lt_powersgd_state),
    .reduces_flags = true,
    .configure = lt_powersgd_configure,
    .open = lt_powersgd_open,
    .begin = begin,
    .finish = finish,
    .commit = commit,
    .visit = lt_powersgd_visit,
    .sent = sent,
    .close = lt_powersgd_close,
};
