/* Linear maps of Winograd's convolution F(4x4, 3x3): docs/adr/0053. Each is applied along both dimensions of a tile,
 * SUMS channels at a time. Interpolation points: 0, +-A, +-B and infinity. */

#include "simd.h"

/* Interpolation points A and B, among the pairs of least error of those tried; their squares are exact. */
#define POINT_A  0.75F
#define POINT_B  1.5F
#define SQUARE_A (POINT_A * POINT_A)
#define SQUARE_B (POINT_B * POINT_B)
#define CUBE_A   (SQUARE_A * POINT_A)
#define CUBE_B   (SQUARE_B * POINT_B)
/* 1 / denominators of Lagrange's polynomials. */
#define SHARE_0 (1 / (SQUARE_A * SQUARE_B))
#define SHARE_A (1 / (2 * SQUARE_A * (SQUARE_A - SQUARE_B)))
#define SHARE_B (1 / (2 * SQUARE_B * (SQUARE_B - SQUARE_A)))

enum { POINTS = 6, OUTPUTS = 4, TAPS = 3 };

/* Type of the maps: applies a map to elements of x at stride `step`; writes y at stride `to`. */
typedef void winograd_map(const sums *x, int step, sums *y, int to);

/* Returns y + a * x, fused. */
ALWAYS sums add_scaled(sums y, float a, sums x)
{
    return fused(a - (sums){0}, x, y);
}

/* Map of input pixels to points, y = B' x. */
ALWAYS void transform_input(const sums *x, int step, sums *y, int to)
{
    const sums x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step], x4 = x[4 * step];
    const sums even_a = add_scaled(x4, -SQUARE_B, x2), odd_a = add_scaled(x3, -SQUARE_B, x1);
    const sums even_b = add_scaled(x4, -SQUARE_A, x2), odd_b = add_scaled(x3, -SQUARE_A, x1);
    const sums even = add_scaled(x4, -(SQUARE_A + SQUARE_B), x2);
    const sums odd = add_scaled(x[5 * step], -(SQUARE_A + SQUARE_B), x3);
    y[0] = add_scaled(even, SQUARE_A * SQUARE_B, x0);
    y[to] = add_scaled(even_a, POINT_A, odd_a);
    y[2 * to] = add_scaled(even_a, -POINT_A, odd_a);
    y[3 * to] = add_scaled(even_b, POINT_B, odd_b);
    y[4 * to] = add_scaled(even_b, -POINT_B, odd_b);
    y[5 * to] = add_scaled(odd, SQUARE_A * SQUARE_B, x1);
}

/* Map of points to output pixels, y = A' x. */
ALWAYS void transform_output(const sums *x, int step, sums *y, int to)
{
    const sums plus_a = x[step] + x[2 * step], minus_a = x[step] - x[2 * step];
    const sums plus_b = x[3 * step] + x[4 * step], minus_b = x[3 * step] - x[4 * step];
    y[0] = x[0] + plus_a + plus_b;
    y[to] = add_scaled(POINT_A * minus_a, POINT_B, minus_b);
    y[2 * to] = add_scaled(SQUARE_A * plus_a, SQUARE_B, plus_b);
    y[3 * to] = add_scaled(add_scaled(x[5 * step], CUBE_A, minus_a), CUBE_B, minus_b);
}

/* Map of gradients of outputs to points, y = A x. */
ALWAYS void transform_output_grad(const sums *x, int step, sums *y, int to)
{
    const sums x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step];
    const sums even_a = add_scaled(x0, SQUARE_A, x2), odd_a = add_scaled(POINT_A * x1, CUBE_A, x3);
    const sums even_b = add_scaled(x0, SQUARE_B, x2), odd_b = add_scaled(POINT_B * x1, CUBE_B, x3);
    y[0] = x0;
    y[to] = even_a + odd_a;
    y[2 * to] = even_a - odd_a;
    y[3 * to] = even_b + odd_b;
    y[4 * to] = even_b - odd_b;
    y[5 * to] = x3;
}

/* Map of a filter's taps to points, y = G x. */
ALWAYS void transform_filter(const sums *x, int step, sums *y, int to)
{
    const sums x0 = x[0], x1 = x[step], x2 = x[2 * step];
    const sums even_a = SHARE_A * add_scaled(x0, SQUARE_A, x2);
    const sums even_b = SHARE_B * add_scaled(x0, SQUARE_B, x2);
    y[0] = SHARE_0 * x0;
    y[to] = add_scaled(even_a, SHARE_A * POINT_A, x1);
    y[2 * to] = add_scaled(even_a, -SHARE_A * POINT_A, x1);
    y[3 * to] = add_scaled(even_b, SHARE_B * POINT_B, x1);
    y[4 * to] = add_scaled(even_b, -SHARE_B * POINT_B, x1);
    y[5 * to] = x2;
}

