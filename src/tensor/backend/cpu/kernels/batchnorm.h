/* Batch normalisation on rows of channels: detail/norm_kernels.h. Tiles of a few rows keep sums in registers. */

#include "simd.h"

enum { TILE = 8, BLOCK_BYTES = 65536 };

/* Adds a tile's rows to sums: sum[c] += x, or with mean sum[c] += (x - mean[c])^2. */
ALWAYS void add_row_tile(const void *x, int64_t row, int rows, int64_t channels, const float *mean,
                         float *sum, lt_cpu_store s)
{
    FOR_LANES(c, n, channels, {
        registers total = as_registers(load(sum, c, n, LT_STORE_F32));
        const vec centre = mean ? load(mean, c, n, LT_STORE_F32) : vec_set(0);
        for (int k = 0; k < rows; k++) {
            const vec v = load(x, (row + k) * channels + c, n, s);
            if (mean)
                add_products_to(&total, v - centre, v - centre);
            else
                add_to_registers(&total, v);
        }
        save(sum, c, registers_to_vec(&total), n, LT_STORE_F32);
    });
}

/* Adds rows tile by tile. Whole tiles have a constant number of rows, so that the compiler unrolls them. */
ALWAYS void add_rows_by_tiles(const void *x, int64_t begin, int64_t end, int64_t channels,
                              const float *mean, float *sum, lt_cpu_store s)
{
    int64_t r = begin;
    for (; r + TILE <= end; r += TILE)
        add_row_tile(x, r, TILE, channels, mean, sum, s);
    if (r < end)
        add_row_tile(x, r, (int)(end - r), channels, mean, sum, s);
}

/* Computes mean and centred squares per block in the cache, merged by Chan's formula: reads memory once, without the
 * cancellation of sums of squares. mean and m2 are [2,C]; the second row is scratch. */
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
        add_rows_by_tiles(x, r, end, channels, NULL, block_mean, s);
        for (int64_t c = 0; c < channels; c++)
            block_mean[c] /= count;
        add_rows_by_tiles(x, r, end, channels, block_mean, block_m2, s);
        for (int64_t c = 0; c < channels; c++) {
            const float d = block_mean[c] - mean[c];
            mean[c] += d * (count / total);
            m2[c] += block_m2[c] + d * d * (before * (count / total));
        }
    }
}

/* Returns the bits of n elements from e on. */
ALWAYS unsigned read_mask(const uint8_t *mask, int64_t e, int n)
{
    const uint8_t *p = mask + e / 8;
    const unsigned shift = (unsigned)(e % 8);
    if (n == LANES && shift == 0)
        return p[0] | (unsigned)p[1] << 8;
    unsigned v = p[0];
    if (shift + (unsigned)n > 8)
        v |= (unsigned)p[1] << 8;
    if (shift + (unsigned)n > 16)
        v |= (unsigned)p[2] << 16;
    return v >> shift & 0xFFFF;
}

/* Writes n bits from e on; clears later bits of the last byte. */
ALWAYS void write_mask(uint8_t *mask, int64_t e, unsigned set, int n)
{
    uint8_t *p = mask + e / 8;
    const unsigned shift = (unsigned)(e % 8);
    if (n == LANES && shift == 0) {
        p[0] = (uint8_t)set;
        p[1] = (uint8_t)(set >> 8);
        return;
    }
    set = (set & ((1U << n) - 1)) << shift;
    if (shift)
        set |= p[0] & ((1U << shift) - 1);
    p[0] = (uint8_t)set;
    if (shift + (unsigned)n > 8)
        p[1] = (uint8_t)(set >> 8);
    if (shift + (unsigned)n > 16)
        p[2] = (uint8_t)(set >> 16);
}

/* Compile-time variants of a loop: each combination is compiled separately. */
typedef enum gate { OPEN, RECOMPUTED, MASKED } gate;
typedef struct mode {
    lt_cpu_store store;
    gate gate;
    bool residual; /* apply: adds a residual */
    bool two,
        out; /* gradients only. two: dy has a second addend; out: stores the masked gradient */
} mode;

ALWAYS void apply_rows(const lt_bn_apply *in, int64_t begin, int64_t end, mode m)
{
    const int64_t channels = in->channels;
    for (int64_t r = begin; r < end; r++)
        FOR_LANES(c, n, channels, {
            const int64_t e = r * channels + c;
            registers y =
                multiply_add_registers(load_registers(in->x, e, n, m.store),
                                       load_registers(in->coef.scale, c, n, LT_STORE_F32),
                                       load_registers(in->coef.shift, c, n, LT_STORE_F32));
            if (m.residual)
                add_to_registers(&y, load(in->residual, e, n, m.store));
            if (m.gate == MASKED)
                write_mask(in->mask, e, positive_lanes_mask(registers_to_vec(&y)), n);
            for (int k = 0; k < REGISTERS && in->relu; k++)
                y.part[k] = rectify_sums(y.part[k]);
            save_registers(in->y, e, &y, n, m.store);
        });
}

ALWAYS void bn_apply_any(const lt_bn_apply *from, int64_t begin, int64_t end, lt_cpu_store s)
{
    const lt_bn_apply copy = *from, *in = &copy; /* a local copy: stores to y cannot change it */
    if (in->residual && in->mask)
        apply_rows(in, begin, end, (mode){.store = s, .residual = true, .gate = MASKED});
    else if (in->mask)
        apply_rows(in, begin, end, (mode){.store = s, .gate = MASKED});
    else if (in->residual)
        apply_rows(in, begin, end, (mode){.store = s, .residual = true});
    else
        apply_rows(in, begin, end, (mode){.store = s});
}

