/* Batch normalisation on rows of channels: ext/kernels.h, part 3.
 * Tiles of a few rows keep the running sums of a group of channels in registers. */

#include "simd.h"

enum { TILE = 8, BLOCK_BYTES = 65536 };

/* sum[c] += x, or (x - mean[c])^2 with mean. */
ALWAYS void add_up(const void *x, int64_t begin, int64_t end, int64_t channels, const float *mean,
                   float *sum, lt_cpu_store s)
{
    for (int64_t r = begin; r < end; r += TILE) {
        const int64_t last = r + TILE < end ? r + TILE : end;
        FOR_LANES(c, n, channels, {
            vec total = load(sum, c, n, LT_STORE_F32);
            const vec centre = mean ? load(mean, c, n, LT_STORE_F32) : vec_set(0);
            for (int64_t k = r; k < last; k++) {
                const vec v = load(x, k * channels + c, n, s);
                total = mean ? multiply_add(v - centre, v - centre, total) : total + v;
            }
            save(sum, c, total, n, LT_STORE_F32);
        });
    }
}

/* Mean and centred squares of each block while it is in the cache, merged by Chan's formula: one
 * reading of memory, without the cancellation of sums of squares. mean and m2 [2,C] each: the
 * second half is work space. */
ALWAYS void bn_moments_any(const void *x, int64_t rows, int64_t channels, float *mean, float *m2,
                           lt_cpu_store s)
{
    float *block_mean = mean + channels, *block_m2 = m2 + channels;
    int64_t block = BLOCK_BYTES / (channels * (s == LT_STORE_BF16 ? 2 : 4));
    block = block < TILE ? TILE : block;
    for (int64_t c = 0; c < channels; c++)
        mean[c] = m2[c] = 0;
    for (int64_t r = 0; r < rows; r += block) {
        const int64_t end = r + block < rows ? r + block : rows;
        const float count = (float)(end - r), before = (float)r, total = (float)end;
        for (int64_t c = 0; c < channels; c++)
            block_mean[c] = block_m2[c] = 0;
        add_up(x, r, end, channels, NULL, block_mean, s);
        for (int64_t c = 0; c < channels; c++)
            block_mean[c] /= count;
        add_up(x, r, end, channels, block_mean, block_m2, s);
        for (int64_t c = 0; c < channels; c++) {
            const float d = block_mean[c] - mean[c];
            mean[c] += d * (count / total);
            m2[c] += block_m2[c] + d * d * (before * (count / total));
        }
    }
}

/* Bits for n elements from e on. */
ALWAYS unsigned read_mask(const uint8_t *mask, int64_t e, int n)
{
    const uint8_t *p = mask + e / 8;
    const unsigned shift = (unsigned)(e % 8);
    unsigned v = p[0];
    if (shift + (unsigned)n > 8)
        v |= (unsigned)p[1] << 8;
    if (shift + (unsigned)n > 16)
        v |= (unsigned)p[2] << 16;
    return v >> shift & 0xFFFF;
}

/* Sets n bits from e on; bits after them in the last byte become 0. */
ALWAYS void write_mask(uint8_t *mask, int64_t e, unsigned set, int n)
{
    uint8_t *p = mask + e / 8;
    const unsigned shift = (unsigned)(e % 8);
    set = (set & ((1U << n) - 1)) << shift;
    if (shift)
        set |= p[0] & ((1U << shift) - 1);
    p[0] = (uint8_t)set;
    if (shift + (unsigned)n > 8)
        p[1] = (uint8_t)(set >> 8);
    if (shift + (unsigned)n > 16)
        p[2] = (uint8_t)(set >> 16);
}

ALWAYS void apply_row(const lt_bn_apply *in, int64_t r, lt_cpu_store s, bool residual, bool masked)
{
    const int64_t channels = in->channels;
    FOR_LANES(c, n, channels, {
        const int64_t e = r * channels + c;
        vec y = multiply_add(load(in->x, e, n, s), load(in->coef.scale, c, n, LT_STORE_F32),
                             load(in->coef.shift, c, n, LT_STORE_F32));
        if (residual)
            y += load(in->residual, e, n, s);
        if (masked)
            write_mask(in->mask, e, positive(y), n);
        save(in->y, e, in->relu ? rectify(y) : y, n, s);
    });
}

ALWAYS void bn_apply_any(const lt_bn_apply *in, int64_t begin, int64_t end, lt_cpu_store s)
{
    if (in->residual && in->mask)
        for (int64_t r = begin; r < end; r++)
            apply_row(in, r, s, true, true);
    else if (in->mask)
        for (int64_t r = begin; r < end; r++)
            apply_row(in, r, s, false, true);
    else if (in->residual)
        for (int64_t r = begin; r < end; r++)
            apply_row(in, r, s, true, false);
    else
        for (int64_t r = begin; r < end; r++)
            apply_row(in, r, s, false, false);
}

