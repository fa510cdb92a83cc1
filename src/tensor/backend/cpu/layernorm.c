/* Layer and RMS normalisation of contiguous rows, at any distance, in f32 and bf16; one job per chunk of rows.
 * Gradients of gamma and beta are summed per chunk, then over the chunks in order, so that results do not depend on the
 * number of threads. Other strides and dtypes fall back to the reference backend. Formulas: detail/norm_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include <string.h>

enum { GRAIN = 32, COLUMNS = 256 }; /* rows of a chunk; columns of a job that sums chunks */
enum { DGAMMA, DBETA, SUMS };       /* a chunk's sums, each [C] */

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    lt_ln_rows forward;
    lt_ln_grad grad;
    float *sums; /* [chunks][SUMS][C] */
    int64_t chunks, width;
    float *out[SUMS]; /* dgamma, dbeta; NULL: not computed */
} job;

static bool is_absent_or_row_contiguous(const lt_view *v, lt_dtype dtype)
{
    return !v || (v->dtype == dtype && lt_cpu_has_contiguous_rows(v));
}

/* Allocates ones and zeros, used for an absent gamma or beta, and `more` floats after them. */
static float *alloc_default_affine(lt_cpu *cpu, int64_t width, int64_t more)
{
    float *m = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(2 * width + more) * sizeof *m);
    for (int64_t c = 0; m && c < width; c++) {
        m[c] = 1;
        m[width + c] = 0;
    }
    return m;
}

static job make_job(const lt_cpu *cpu, const lt_view *x)
{
    return (job){.kernels = cpu->kernels,
                 .store = lt_cpu_store_from_dtype(x->dtype),
                 .width = x->shape.dim[1],
                 .chunks = (x->shape.dim[0] + GRAIN - 1) / GRAIN};
}

static void forward_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    j->kernels->of[j->store].ln_rows(&j->forward, begin, end);
}

lt_status lt_cpu_layernorm(void *ctx, const lt_layernorm_config *config, const lt_view *x,
                           const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                           const lt_view *y)
{
    lt_cpu *cpu = ctx;
    if (!is_absent_or_row_contiguous(x, y->dtype) || !is_absent_or_row_contiguous(y, y->dtype)
        || !lt_cpu_is_f32(gamma) || !lt_cpu_is_f32(beta) || !lt_cpu_is_f32(stats))
        return lt_backend_ref()->layernorm(ctx, config, x, gamma, beta, stats, y);
    job j = make_job(cpu, x);
    const float *plain = alloc_default_affine(cpu, j.width, 0);
    if (!plain)
        return LT_E_NOMEM;
    j.forward = (lt_ln_rows){.x = x->data,
                             .y = y->data,
                             .step_x = x->stride[0],
                             .step_y = y->stride[0],
                             .width = j.width,
                             .gamma = gamma ? gamma->data : plain,
                             .beta = beta ? beta->data : plain + j.width,
                             .mean = stats->data,
                             .rstd = (float *)stats->data + x->shape.dim[0],
                             .eps = (float)config->eps,
                             .rms = config->rms};
    lt_parallel_range(x->shape.dim[0], GRAIN, forward_rows, &j);
    return LT_OK;
}

static void backward_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const job *j = context;
    lt_ln_grad in = j->grad;
    in.dgamma = j->sums + (chunk * SUMS + DGAMMA) * j->width;
    in.dbeta = j->sums + (chunk * SUMS + DBETA) * j->width;
    memset(in.dgamma, 0, (size_t)(SUMS * j->width) * sizeof *in.dgamma);
    j->kernels->of[j->store].ln_grad_rows(&in, begin, end);
}

/* Adds the chunks' sums of dgamma and dbeta in order, for some columns. */
static void sum_chunks(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int which = 0; which < SUMS; which++) {
        double total[COLUMNS] = {0};
        for (int64_t k = 0; k < j->chunks; k++) {
            const float *sums = j->sums + (k * SUMS + which) * j->width + begin;
            for (int64_t c = 0; c < end - begin; c++)
                total[c] += (double)sums[c];
        }
        for (int64_t c = begin; j->out[which] && c < end; c++)
            j->out[which][c] = (float)total[c - begin];
    }
}

static bool has_fast_kernel(const lt_layernorm_grad *g)
{
    const lt_dtype dtype = g->x->dtype;
    return is_absent_or_row_contiguous(g->x, dtype) && is_absent_or_row_contiguous(g->dy, dtype)
           && is_absent_or_row_contiguous(g->dx, dtype) && lt_cpu_is_f32(g->gamma)
           && lt_cpu_is_f32(g->stats) && lt_cpu_is_f32(g->dgamma) && lt_cpu_is_f32(g->dbeta);
}

lt_status lt_cpu_layernorm_grad(void *ctx, const lt_layernorm_config *config,
                                const lt_layernorm_grad *g)
{
    lt_cpu *cpu = ctx;
    if (!has_fast_kernel(g))
        return lt_backend_ref()->layernorm_grad(ctx, config, g);
    job j = make_job(cpu, g->x);
    float *plain = alloc_default_affine(cpu, j.width, j.chunks * SUMS * j.width);
    if (!plain)
        return LT_E_NOMEM;
    j.sums = plain + 2 * j.width;
    j.out[DGAMMA] = g->dgamma ? g->dgamma->data : NULL;
    j.out[DBETA] = g->dbeta ? g->dbeta->data : NULL;
    j.grad = (lt_ln_grad){.dy = g->dy->data,
                          .x = g->x->data,
                          .dx = g->dx ? g->dx->data : NULL,
                          .step_dy = g->dy->stride[0],
                          .step_x = g->x->stride[0],
                          .step_dx = g->dx ? g->dx->stride[0] : 0,
                          .width = j.width,
                          .gamma = g->gamma ? g->gamma->data : plain,
                          .mean = g->stats->data,
                          .rstd = (float *)g->stats->data + g->x->shape.dim[0],
                          .rms = config->rms};
    lt_parallel(g->x->shape.dim[0], GRAIN, backward_rows, &j);
    lt_parallel_range(j.width, COLUMNS, sum_chunks, &j);
    return LT_OK;
}
