/* Coefficients and running statistics of batch normalisation, in double. Ioffe & Szegedy, "Batch
 * Normalization", ICML 2015, algorithms 1 and 2. */

#include "ref.h"

#include <math.h>

/* stats: rows count, mean, M2; rows 0 and 1 become mean and population variance. */
static void finish_batch_stats(double *stats, double momentum, double *mean, double *var,
                               int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        double count = stats[c], m2 = stats[2 * channels + c];
        double unbiased = m2 / (count > 1 ? count - 1 : 1);
        stats[c] = stats[channels + c];
        stats[channels + c] = m2 / count;
        if (mean)
            mean[c] = (1 - momentum) * mean[c] + momentum * stats[c];
        if (var)
            var[c] = (1 - momentum) * var[c] + momentum * unbiased;
    }
}

static void fill_coef(const double *moments, const double *affine, double eps, int64_t channels,
                      double *coef)
{
    for (int64_t c = 0; c < channels; c++) {
        double rstd = 1 / sqrt(moments[channels + c] + eps);
        double scale = affine[c] * rstd;
        coef[c] = moments[c];
        coef[channels + c] = rstd;
        coef[2 * channels + c] = scale;
        coef[3 * channels + c] = affine[channels + c] - moments[c] * scale;
    }
}

/* Loads [C] or [3,C] into an array; absent views leave it unchanged. */
static void load_optional(const lt_view *view, double *to)
{
    if (lt_ref_has_data(view))
        lt_ref_load_f64(view, 0, lt_ref_element_count(view), to);
}

/* Turns the statistics of a batch into mean and variance, and updates the running ones and the count. */
static void update_running_stats(const lt_batchnorm_parts *p, double momentum, double *batch,
                                 double *running, int64_t channels)
{
    const bool moves = lt_ref_has_data(p->mean) && lt_ref_has_data(p->var);
    finish_batch_stats(batch, momentum, moves ? running : NULL, moves ? running + channels : NULL,
                       channels);
    if (moves) {
        lt_ref_scatter_f64(running, p->mean);
        lt_ref_scatter_f64(running + channels, p->var);
    }
    if (lt_ref_has_data(p->batches))
        ++*(int64_t *)p->batches->data;
}

static void finish_batchnorm(const lt_batchnorm2d_config *config, const lt_batchnorm_parts *p,
                             double *memory)
{
    const int64_t channels = p->coef->shape.dim[1];
    double *batch = memory, *running = batch + 3 * channels, *affine = running + 2 * channels,
           *out = affine + 2 * channels;
    load_optional(p->stats, batch);
    load_optional(p->mean, running);
    load_optional(p->var, running + channels);
    load_optional(p->gamma, affine);
    load_optional(p->beta, affine + channels);
    if (lt_ref_has_data(p->stats))
        update_running_stats(p, config->momentum, batch, running, channels);
    fill_coef(lt_ref_has_data(p->stats) ? batch : running, affine, config->eps, channels, out);
    lt_ref_scatter_f64(out, p->coef);
    if (lt_ref_has_data(p->rounded))
        lt_ref_scatter_f64(out + 2 * channels, p->rounded);
}

lt_status lt_ref_batchnorm_finish(void *ctx, const lt_batchnorm2d_config *config,
                                  const lt_batchnorm_parts *parts)
{
    const size_t channels = (size_t)parts->coef->shape.dim[1];
    lt_batchnorm_parts p = *parts;
    double *memory = lt_alloc(14 * channels, sizeof *memory);
    lt_view moments;
    if (!memory)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    if (lt_ref_has_data(p.sums_of)) { /* read x again: sums of squares have lost digits */
        moments = *p.stats;
        moments.dtype = LT_F64;
        moments.data = memory + 11 * channels;
        p.stats = &moments;
        st = lt_ref_batchnorm_stats(ctx, p.sums_of, &moments);
    }
    if (!st)
        finish_batchnorm(config, &p, memory);
    lt_free(memory);
    return st;
}
