/* Distributed Shampoo: construction, and its table of operations. Shi et al., "A Distributed Data-Parallel PyTorch
 * Implementation of the Distributed Shampoo Optimizer for Training Neural Networks At-Scale", 2023 (arXiv
 * 2309.06497), section 3. */

#include "optim/shampoo/optimizer.h"

#include "base/alloc.h"
#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/assign.h"
#include "optim/shampoo/optim_stats.h"
#include "optim/shampoo/phases.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/state.h"
#include "tensor/tensor.h"

#include <inttypes.h>

/* --- Making blocks --- */

static void make_blocks(lt_shampoo *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->base.count; i++) {
        const int64_t count = lt_partition_count_blocks(&s->partition[i]);
        for (int64_t k = 0; k < count; k++) {
            const lt_partition_block what = lt_partition_block_at(&s->partition[i], k);
            lt_block *b = &s->block[n];
            b->slot = &s->base.slot[i];
            b->index = (int)k;
            b->partition = &s->partition[i];
            b->part = what.part;
            b->region = what.region;
            b->number = n;
            s->spec[n] = n;
            lt_block_choose_factors(&s->config, b);
            s->has_diagonals = s->has_diagonals || b->factor[0].is_diagonal;
            n++;
        }
    }
}

/* Checks that the solver can compute the inverse roots of all blocks, whichever rank owns them. */
static lt_status check_solver_for_exponents(const lt_shampoo *s)
{
    for (size_t i = 0; i < s->count; i++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (s->block[i].factor[d].is_matrix)
                LT_TRY(lt_root_check(&s->config, s->block[i].factor[d].exponent, "shampoo"));
    return LT_OK;
}

static lt_status partition_and_allocate(lt_shampoo *s)
{
    LT_TRY(LT_ALLOC(&s->partition, s->base.count));
    LT_TRY(lt_partition_params(&s->config, &s->base, s->partition));
    for (size_t i = 0; i < s->base.count; i++)
        s->total += (size_t)lt_partition_count_blocks(&s->partition[i]);
    const size_t jobs = s->total * LT_MAX_DIMS;
    s->count = s->total;
    s->spec = lt_alloc(s->total, sizeof *s->spec);
    s->block = lt_alloc(s->total, sizeof *s->block);
    s->batch = lt_alloc(s->total, sizeof *s->batch);
    s->vec = lt_alloc(jobs, sizeof *s->vec);
    s->list = lt_alloc(s->total, sizeof *s->list);
    s->view = lt_alloc(jobs, sizeof *s->view);
    s->gram = lt_alloc(jobs, sizeof *s->gram);
    s->product = lt_alloc(s->total, sizeof *s->product);
    bool ok =
        s->spec && s->block && s->batch && s->vec && s->list && s->view && s->gram && s->product;
    return ok ? LT_OK : LT_E_NOMEM;
}

static lt_status check_backend(const lt_shampoo *s)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    LT_TRY(lt_optim_require_kernel(&s->base, be->vec != NULL, "vec"));
    LT_TRY(lt_optim_require_kernel(&s->base, be->gram != NULL, "gram"));
    LT_TRY(lt_optim_require_kernel(&s->base, be->mode_product != NULL, "mode_product"));
    LT_TRY(lt_optim_require_kernel(&s->base, be->eigh != NULL, "eigh"));
    return lt_optim_require_kernel(&s->base, be->frobenius != NULL, "frobenius");
}

/* Rejects options that need memory which the host can read: state stores, and factors that skip steps. */
static lt_status check_needs_host_memory(const lt_shampoo *s)
{
    const lt_shampoo_config *c = &s->config;
    void *ctx;
    if (c->factor_frequency > 1 && !lt_optim_backend(&s->base, &ctx)->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "shampoo: factor_frequency %" PRId64 " must be 1 on backend %s",
                       c->factor_frequency, s->base.device->backend->name);
    if (lt_shampoo_needs_host_diagonal(s) && !lt_optim_backend(&s->base, &ctx)->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "shampoo: epsilon_rule pseudo_inverse of diagonals or with "
                       "eigenvalue_corrected, and trace_scaling of diagonals, need the CPU: "
                       "backend %s has no kernel for them",
                       s->base.device->backend->name);
    if (!lt_shampoo_compresses_factors(c))
        return LT_OK;
    return lt_quantized_check_device(s->base.device, c->packed_factors ? "shampoo: packed_factors"
                                                                       : "shampoo: factor_dtype");
}