/* Map of points to gradients of taps, y = G' x. */
ALWAYS void transform_filter_grad(const sums *x, int step, sums *y, int to)
{
    const sums plus_a = SHARE_A * (x[step] + x[2 * step]);
    const sums plus_b = SHARE_B * (x[3 * step] + x[4 * step]);
    const sums minus_a = SHARE_A * POINT_A * (x[step] - x[2 * step]);
    y[0] = add_scaled(plus_a + plus_b, SHARE_0, x[0]);
    y[to] = add_scaled(minus_a, SHARE_B * POINT_B, x[3 * step] - x[4 * step]);
    y[2 * to] = add_scaled(add_scaled(x[5 * step], SQUARE_A, plus_a), SQUARE_B, plus_b);
}

/* Returns the address of channel c of the first point. */
ALWAYS float *first_point(const lt_winograd_tile *t, int64_t c)
{
    return t->point + c / LANES * t->group + c % LANES;
}

/* Coefficients of a fused batch norm, and running sums of an epilogue, for SUMS channels. */
typedef struct epilogue {
    sums scale, shift, mean, sum, product;
    ptrdiff_t other; /* byte offset from a pixel of y to that of the residual or of x */
    bool adds, relu;
} epilogue;

ALWAYS epilogue load_scale_and_shift(const lt_bn_coef *coef, int64_t c)
{
    return (epilogue){.scale = load_sums(coef->scale, c, LT_STORE_F32),
                      .shift = load_sums(coef->shift, c, LT_STORE_F32)};
}

/* Loads a pixel with batch norm + relu applied; padding is 0. */
ALWAYS sums load_normalized_pixel(const lt_winograd_tile *t, int i, int64_t c, const epilogue *n,
                                  lt_cpu_store s)
{
    const sums y = rectify_sums(fused(load_sums(t->pixel[i], c, s), n->scale, n->shift));
    return (sums)((sums_bits)y & ((sums_bits){0} + (t->pixel[i] == t->zeros ? 0 : UINT32_MAX)));
}

/* Prefetches the cache line that begins with channel c, of some pixels of the next tile: hardware prefetchers do not
 * detect a tile's short runs. Prefetching all lines of a tile at once was slower: docs/adr/0053. other: byte offset
 * to a second operand, or 0. */
ALWAYS void prefetch_pixels(const lt_winograd_tile *t, int from, int count, int64_t c,
                            ptrdiff_t other, bool write, lt_cpu_store s)
{
    enum { LINE = 64 };
    const int64_t size = s == LT_STORE_BF16 ? sizeof(uint16_t) : sizeof(float);
    if (!t->next || c * size % LINE != 0)
        return;
    for (int i = from; i < from + count; i++) {
        const char *at = t->next[i];
        if (!at)
            continue;
        if (write)
            __builtin_prefetch(at + c * size, 1);
        else
            __builtin_prefetch(at + c * size, 0);
        if (other)
            __builtin_prefetch(at + c * size + other, 0);
    }
}

/* Maps pixels to points: along columns, then rows. The intermediate result is in memory, as it exceeds the registers.
 * Fields of t are read once: for the compiler a store to a point may alias t. */
ALWAYS void pixels_to_points(const lt_winograd_tile *t, winograd_map *map, int side, bool normed,
                             lt_cpu_store s)
{
    const int64_t step = t->step, channels = t->channels;
    sums columns[POINTS * POINTS];
    for (int64_t c = 0; c < channels; c += SUMS) {
        float *point = first_point(t, c);
        const epilogue norm =
            normed ? load_scale_and_shift(&t->input_norm->coef, c) : (epilogue){.relu = false};
#pragma GCC unroll 6
        for (int i = 0; i < side; i++) {
            sums column[POINTS];
            prefetch_pixels(t, i * side, side, c, 0, false, s);
            for (int row = 0; row < side; row++)
                column[row] = normed ? load_normalized_pixel(t, row * side + i, c, &norm, s)
                                     : load_sums(t->pixel[row * side + i], c, s);
            map(column, 1, columns + i, side);
        }
#pragma GCC unroll 6
        for (int row = 0; row < POINTS; row++) {
            sums y[POINTS];
            map(columns + row * side, 1, y, 1);
            for (int i = 0; i < POINTS; i++, point += step)
                *(loose_sums *)point = y[i];
        }
    }
}

/* Kinds of epilogue that are applied to the pixels written. */
typedef enum epilogue_kind { PLAIN, NORM, MOMENTS, GRADIENTS } epilogue_kind;

ALWAYS epilogue begin_epilogue(const lt_winograd_tile *t, int64_t c, epilogue_kind kind)
{
    if (kind == NORM) {
        epilogue n = load_scale_and_shift(&t->output_norm->coef, c);
        n.relu = t->output_norm->relu;
        n.adds = t->output_norm->residual;
        if (n.adds)
            n.other = (const char *)t->output_norm->residual - (const char *)t->output_norm->y;
        return n;
    }
    if (kind == GRADIENTS) {
        const lt_bn_grad *g = t->sums->grad;
        epilogue n = load_scale_and_shift(&g->coef, c);
        n.mean = load_sums(g->coef.mean, c, LT_STORE_F32);
        n.other = (const char *)g->x - (const char *)g->dy[0];
        return n;
    }
    return (epilogue){.relu = false};
}

