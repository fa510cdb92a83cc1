/* Muon: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024.
 *
 * A step processes batches of matrices, so that its workspace is small. A batch is a list of batched
 * kernels, each of which is one backend call with a job per matrix:
 *
 *   m = mu m + (1 - mu) g,  X = m or mu m + (1 - mu) g
 *   X = orthogonal factor of X                       orthogonal.c
 *   v = beta2 v + (1 - beta2) X^2,  X = X / (sqrt(v) + eps), rescaled     of lt_muon_moment
 *   X = scale X + decay W,  W -= lr X */

#include "base/alloc.h"
#include "base/clock.h"
#include "muon_matrix.h"
#include "muon_new.h"
#include "optim/slots.h"
#include "orthogonal.h"
#include "second_moment.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* Root mean square of AdamW's updates: Liu et al. 2025, section 2.2. */
static const double rms_of_adamw = 0.2;
/* Most elements of a batch (a single matrix may exceed it): 8 MiB of f32 per workspace tensor. */
static const int64_t batch_elements = (int64_t)1 << 21;
/* Modelled nanoseconds per multiplication in X X^T and in other matrix products: shampoo/assign.c. */
static const double per_gram = 0.012, per_product = 0.020;

enum { X, Y, SCRATCHES };
enum { MOMENTUM, SQUARE }; /* states */

typedef lt_muon_matrix matrix;

typedef struct muon {
    lt_optim base;
    lt_muon_config config;
    bool *adamw; /* per slot: updated by AdamW */
    matrix *matrix;
    size_t count;
    lt_adam_kernel kernel;
    lt_tensor *scratch[SCRATCHES];
    lt_orthogonal orthogonal;
    lt_second_moment moment;
    bool ready;     /* orthogonal, moment and scratch are allocated */
    double seconds; /* time for the matrices in the step of attempt `timed` */
    int64_t timed;
    /* Workspace: one per matrix. */
    matrix **due;
    lt_vec_job *vec;
    lt_orthogonal_job *job;
} muon;

/* Matrices due[begin] to due[end - 1]; x, y: indices of the workspaces that hold X and Y. */
typedef struct batch {
    size_t begin, end;
    int x, y;
} batch;

/* --- Views of scratch --- */

static lt_view scratch_at(const muon *m, int which, int64_t at)
{
    lt_view v = lt_tensor_view(m->scratch[which]);
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

static lt_view scratch_matrix_at(const muon *m, int which, int64_t at, int64_t rows, int64_t cols)
{
    lt_view v = scratch_at(m, which, at);
    v.shape = LT_SHAPE(rows, cols);
    v.stride[0] = cols;
    v.stride[1] = 1;
    return v;
}

static lt_view scratch_matrix(const muon *m, const matrix *x, int which)
{
    return scratch_matrix_at(m, which, x->at, x->rows, x->cols);
}

/* Views a matrix with the parameter's dimensions. The order of columns is free: that of the parameter's memory if
 * its first dimension is outermost there, so that kernels pass over both contiguously. */
static lt_view scratch_in_param_shape(const muon *m, const matrix *x, int which)
{
    const lt_view value = lt_muon_matrix_of(x, x->slot->param->value);
    lt_view v = scratch_at(m, which, x->at);
    int64_t step = 1;
    v.shape = value.shape;
    for (int d = v.shape.ndim - 1; d >= 0; d--) {
        v.stride[d] = value.stride[0] == x->cols ? value.stride[d] : step;
        step *= v.shape.dim[d];
    }
    return v;
}

/* --- Batched kernels --- */

typedef void vec_rule(const muon *m, const batch *b, const matrix *x, lt_vec_job *job);

static lt_status run_vec_rule(muon *m, const batch *b, vec_rule *rule)
{
    size_t count = 0;
    for (size_t i = b->begin; i < b->end; i++) {
        lt_vec_job *job = &m->vec[count++];
        *job = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1};
        rule(m, b, m->due[i], job);
    }
    return lt_optim_run_vec_jobs(&m->base, m->vec, count);
}

static void update_momentum(const muon *m, const batch *b, const matrix *x, lt_vec_job *job)
{
    (void)b;
    job->alpha = 1 - m->config.momentum;
    job->beta = m->config.momentum;
    job->factor.grad_scale = true;
    job->a = lt_muon_matrix_of(x, x->slot->param->grad);
    job->y = lt_muon_matrix_of(x, x->slot->state[0]);
}