typedef struct bn_lane {
    vec mean, scale, shift;
} bn_lane;

ALWAYS bn_lane load_channel_coef(const lt_bn_coef *coef, int64_t c, int n)
{
    return (bn_lane){load(coef->mean, c, n, LT_STORE_F32), load(coef->scale, c, n, LT_STORE_F32),
                     load(coef->shift, c, n, LT_STORE_F32)};
}

/* Returns the gradient after relu's mask. */
ALWAYS vec masked_gradient(const lt_bn_grad *in, int64_t e, int n, vec x, const bn_lane *lane,
                           mode m)
{
    vec g = load(in->dy[0], e, n, m.store);
    if (m.two)
        g += load(in->dy[1], e, n, m.store);
    if (m.gate == MASKED)
        return keep_lanes(read_mask(in->mask, e, n), g);
    if (m.gate == RECOMPUTED)
        return keep_lanes(positive_lanes_mask(multiply_add(x, lane->scale, lane->shift)), g);
    return g;
}

enum { ROWS = 4 }; /* rows of a backward tile */

ALWAYS void add_grad_sums_tile(const lt_bn_grad *in, int64_t row, int rows, float *sum,
                               float *product, mode m)
{
    FOR_LANES(c, n, in->channels, {
        registers total = as_registers(load(sum, c, n, LT_STORE_F32));
        registers dot = as_registers(load(product, c, n, LT_STORE_F32));
        const bn_lane lane = load_channel_coef(&in->coef, c, n);
        for (int k = 0; k < rows; k++) {
            const int64_t e = (row + k) * in->channels + c;
            const vec x = load(in->x, e, n, m.store);
            const vec g = masked_gradient(in, e, n, x, &lane, m);
            if (m.out)
                save(in->out, e, g, n, m.store);
            add_to_registers(&total, g);
            add_products_to(&dot, g, x - lane.mean);
        }
        save(sum, c, registers_to_vec(&total), n, LT_STORE_F32);
        save(product, c, registers_to_vec(&dot), n, LT_STORE_F32);
    });
}

ALWAYS void add_grad_sums(const lt_bn_grad *in, int64_t begin, int64_t end, float *sum,
                          float *product, mode m)
{
    int64_t r = begin;
    for (; r + ROWS <= end; r += ROWS)
        add_grad_sums_tile(in, r, ROWS, sum, product, m);
    if (r < end)
        add_grad_sums_tile(in, r, (int)(end - r), sum, product, m);
}

ALWAYS void grad_x_tile(const lt_bn_grad *in, int64_t row, int rows, mode m)
{
    FOR_LANES(c, n, in->channels, {
        const bn_lane lane = load_channel_coef(&in->coef, c, n);
        const vec slope = load(in->slope, c, n, LT_STORE_F32);
        const vec offset = load(in->offset, c, n, LT_STORE_F32);
        for (int k = 0; k < rows; k++) {
            const int64_t e = (row + k) * in->channels + c;
            const vec x = load(in->x, e, n, m.store);
            const vec g = masked_gradient(in, e, n, x, &lane, m);
            const vec line = multiply_add(slope, x - lane.mean, offset);
            save(in->out, e, multiply_add(lane.scale, g, line), n, m.store);
        }
    });
}

ALWAYS void write_grad_x(const lt_bn_grad *in, int64_t begin, int64_t end, mode m)
{
    int64_t r = begin;
    for (; r + ROWS <= end; r += ROWS)
        grad_x_tile(in, r, ROWS, m);
    if (r < end)
        grad_x_tile(in, r, (int)(end - r), m);
}

ALWAYS gate choose_gate(const lt_bn_grad *in)
{
    if (!in->relu)
        return OPEN;
    return in->mask ? MASKED : RECOMPUTED;
}

#define WITH(kind, second, stores) \
    ((mode){.store = s, .gate = (kind), .two = (second), .out = (stores)})

ALWAYS void bn_grad_sums_any(const lt_bn_grad *from, int64_t begin, int64_t end, float *sum,
                             float *product, lt_cpu_store s)
{
    const lt_bn_grad copy = *from, *in = &copy; /* a local copy: stores to out cannot change it */
    const gate kind = choose_gate(in);
    for (int64_t c = 0; c < in->channels; c++)
        sum[c] = product[c] = 0;
#define CASE(k, second, stores)                                          \
    if (kind == (k) && !in->dy[1] == !(second) && !in->out == !(stores)) \
    add_grad_sums(in, begin, end, sum, product, WITH(k, second, stores))
    CASE(OPEN, false, false);
    CASE(OPEN, false, true);
    CASE(OPEN, true, false);
    CASE(OPEN, true, true);
    CASE(MASKED, false, false);
    CASE(MASKED, false, true);
    CASE(MASKED, true, false);
    CASE(MASKED, true, true);
    CASE(RECOMPUTED, false, false);
    CASE(RECOMPUTED, false, true);
    CASE(RECOMPUTED, true, false);
    CASE(RECOMPUTED, true, true);
#undef CASE
}

ALWAYS void bn_grad_x_any(const lt_bn_grad *from, int64_t begin, int64_t end, lt_cpu_store s)
{
    const lt_bn_grad copy = *from, *in = &copy;
    const gate kind = choose_gate(in);
#define CASE(k, second)                         \
    if (kind == (k) && !in->dy[1] == !(second)) \
    write_grad_x(in, begin, end, WITH(k, second, true))
    CASE(OPEN, false);
    CASE(OPEN, true);
    CASE(MASKED, false);
    CASE(MASKED, true);
    CASE(RECOMPUTED, false);
    CASE(RECOMPUTED, true);
#undef CASE
}
#undef WITH
