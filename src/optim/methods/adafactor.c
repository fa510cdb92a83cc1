/* Adafactor: Shazeer & Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018 (arXiv
 * 1804.04235), algorithms 4 and 5; the formulas are in lather/adafactor.h. Sums are in double, those of a column in the
 * order of rows, so that results do not depend on the number of threads. A vector is one row without a row factor. */

#include "lather/adafactor.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "optim/host_values.h"
#include "optim/registry/registry.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include "lather/ext/elementary.h"
#include "lather/ext/vec.h"

#include <float.h>
#include <math.h>

enum { ROW, COLUMN, VECTOR };
enum { ELEMENTS = 1 << 14 }; /* least work of a thread */

typedef struct adafactor {
    lt_optim base;
    lt_adafactor_config config;
    lt_tensor *norm; /* f64 [1] */
    int64_t *at;     /* offset of each column of the gradient */
    double *sum;     /* sums of columns */
} adafactor;

typedef struct matrix {
    lt_view g; /* the gradient, then the update */
    lt_view row, column;
    int64_t rows, cols;
    const int64_t *at;
    double *sum;
    double weight, mean, eps; /* weight of new terms in the moments; mean of r, at least eps */
} matrix;

static bool is_matrix(const lt_slot *slot)
{
    return lt_tensor_shape(slot->param->value).ndim > 1;
}

static void size_of(const lt_slot *slot, int64_t *rows, int64_t *cols)
{
    const lt_shape shape = lt_tensor_shape(slot->param->value);
    *rows = is_matrix(slot) ? shape.dim[0] : 1;
    *cols = lt_shape_count(shape) / (*rows ? *rows : 1);
}

/* --- An update --- */

/* Sets the offsets of columns, which are in the order of dimensions. */
static void list_columns(const lt_view *v, bool skips_first, int64_t cols, int64_t *at)
{
    for (int64_t j = 0; j < cols; j++) {
        int64_t rest = j;
        at[j] = 0;
        for (int d = v->shape.ndim - 1; d >= skips_first; d--) {
            at[j] += rest % v->shape.dim[d] * v->stride[d];
            rest /= v->shape.dim[d];
        }
    }
}

static int64_t row_at(const matrix *m, int64_t i)
{
    return m->rows > 1 ? i * m->g.stride[0] : 0;
}

static void move_moment(const matrix *m, const lt_view *moment, int64_t i, double to)
{
    const double from = lt_value_at(moment, i);
    lt_set_value_at(moment, i, from + m->weight * (to - from));
}

static void update_rows(void *context, int64_t begin, int64_t end)
{
    const matrix *m = context;
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        for (int64_t j = 0; j < m->cols; j++) {
            const double g = lt_value_at(&m->g, row_at(m, i) + m->at[j]);
            sum += g * g;
        }
        move_moment(m, &m->row, i, sum / (double)m->cols);
    }
}

static void update_columns(void *context, int64_t begin, int64_t end)
{
    const matrix *m = context;
    for (int64_t j = begin; j < end; j++)
        m->sum[j] = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = begin; j < end; j++) {
            const double g = lt_value_at(&m->g, row_at(m, i) + m->at[j]);
            m->sum[j] += g * g;
        }
    for (int64_t j = begin; j < end; j++)
        move_moment(m, &m->column, j, m->sum[j] / (double)m->rows);
}

static void divide_rows(void *context, int64_t begin, int64_t end)
{
    const matrix *m = context;
    for (int64_t i = begin; i < end; i++) {
        const double row = m->row.data ? lt_value_at(&m->row, i) / m->mean : 1;
        for (int64_t j = 0; j < m->cols; j++) {
            const int64_t at = row_at(m, i) + m->at[j];
            const double root = sqrt(row * lt_value_at(&m->column, j));
            lt_set_value_at(&m->g, at, lt_value_at(&m->g, at) / fmax(root, m->eps));
        }
    }
}

static double mean_of_row(const matrix *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->rows; i++)
        sum += lt_value_at(&m->row, i);
    return fmax(sum / (double)m->rows, m->eps);
}

/* Updates the moments and replaces the gradient by u. */
static void precondition(matrix *m)
{
    const int64_t rows = 1 + ELEMENTS / (m->cols + 1), cols = 1 + ELEMENTS / (m->rows + 1);
    if (m->row.data) {
        lt_parallel_range(m->rows, rows, update_rows, m);
        m->mean = mean_of_row(m);
    }
    lt_parallel_range(m->cols, cols, update_columns, m);
    lt_parallel_range(m->rows, rows, divide_rows, m);
}

/* Returns the root mean square of a tensor's elements in *rms. */
static lt_status measure_rms(const adafactor *a, const lt_tensor *x, double *rms)
{
    const lt_view in = lt_tensor_view(x), out = lt_tensor_view(a->norm);
    LT_TRY(a->base.device->backend->frobenius(a->base.device->ctx, &in, 1, &out));
    *rms = lt_value_at(&out, 0) / sqrt((double)lt_shape_count(in.shape));
    return LT_OK;
}

