/* PowerSGD: Vogels, Karimireddy & Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
 * optimization", NeurIPS 2019 (arXiv 1905.13727), algorithms 1 and 2: one warm-started power iteration per update, with
 * error feedback.
 *
 * A gradient [out, ...] is a matrix [out, rest] in memory order. Each of R ranks, with loss scale s, computes
 *
 *   X = g + R s e        gradient plus error feedback e of earlier updates
 *   P = mean of X Q^T,   columns orthonormalized
 *   Q = mean of P^T X
 *   g = P Q,  e = (X - P Q) / (R s)
 *
 * so that the sum over ranks of g / (R s) + e equals the applied gradient plus the sum of the new e. P Q depends only on
 * the sum of e over ranks. So each rank keeps its own e, and a hierarchical reduction needs no error feedback per node.
 * Gradients that do not shrink (vectors, and matrices with rank (rows + cols) >= rows cols) and the flags are sent
 * uncompressed with P in one all-reduce.
 *
 * Invariants: 1. Decisions, P, Q and the result are computed from bitwise identical data on all ranks. 2. The order of
 * communicator calls depends on buckets and stages only. 3. Only commit changes the current error feedback and Q. */

#include "base/alloc.h"
#include "dist/comm/flat.h"
#include "dist/reducer/costs.h"
#include "dist/reducer/kinds.h"
#include "dist/reducer/lowrank.h"
#include "dist/reducer/powersgd_state.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"

#include <string.h>

static lt_powersgd_state *bucket_state(const lt_reducer *self, size_t bucket)
{
    return self->bucket[bucket].own;
}

/* --- Views --- */

/* Views the elements as a batch of one [rows,cols] matrix. */
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

static lt_status cast_view(const lt_powersgd *s, lt_view from, lt_view to)
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

typedef enum product { COMPUTE_P, COMPUTE_Q, RECONSTRUCT } product;

static lt_status multiply_factors(const lt_powersgd *s, product which, const lt_powersgd_slice *x,
                                  lt_view m, lt_view p, lt_view q)
{
    const lt_device *device = s->base.device;
    const lt_backend *be = device->backend;
    const int64_t rows = x->matrix->rows, cols = x->matrix->cols;
    if (be->host_memory && m.dtype == LT_F32) {
        const lt_lowrank job = {m.data, p.data, q.data, rows, cols, s->rank};
        void (*const fn[])(const lt_lowrank *) = {lt_lowrank_compute_p, lt_lowrank_compute_q,
                                                  lt_lowrank_reconstruct};
        fn[which](&job);
        return LT_OK;
    }
    m = as_matrix(m, rows, cols);
    p = as_matrix(p, rows, s->rank);
    q = as_matrix(q, s->rank, cols);
    const lt_view qt = transposed(q), pt = transposed(p);
    switch (which) {
    case COMPUTE_P:
        return be->matmul(device->ctx, &m, &qt, &p);
    case COMPUTE_Q:
        return be->matmul(device->ctx, &pt, &m, &q);
    case RECONSTRUCT:
        break;
    }
    return be->matmul(device->ctx, &p, &q, &m);
}

static lt_view p_slice(const lt_powersgd *s, const lt_powersgd_state *t, const lt_powersgd_slice *x)
{
    return lt_flat_slice(t->p, x->p_at, x->matrix->rows * s->rank);
}

static lt_view q_slice(const lt_powersgd *s, const lt_powersgd_state *t, const lt_powersgd_slice *x)
{
    return lt_flat_slice(t->q, x->q_at, x->matrix->cols * s->rank);
}