typedef enum gate { OPEN, RECOMPUTED, MASKED } gate;

typedef struct bn_lane {
    vec mean, scale, shift;
} bn_lane;

ALWAYS bn_lane load_lane(const lt_bn_coef *coef, int64_t c, int n)
{
    return (bn_lane){load(coef->mean, c, n, LT_STORE_F32), load(coef->scale, c, n, LT_STORE_F32),
                     load(coef->shift, c, n, LT_STORE_F32)};
}

/* The gradient after relu's gate. */
ALWAYS vec gated(const lt_bn_grad *in, int64_t e, int n, vec x, const bn_lane *lane, lt_cpu_store s,
                 gate kind)
{
    vec g = load(in->dy[0], e, n, s);
    if (in->dy[1])
        g += load(in->dy[1], e, n, s);
    if (kind == MASKED)
        return keep(read_mask(in->mask, e, n), g);
    if (kind == RECOMPUTED)
        return keep(positive(multiply_add(x, lane->scale, lane->shift)), g);
    return g;
}

ALWAYS void grad_sums_tile(const lt_bn_grad *in, int64_t begin, int64_t end, float *sum,
                           float *product, lt_cpu_store s, gate kind)
{
    const int64_t channels = in->channels;
    FOR_LANES(c, n, channels, {
        vec total = load(sum, c, n, LT_STORE_F32);
        vec dot = load(product, c, n, LT_STORE_F32);
        const bn_lane lane = load_lane(&in->coef, c, n);
        for (int64_t r = begin; r < end; r++) {
            const int64_t e = r * channels + c;
            const vec x = load(in->x, e, n, s);
            const vec g = gated(in, e, n, x, &lane, s, kind);
            if (in->out)
                save(in->out, e, g, n, s);
            total += g;
            dot = multiply_add(g, x - lane.mean, dot);
        }
        save(sum, c, total, n, LT_STORE_F32);
        save(product, c, dot, n, LT_STORE_F32);
    });
}

ALWAYS void bn_grad_sums_gate(const lt_bn_grad *in, int64_t begin, int64_t end, float *sum,
                              float *product, lt_cpu_store s, gate kind)
{
    enum { ROWS = 4 };
    for (int64_t r = begin; r < end; r += ROWS)
        grad_sums_tile(in, r, r + ROWS < end ? r + ROWS : end, sum, product, s, kind);
}

ALWAYS void bn_grad_sums_any(const lt_bn_grad *in, int64_t begin, int64_t end, float *sum,
                             float *product, lt_cpu_store s)
{
    for (int64_t c = 0; c < in->channels; c++)
        sum[c] = product[c] = 0;
    if (!in->relu)
        bn_grad_sums_gate(in, begin, end, sum, product, s, OPEN);
    else if (in->mask)
        bn_grad_sums_gate(in, begin, end, sum, product, s, MASKED);
    else
        bn_grad_sums_gate(in, begin, end, sum, product, s, RECOMPUTED);
}

ALWAYS void bn_grad_x_gate(const lt_bn_grad *in, int64_t begin, int64_t end, lt_cpu_store s,
                           gate kind)
{
    enum { ROWS = 4 };
    const int64_t channels = in->channels;
    for (int64_t r = begin; r < end; r += ROWS) {
        const int64_t last = r + ROWS < end ? r + ROWS : end;
        FOR_LANES(c, n, channels, {
            const bn_lane lane = load_lane(&in->coef, c, n);
            const vec slope = load(in->slope, c, n, LT_STORE_F32);
            const vec offset = load(in->offset, c, n, LT_STORE_F32);
            for (int64_t k = r; k < last; k++) {
                const int64_t e = k * channels + c;
                const vec x = load(in->x, e, n, s);
                const vec g = gated(in, e, n, x, &lane, s, kind);
                const vec line = multiply_add(slope, x - lane.mean, offset);
                save(in->out, e, multiply_add(lane.scale, g, line), n, s);
            }
        });
    }
}

ALWAYS void bn_grad_x_any(const lt_bn_grad *in, int64_t begin, int64_t end, lt_cpu_store s)
{
    if (!in->relu)
        bn_grad_x_gate(in, begin, end, s, OPEN);
    else if (in->mask)
        bn_grad_x_gate(in, begin, end, s, MASKED);
    else
        bn_grad_x_gate(in, begin, end, s, RECOMPUTED);
}