static lt_status update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    const adafactor *a = (const adafactor *)self;
    const lt_adafactor_config *c = &a->config;
    const double t = (double)slot->updates + 1, lr = s->lr * slot->lr_scale;
    const double machine =
        lt_device_master_dtype(self->device) == LT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    matrix m = {.g = lt_tensor_view(slot->grad),
                .column = lt_tensor_view(slot->state[is_matrix(slot) ? COLUMN : VECTOR]),
                .at = a->at,
                .sum = a->sum,
                .weight = lt_f64_pow(t, c->beta2_decay),
                .eps = c->eps > 0 ? c->eps : machine};
    double rms, rms_of_update;
    size_of(slot, &m.rows, &m.cols);
    if (!m.rows || !m.cols)
        return LT_OK;
    if (is_matrix(slot))
        m.row = lt_tensor_view(slot->state[ROW]);
    list_columns(&m.g, is_matrix(slot), m.cols, a->at);
    precondition(&m);
    LT_TRY(measure_rms(a, slot->param->value, &rms));
    LT_TRY(measure_rms(a, slot->grad, &rms_of_update));
    const double rate = fmin(lr, 1 / sqrt(t)) * fmax(c->rms_eps, rms);
    return lt_vec_axpby(slot->param->value, -rate / fmax(1, rms_of_update / c->update_clip),
                        slot->grad, 1 - lr * slot->weight_decay, s);
}

/* --- Operations --- */

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    return lt_optim_for_each_slot(self, update, scalars);
}

static bool has_state(const lt_optim *self, const lt_slot *slot, int index)
{
    (void)self;
    return is_matrix(slot) == (index != VECTOR);
}

static bool state_shape(const lt_optim *self, const lt_slot *slot, int index, lt_shape *shape)
{
    int64_t rows, cols;
    (void)self;
    size_of(slot, &rows, &cols);
    if (index == VECTOR)
        return false;
    *shape = LT_SHAPE(index == ROW ? rows : cols);
    return true;
}

static void destroy(lt_optim *self)
{
    adafactor *a = (adafactor *)self;
    lt_tensor_free(&a->norm);
    lt_free(a->at);
    lt_free(a->sum);
}

static const lt_optim_ops ops = {
    .name = "adafactor",
    .bytes = sizeof(adafactor),
    .slot_state = {"row", "column", "v"},
    .has_state = has_state,
    .state_shape = state_shape,
    .step = step,
    .by_entries = true,
    .decay_is_apart = true,
    .destroy = destroy,
};

static lt_status make_workspace(adafactor *a)
{
    const lt_optim *o = &a->base;
    int64_t rows, cols, most = 1;
    if (!o->device->backend->host_memory)
        return lt_fail(
            LT_E_UNSUPPORTED,
            "adafactor: device %s: moments are factored in host memory; use --device cpu",
            lt_device_name(o->device));
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->frobenius != NULL, "frobenius"));
    for (size_t i = 0; i < o->count; i++) {
        size_of(&o->slot[i], &rows, &cols);
        most = cols > most ? cols : most;
    }
    LT_TRY(LT_ALLOC(&a->at, (size_t)most));
    LT_TRY(LT_ALLOC(&a->sum, (size_t)most));
    return lt_tensor_new(&a->norm, o->device, LT_F64, LT_SHAPE(1));
}

lt_status lt_optim_adafactor(lt_optim **out, const lt_params *params,
                             const lt_adafactor_config *config)
{
    const lt_adafactor_config c = config ? *config : LT_ADAFACTOR_DEFAULTS;
    lt_optim *o = NULL;
    LT_TRY(lt_optim_check(&lt_optim_family_adafactor, &c));
    LT_TRY(lt_optim_new(&o, &ops, params, c.weight_decay, c.decay_scope));
    ((adafactor *)o)->config = c;
    const lt_status st = make_workspace((adafactor *)o);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

/* --- Row of the registry --- */

#define AT(field) .offset = offsetof(lt_adafactor_config, field)
/* clang-format off */
static const lt_optim_field fields[] = {
{"weight_decay", LT_FIELD_REAL, AT(weight_decay), .high = HUGE_VAL, .common = true},
{"norm_weight_decay", LT_FIELD_SCOPE, AT(decay_scope), .flag_only = true},
{"beta2_decay", LT_FIELD_REAL, AT(beta2_decay), .low = -100, .rare = true, .in_state = true, .help = "second moments in step t decay by 1 minus this power of t"},
{"epsilon", LT_FIELD_REAL, AT(eps), .high = HUGE_VAL},
{"rms_epsilon", LT_FIELD_REAL, AT(rms_eps), .high = HUGE_VAL, .rare = true, .help = "smallest root mean square of a weight, to which its update is proportional"},
{"update_clip", LT_FIELD_REAL, AT(update_clip), .low = 1, .high = HUGE_VAL, .rare = true, .help = "largest root mean square of an update before the learning rate"},
};
/* clang-format on */
#undef AT

LT_OPTIM_MAKE(lt_optim_adafactor)

static const lt_optim_preset usual = {NULL, 0.01, &LT_ADAFACTOR_DEFAULTS};
const lt_optim_family lt_optim_family_adafactor = {
    LT_OPTIM_ROW("adafactor", lt_adafactor_config, usual)};