/* Reads a tensor of the master dtype as doubles. */
static lt_status read_as_doubles(const lt_tensor *t, double **out)
{
    const int64_t count = lt_tensor_count(t);
    double *values = NULL;
    LT_TRY(LT_ALLOC(&values, count));
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

/* --- Begin: X and P of all matrices of a bucket --- */

static lt_status start_mean(lt_powersgd_state *t, lt_powersgd_stage stage)
{
    LT_TRY(lt_hier_mean_begin(&t->mean[stage]));
    t->stage = stage;
    return LT_OK;
}

/* Computes X of a slice: gradient plus error feedback. */
static lt_status add_residual(const lt_powersgd *s, const lt_reducer_bucket *b,
                              const lt_powersgd_slice *x)
{
    const lt_reducer_part *part = &b->part[x->part];
    const lt_view next = lt_flat_view(x->matrix->residual[LT_POWERSGD_NEXT]);
    LT_TRY(cast_view(s, lt_flat_slice(b->flat, part->offset, part->elements), next));
    return axpby(s, s->scale, lt_flat_view(x->matrix->residual[LT_POWERSGD_CURRENT]), 1, next);
}

/* Copies the uncompressed elements from flat to the head of sent_p, or back. */
static lt_status copy_uncompressed(const lt_powersgd *s, const lt_reducer_bucket *b, bool back)
{
    const lt_powersgd_state *t = b->own;
    int64_t from = 0, at = 0;
    for (size_t i = 0; i <= t->slices; i++) {
        const lt_reducer_part *part = i < t->slices ? &b->part[t->slice[i].part] : NULL;
        const int64_t end = part ? part->offset : b->elements + (int64_t)b->parts;
        if (end > from) {
            const lt_view here = lt_flat_slice(b->flat, from, end - from),
                          there = lt_flat_slice(t->sent_p, at, end - from);
            LT_TRY(back ? cast_view(s, there, here) : cast_view(s, here, there));
        }
        at += end - from;
        from = part ? part->offset + part->elements : end;
    }
    return LT_OK;
}

static lt_status begin_compressed(lt_powersgd *s, lt_reducer_bucket *b)
{
    lt_powersgd_state *t = b->own;
    for (size_t i = 0; i < t->slices; i++) {
        const lt_powersgd_slice *x = &t->slice[i];
        LT_TRY(add_residual(s, b, x));
        LT_TRY(multiply_factors(s, COMPUTE_P, x,
                                lt_flat_view(x->matrix->residual[LT_POWERSGD_NEXT]),
                                p_slice(s, t, x), lt_flat_view(x->matrix->q[LT_POWERSGD_CURRENT])));
    }
    LT_TRY(copy_uncompressed(s, b, false));
    LT_TRY(cast_view(s, lt_flat_view(t->p),
                     lt_flat_slice(t->sent_p, t->uncompressed, lt_tensor_count(t->p))));
    return start_mean(t, LT_POWERSGD_FIRST);
}

/* Begins an uncompressed mean of the bucket, which includes the error feedback. */
static lt_status begin_dense(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    for (size_t i = 0; i < t->slices; i++) {
        const lt_reducer_part *part = &b->part[t->slice[i].part];
        LT_TRY(add_residual(s, b, &t->slice[i]));
        LT_TRY(cast_view(s, lt_flat_view(t->slice[i].matrix->residual[LT_POWERSGD_NEXT]),
                         lt_flat_slice(b->flat, part->offset, part->elements)));
    }
    return start_mean(b->own, LT_POWERSGD_DENSE);
}

static lt_status read_scale(lt_powersgd *s)
{
    double loss_scale = 1;
    if (s->base.loss_scale)
        LT_TRY(lt_tensor_read(s->base.loss_scale, &loss_scale, sizeof loss_scale));
    s->scale = (double)lt_comm_size(s->base.comm) * loss_scale;
    return LT_OK;
}

/* --- Finish: orthonormalize P, compute Q, reconstruct the gradient --- */

static lt_status orthonormalize_p(const lt_powersgd *s, const lt_powersgd_state *t)
{
    double *values = NULL;
    LT_TRY(cast_view(s, lt_flat_slice(t->sent_p, t->uncompressed, lt_tensor_count(t->p)),
                     lt_flat_view(t->p)));
    LT_TRY(read_as_doubles(t->p, &values));
    for (size_t i = 0; i < t->slices; i++)
        lt_lowrank_orthonormalize(values + t->slice[i].p_at, t->slice[i].matrix->rows, s->rank);
    lt_status st = lt_powersgd_write_doubles(t->p, values);
    lt_free(values);
    return st;
}

static lt_status compute_and_send_q(lt_powersgd *s, lt_powersgd_state *t)
{
    LT_TRY(orthonormalize_p(s, t));
    for (size_t i = 0; i < t->slices; i++) {
        const lt_powersgd_slice *x = &t->slice[i];
        LT_TRY(multiply_factors(s, COMPUTE_Q, x,
                                lt_flat_view(x->matrix->residual[LT_POWERSGD_NEXT]),
                                p_slice(s, t, x), q_slice(s, t, x)));
    }
    LT_TRY(cast_view(s, lt_flat_view(t->q), lt_flat_view(t->sent_q)));
    return start_mean(t, LT_POWERSGD_SECOND);
}

/* Writes P Q to the bucket and X - P Q to the next error feedback, which is unchanged for a gradient that no rank has. */
static lt_status decompress_slice(lt_powersgd *s, lt_reducer_bucket *b, const lt_powersgd_slice *x,
                                  double flag)
{
    const lt_powersgd_state *t = b->own;
    const lt_reducer_part *part = &b->part[x->part];
    const lt_view to = lt_flat_slice(b->flat, part->offset, part->elements);
    const lt_view next = lt_flat_view(x->matrix->residual[LT_POWERSGD_NEXT]),
                  now = lt_flat_view(x->matrix->residual[LT_POWERSGD_CURRENT]);
    lt_view made = to;
    if (!(flag > 0))
        return cast_view(s, now, next);
    if (s->workspace)
        made = lt_flat_slice(s->workspace, 0, part->elements);
    LT_TRY(multiply_factors(s, RECONSTRUCT, x, made, p_slice(s, t, x), q_slice(s, t, x)));
    if (s->workspace) { /* the applied gradient is rounded to the communication dtype */
        LT_TRY(cast_view(s, made, to));
        LT_TRY(cast_view(s, to, made));
    }
    if (!s->feedback)
        return axpby(s, 0, now, 0, next);
    return axpby(s, -1 / s->scale, made, 1 / s->scale, next);
}

/* Sets the next update's Q; unchanged for a gradient that no rank has. */
static lt_status set_next_q(lt_powersgd *s, const lt_powersgd_state *t, const double *flags)
{
    double *values = NULL;
    LT_TRY(read_as_doubles(t->q, &values));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->slices && !st; i++) {
        const lt_powersgd_slice *x = &t->slice[i];
        const lt_powersgd_matrix *m = x->matrix;
        lt_lowrank_warm_start(values + x->q_at, s->rank, m->cols, m->param->name);
        st = flags[x->part] > 0 ? LT_OK
                                : cast_view(s, lt_flat_view(m->q[LT_POWERSGD_CURRENT]),
                                            lt_flat_view(m->q[LT_POWERSGD_NEXT]));
    }
    for (size_t i = 0; i < t->slices && !st; i++) {
        const lt_powersgd_slice *x = &t->slice[i];
        if (flags[x->part] > 0)
            st = lt_powersgd_write_doubles(x->matrix->q[LT_POWERSGD_NEXT], values + x->q_at);
    }
    lt_free(values);
    return st;
}

