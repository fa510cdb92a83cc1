/* Rotary positions in double. Formula: lather/ops/attention.h. */

#include "ref.h"

#include "lather/ext/elementary.h"

lt_status lt_ref_rotary(void *ctx, const lt_rotary_config *config, bool inverse, const lt_view *x,
                        const lt_view *y)
{
    (void)ctx;
    const int64_t d = x->shape.dim[3], pairs = d / 2, count = lt_ref_element_count(x) / 2;
    lt_ref_call call = {0};
    double *u = lt_ref_gather_f64(&call, x);
    LT_TRY(call.status);
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = n % pairs, row = n / pairs;
        const int64_t t = row / x->shape.dim[2] % x->shape.dim[1];
        const double rate = lt_f64_pow(config->base, -2 * (double)i / (double)d);
        const double angle = (double)(config->first + t) * rate;
        const double c = lt_f64_cos(angle), s = inverse ? -lt_f64_sin(angle) : lt_f64_sin(angle);
        double *a = u + row * d + (config->interleaved ? 2 * i : i);
        double *b = config->interleaved ? a + 1 : a + pairs;
        const double turned = *a * c - *b * s;
        *b = *b * c + *a * s;
        *a = turned;
    }
    lt_ref_scatter_f64(u, y);
    return lt_ref_finish(&call);
}
