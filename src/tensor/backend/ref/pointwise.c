/* Elementwise functions and their gradients, element by element. */

#include "real.h"
#include "ref.h"

#include <math.h>

#define PW_REAL            real
#define PW_FUNCTION        static
#define PW_SET(x)          ((real)(x))
#define PW_CHOOSE(c, a, b) ((c) ? (a) : (b))
#ifdef LT_REF_DOUBLE
#define PW_EXP     exp
#define PW_LOG     log
#define PW_LOG1P   log1p
#define PW_SQRT    sqrt
#define PW_TANH    tanh
#define PW_POW     pow
#define PW_TAIL(x) (erfc((x)*0.70710678118654752440) / 2)
#else
#define PW_EXP     expf
#define PW_LOG     logf
#define PW_LOG1P   log1pf
#define PW_SQRT    sqrtf
#define PW_TANH    tanhf
#define PW_POW     powf
#define PW_TAIL(x) (erfcf((x)*0.70710678118654752440F) / 2)
#endif
#include "tensor/backend/pointwise.h"

lt_status ENTRY(pointwise)(void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
                           const lt_view *y)
{
    IF_F64(y, pointwise, ctx, f, a, b, y);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    real *u = NAME(gather)(a), *v = NAME(gather)(b ? b : a);
    if (u && v) {
        for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
            u[i] = pw_evaluate(*f, u[i], v[i]);
        NAME(scatter)(u, y);
        st = LT_OK;
    }
    lt_free(u);
    lt_free(v);
    return st;
}

lt_status ENTRY(pointwise_grad)(void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
                                const lt_view *a, const lt_view *b, const lt_view *d)
{
    IF_F64(d, pointwise_grad, ctx, f, input, dy, a, b, d);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    real *g = NAME(gather)(dy), *u = NAME(gather)(a), *v = NAME(gather)(b ? b : a);
    if (g && u && v) {
        for (int64_t i = 0, count = lt_ref_element_count(d); i < count; i++)
            g[i] = pw_grad(*f, input, g[i], u[i], v[i]);
        NAME(scatter)(g, d);
        st = LT_OK;
    }
    lt_free(g);
    lt_free(u);
    lt_free(v);
    return st;
}