/* Reads the mean of each part's flag, b->parts numbers. */
static lt_status read_flags(const lt_powersgd *s, const lt_reducer_bucket *b, double **out)
{
    lt_tensor *wide = NULL;
    const int64_t parts = (int64_t)b->parts;
    LT_TRY(lt_tensor_new(&wide, s->base.device, LT_F64, LT_SHAPE(parts)));
    lt_status st = cast_view(s, lt_flat_slice(b->flat, b->elements, parts), lt_flat_view(wide));
    if (!st)
        st = read_as_doubles(wide, out);
    lt_tensor_free(&wide);
    return st;
}

static lt_status finish_compressed(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    double *flags = NULL;
    LT_TRY(copy_uncompressed(s, b, true));
    LT_TRY(cast_view(s, lt_flat_view(t->sent_q), lt_flat_view(t->q)));
    LT_TRY(read_flags(s, b, &flags));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->slices && !st; i++)
        st = decompress_slice(s, b, &t->slice[i], flags[t->slice[i].part]);
    if (!st)
        st = set_next_q(s, t, flags);
    lt_free(flags);
    return st;
}

/* Clears the error feedback sent by the uncompressed update; it is unchanged for gradients that no rank has. */
static lt_status finish_dense(lt_powersgd *s, lt_reducer_bucket *b)
{
    const lt_powersgd_state *t = b->own;
    double *flags = NULL;
    if (!t->slices)
        return LT_OK;
    LT_TRY(read_flags(s, b, &flags));
    lt_status st = LT_OK;
    for (size_t i = 0; i < t->slices && !st; i++) {
        const lt_powersgd_matrix *m = t->slice[i].matrix;
        const double rest = flags[t->slice[i].part] > 0 ? 0 : 1;
        st = axpby(s, rest, lt_flat_view(m->residual[LT_POWERSGD_CURRENT]), 0,
                   lt_flat_view(m->residual[LT_POWERSGD_NEXT]));
        if (!st)
            st = cast_view(s, lt_flat_view(m->q[LT_POWERSGD_CURRENT]),
                           lt_flat_view(m->q[LT_POWERSGD_NEXT]));
    }
    lt_free(flags);
    return st;
}

