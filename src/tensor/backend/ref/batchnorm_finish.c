/* Batch normalisation's coefficients and running statistics, in double.
 * Ioffe & Szegedy, "Batch Normalization", ICML 2015, algorithms 1 and 2. */

#include "ref.h"

#include <math.h>

/* stats: rows count, mean, M2; replaced by rows 0 and 1: mean, population variance. */
static void take_batch(double *stats, double momentum, double *mean, double *var, int64_t channels)
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

/* Gathers [C] or [3,C] into place; false: no memory. Absent views are left alone. */
static bool gather_into(const lt_view *view, double *place)
{
    if (!lt_ref_has(view))
        return true;
    double *values = lt_ref_gather_f64(view);
    for (int64_t i = 0, count = lt_ref_count(view); values && i < count; i++)
        place[i] = values[i];
    lt_free(values);
    return values != NULL;
}

lt_status lt_ref_batchnorm_finish(void *ctx, const lt_batchnorm2d_config *config,
                                  const lt_view *stats, const lt_view *gamma, const lt_view *beta,
                                  const lt_view *mean, const lt_view *var, const lt_view *coef)
{
    (void)ctx;
    int64_t channels = coef->shape.dim[1];
    double *memory = lt_alloc(11 * (size_t)channels, sizeof *memory);
    if (!memory)
        return LT_E_NOMEM;
    double *batch = memory, *running = batch + 3 * channels, *affine = running + 2 * channels,
           *out = affine + 2 * channels;

    bool ok = gather_into(stats, batch) && gather_into(mean, running)
              && gather_into(var, running + channels) && gather_into(gamma, affine)
              && gather_into(beta, affine + channels);
    if (ok && lt_ref_has(stats)) {
        bool update = lt_ref_has(mean) && lt_ref_has(var);
        take_batch(batch, config->momentum, update ? running : NULL,
                   update ? running + channels : NULL, channels);
        if (update) {
            lt_ref_scatter_f64(running, mean);
            lt_ref_scatter_f64(running + channels, var);
        }
    }
    if (ok) {
        fill_coef(lt_ref_has(stats) ? batch : running, affine, config->eps, channels, out);
        lt_ref_scatter_f64(out, coef);
    }
    lt_free(memory);
    return ok ? LT_OK : LT_E_NOMEM;
}
