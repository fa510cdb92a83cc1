/* A step over all blocks. On a device with a stream the work between refreshes is the same in each
 * step, with changing numbers read on the device, so that it can be captured as one graph. A step in
 * which the host has work, a refresh or a swap, has two such parts with the host between them:
 *
 *   first    factors
 *   host     swap in pending roots; refresh roots that are due; pass factors to the worker thread
 *   second   preconditioned gradients and weights
 *
 * Solvers read residuals and eigenvalues back, so the host synchronizes there; with LT_REFRESH_ASYNC
 * the worker thread does. A skipped step skips the host part, whose work is then due in the next step.
 *
 * With sharded state the step is one graph too between refreshes, including the exchange; a step that
 * refreshes roots on this rank is not captured. */

#include "base/trace.h"
#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/shampoo.h"
#include "optim/shampoo/state.h"
#include "optim/shampoo/state_store.h"
#include "optim/slots.h"

/* Most elements of a batch (a single block may exceed it): 8 MiB of f32 per workspace tensor, which fits a CPU's
 * caches; on a device with a stream 128 MiB, all blocks of ResNet-50, as a batch is one round of launches whatever
 * its size. */
static const int64_t host_elements = (int64_t)1 << 21, device_elements = (int64_t)1 << 25;

/* Splits this rank's list of blocks into batches; returns the elements of the largest. */
static int64_t make_batches(lt_shampoo *s)
{
    void *ctx;
    const bool host_memory = lt_optim_backend(&s->base, &ctx)->host_memory;
    const int64_t batch_elements = host_memory ? host_elements : device_elements;
    int64_t largest = 0, used = 0, all_dequantized = 0;
    s->batches = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t n = lt_shape_count(s->block[i].region.shape);
        const int64_t dequantized = lt_shampoo_dequantized_elements(s, &s->block[i]);
        if (!s->batches || used + n > batch_elements
            || all_dequantized + dequantized > batch_elements) {
            s->batch[s->batches++] = (lt_block_batch){i, i};
            used = all_dequantized = 0;
        }
        s->block[i].scratch = used;
        s->batch[s->batches - 1].end = i + 1;
        used += n;
        all_dequantized += dequantized;
        largest = used > largest ? used : largest;
    }
    return largest;
}

static lt_status allocate_workspace(lt_shampoo *s)
{
    if (s->ready)
        return LT_OK;
    LT_TRY(lt_shampoo_make_state(s));
    int64_t elements = make_batches(s);
    for (int i = 0; i < LT_SCRATCHES && elements; i++)
        if (!s->scratch[i] && (i != LT_SCRATCH_U || s->config.beta1 > 0))
            LT_TRY(lt_tensor_new(&s->scratch[i], s->base.device,
                                 lt_device_master_dtype(s->base.device), LT_SHAPE(elements)));
    s->ready = true;
    return LT_OK;
}

static lt_view scratch_view(const lt_shampoo *s, const lt_block *b, int which)
{
    if (!s->scratch[which])
        return (lt_view){0};
    lt_view v = lt_tensor_view(s->scratch[which]);
    v.data = (char *)v.data + (size_t)b->scratch * lt_dtype_size(v.dtype);
    v.shape = b->region.shape;
    lt_block_compute_strides(b, v.stride);
    v.version = 0;
    return v;
}

static bool gather_gradient(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->factor.grad_scale = true;
    job->a = lt_block_grad(b);
    job->y = lt_block_unmerged_view(b, &b->g);
    return true;
}

static bool add_decay(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (s->config.decay_type != LT_DECAY_L2)
        return false;
    job->alpha = b->slot->weight_decay;
    job->beta = 1;
    job->a = lt_block_value(b);
    job->y = lt_block_unmerged_view(b, &b->g);
    return b->slot->weight_decay > 0;
}

static lt_status gather_batch_gradients(lt_shampoo *s, lt_block_batch batch)
{
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        b->active = b->slot->param->has_grad;
        b->g = scratch_view(s, b, LT_SCRATCH_G);
        b->u = scratch_view(s, b, LT_SCRATCH_U);
        b->buffer[0] = scratch_view(s, b, LT_SCRATCH_A);
        b->buffer[1] = scratch_view(s, b, LT_SCRATCH_B);
        b->output = 0;
    }
    lt_vec_rule *const rules[] = {gather_gradient, add_decay};
    return lt_shampoo_run_rules(s, batch, rules, 2, false);
}

/* Runs the phases before the batch's inverse roots are refreshed. */
static lt_status gather_and_update_factors(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    LT_TRY(gather_batch_gradients(s, batch));
    LT_TRY(lt_shampoo_update_factors(s, batch));
    lt_shampoo_add_time(begin, &s->stats.factor_seconds, "shampoo factors");
    return LT_OK;
}