static void copy_momentum(const muon *m, const batch *b, const matrix *x, lt_vec_job *job)
{
    job->alpha = m->config.nesterov ? m->config.momentum : 1;
    job->a = lt_muon_matrix_of(x, x->slot->state[0]);
    job->y = scratch_in_param_shape(m, x, b->x);
}

static void add_nesterov_gradient(const muon *m, const batch *b, const matrix *x, lt_vec_job *job)
{
    job->alpha = 1 - m->config.momentum;
    job->beta = 1;
    job->factor.grad_scale = true;
    job->a = lt_muon_matrix_of(x, x->slot->param->grad);
    job->y = scratch_in_param_shape(m, x, b->x);
}

static void take_sign(const muon *m, const batch *b, const matrix *x, lt_vec_job *job)
{
    job->op = LT_VEC_SIGN;
    job->a = job->y = scratch_matrix(m, x, b->x);
}

static double scale_of_update(const muon *m, const matrix *x)
{
    const double rows = (double)x->rows, cols = (double)x->cols;
    return m->config.scale == LT_MUON_ORIGINAL ? sqrt(fmax(1, x->tall))
                                               : rms_of_adamw * sqrt(fmax(rows, cols));
}

static void scale_and_add_weight_decay(const muon *m, const batch *b, const matrix *x,
                                       lt_vec_job *job)
{
    job->alpha = x->slot->weight_decay;
    job->beta = m->config.moment ? 1 : scale_of_update(m, x);
    job->a = lt_muon_matrix_of(x, x->slot->param->value);
    job->y = scratch_in_param_shape(m, x, b->x);
}

static void apply_update(const muon *m, const batch *b, const matrix *x, lt_vec_job *job)
{
    job->alpha = -x->slot->lr_scale;
    job->beta = 1;
    job->factor.lr = true;
    job->a = scratch_in_param_shape(m, x, b->x);
    job->y = lt_muon_matrix_of(x, x->slot->param->value);
}

/* --- A batch --- */

static lt_status orthogonalize_batch(muon *m, batch *b)
{
    const lt_orthogonalization *how = &m->config.orthogonalization;
    const size_t count = b->end - b->begin;
    for (size_t i = 0; i < count; i++) {
        const matrix *x = m->due[b->begin + i];
        m->job[i] = (lt_orthogonal_job){
            .x = scratch_matrix(m, x, b->x), .y = scratch_matrix(m, x, b->y), .dim = x->dim};
    }
    if (lt_orthogonal_result_is_in_y(how)) {
        b->x = Y;
        b->y = X;
    }
    return lt_orthogonal_run(&m->orthogonal, &m->base, how, m->job, count);
}

/* Sets X to the orthogonal factors of the batch's momenta. */
static lt_status orthogonalize_momenta(muon *m, batch *b)
{
    b->x = X;
    b->y = Y;
    LT_TRY(run_vec_rule(m, b, copy_momentum));
    if (m->config.nesterov)
        LT_TRY(run_vec_rule(m, b, add_nesterov_gradient));
    if (m->config.moment == LT_MUON_OF_ELEMENTS)
        LT_TRY(run_vec_rule(m, b, take_sign));
    return orthogonalize_batch(m, b);
}

static double length_of_update(const muon *m, const matrix *x)
{
    const bool fixed = m->config.moment && m->config.scale == LT_MUON_MATCH_RMS_ADAMW;
    return fixed ? rms_of_adamw * sqrt((double)(x->rows * x->cols)) : scale_of_update(m, x);
}

/* Returns the second moment: of the matrix's outputs, those of a parameter's matrices one after another, or of its
 * elements. */
