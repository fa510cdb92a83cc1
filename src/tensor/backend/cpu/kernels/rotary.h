/* Rotary position embedding of one row of features. */

#include "simd.h"

/* Rotates count features: y = x * cos + other * sin; other: the partner of each feature. */
ALWAYS void rotate_features(const void *x, const void *other, const float *cosine,
                            const float *sine, float sign, void *y, int64_t count,
                            lt_cpu_store store)
{
    const vec factor = vec_set(sign);
    FOR_LANES(i, n, count, {
        const vec c = load(cosine, i, n, LT_STORE_F32);
        const vec s = load(sine, i, n, LT_STORE_F32);
        const vec v = load(x, i, n, store) * c;
        save(y, i, multiply_add(load(other, i, n, store), factor * s, v), n, store);
    });
}

/* Rotates pairs of adjacent features. */
ALWAYS void rotate_adjacent_pairs(const lt_rotary_row *r, lt_cpu_store store)
{
    const vec factor = vec_set(r->sign);
    FOR_LANES(i, n, r->d, {
        const vec c = load(r->cosine, i, n, LT_STORE_F32);
        const vec s = load(r->sine, i, n, LT_STORE_F32);
        const vec x = load(r->x, i, n, store);
        const vec other =
            __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
        save(r->y, i, multiply_add(other, factor * s, x * c), n, store);
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
