/* Shampoo's entries for --optim-stats: rules and grafting ratios of blocks, and their factors. */

#include "optim/shampoo/optim_stats.h"

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/shampoo/root/work_matrices.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include <math.h>

/* Returns the block of a slot, or NULL past the last; a slot's blocks have consecutive numbers. */
static lt_block *find_block(const lt_shampoo *s, const lt_slot *slot, size_t index)
{
    size_t first = 0;
    for (const lt_slot *before = s->base.slot; before < slot; before++)
        first += (size_t)lt_partition_count_blocks(&s->partition[before - s->base.slot]);
    const lt_partition *partition = &s->partition[slot - s->base.slot];
    return index < (size_t)lt_partition_count_blocks(partition)
               ? lt_shampoo_block_number(s, first + index)
               : NULL;
}

static bool has_matrix(const lt_block *b)
{
    bool any = false;
    for (int d = 0; d < b->region.shape.ndim; d++)
        any = any || b->factor[d].is_matrix;
    return any;
}

/* Returns the rule of a block with factors, or of one whose dimensions have none. */
static lt_optim_rule rule_by_factors(const lt_shampoo *s, const lt_block *b, bool has_roots)
{
    const lt_shampoo_config *c = &s->config;
    if (lt_shampoo_is_orthogonalized(&s->config, b))
        return LT_RULE_ORTHOGONAL;
    if (lt_shampoo_is_corrected(c))
        return has_roots ? LT_RULE_EIGENBASIS : LT_RULE_DIAGONAL;
    if (b->factor[0].is_diagonal)
        return LT_RULE_DIAGONAL;
    return has_roots                         ? LT_RULE_ROOT
           : c->grafting == LT_GRAFTING_NONE ? LT_RULE_NONE
                                             : LT_RULE_GRAFTED;
}

/* Returns the rule of an update now or, with `begun`, of one after the first roots. */
static lt_optim_rule rule_of(const lt_shampoo *s, const lt_block *b, bool begun)
{
    const lt_shampoo_config *c = &s->config;
    if (c->preconditioner == LT_PRECONDITIONER_SPECTRAL)
        return LT_RULE_ORTHOGONAL;
    if (c->preconditioner == LT_PRECONDITIONER_SIGN)
        return LT_RULE_SIGN;
    if (!begun && lt_shampoo_is_before_start(s))
        return c->grafting == LT_GRAFTING_NONE ? LT_RULE_NONE : LT_RULE_GRAFTED;
    return rule_by_factors(s, b, has_matrix(b) && (begun || b->root_step));
}

void lt_shampoo_describe(const lt_optim *self, const lt_slot *slot, lt_param_rule *out)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    const lt_block *b = find_block(s, slot, 0);
    if (b)
        out->rule = lt_optim_rule_name(rule_of(s, b, true));
}

bool lt_shampoo_stat_block(const lt_optim *self, const lt_slot *slot, size_t block,
                           lt_optim_block *out)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    lt_block *b = find_block(s, slot, block);
    if (!b)
        return false;
    *out = (lt_optim_block){.shape = b->region.shape,
                            .owner = b->owner,
                            .rule = rule_of(s, b, false),
                            .graft_ratio = (double)NAN};
    lt_block_region(b, &out->offset, &out->extent);
    for (int d = 0; d < LT_MAX_DIMS; d++)
        out->has_factor[d] = b->factor[d].is_matrix;
    if (b->slot->updates && s->spec[b->number] < s->count)
        out->graft_ratio = lt_shampoo_graft_ratio(s, b);
    return true;
}

/* Returns the factor by which a matrix is multiplied before its root is computed: trace_scaling. */
static lt_status read_trace_scale(const lt_shampoo *s, const lt_tensor *matrix, int64_t n,
                                  double *scale)
{
    const lt_view view = lt_tensor_view(matrix), diagonal = lt_root_diagonal_view(&view);
    double trace = 0, *host = lt_alloc((size_t)n, sizeof *host);
    lt_status st = host ? lt_root_read_vector(s->base.device, &diagonal, host) : LT_E_NOMEM;
    for (int64_t i = 0; i < n && !st; i++)
        trace += host[i];
    lt_free(host);
    *scale = lt_root_trace_scale(&s->config, trace);
    return st;
}

/* Makes the matrix of which a root would be computed now: bias-corrected, and scaled. */
static lt_status copy_matrix(const lt_shampoo *s, const lt_block *b, const lt_tensor *gram,
                             lt_tensor **out)
{
    double scale = 1;
    LT_TRY(lt_tensor_new_like(out, gram, lt_tensor_dtype(gram)));
    lt_vec_job job = {.op = LT_VEC_AXPBY,
                      .alpha = 1,
                      .factor = lt_shampoo_factor_bias(s, b),
                      .a = lt_tensor_view(gram),
                      .y = lt_tensor_view(*out)};
    LT_TRY(lt_optim_run_vec_jobs(&s->base, &job, 1));
    if (!(s->config.trace_scaling > 0))
        return LT_OK;
    LT_TRY(read_trace_scale(s, *out, lt_tensor_shape(gram).dim[0], &scale));
    job = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = scale, .a = job.y, .y = job.y};
    return lt_optim_run_vec_jobs(&s->base, &job, 1);
}

static lt_status expand_matrix(const lt_shampoo *s, const lt_block *b, const lt_factor *f,
                               lt_optim_factor *out)
{
    lt_tensor *dense = NULL;
    if (f->gram_store)
        LT_TRY(lt_quantized_dequantize(f->gram_store, &dense));
    lt_status st = copy_matrix(s, b, dense ? dense : f->gram, &out->temporary[0]);
    out->matrix = out->temporary[0];
    lt_tensor_free(&dense);
    return st;
}

static lt_status expand_basis(const lt_shampoo *s, const lt_block *b, const lt_factor *f,
                              lt_optim_factor *out)
{
    const bool keeps_basis =
        lt_shampoo_is_corrected(&s->config) || lt_shampoo_has_powers(&s->config);
    if (!keeps_basis || !b->root_step)
        return LT_OK;
    if (f->root_store)
        LT_TRY(lt_quantized_dequantize(f->root_store, &out->temporary[1]));
    out->basis = f->root_store ? out->temporary[1] : f->root;
    return LT_OK;
}

lt_status lt_shampoo_stat_factor(lt_optim *self, const lt_slot *slot, size_t block, int dim,
                                 lt_optim_factor *out)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    const lt_shampoo_config *c = &s->config;
    const lt_block *b = find_block(s, slot, block);
    LT_ASSERT(b);
    const lt_factor *f = &b->factor[dim];
    out->epsilon = c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE ? (double)NAN : c->epsilon;
    out->is_relative = c->epsilon_rule == LT_EPSILON_RELATIVE;
    if (!lt_shampoo_has_powers(c) && lt_shampoo_is_corrected(c)) /* a basis is not damped */
        out->epsilon = (double)NAN;
    out->age = b->root_step ? self->attempt - b->root_step : -1;
    out->residual = b->root_step && f->residual >= 0 ? f->residual : (double)NAN;
    out->failures = f->failures;
    if (out->numbers_only || (!f->gram && !f->gram_store))
        return LT_OK;
    LT_TRY(expand_matrix(s, b, f, out));
    return expand_basis(s, b, f, out);
}
