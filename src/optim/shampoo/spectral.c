/* Updates without factors, and SOAP-Muon's. Spectral descent replaces a block, as the matrix of its first
 * dimension and all others, by its orthogonal factor: Carlson et al., "Preconditioned spectral
 * descent for deep learning", NeurIPS 2015; Bernstein & Newhouse, "Old optimizer, new norm",
 * 2024. A vector is a matrix of one row. Sign descent: Bernstein et al., "signSGD", ICML 2018;
 * times the sum of magnitudes it is steepest descent in the maximum norm. SOAP-Muon orthogonalizes an update that was
 * divided by its second moment in an eigenbasis: Vyas, "Improving SOAP using iterative whitening and Muon", 2025. */

#include "base/alloc.h"
#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/slots.h"

#include <math.h>

/* Root mean square of AdamW's updates: Liu et al. 2025, section 2.2. */
static const double rms_of_adamw = 0.2;

/* --- Spectral descent --- */

bool lt_shampoo_is_orthogonalized(const lt_shampoo_config *c, const lt_block *b)
{
    return c->preconditioner == LT_PRECONDITIONER_SPECTRAL
           || (lt_shampoo_orthogonalizes(c) && b->region.shape.ndim > 1 && !b->partition->diagonal);
}

static bool copy_to_output_buffer(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (!lt_shampoo_is_orthogonalized(&s->config, b))
        return false;
    job->a = b->p;
    job->y = *lt_block_output_buffer(b);
    return true;
}

static int64_t rows_of(const lt_block *b)
{
    return b->region.shape.ndim > 1 ? b->region.shape.dim[0] : 1;
}

double lt_shampoo_spectral_scale(const lt_shampoo *s, const lt_block *b)
{
    const double rows = (double)rows_of(b);
    const double cols = (double)lt_shape_count(b->region.shape) / rows;
    const bool in_out = b->region.shape.ndim == 2 && lt_optim_weight_is_in_by_out(b->slot->param);
    if (s->config.spectral_scale == LT_SPECTRAL_NONE)
        return 1;
    return s->config.spectral_scale == LT_SPECTRAL_ORIGINAL
               ? sqrt(fmax(1, in_out ? cols / rows : rows / cols))
               : rms_of_adamw * sqrt(fmax(rows, cols));
}

static bool apply_spectral_scale(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (!lt_shampoo_is_orthogonalized(&s->config, b))
        return false;
    job->alpha = lt_shampoo_spectral_scale(s, b);
    job->a = job->y = b->p;
    return true;
}

/* Views a vector as a matrix of one row. */
static lt_view as_matrix(lt_view v)
{
    if (v.shape.ndim > 1)
        return v;
    v.stride[1] = v.shape.ndim ? v.stride[0] : 1;
    v.shape = LT_SHAPE(1, v.shape.ndim ? v.shape.dim[0] : 1);
    v.stride[0] = v.shape.dim[1] * v.stride[1];
    return v;
}

static int smaller_matrix_dim(const lt_view *matrix)
{
    return matrix->shape.ndim == 2 && matrix->shape.dim[0] > matrix->shape.dim[1];
}

static int64_t gram_matrix_elements(const lt_block *b)
{
    lt_view v = {.shape = b->region.shape};
    v = as_matrix(v);
    const int64_t n = v.shape.dim[smaller_matrix_dim(&v)];
    return n * n;
}

static lt_status allocate_spectral_workspace(lt_shampoo *s)
{
    int64_t most = 1, most_squares = 1;
    if (s->spectral_job)
        return LT_OK;
    for (size_t i = 0; i < s->batches; i++) {
        int64_t elements = 0, squares = 0;
        for (size_t k = s->batch[i].begin; k < s->batch[i].end; k++) {
            elements += lt_shape_count(s->block[k].region.shape);
            squares += gram_matrix_elements(&s->block[k]);
        }
        most = elements > most ? elements : most;
        most_squares = squares > most_squares ? squares : most_squares;
    }
    if (!s->spectral) /* a failed attempt leaves it allocated */
        LT_TRY(LT_ALLOC(&s->spectral, 1));
    LT_TRY(lt_orthogonal_open(s->spectral, &s->base, &s->config.orthogonalization, s->count, most,
                              most_squares));
    return LT_ALLOC(&s->spectral_job, s->count);
}

lt_status lt_shampoo_orthogonalize(lt_shampoo *s, lt_block_batch batch)
{
    const lt_orthogonalization *how = &s->config.orthogonalization;
    size_t count = 0;
    LT_TRY(allocate_spectral_workspace(s));
    LT_TRY(lt_shampoo_run_rule(s, batch, copy_to_output_buffer));
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        if (!lt_shampoo_is_orthogonalized(&s->config, b))
            continue;
        lt_block_swap_buffers(b);
        const lt_view x = as_matrix(b->p);
        if (b->active)
            s->spectral_job[count++] = (lt_orthogonal_job){
                .x = x, .y = as_matrix(*lt_block_output_buffer(b)), .dim = smaller_matrix_dim(&x)};
        if (lt_orthogonal_result_is_in_y(how))
            lt_block_swap_buffers(b);
    }
    LT_TRY(lt_orthogonal_run(s->spectral, &s->base, how, s->spectral_job, count));
    return s->config.spectral_scale == LT_SPECTRAL_NONE
               ? LT_OK
               : lt_shampoo_run_rule(s, batch, apply_spectral_scale);
}

/* --- Sign descent --- */

static bool take_square_root(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->op = LT_VEC_POW;
    job->beta = 1;
    job->gamma = 1e-30; /* maps 0 to 0 */
    job->delta = 0.5;
    job->a = job->b = job->y = *lt_block_output_buffer(b);
    return true;
}

static bool multiply_by_sign(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->op = LT_VEC_MUL;
    job->a = b->p;
    job->b = job->y = *lt_block_output_buffer(b);
    return true;
}

static bool compute_signs(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->op = LT_VEC_SIGN;
    job->a = b->p;
    job->y = *lt_block_output_buffer(b);
    return true;
}

/* Multiplies by the norm of the roots of magnitudes; applied twice this is the sum of magnitudes. */
static bool scale_by_norm(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->factor.over = lt_shampoo_norm_at(s, (size_t)(b - s->block));
    job->factor.under = lt_shampoo_norm_at(s, s->count);
    job->a = job->y = b->p;
    return true;
}

/* Computes the root of each block's sum of magnitudes. */
static lt_status measure_root_of_l1_norms(lt_shampoo *s, lt_block_batch batch)
{
    LT_TRY(lt_shampoo_run_rule(s, batch, compute_signs));
    LT_TRY(lt_shampoo_run_rule(s, batch, multiply_by_sign));
    LT_TRY(lt_shampoo_run_rule(s, batch, take_square_root));
    return lt_shampoo_measure_norms(s, batch, NULL);
}

lt_status lt_shampoo_replace_by_signs(lt_shampoo *s, lt_block_batch batch)
{
    const bool is_scaled = s->config.sign_scale == LT_SIGN_L1;
    if (is_scaled)
        LT_TRY(measure_root_of_l1_norms(s, batch));
    LT_TRY(lt_shampoo_run_rule(s, batch, compute_signs));
    for (size_t i = batch.begin; i < batch.end; i++)
        lt_block_swap_buffers(&s->block[i]);
    for (int i = 0; i < 2 && is_scaled; i++)
        LT_TRY(lt_shampoo_run_rule(s, batch, scale_by_norm));
    return LT_OK;
}