static lt_view second_moment_of(const muon *m, const matrix *x)
{
    if (m->config.moment == LT_MUON_OF_ELEMENTS)
        return lt_muon_matrix_of(x, x->slot->state[SQUARE]);
    lt_view v = lt_tensor_view(x->slot->state[SQUARE]);
    v.data = (char *)v.data + (size_t)(x->part * lt_muon_outputs(x)) * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

static lt_status divide_by_moment(const muon *m, const batch *b, const matrix *x)
{
    const bool of_outputs = m->config.moment == LT_MUON_OF_OUTPUTS;
    const lt_second_moment_job job = {
        .x = of_outputs ? scratch_matrix(m, x, b->x) : scratch_in_param_shape(m, x, b->x),
        .squares = of_outputs ? scratch_matrix(m, x, b->y) : (lt_view){0},
        .v = second_moment_of(m, x),
        .dim = of_outputs ? lt_muon_outputs_dim(x->slot->param) : -1,
        .length = length_of_update(m, x),
        .keeps_norm = m->config.scale == LT_MUON_ORIGINAL,
    };
    return lt_second_moment_divide(&m->moment, &m->base, &job);
}

static lt_status update_batch(muon *m, batch b)
{
    LT_TRY(run_vec_rule(m, &b, update_momentum));
    LT_TRY(orthogonalize_momenta(m, &b));
    for (size_t i = b.begin; m->config.moment && i < b.end; i++)
        LT_TRY(divide_by_moment(m, &b, m->due[i]));
    LT_TRY(run_vec_rule(m, &b, scale_and_add_weight_decay));
    return run_vec_rule(m, &b, apply_update);
}

/* --- A step --- */

/* Returns the batch of matrices from due[begin] on and sets their offsets. */
static batch next_batch(const muon *m, size_t begin, size_t count)
{
    batch b = {.begin = begin, .end = begin};
    int64_t elements = 0;
    for (; b.end < count; b.end++) {
        matrix *x = m->due[b.end];
        if (b.end > begin && elements + x->rows * x->cols > batch_elements)
            break;
        x->at = elements;
        elements += x->rows * x->cols;
    }
    return b;
}

/* Returns the elements of the largest batch of this rank's matrices; their squares have no more. */
static int64_t largest_batch_elements(const muon *m)
{
    int64_t all = 0, largest = batch_elements;
    for (size_t i = 0; i < m->count; i++) {
        const matrix *x = &m->matrix[i];
        if (x->slot->not_owned)
            continue;
        all += x->rows * x->cols;
        largest = x->rows * x->cols > largest ? x->rows * x->cols : largest;
    }
    return all < largest ? all : largest;
}

static lt_status allocate_workspace(muon *m)
{
    lt_device *device = m->base.device;
    const int64_t elements = largest_batch_elements(m);
    int64_t outputs = 1;
    if (m->ready)
        return LT_OK;
    for (int i = 0; i < SCRATCHES && elements; i++)
        if (!m->scratch[i])
            LT_TRY(lt_tensor_new(&m->scratch[i], device, lt_device_master_dtype(device),
                                 LT_SHAPE(elements)));
    for (size_t i = 0; i < m->count; i++)
        outputs =
            lt_muon_outputs(&m->matrix[i]) > outputs ? lt_muon_outputs(&m->matrix[i]) : outputs;
    if (m->config.moment)
        LT_TRY(lt_second_moment_open(&m->moment, device, outputs));
    if (elements)
        LT_TRY(lt_orthogonal_open(&m->orthogonal, &m->base, &m->config.orthogonalization, m->count,
                                  elements, elements));
    m->ready = true;
    return LT_OK;
}

static lt_status update_by_adamw(muon *m)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&m->base, &ctx);
    size_t count = 0;
    for (size_t i = 0; i < m->base.count; i++) {
        const lt_slot *slot = &m->base.slot[i];
        if (!m->adamw[i] || !lt_slot_is_due(slot))
            continue;
        m->base.item[count++] = (lt_optim_item){
            .value = lt_tensor_view(slot->param->value),
            .grad = lt_tensor_view(slot->param->grad),
            .state = {lt_tensor_view(slot->state[0]), lt_tensor_view(slot->state[1])},
            .lr_scale = slot->lr_scale * m->config.adamw_lr_scale,
            .weight_decay = slot->weight_decay,
            .missed = lt_optim_missed_steps(&m->base, slot),
        };
    }
    return count ? be->adam(ctx, &m->kernel, m->base.item, count, m->base.scalars) : LT_OK;
}

static lt_status update_matrices(muon *m)
{
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++)
        if (lt_slot_is_due(m->matrix[i].slot))
            m->due[count++] = &m->matrix[i];
    for (size_t begin = 0; begin < count;) {
        const batch b = next_batch(m, begin, count);
        LT_TRY(update_batch(m, b));
        begin = b.end;
    }
    return LT_OK;
}

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    muon *m = (muon *)self;
    LT_TRY(allocate_workspace(m));
    LT_TRY(update_by_adamw(m));
    const int64_t begin = lt_clock_nanoseconds();
    LT_TRY(update_matrices(m));
    const double earlier =
        m->timed == self->attempt ? m->seconds : 0; /* state in fewer bytes: calls of one step */
    m->seconds = earlier + (double)(lt_clock_nanoseconds() - begin) * 1e-9;
    m->timed = self->attempt;
    return LT_OK;
}

/* --- Operations --- */

