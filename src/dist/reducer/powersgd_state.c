/* PowerSGD: configuration, memory and checkpointed state. */

#include "dist/reducer/powersgd_state.h"

#include "base/alloc.h"
#include "dist/reducer/lowrank.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lt_status lt_powersgd_write_doubles(lt_tensor *t, double *values)
{
    char *bytes = (char *)values;
    for (int64_t i = 0; i < lt_tensor_count(t) && lt_tensor_dtype(t) == LT_F32; i++) {
        const float x = (float)values[i];
        memcpy(bytes + (size_t)i * sizeof x, &x, sizeof x);
    }
    return lt_tensor_write(t, values, lt_tensor_bytes(t));
}

/* Parses "2" or "2,no-feedback". */
static lt_status parse_argument(lt_powersgd *s)
{
    const char *text = s->base.argument;
    char *end = NULL;
    s->rank = strtol(text, &end, 10);
    s->feedback = strcmp(end, ",no-feedback") != 0;
    if (end == text || (*end && s->feedback) || s->rank < 1 || s->rank > LT_LOWRANK_MAX_RANK)
        return lt_fail(LT_E_ARG,
                       "--compress powersgd:%s: want powersgd:RANK, 1 to %d, or "
                       "powersgd:RANK,no-feedback",
                       text, LT_LOWRANK_MAX_RANK);
    return LT_OK;
}

/* Returns true, and its matrix, if the gradient is a matrix in memory that compression makes smaller. */
static bool is_compressed(const lt_powersgd *s, const lt_param *p, lt_powersgd_matrix *out)
{
    if (!lt_param_is_trained(p))
        return false;
    const lt_view v = lt_tensor_view(p->grad);
    if (v.shape.ndim < 2)
        return false;
    const int64_t rows = v.shape.dim[0], cols = lt_shape_count(v.shape) / rows;
    *out = (lt_powersgd_matrix){.param = p, .rows = rows, .cols = cols};
    return (rows == 1 || v.stride[0] == cols) && s->rank * (rows + cols) < rows * cols;
}

static lt_status draw_initial_q(const lt_powersgd *s, const lt_powersgd_matrix *m)
{
    double *values = NULL;
    LT_TRY(LT_ALLOC(&values, (size_t)(s->rank * m->cols)));
    lt_lowrank_warm_start(values, s->rank, m->cols, m->param->name); /* draws rows of zeros */
    lt_status st = lt_powersgd_write_doubles(m->q[LT_POWERSGD_CURRENT], values);
    lt_free(values);
    return st;
}

static lt_status make_matrix(lt_powersgd *s, lt_powersgd_matrix *m)
{
    for (int i = 0; i < LT_POWERSGD_VERSIONS; i++) {
        LT_TRY(lt_tensor_new_like(&m->residual[i], m->param->grad, s->master));
        LT_TRY(lt_tensor_new(&m->q[i], s->base.device, s->master, LT_SHAPE(s->rank, m->cols)));
    }
    return draw_initial_q(s, m);
}

lt_status lt_powersgd_configure(lt_reducer *self)
{
    lt_powersgd *s = (lt_powersgd *)self;
    lt_powersgd_matrix m;
    size_t count = 0;
    LT_TRY(parse_argument(s));
    s->master = lt_device_master_dtype(self->device);
    LT_TRY(lt_hier_open(&s->hier, self));
    for (size_t i = 0; i < self->params->count; i++)
        count += is_compressed(s, self->params->item[i], &m);
    LT_TRY(LT_ALLOC(&s->matrix, count ? count : 1));
    for (size_t i = 0; i < self->params->count; i++)
        if (is_compressed(s, self->params->item[i], &m)) {
            s->matrix[s->matrices] = m;
            LT_TRY(make_matrix(s, &s->matrix[s->matrices++]));
        }
    return LT_OK;
}

static lt_powersgd_matrix *find_matrix(const lt_powersgd *s, const lt_param *param)
{
    for (size_t i = 0; i < s->matrices; i++)
        if (s->matrix[i].param == param)
            return &s->matrix[i];
    return NULL;
}