static lt_status init_shampoo(lt_shampoo *s)
{
    LT_TRY(check_backend(s));
    LT_TRY(partition_and_allocate(s));
    LT_TRY(lt_tensor_new(&s->one, s->base.device, lt_device_master_dtype(s->base.device),
                         LT_SHAPE(1)));
    LT_TRY(lt_tensor_fill(s->one, 1));
    LT_TRY(lt_tensor_new(&s->norms, s->base.device, LT_F64,
                         LT_SHAPE((int64_t)s->total * LT_MAX_DIMS)));
    make_blocks(s);
    LT_TRY(check_needs_host_memory(s));
    LT_TRY(check_solver_for_exponents(s));
    return lt_shampoo_assign_phases(s, lt_shampoo_refresh_elements(s->base.device));
}

/* --- The table --- */

static void destroy(lt_optim *self)
{
    lt_shampoo *s = (lt_shampoo *)self;
    lt_shampoo_cancel_async(s);
    lt_device_close(&s->async_device);
    lt_shampoo_free_state(s);
    for (int i = 0; i < LT_SCRATCHES; i++)
        lt_tensor_free(&s->scratch[i]);
    lt_tensor_free(&s->norms);
    lt_tensor_free(&s->one);
    if (s->spectral)
        lt_orthogonal_close(s->spectral);
    lt_free(s->spectral);
    lt_free(s->spectral_job);
    lt_free(s->product);
    lt_free(s->gram);
    lt_free(s->view);
    lt_free(s->vec);
    lt_free(s->list);
    lt_free(s->batch);
    lt_free(s->block);
    lt_free(s->spec);
    lt_free(s->partition);
}

/* A checkpoint is a barrier: pending roots are complete. */
static lt_status visit_state(lt_optim *self, lt_state_visitor *visitor)
{
    LT_TRY(lt_shampoo_wait_async((lt_shampoo *)self));
    return lt_shampoo_visit_state(self, visitor);
}

static double decay_lr(const lt_optim *self, const lt_slot *slot)
{
    (void)slot;
    return ((const lt_shampoo *)self)->config.decay_type == LT_DECAY_DECOUPLED ? 1 : (double)NAN;
}

static const lt_optim_ops ops = {
    .name = "shampoo",
    .bytes = sizeof(lt_shampoo),
    .step = lt_shampoo_step,
    .by_entries = true,
    .reads_rounded = true, /* gradients are read by step.c alone, as it gathers them */
    .by_slots = true,      /* moments are dequantized by batches: state_store.c */
    .is_capturable = lt_shampoo_is_capturable,
    .host_phase = &lt_shampoo_host_phase,
    .visit = visit_state,
    .state_bytes = lt_shampoo_state_bytes,
    .destroy = destroy,
    .stat_block = lt_shampoo_stat_block,
    .stat_factor = lt_shampoo_stat_factor,
    .describe = lt_shampoo_describe,
    .decay_lr = decay_lr,
    .parts = &lt_shampoo_parts,
    .update_size = lt_shampoo_update_size,
};

lt_status lt_shampoo_new(lt_optim **out, const lt_params *params, const lt_shampoo_config *config)
{
    lt_optim *o = NULL;
    LT_TRY(lt_optim_new(&o, &ops, params, config->weight_decay, config->decay_scope));
    lt_shampoo *s = (lt_shampoo *)o;
    s->config = *config;
    lt_status st = init_shampoo(s);
    if (!st && config->per_param_steps)
        st = lt_optim_count_per_param(o);
    if (st) {
        lt_optim_free(&o);
        return st;
    }
    *out = o;
    return LT_OK;
}

const lt_shampoo_config *lt_shampoo_settings(const lt_optim *optim)
{
    return optim->ops == &ops ? &((const lt_shampoo *)optim)->config : NULL;
}