/* Returns the matrix of a part of a parameter, or NULL. */
static const matrix *find_part(const muon *m, const lt_slot *slot, size_t part)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->matrix[i].slot == slot && (size_t)m->matrix[i].part == part)
            return &m->matrix[i];
    return NULL;
}

static const matrix *find_matrix(const muon *m, const lt_slot *slot)
{
    return find_part(m, slot, 0);
}

/* Returns true for the state "m" of all parameters and for "v" of those that have a second moment. */
static bool has_state(const lt_optim *self, const lt_slot *slot, int index)
{
    const muon *m = (const muon *)self;
    return index == MOMENTUM || m->adamw[slot - self->slot] || m->config.moment;
}

static bool state_shape(const lt_optim *self, const lt_slot *slot, int index, lt_shape *shape)
{
    const matrix *x = find_matrix((const muon *)self, slot);
    if (index != SQUARE || !x)
        return false;
    *shape = LT_SHAPE(x->split.parts * lt_muon_outputs(x));
    return true;
}

static double estimate_nanoseconds(const lt_optim *self, const lt_slot *slot)
{
    const muon *m = (const muon *)self;
    const matrix *x = find_matrix(m, slot);
    if (!x)
        return 0;
    const double n = (double)x->small, elements = (double)x->rows * (double)x->cols;
    return x->split.parts * lt_orthogonal_iterations(&m->config.orthogonalization)
           * (per_gram * n * (elements + n * n) + per_product * n * elements);
}

/* Returns false before the first step, which allocates the workspace. */
static bool is_capturable(const lt_optim *self)
{
    const muon *m = (const muon *)self;
    return m->ready && lt_orthogonal_is_capturable(&m->config.orthogonalization);
}

static void destroy(lt_optim *self)
{
    muon *m = (muon *)self;
    for (int i = 0; i < SCRATCHES; i++)
        lt_tensor_free(&m->scratch[i]);
    lt_second_moment_close(&m->moment);
    lt_orthogonal_close(&m->orthogonal);
    lt_free(m->job);
    lt_free(m->vec);
    lt_free(m->due);
    lt_free(m->matrix);
    lt_free(m->adamw);
}

/* --- For --optim-stats: a matrix is a block, and X X^T of its orthogonal X a factor --- */

static bool describe_matrix(const lt_optim *self, const lt_slot *slot, size_t block,
                            lt_optim_block *out)
{
    const matrix *x = find_part((const muon *)self, slot, block);
    if (!x)
        return false;
    *out = (lt_optim_block){.extent = lt_muon_matrix_shape(x),
                            .shape = LT_SHAPE(x->rows, x->cols),
                            .owner = slot->owner,
                            .rule = LT_RULE_ORTHOGONAL,
                            .graft_ratio = (double)NAN};
    out->offset.ndim = out->extent.ndim;
    out->offset.dim[x->split.dim] = x->part * out->extent.dim[x->split.dim];
    out->has_factor[x->dim] = true;
    return true;
}

static void describe_rule(const lt_optim *self, const lt_slot *slot, lt_param_rule *out)
{
    const muon *m = (const muon *)self;
    const bool adamw = m->adamw[slot - self->slot];
    out->rule = lt_optim_rule_name(adamw ? LT_RULE_ADAMW : LT_RULE_ORTHOGONAL);
    out->lr_scale *= adamw ? m->config.adamw_lr_scale : 1;
}

static lt_status measure_rule(lt_optim *self, const lt_slot *slot, lt_optim_rule *rule,
                              double out[LT_MAX_STATS])
{
    const muon *m = (const muon *)self;
    if (!m->adamw[slot - self->slot])
        return LT_OK;
    *rule = LT_RULE_ADAMW;
    return lt_optim_moment_ratio(self, slot, m->config.beta1, m->config.beta2, out);
}

/* Repeats the last orthogonalization of a matrix, in scratch, and computes gram = X X^T of the smaller dimension. */
static lt_status repeat_orthogonalization(muon *m, matrix *x, lt_tensor *gram)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&m->base, &ctx);
    batch b = {.end = 1};
    m->due[0] = x;
    LT_TRY(orthogonalize_momenta(m, &b));
    const lt_gram_job job = {
        .g = scratch_matrix(m, x, b.x), .f = lt_tensor_view(gram), .dim = x->dim, .alpha = 1};
    return be->gram(ctx, &job, 1, m->base.scalars);
}