/* Applies batch norm as bn_apply, before rounding to the storage. */
ALWAYS sums apply_norm(const epilogue *n, const char *pixel, int64_t c, sums y, lt_cpu_store s)
{
    y = fused(y, n->scale, n->shift);
    if (n->adds)
        y += load_sums(pixel + n->other, c, s);
    return n->relu ? rectify_sums(y) : y;
}

/* Accumulates differences from the tile's first pixel, which avoids cancellation. */
ALWAYS void add_moment(epilogue *n, bool is_first, sums y)
{
    if (is_first)
        n->mean = y;
    const sums d = y - n->mean;
    n->sum += d;
    n->product = fused(d, d, n->product);
}

/* Masks the gradient by relu and accumulates its sums, as bn_grad_sums. */
ALWAYS sums add_gradient(epilogue *n, const char *pixel, int64_t c, sums y, lt_cpu_store s)
{
    const sums x = load_sums(pixel + n->other, c, s);
    y = (sums)((sums_bits)y & (sums_bits)(fused(x, n->scale, n->shift) > 0));
    n->sum += y;
    n->product = fused(y, x - n->mean, n->product);
    return y;
}

ALWAYS void merge_moments(const lt_winograd_sums *to, int64_t c, const epilogue *n)
{
    loose_sums *mean = (loose_sums *)(to->of[0] + c), *m2 = (loose_sums *)(to->of[1] + c);
    const sums d = n->mean + n->sum * to->inverse - *mean;
    *mean += d * to->share;
    *m2 += n->product - n->sum * n->sum * to->inverse + d * d * to->both;
}

ALWAYS void end_epilogue(const lt_winograd_tile *t, int64_t c, const epilogue *n,
                         epilogue_kind kind)
{
    if (kind == MOMENTS)
        merge_moments(t->sums, c, n);
    if (kind != GRADIENTS)
        return;
    *(loose_sums *)(t->sums->of[0] + c) += n->sum;
    *(loose_sums *)(t->sums->of[1] + c) += n->product;
}

ALWAYS void write_pixel(const lt_winograd_tile *t, epilogue *n, int i, int64_t c, sums y,
                        epilogue_kind kind, lt_cpu_store s)
{
    if (!t->pixel[i])
        return;
    if (kind == NORM)
        y = apply_norm(n, t->pixel[i], c, y, s);
    if (kind == MOMENTS)
        add_moment(n, i == 0, y);
    if (kind == GRADIENTS)
        y = add_gradient(n, t->pixel[i], c, y, s);
    save_sums(t->pixel[i], c, y, s);
}

/* Maps points to pixels or to filter taps, and applies the epilogue. */
ALWAYS void points_to_pixels(const lt_winograd_tile *t, winograd_map *map, int side,
                             epilogue_kind kind, lt_cpu_store s)
{
    const int64_t step = t->step, channels = t->channels;
    sums columns[POINTS * POINTS];
    for (int64_t c = 0; c < channels; c += SUMS) {
        const float *point = first_point(t, c);
        epilogue n = begin_epilogue(t, t->first + c, kind);
#pragma GCC unroll 6
        for (int i = 0; i < POINTS; i++) {
            sums column[POINTS];
            for (int row = 0; row < POINTS; row++)
                column[row] = *(const loose_sums *)(point + (row * POINTS + i) * step);
            map(column, 1, columns + i, POINTS);
        }
#pragma GCC unroll 6
        for (int row = 0; row < side; row++) {
            sums y[POINTS];
            prefetch_pixels(t, row * side, side, c, n.other, true, s);
            map(columns + row * POINTS, 1, y, 1);
            for (int i = 0; i < side; i++)
                write_pixel(t, &n, row * side + i, c, y[i], kind, s);
        }
        end_epilogue(t, t->first + c, &n, kind);
    }
}

ALWAYS void transform_output_tile(const lt_winograd_tile *t, lt_cpu_store s)
{
    if (t->output_norm)
        points_to_pixels(t, transform_output, OUTPUTS, NORM, s);
    else if (!t->sums)
        points_to_pixels(t, transform_output, OUTPUTS, PLAIN, s);
    else if (t->sums->grad)
        points_to_pixels(t, transform_output, OUTPUTS, GRADIENTS, s);
    else
        points_to_pixels(t, transform_output, OUTPUTS, MOMENTS, s);
}

ALWAYS void winograd_any(const lt_winograd_tile *t, lt_cpu_store s)
{
    switch (t->map) {
    case LT_WINOGRAD_X:
        if (t->input_norm)
            pixels_to_points(t, transform_input, POINTS, true, s);
        else
            pixels_to_points(t, transform_input, POINTS, false, s);
        break;
    case LT_WINOGRAD_DY:
        pixels_to_points(t, transform_output_grad, OUTPUTS, false, s);
        break;
    case LT_WINOGRAD_W:
        pixels_to_points(t, transform_filter, TAPS, false, s);
        break;
    case LT_WINOGRAD_Y:
        transform_output_tile(t, s);
        break;
    case LT_WINOGRAD_DW:
        points_to_pixels(t, transform_filter_grad, TAPS, PLAIN, s);
        break;
    }
}
