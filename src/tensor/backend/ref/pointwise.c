/* Elementwise functions and their gradients, element by element. */

#include "real.h"
#include "ref.h"

#include <math.h>

#define PW_REAL            real
#define PW_FUNCTION        static
#define PW_SET(x)          ((real)(x))
#define PW_CHOOSE(c, a, b) ((c) ? (a) : (b))
#define PW_EXP(x)          ((real)lt_f64_exp((double)(x)))
#define PW_LOG(x)          ((real)lt_f64_log((double)(x)))
#define PW_LOG1P(x)        ((real)lt_f64_log1p((double)(x)))
#define PW_SQRT(x)         ((real)sqrt((double)(x)))
#define PW_TANH(x)         ((real)lt_f64_tanh((double)(x)))
#define PW_POW(x, y)       ((real)lt_f64_pow((double)(x), (double)(y)))
#define PW_TAIL(x)         ((real)(lt_f64_erfc((double)(x)*0.70710678118654752440) / 2))
#include "tensor/backend/pointwise.h"

#include "lather/ext/elementary.h"

lt_status ENTRY(pointwise)(void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
                           const lt_view *y)
{
    IF_F64(y, pointwise, ctx, f, a, b, y);
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, a), *v = NAME(gather)(&call, b ? b : a);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
            u[i] = pw_evaluate(*f, u[i], v[i]);
        NAME(scatter)(u, y);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(pointwise_grad)(void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
                                const lt_view *a, const lt_view *b, const lt_view *d)
{
    IF_F64(d, pointwise_grad, ctx, f, input, dy, a, b, d);
    lt_ref_call call = {0};
    real *g = NAME(gather)(&call, dy), *u = NAME(gather)(&call, a),
         *v = NAME(gather)(&call, b ? b : a);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(d); i < count; i++)
            g[i] = pw_grad(*f, input, g[i], u[i], v[i]);
        NAME(scatter)(g, d);
    }
    return lt_ref_finish(&call);
}