static lt_status measure_matrix(lt_optim *self, const lt_slot *slot, size_t block, int dim,
                                lt_optim_factor *out)
{
    muon *m = (muon *)self;
    const matrix *found = find_part(m, slot, block);
    LT_ASSERT(found); /* describe_matrix() has shown it */
    matrix x = *found;
    lt_tensor *temporary = NULL, **state = &x.slot->state[0];
    const bool quantized = !*state;
    (void)dim;
    out->age = -1;
    out->epsilon = out->residual = (double)NAN;
    if (out->numbers_only)
        return LT_OK;
    x.at = 0;
    LT_TRY(lt_optim_expand_state(slot, 0, &temporary, state));
    lt_status st = lt_tensor_new(&out->temporary[0], self->device,
                                 lt_device_master_dtype(self->device), LT_SHAPE(x.small, x.small));
    if (!st)
        st = repeat_orthogonalization(m, &x, out->temporary[0]);
    out->matrix = out->temporary[0];
    *state = quantized ? NULL : *state;
    lt_tensor_free(&temporary);
    return st;
}

static lt_update_size update_size(const lt_optim *self, const lt_slot *slot)
{
    const muon *m = (const muon *)self;
    const matrix *x = find_matrix(m, slot);
    const double elements = x ? (double)(x->rows * x->cols) : 1;
    return (lt_update_size){0.5, x ? length_of_update(m, x) : 1, elements, LT_DECAY_DECOUPLED};
}

static double decay_lr(const lt_optim *self, const lt_slot *slot)
{
    const muon *m = (const muon *)self;
    return m->adamw[slot - self->slot] ? m->config.adamw_lr_scale : 1;
}

/* shape: that of states of NorMuon, which are not quantized */
#define OPS(shape)                                                                               \
    {                                                                                            \
        .name = "muon", .bytes = sizeof(muon), .slot_state = {"m", "v"}, .has_state = has_state, \
        .decay_lr = decay_lr, .nanoseconds = estimate_nanoseconds, .step = step,                 \
        .by_entries = true, .by_slots = true, .positive_state = 1U << 1,                         \
        .is_capturable = is_capturable, .stat_name = {"m_over_sqrt_v"}, .stats = measure_rule,   \
        .stat_block = describe_matrix, .describe = describe_rule, .stat_factor = measure_matrix, \
        .update_size = update_size, .destroy = destroy, .state_shape = (shape),                  \
    }
static const lt_optim_ops ops = OPS(NULL), with_outputs = OPS(state_shape);

static lt_status check_backend(const lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    LT_TRY(lt_optim_require_kernel(o, be->adam != NULL, "adam"));
    LT_TRY(lt_optim_require_kernel(o, be->vec != NULL, "vec"));
    LT_TRY(lt_optim_require_kernel(o, be->gram != NULL, "gram"));
    LT_TRY(lt_optim_require_kernel(o, be->mode_product != NULL, "mode_product"));
    return lt_optim_require_kernel(o, be->frobenius != NULL, "frobenius");
}

static lt_status init_muon(muon *m)
{
    LT_TRY(check_backend(&m->base));
    LT_TRY(LT_ALLOC(&m->adamw, m->base.count));
    LT_TRY(lt_optim_count_per_param(&m->base));
    LT_TRY(lt_muon_list_matrices(&m->config, &m->base, m->adamw, &m->matrix, &m->count));
    LT_TRY(LT_ALLOC(&m->due, m->count));
    LT_TRY(LT_ALLOC(&m->vec, m->count));
    return LT_ALLOC(&m->job, m->count);
}

lt_status lt_muon_new(lt_optim **out, const lt_params *params, const lt_muon_config *c)
{
    lt_optim *o = NULL;
    LT_TRY(lt_optim_new(&o, c->moment == LT_MUON_OF_OUTPUTS ? &with_outputs : &ops, params,
                        c->weight_decay, c->decay_scope));
    muon *m = (muon *)o;
    m->config = *c;
    m->moment = (lt_second_moment){.beta2 = c->beta2, .eps = c->eps};
    m->kernel = (lt_adam_kernel){c->beta1, c->beta2, c->eps, true};
    lt_status st = init_muon(m);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

bool lt_muon_has_matrix(const lt_optim *optim, const char *param)
{
    const muon *m = (const muon *)optim;
    for (size_t i = 0; optim->ops->step == step && i < m->count; i++)
        if (!strcmp(m->matrix[i].slot->param->name, param))
            return true;
    return false;
}

double lt_muon_seconds(const lt_optim *optim)
{
    const muon *m = (const muon *)optim;
    if (optim->ops->step != step)
        return (double)NAN;
    return m->timed == optim->attempt ? m->seconds : 0;
}
