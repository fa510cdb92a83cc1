/* Distributed Shampoo: blocks, the order of a step, state.
 * Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the Distributed Shampoo
 * Optimizer for Training Neural Networks At-Scale", 2023 (arXiv 2309.06497), section 3. */

#include "optim/shampoo/shampoo.h"

#include "base/alloc.h"
#include "base/trace.h"

/* Elements of a batch, unless a single block has more: 8 MiB of f32 for each scratch tensor. */
static const int64_t batch_elements = (int64_t)1 << 21;

/* --- Making blocks --- */

static double exponent_of(const lt_shampoo_config *c, int order, int dim)
{
    const lt_exponents *e = &c->inverse_exponent;
    if (c->preconditioner == LT_PRECONDITIONER_CORRECTED) /* one for the whole block */
        return e->set[order][0] ? e->value[order][0] : 0.5;
    return e->set[order][dim] ? e->value[order][dim] : 1.0 / (2.0 * order);
}

static lt_status make_tensor(lt_tensor **out, const lt_shampoo *s, lt_shape shape)
{
    return lt_tensor_new(out, s->base.device, lt_device_master(s->base.device), shape);
}

/* An exponent of 0 leaves a dimension alone. With the eigenvalue correction a dimension may also
 * keep its own basis; vectors then have a second moment there already. */
static void plan_dim(const lt_shampoo_config *c, lt_block *b, int d)
{
    const int order = b->box.shape.ndim;
    const bool corrected = c->preconditioner == LT_PRECONDITIONER_CORRECTED;
    const bool diagonal = lt_shampoo_is_diagonal(c, b->box.shape);
    lt_factor *f = &b->factor[d];
    f->exponent = exponent_of(c, order, d);
    if (!(f->exponent > 0) || (corrected && (diagonal || c->ignored_basis_change_dims[order][d])))
        return;
    f->is_matrix = !diagonal;
    f->is_diagonal = diagonal;
}

void lt_block_plan(const lt_shampoo_config *c, lt_block *b)
{
    for (int d = 0; d < b->box.shape.ndim; d++)
        plan_dim(c, b, d);
}

static void make_blocks(lt_shampoo *s)
{
    const lt_shampoo_config *c = &s->config;
    size_t n = 0;
    for (size_t i = 0; i < s->base.count; i++) {
        const lt_shape merged = s->merged[i].shape;
        int64_t count = lt_box_count(merged, c->max_preconditioner_dim);
        for (int64_t k = 0; k < count; k++) {
            lt_block *b = &s->block[n];
            b->slot = &s->base.slot[i];
            b->index = (int)k;
            b->merged = &s->merged[i];
            b->box = lt_box_at(merged, c->max_preconditioner_dim, k);
            b->number = n;
            s->place[n] = n;
            lt_block_plan(c, b);
            n++;
        }
    }
}

/* Whether the solver can take the roots of all blocks, here or at their owners. */
static lt_status check_roots(const lt_shampoo *s)
{
    for (size_t i = 0; i < s->count; i++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (s->block[i].factor[d].is_matrix)
                LT_TRY(lt_root_check(&s->config, s->block[i].factor[d].exponent));
    return LT_OK;
}

/* Cuts this rank's list of blocks into batches; returns the elements of the largest. */
static int64_t make_batches(lt_shampoo *s)
{
    int64_t largest = 0, used = 0;
    s->batches = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t n = lt_shape_count(s->block[i].box.shape);
        if (!s->batches || used + n > batch_elements) {
            s->batch[s->batches++] = (lt_block_batch){i, i};
            used = 0;
        }
        s->block[i].scratch = used;
        s->batch[s->batches - 1].end = i + 1;
        used += n;
        largest = used > largest ? used : largest;
    }
    return largest;
}

static lt_status make_lists(lt_shampoo *s)
{
    const lt_shampoo_config *c = &s->config;
    s->merged = lt_alloc(s->base.count, sizeof *s->merged);
    if (!s->merged)
        return LT_E_NOMEM;
    for (size_t i = 0; i < s->base.count; i++) {
        const lt_shape shape = lt_tensor_shape(s->base.slot[i].param->value);
        s->merged[i] = lt_merge_shape(shape, c->max_preconditioner_dim, c->target_dimensionality,
                                      c->merge_order);
        s->total += (size_t)lt_box_count(s->merged[i].shape, c->max_preconditioner_dim);
    }
    const size_t jobs = s->total * LT_MAX_DIMS;
    s->count = s->total;
    s->place = lt_alloc(s->total, sizeof *s->place);
    s->block = lt_alloc(s->total, sizeof *s->block);
    s->batch = lt_alloc(s->total, sizeof *s->batch);
    s->vec = lt_alloc(jobs, sizeof *s->vec);
    s->list = lt_alloc(s->total, sizeof *s->list);
    s->view = lt_alloc(jobs, sizeof *s->view);
    s->gram = lt_alloc(jobs, sizeof *s->gram);
    s->product = lt_alloc(s->total, sizeof *s->product);
    bool ok =
        s->place && s->block && s->batch && s->vec && s->list && s->view && s->gram && s->product;
    return ok ? LT_OK : LT_E_NOMEM;
}