static lt_status open_bucket(lt_powersgd *s, lt_reducer_bucket *b)
{
    lt_powersgd_state *t = b->own;
    lt_device *device = s->base.device;
    int64_t p = 0, q = 0;
    t->uncompressed = b->elements + (int64_t)b->parts;
    t->stage = LT_POWERSGD_IDLE;
    LT_TRY(lt_hier_mean_open(&t->mean[LT_POWERSGD_DENSE], &s->hier, b->flat));
    LT_TRY(LT_ALLOC(&t->slice, b->parts));
    for (size_t i = 0; i < b->parts; i++) {
        lt_powersgd_matrix *m = find_matrix(s, b->part[i].param);
        if (!m)
            continue;
        t->slice[t->slices++] = (lt_powersgd_slice){.matrix = m, .part = i, .p_at = p, .q_at = q};
        p += m->rows * s->rank;
        q += m->cols * s->rank;
        t->uncompressed -= b->part[i].elements;
    }
    if (!t->slices)
        return LT_OK;
    const lt_dtype dtype = lt_tensor_dtype(b->flat);
    LT_TRY(lt_tensor_new(&t->p, device, s->master, LT_SHAPE(p)));
    LT_TRY(lt_tensor_new(&t->q, device, s->master, LT_SHAPE(q)));
    LT_TRY(lt_tensor_new(&t->sent_p, device, dtype, LT_SHAPE(t->uncompressed + p)));
    LT_TRY(lt_tensor_new(&t->sent_q, device, dtype, LT_SHAPE(q)));
    LT_TRY(lt_hier_mean_open(&t->mean[LT_POWERSGD_FIRST], &s->hier, t->sent_p));
    return lt_hier_mean_open(&t->mean[LT_POWERSGD_SECOND], &s->hier, t->sent_q);
}

lt_status lt_powersgd_open(lt_reducer *self)
{
    lt_powersgd *s = (lt_powersgd *)self;
    int64_t largest = 0;
    for (size_t i = 0; i < self->buckets; i++)
        LT_TRY(open_bucket(s, &self->bucket[i]));
    for (size_t i = 0; i < s->matrices; i++) {
        const int64_t elements = s->matrix[i].rows * s->matrix[i].cols;
        largest = elements > largest ? elements : largest;
    }
    if (!largest || lt_tensor_dtype(self->bucket[0].flat) == s->master)
        return LT_OK;
    return lt_tensor_new(&s->workspace, self->device, s->master, LT_SHAPE(largest));
}

static void close_bucket(lt_powersgd_state *t)
{
    for (int i = 0; i < LT_POWERSGD_STAGES; i++)
        lt_hier_mean_close(&t->mean[i]);
    lt_tensor_free(&t->p);
    lt_tensor_free(&t->q);
    lt_tensor_free(&t->sent_p);
    lt_tensor_free(&t->sent_q);
    lt_free(t->slice);
}

void lt_powersgd_close(lt_reducer *self)
{
    lt_powersgd *s = (lt_powersgd *)self;
    for (size_t i = 0; i < self->buckets; i++)
        if (self->bucket[i].own)
            close_bucket(self->bucket[i].own);
    for (size_t i = 0; i < s->matrices; i++)
        for (int k = 0; k < LT_POWERSGD_VERSIONS; k++) {
            lt_tensor_free(&s->matrix[i].residual[k]);
            lt_tensor_free(&s->matrix[i].q[k]);
        }
    lt_hier_close(&s->hier);
    lt_tensor_free(&s->workspace);
    lt_free(s->matrix);
}

/* --- State --- */

/* Visits the factor Q, equal on all ranks, and the error feedback of each rank. */
static lt_status visit_matrix(lt_powersgd *s, const lt_powersgd_matrix *m,
                              lt_state_visitor *visitor)
{
    const int mine = lt_comm_rank(s->base.comm);
    lt_state_entry e = lt_state_of(m->param, "powersgd.q");
    e.extent = LT_SHAPE(s->rank, m->cols);
    e.tensor = m->q[LT_POWERSGD_CURRENT];
    LT_TRY(visitor->entry(visitor->context, &e));
    for (int r = 0; r < lt_comm_size(s->base.comm); r++) {
        char name[24];
        snprintf(name, sizeof name, "residual.%d", r);
        e = lt_state_of(m->param, name);
        e.owner = r;
        e.tensor = r == mine ? m->residual[LT_POWERSGD_CURRENT] : NULL;
        LT_TRY(visitor->entry(visitor->context, &e));
    }
    return LT_OK;
}

lt_status lt_powersgd_visit(lt_reducer *self, lt_state_visitor *visitor)
{
    lt_powersgd *s = (lt_powersgd *)self;
    for (size_t i = 0; i < s->matrices; i++)
        LT_TRY(visit_matrix(s, &s->matrix[i], visitor));
    return LT_OK;
}