static lt_status precondition_and_update(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    const int used = lt_shampoo_is_before_start(s) ? 0 : LT_STORED_ROOTS;
    const int moments = LT_STORED_VECTORS | LT_STORED_DIAGONALS;
    LT_TRY(lt_shampoo_dequantize(s, batch, moments | used));
    LT_TRY(lt_shampoo_precondition_gradient(s, batch));
    LT_TRY(lt_shampoo_update_params(s, batch));
    lt_shampoo_discard_dequantized(s, batch, used);
    lt_shampoo_requantize(s, batch, moments);
    lt_shampoo_add_time(begin, &s->stats.apply_seconds, "shampoo apply");
    return LT_OK;
}

static bool host_has_work(const lt_shampoo *s)
{
    return lt_shampoo_has_due_blocks(s) || lt_shampoo_has_due_swap(s)
           || lt_shampoo_is_async_start_due(s);
}

/* KL factors read the roots, so pending ones must be swapped in first. */
static bool must_swap_before_factors(const lt_shampoo *s)
{
    return lt_shampoo_is_kl(&s->config) && lt_shampoo_has_due_swap(s);
}

/* Returns false before the first roots, when the work differs, and in the first step, which allocates. */
static bool is_past_first_roots(const lt_shampoo *s)
{
    return s->ready && !lt_shampoo_is_before_start(s);
}

bool lt_shampoo_is_capturable(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    if (lt_shampoo_orthogonalizes(&s->config)
        && !(s->spectral && lt_orthogonal_is_capturable(&s->config.orthogonalization)))
        return false;
    return is_past_first_roots(s) && !host_has_work(s);
}

static bool has_host_phase(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    return is_past_first_roots(s) && host_has_work(s) && !must_swap_before_factors(s);
}

/* Resets the statistics in the first part of a step that runs; the other parts may be graph replays. */
static void reset_stats_once_per_step(lt_shampoo *s)
{
    if (s->stats_step != s->base.attempt)
        lt_shampoo_start_stats(s);
}

static lt_status run_first_phase(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    reset_stats_once_per_step(s);
    LT_TRY(allocate_workspace(s));
    for (size_t i = 0; i < s->batches; i++)
        LT_TRY(gather_and_update_factors(s, s->batch[i]));
    return LT_OK;
}

static lt_status run_host_phase(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    reset_stats_once_per_step(s);
    LT_TRY(lt_shampoo_swap_in_roots(s));
    if (lt_shampoo_mark_due_blocks(s) != LT_DUE_NONE)
        LT_TRY(lt_shampoo_refresh_roots(s, (lt_block_batch){0, s->count}));
    return lt_shampoo_is_async_start_due(s) ? lt_shampoo_start_async(s) : LT_OK;
}

static lt_status run_second_phase(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    for (size_t i = 0; i < s->batches; i++) {
        if (s->batches > 1) /* otherwise the gradient is still gathered */
            LT_TRY(gather_batch_gradients(s, s->batch[i]));
        LT_TRY(precondition_and_update(s, s->batch[i]));
    }
    return LT_OK;
}

const lt_host_phase_ops lt_shampoo_host_phase = {has_host_phase, run_first_phase, run_host_phase,
                                                 run_second_phase};

static lt_status run_step_without_host_work(lt_shampoo *s)
{
    for (size_t i = 0; i < s->batches; i++) {
        LT_TRY(gather_and_update_factors(s, s->batch[i]));
        LT_TRY(precondition_and_update(s, s->batch[i]));
    }
    return LT_OK;
}

/* Runs the step of a device with a stream eagerly. */
static lt_status run_step_eagerly(lt_shampoo *s)
{
    lt_scalars scalars;
    if (!host_has_work(s))
        return run_step_without_host_work(s);
    LT_TRY(lt_optim_read_scalars(&s->base, &scalars));
    if (!scalars.finite)
        return run_step_without_host_work(s);
    if (must_swap_before_factors(s))
        LT_TRY(lt_shampoo_swap_in_roots(s));
    LT_TRY(run_first_phase(&s->base));
    LT_TRY(run_host_phase(&s->base));
    return run_second_phase(&s->base);
}

lt_status lt_shampoo_step(lt_optim *self, const lt_scalars *scalars)
{
    (void)scalars; /* kernels read self->scalars */
    lt_shampoo *s = (lt_shampoo *)self;
    void *ctx;
    lt_shampoo_start_stats(s);
    LT_TRY(allocate_workspace(s));
    if (!lt_optim_backend(self, &ctx)->host_memory)
        return run_step_eagerly(s);
    LT_TRY(lt_shampoo_swap_in_roots(s));
    lt_due due = lt_shampoo_mark_due_blocks(s);
    for (size_t i = 0; i < s->batches; i++) {
        LT_TRY(gather_and_update_factors(s, s->batch[i]));
        if (due == LT_DUE_SOME)
            LT_TRY(lt_shampoo_refresh_roots(s, s->batch[i]));
        if (due != LT_DUE_ALL)
            LT_TRY(precondition_and_update(s, s->batch[i]));
    }
    if (due == LT_DUE_ALL) { /* batches matrices of one size from all blocks */
        LT_TRY(lt_shampoo_refresh_roots(s, (lt_block_batch){0, s->count}));
        LT_TRY(run_second_phase(self));
    }
    return lt_shampoo_is_async_start_due(s) ? lt_shampoo_start_async(s) : LT_OK;
}
