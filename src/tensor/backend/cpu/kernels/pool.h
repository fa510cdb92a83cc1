/* Pooling of one output pixel (or pixel of dx), all channels. */

#include "simd.h"

/* Running maxima and their taps. */
typedef struct winners {
    registers best;
    sums_lanes tap_of_best[REGISTERS];
} winners;

/* Updates the maxima by a tap. The first NaN wins and is kept. */
ALWAYS void update_maxima(winners *w, vec v, int tap)
{
    const registers fresh = as_registers(v);
    for (int i = 0; i < REGISTERS; i++) {
        const sums best = w->best.part[i], x = fresh.part[i];
        const sums_lanes better = (sums_lanes) ~(x <= best) & (sums_lanes)(best == best);
        w->best.part[i] = (sums)(((sums_lanes)x & better) | ((sums_lanes)best & ~better));
        w->tap_of_best[i] = (((sums_lanes){0} + tap) & better) | (w->tap_of_best[i] & ~better);
    }
}

ALWAYS void max_window_any(const lt_max_window *from, lt_cpu_store s)
{
    const lt_max_window copy = *from, *in = &copy; /* a local copy: stores cannot change it */
    FOR_LANES(c, n, in->channels, {
        winners w;
        for (int i = 0; i < REGISTERS; i++) {
            w.best.part[i] = (sums){0} - __builtin_inff();
            w.tap_of_best[i] = (sums_lanes){0} + (in->r0 * in->s + in->s0);
        }
        for (int r = in->r0; r < in->r1; r++)
            for (int k = in->s0; k < in->s1; k++)
                update_maxima(&w, load(in->x, r * in->stride + k * in->channels + c, n, s),
                              r * in->s + k);
        save(in->y, c, registers_to_vec(&w.best), n, s);
        for (int l = 0; l < n && in->index; l++)
            in->index[c + l] = (uint8_t)w.tap_of_best[l / SUMS][l % SUMS];
    });
}

ALWAYS void max_grad_any(const lt_max_grad *in, lt_cpu_store s)
{
    FOR_LANES(c, n, in->channels, {
        registers sum = zero_registers();
        for (int w = 0; w < in->windows; w++) {
            const int64_t e = in->window[w] + c;
            vec g = load(in->dy[0], e, n, s);
            if (in->dy[1])
                g += load(in->dy[1], e, n, s);
            add_to_registers(&sum, (vec)((lanes)g & equals_bytes(in->index + e, n, in->tap[w])));
        }
        save(in->dx, c, registers_to_vec(&sum), n, s);
    });
}

/* Average pooling: factor times the sum of the window's pixels. */
ALWAYS void sum_window_any(const lt_max_window *from, float factor, lt_cpu_store s)
{
    const lt_max_window copy = *from, *in = &copy; /* a local copy: stores cannot change it */
    FOR_LANES(c, n, in->channels, {
        registers sum = zero_registers();
        for (int r = in->r0; r < in->r1; r++)
            for (int k = in->s0; k < in->s1; k++)
                add_to_registers(&sum, load(in->x, r * in->stride + k * in->channels + c, n, s));
        save(in->y, c, registers_to_vec(&sum) * factor, n, s);
    });
}
