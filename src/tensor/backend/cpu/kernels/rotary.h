/* Rotary position embedding of one row of features. */

#include "simd.h"

/* Rotates count features: y = x * cos + other * sin; other: the partner of each feature. */
ALWAYS void rotate_features(const void *x, const void *other, const float *cosine,
                            const float *sine, float sign, void *y, int64_t count,
                            lt_cpu_store store)
{
    FOR_LANES(i, n, count, {
        const registers c = load_registers(cosine, i, n, LT_STORE_F32);
        const registers s = load_registers(sine, i, n, LT_STORE_F32);
        const registers partner = load_registers(other, i, n, store);
        registers v = load_registers(x, i, n, store);
        for (int k = 0; k < REGISTERS; k++)
            v.part[k] = fused(partner.part[k], sign * s.part[k], v.part[k] * c.part[k]);
        save_registers(y, i, &v, n, store);
    });
}

typedef uint64_t sums_pairs __attribute__((vector_size(SUMS * 4)));

/* Rotates pairs of adjacent features. */
ALWAYS void rotate_adjacent_pairs(const lt_rotary_row *r, lt_cpu_store store)
{
    FOR_LANES(i, n, r->d, {
        const registers c = load_registers(r->cosine, i, n, LT_STORE_F32);
        const registers s = load_registers(r->sine, i, n, LT_STORE_F32);
        registers x = load_registers(r->x, i, n, store);
        for (int k = 0; k < REGISTERS; k++) {
            const sums_pairs pairs = (sums_pairs)x.part[k];
            const sums other = (sums)(pairs << 32 | pairs >> 32);
            x.part[k] = fused(other, r->sign * s.part[k], x.part[k] * c.part[k]);
        }
        save_registers(r->y, i, &x, n, store);
    });
}

ALWAYS void rotary_any(const lt_rotary_row *r, lt_cpu_store store)
{
    if (r->interleaved) {
        rotate_adjacent_pairs(r, store);
        return;
    }
    const int64_t half_d = r->d / 2, bytes = half_d * (store == LT_STORE_BF16 ? 2 : 4);
    const char *x = r->x;
    char *y = r->y;
    rotate_features(x, x + bytes, r->cosine, r->sine, r->sign, y, half_d, store);
    rotate_features(x + bytes, x, r->cosine + half_d, r->sine + half_d, r->sign, y + bytes, half_d,
                    store);
}
