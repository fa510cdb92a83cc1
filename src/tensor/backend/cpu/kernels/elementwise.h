/* Elementwise kernels and sums of rows. */

#include "simd.h"

ALWAYS void add_any(const void *a, const void *b, void *y, int64_t count, lt_cpu_store s)
{
    FOR_LANES(i, n, count, { save(y, i, load(a, i, n, s) + load(b, i, n, s), n, s); });
}

ALWAYS void relu_any(const void *x, void *y, int64_t count, lt_cpu_store s)
{
    FOR_LANES(i, n, count, { save(y, i, rectify(load(x, i, n, s)), n, s); });
}

ALWAYS void relu_grad_any(const void *dy, const void *y, void *dx, int64_t count, lt_cpu_store s)
{
    FOR_LANES(i, n, count, {
        save(dx, i, keep_lanes(positive_lanes_mask(load(y, i, n, s)), load(dy, i, n, s)), n, s);
    });
}

ALWAYS void scale_any(float factor, const void *x, void *y, int64_t count, lt_cpu_store s)
{
    const vec f = vec_set(factor);
    FOR_LANES(i, n, count, { save(y, i, f * load(x, i, n, s), n, s); });
}

/* Normalises LANES pixels at a time, which are `channels` vectors: lane l of vector v is always the same channel. */
ALWAYS void normalize_any(const uint8_t *x, const float *mean, const float *deviation,
                          int64_t channels, void *y, int64_t pixels, lt_cpu_store s)
{
    enum { MOST = 4 };
    vec m[MOST], d[MOST];
    for (int64_t l = 0; l < LANES * channels; l++) {
        m[l / LANES][l % LANES] = mean[l % channels];
        d[l / LANES][l % LANES] = deviation[l % channels];
    }
    int64_t i = 0;
    const int64_t count = pixels * channels;
    for (; i + LANES * channels <= count; i += LANES * channels)
        for (int64_t v = 0; v < channels; v++) {
            registers f;
            for (int p = 0; p < REGISTERS; p++)
                f.part[p] =
                    __builtin_convertvector(widen_bytes(x + i + v * LANES + p * SUMS), sums);
            save(y, i + v * LANES, (registers_to_vec(&f) - m[v]) / d[v], LANES, s);
        }
    for (; i < count; i++) {
        const vec f = vec_set(((float)x[i] - mean[i % channels]) / deviation[i % channels]);
        save(y, i, f, 1, s);
    }
}

/* Adds all rows: sum[c] += x[r][c]. */
ALWAYS void add_rows_any(const void *x, int64_t rows, int64_t channels, float *sum, lt_cpu_store s)
{
    enum { AT_ONCE = 8 };
    for (int64_t r = 0; r < rows; r += AT_ONCE) {
        const int64_t end = r + AT_ONCE < rows ? r + AT_ONCE : rows;
        FOR_LANES(c, n, channels, {
            registers total = as_registers(load(sum, c, n, LT_STORE_F32));
            for (int64_t k = r; k < end; k++)
                add_to_registers(&total, load(x, k * channels + c, n, s));
            save(sum, c, registers_to_vec(&total), n, LT_STORE_F32);
        });
    }
}

/* Repeats a row: y[r][c] = factor * x[c]. */
ALWAYS void repeat_row_any(float factor, const void *x, int64_t rows, int64_t channels, void *y,
                           lt_cpu_store s)
{
    const vec f = vec_set(factor);
    for (int64_t r = 0; r < rows; r++)
        FOR_LANES(c, n, channels, { save(y, r * channels + c, f * load(x, c, n, s), n, s); });
}

/* Convert floats to bf16 and back. */
static void narrow_all(const float *x, void *y, int64_t count)
{
    FOR_LANES(i, n, count, {
        const half h = narrow_exactly(load(x, i, n, LT_STORE_F32));
        memcpy((uint16_t *)y + i, &h, n * sizeof(uint16_t));
    });
}

static void widen_all(const void *x, float *y, int64_t count)
{
    FOR_LANES(i, n, count, { save(y, i, load(x, i, n, LT_STORE_BF16), n, LT_STORE_F32); });
}