static lt_status check_backend(const lt_shampoo *s)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    LT_TRY(lt_optim_need(&s->base, be->vec != NULL, "vec"));
    LT_TRY(lt_optim_need(&s->base, be->gram != NULL, "gram"));
    LT_TRY(lt_optim_need(&s->base, be->mode_product != NULL, "mode_product"));
    LT_TRY(lt_optim_need(&s->base, be->eigh != NULL, "eigh"));
    return lt_optim_need(&s->base, be->frobenius != NULL, "frobenius");
}

static lt_status build(lt_shampoo *s)
{
    LT_TRY(check_backend(s));
    LT_TRY(make_lists(s));
    LT_TRY(make_tensor(&s->one, s, LT_SHAPE(1)));
    LT_TRY(lt_tensor_fill(s->one, 1));
    LT_TRY(lt_tensor_new(&s->norms, s->base.device, LT_F64,
                         LT_SHAPE((int64_t)s->total * LT_MAX_DIMS)));
    make_blocks(s);
    LT_TRY(check_roots(s));
    return lt_shampoo_stagger(s);
}

lt_status lt_shampoo_prepare(lt_shampoo *s)
{
    if (s->ready)
        return LT_OK;
    LT_TRY(lt_shampoo_make_state(s));
    int64_t elements = make_batches(s);
    for (int i = 0; i < LT_SCRATCHES && elements; i++)
        if (!s->scratch[i] && (i != LT_SCRATCH_U || s->config.beta1 > 0))
            LT_TRY(make_tensor(&s->scratch[i], s, LT_SHAPE(elements)));
    s->ready = true;
    return LT_OK;
}

/* --- A step --- */

static lt_view scratch_view(const lt_shampoo *s, const lt_block *b, int which)
{
    if (!s->scratch[which])
        return (lt_view){0};
    lt_view v = lt_tensor_view(s->scratch[which]);
    v.data = (char *)v.data + (size_t)b->scratch * lt_dtype_size(v.dtype);
    v.shape = b->box.shape;
    lt_block_strides(b, v.stride);
    v.version = 0;
    return v;
}

static bool gather(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->factor.grad_scale = true;
    job->a = lt_block_of(b, b->slot->param->grad);
    job->y = lt_block_view(b, &b->g);
    return true;
}

static bool add_decay(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (s->config.decay_type != LT_DECAY_L2)
        return false;
    job->alpha = b->slot->weight_decay;
    job->beta = 1;
    job->a = lt_block_of(b, b->slot->param->value);
    job->y = lt_block_view(b, &b->g);
    return b->slot->weight_decay > 0;
}

lt_status lt_shampoo_begin_batch(lt_shampoo *s, lt_block_batch batch)
{
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        b->active = b->slot->param->has_grad;
        b->g = scratch_view(s, b, LT_SCRATCH_G);
        b->u = scratch_view(s, b, LT_SCRATCH_U);
        b->buffer[0] = scratch_view(s, b, LT_SCRATCH_A);
        b->buffer[1] = scratch_view(s, b, LT_SCRATCH_B);
        b->spare = 0;
    }
    lt_vec_rule *const rules[] = {gather, add_decay};
    return lt_shampoo_vecs(s, batch, rules, 2);
}

lt_status lt_shampoo_before_roots(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    LT_TRY(lt_shampoo_begin_batch(s, batch));
    LT_TRY(lt_shampoo_update_factors(s, batch));
    lt_shampoo_took(begin, &s->stats.factor_seconds, "shampoo factors");
    return LT_OK;
}

lt_status lt_shampoo_after_roots(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    LT_TRY(lt_shampoo_direction(s, batch));
    LT_TRY(lt_shampoo_update(s, batch));
    lt_shampoo_took(begin, &s->stats.apply_seconds, "shampoo apply");
    return LT_OK;
}

/* All factors first, then all roots, matrices of one size together, then all directions. */
static lt_status finish_after_refresh(lt_shampoo *s)
{
    LT_TRY(lt_shampoo_refresh(s, (lt_block_batch){0, s->count}));
    for (size_t i = 0; i < s->batches; i++) {
        if (s->batches > 1) /* else the gradient is still there */
            LT_TRY(lt_shampoo_begin_batch(s, s->batch[i]));
        LT_TRY(lt_shampoo_after_roots(s, s->batch[i]));
    }
    return LT_OK;
}

