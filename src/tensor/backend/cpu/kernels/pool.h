/* Pooling, one pixel of output (or of dx) at a time, all channels. */

#include "simd.h"

ALWAYS void max_window_any(const lt_max_window *from, lt_cpu_store s)
{
    const lt_max_window copy = *from, *in = &copy; /* stores cannot change a local copy */
    FOR_LANES(c, n, in->channels, {
        vec best = vec_set(-__builtin_inff());
        lanes place = (lanes){0} + (in->r0 * in->s + in->s0);
        for (int r = in->r0; r < in->r1; r++)
            for (int k = in->s0; k < in->s1; k++) {
                const vec v = load(in->x, r * in->stride + k * in->channels + c, n, s);
                /* Not above the best so far, which a NaN is, once. */
                const lanes better = (lanes)(~(v <= best)) & (lanes)(best == best);
                const lanes tap = (lanes){0} + (r * in->s + k);
                best = (vec)(((lanes)v & better) | ((lanes)best & ~better));
                place = (tap & better) | (place & ~better);
            }
        save(in->y, c, best, n, s);
        if (in->index) {
            typedef uint8_t bytes __attribute__((vector_size(16)));
            const bytes b = __builtin_convertvector(place, bytes);
            memcpy(in->index + c, &b, (size_t)n);
        }
    });
}

ALWAYS void max_grad_any(const lt_max_grad *in, lt_cpu_store s)
{
    typedef uint8_t bytes __attribute__((vector_size(16)));
    FOR_LANES(c, n, in->channels, {
        vec sum = vec_set(0);
        for (int w = 0; w < in->windows; w++) {
            const int64_t e = in->window[w] + c;
            bytes b = {0};
            memcpy(&b, in->index + e, (size_t)n);
            const lanes hit = __builtin_convertvector(b, lanes) == (lanes){0} + in->tap[w];
            vec g = load(in->dy[0], e, n, s);
            if (in->dy[1])
                g += load(in->dy[1], e, n, s);
            sum += (vec)((lanes)g & hit);
        }
        save(in->dx, c, sum, n, s);
    });
}

/* factor times the sum of the window's pixels. */
ALWAYS void sum_window_any(const lt_max_window *from, float factor, lt_cpu_store s)
{
    const lt_max_window copy = *from, *in = &copy; /* stores cannot change a local copy */
    FOR_LANES(c, n, in->channels, {
        vec sum = vec_set(0);
        for (int r = in->r0; r < in->r1; r++)
            for (int k = in->s0; k < in->s1; k++)
                sum += load(in->x, r * in->stride + k * in->channels + c, n, s);
        save(in->y, c, sum * factor, n, s);
    });
}