/* --- Stages --- */

/* Waits for a phase of a bucket's mean; after the last phase runs the next step of the algorithm. */
static lt_status advance_bucket(lt_powersgd *s, size_t bucket)
{
    lt_reducer_bucket *b = &s->base.bucket[bucket];
    lt_powersgd_state *t = b->own;
    const lt_powersgd_stage stage = t->stage;
    bool done = false;
    t->stage = LT_POWERSGD_IDLE;
    LT_TRY(lt_hier_mean_step(&t->mean[stage], &done));
    if (!done) {
        t->stage = stage;
        return LT_OK;
    }
    switch (stage) {
    case LT_POWERSGD_FIRST:
        return compute_and_send_q(s, t);
    case LT_POWERSGD_SECOND:
        return finish_compressed(s, b);
    case LT_POWERSGD_DENSE:
        return finish_dense(s, b);
    case LT_POWERSGD_STAGES:
        break;
    }
    return LT_OK;
}

/* Begins a bucket; before that advances earlier ones by a phase, as backward has progressed since the last call. */
static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    lt_powersgd *s = (lt_powersgd *)self;
    lt_reducer_bucket *b = &self->bucket[bucket];
    const lt_powersgd_state *t = b->own;
    if (bucket == 0)
        LT_TRY(read_scale(s));
    s->begun = bucket + 1;
    for (size_t i = 0; i < bucket; i++)
        if (bucket_state(self, i)->stage == LT_POWERSGD_FIRST)
            LT_TRY(advance_bucket(s, i));
    return self->dense || !t->slices ? begin_dense(s, b) : begin_compressed(s, b);
}

/* Waits for a bucket; meanwhile advances all buckets in flight, so that their phases overlap. */
static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    lt_powersgd *s = (lt_powersgd *)self;
    while (bucket_state(self, bucket)->stage != LT_POWERSGD_IDLE)
        for (size_t i = bucket; i < s->begun; i++)
            if (i == bucket || bucket_state(self, i)->stage == LT_POWERSGD_FIRST)
                LT_TRY(advance_bucket(s, i));
    return LT_OK;
}

static void swap_versions(lt_tensor *tensor[LT_POWERSGD_VERSIONS])
{
    lt_tensor *const next = tensor[LT_POWERSGD_NEXT];
    tensor[LT_POWERSGD_NEXT] = tensor[LT_POWERSGD_CURRENT];
    tensor[LT_POWERSGD_CURRENT] = next;
}

static lt_status commit_residual(lt_reducer *self, bool applied)
{
    for (size_t i = 0; i < self->buckets && applied; i++) {
        const lt_powersgd_state *t = bucket_state(self, i);
        for (size_t k = 0; k < t->slices; k++) {
            swap_versions(t->slice[k].matrix->residual);
            swap_versions(t->slice[k].matrix->q);
        }
    }
    return LT_OK;
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    lt_hier_bytes_sent(&((const lt_powersgd *)self)->hier, out);
}

const lt_reducer_ops lt_reducer_powersgd = {
    .kind = "powersgd",
    .cost = &lt_cost_powersgd,
    .bytes = sizeof(lt_powersgd),
    .bucket_bytes = sizeof(lt_powersgd_state),
    .reduces_flags = true,
    .configure = lt_powersgd_configure,
    .open = lt_powersgd_open,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .commit = commit_residual,
    .visit = lt_powersgd_visit,
    .sent = bytes_sent,
    .close = lt_powersgd_close,
};