static lt_status step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    lt_shampoo *s = (lt_shampoo *)self;
    void *ctx;
    lt_shampoo_start_stats(s);
    LT_TRY(lt_shampoo_prepare(s));
    if (!lt_optim_backend(self, &ctx)->host_memory)
        return lt_shampoo_queue_step(s);
    LT_TRY(lt_shampoo_swap(s));
    lt_due due = lt_shampoo_plan(s);
    for (size_t i = 0; i < s->batches; i++) {
        LT_TRY(lt_shampoo_before_roots(s, s->batch[i]));
        if (due == LT_DUE_SOME)
            LT_TRY(lt_shampoo_refresh(s, s->batch[i]));
        if (due != LT_DUE_ALL)
            LT_TRY(lt_shampoo_after_roots(s, s->batch[i]));
    }
    if (due == LT_DUE_ALL)
        LT_TRY(finish_after_refresh(s));
    return lt_shampoo_starts_async(s) ? lt_shampoo_start_async(s) : LT_OK;
}

/* --- The table --- */

static void destroy(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    lt_shampoo_cancel_async(s);
    lt_shampoo_free_state(s);
    for (int i = 0; i < LT_SCRATCHES; i++)
        lt_tensor_free(&s->scratch[i]);
    lt_tensor_free(&s->norms);
    lt_tensor_free(&s->one);
    lt_free(s->product);
    lt_free(s->gram);
    lt_free(s->view);
    lt_free(s->vec);
    lt_free(s->list);
    lt_free(s->batch);
    lt_free(s->block);
    lt_free(s->place);
    lt_free(s->merged);
}

static const lt_optim_ops ops = {
    .name = "shampoo",
    .bytes = sizeof(lt_shampoo),
    .step = step,
    .by_entries = true,
    .is_capturable = lt_shampoo_is_capturable,
    .host_phase = &lt_shampoo_host_phase,
    .visit = lt_shampoo_visit,
    .state_bytes = lt_shampoo_state_bytes,
    .destroy = destroy,
    .parts = &lt_shampoo_parts,
};

lt_status lt_optim_shampoo(lt_optim **out, const lt_params *params, const lt_shampoo_config *config)
{
    lt_shampoo_config c = config ? *config : LT_SHAMPOO_DEFAULTS;
    LT_TRY(lt_shampoo_check(&c));
    lt_optim *o = NULL;
    LT_TRY(lt_optim_new(&o, &ops, params, c.weight_decay, c.decay_scope));
    lt_shampoo *s = (lt_shampoo *)o;
    s->config = c;
    lt_status st = build(s);
    if (st) {
        lt_optim_free(&o);
        return st;
    }
    *out = o;
    return LT_OK;
}

bool lt_is_shampoo(const lt_optim *optim)
{
    return optim->ops == &ops;
}

const lt_shampoo_config *lt_shampoo_settings(const lt_optim *optim)
{
    return lt_is_shampoo(optim) ? &((const lt_shampoo *)optim)->config : NULL;
}

lt_block *lt_shampoo_block_number(const lt_shampoo *s, size_t number)
{
    return &s->block[s->place[number]];
}

lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index, lt_shampoo_block *out)
{
    if (!lt_is_shampoo(optim))
        return lt_fail(LT_E_ARG, "shampoo: %s has no blocks", optim->ops->name);
    const lt_shampoo *s = (const lt_shampoo *)optim;
    if (index >= s->total)
        return LT_END;
    lt_block *b = lt_shampoo_block_number(s, index);
    *out = (lt_shampoo_block){
        .param = b->slot->param->name,
        .block = b->index,
        .shape = b->box.shape,
        .factor_bytes = lt_shampoo_block_bytes(s, b, true),
        .state_bytes = lt_shampoo_block_bytes(s, b, false),
        .step_ns = lt_block_step_nanoseconds(&s->config, b),
        .refresh_ns = lt_block_refresh_nanoseconds(b),
        .owner = b->owner,
    };
    for (int d = 0; d < out->shape.ndim; d++)
        out->factors += b->factor[d].is_matrix;
    return LT_OK;
}

/* --- Statistics. On a device with a queue seconds are those of queueing. --- */

void lt_shampoo_start_stats(lt_shampoo *s)
{
    s->stats = (lt_shampoo_stats){0};
    s->stats_step = s->base.attempt;
}

int64_t lt_shampoo_took(int64_t begin, double *seconds, const char *name)
{
    int64_t now = lt_clock_nanoseconds();
    *seconds += (double)(now - begin) * 1e-9;
    if (atomic_load_explicit(&lt_trace_on, memory_order_relaxed))
        lt_trace_record(begin, LT_PROFILE_OPTIM, name, 0);
    return now;
}

/* Steps since the factors of the oldest root in use. */
static int64_t age_of_roots(const lt_shampoo *s)
{
    int64_t age = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t rooted = s->block[i].rooted;
        if (rooted && s->base.attempt - rooted > age)
            age = s->base.attempt - rooted;
    }
    return age;
}

lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim)
{
    lt_shampoo_stats stats = {0};
    if (!lt_is_shampoo(optim))
        return stats;
    const lt_shampoo *s = (const lt_shampoo *)optim;
    if (s->stats_step == s->base.attempt) /* else the step was skipped */
        stats = s->stats;
    if (s->base.shard)
        stats.gather_seconds = s->base.shard->seconds;
    stats.root_age = age_of_roots(s);
    return stats;
}
