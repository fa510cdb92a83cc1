/* Attention by tiles: packing, products, softmax by powers of 2. See cpu/attention.h. */

#include "functions.h"
#include "transpose.h"

#if defined(__AVX512F__)
enum { PRODUCT_ROWS = 6, PRODUCT_VECS = 4 };
#elif defined(__aarch64__)
enum { PRODUCT_ROWS = 4, PRODUCT_VECS = 1 };
#else
enum { PRODUCT_ROWS = 6, PRODUCT_VECS = 1 };
#endif
_Static_assert(PRODUCT_ROWS <= (int)LT_ATTENTION_ROWS && LT_ATTENTION_LANES == (int)LANES
                   && LT_ATTENTION_PANEL % (PRODUCT_VECS * LANES) == 0,
               "as cpu/attention.h says");

/* Loads words first .. first+15 of a row of d elements; 0 past the end. */
ALWAYS vec load_words(const void *row, int64_t first, int64_t d, bool pairs, lt_cpu_store store)
{
    if (!pairs)
        return load(row, first, (int)lt_attention_clamp(0, d - first, LANES), store);
    const uint16_t *h = (const uint16_t *)row + 2 * first;
    vec v = {0};
    if (2 * first + 2 * LANES <= d)
        memcpy(&v, h, sizeof v);
    else
        memcpy(&v, h, (size_t)lt_attention_clamp(0, d - 2 * first, 2 * LANES) * sizeof *h);
    return v;
}

ALWAYS const void *row_address(const void *x, int64_t row, int64_t step, lt_cpu_store store)
{
    return (const char *)x + row * step * (store == LT_STORE_BF16 ? 2 : 4);
}

enum { AHEAD = 8 };
/* Prefetches rows of a head, whose strides hardware prefetchers do not detect. */
ALWAYS void prefetch_rows(const lt_attention_pack *p, int64_t first, int64_t count,
                          lt_cpu_store store)
{
    enum { LINE = 64 };
    const int64_t end = lt_cpu_min(first + count, p->rows);
    for (int64_t r = first; r < end; r++) {
        const char *row = row_address(p->x, r, p->step, store);
        for (int64_t at = 0; at < p->d * (store == LT_STORE_BF16 ? 2 : 4); at += LINE)
            __builtin_prefetch(row + at);
    }
}

ALWAYS void pack_left_operand(const lt_attention_pack *p, bool pairs, lt_cpu_store store)
{
    const int64_t words = pairs ? (p->d + 1) / 2 : p->d;
    for (int64_t r = 0; r < p->rows; r++) {
        prefetch_rows(p, r + AHEAD, 1, store);
        FOR_LANES(w, n, words, {
            const vec v = load_words(row_address(p->x, r, p->step, store), w, p->d, pairs, store);
            save(p->left + r * words, w, v, n, LT_STORE_F32);
        });
    }
}

/* Packs rows as columns of panels, by transposes of sixteen rows at a time. */
ALWAYS void pack_row_panels(const lt_attention_pack *p, bool pairs, lt_cpu_store store)
{
    const int64_t words = pairs ? (p->d + 1) / 2 : p->d;
    for (int64_t r = 0; r < p->rows; r += LANES) {
        float *to = p->row_panels + r / LT_ATTENTION_PANEL * LT_ATTENTION_PANEL * words;
        to += r % LT_ATTENTION_PANEL;
        prefetch_rows(p, r + LANES, LANES, store);
        for (int64_t w = 0; w < words; w += LANES) {
            vec row[LANES];
            for (int l = 0; l < LANES; l++)
                row[l] = r + l < p->rows ? load_words(row_address(p->x, r + l, p->step, store), w,
                                                      p->d, pairs, store)
                                         : (vec){0};
            transpose(row);
            for (int l = 0; l < LANES && w + l < words; l++)
                *(loose_vec *)(to + (w + l) * LT_ATTENTION_PANEL) = row[l];
        }
    }
}

/* Interleaves bf16 of two rows: one word per column. */
ALWAYS vec interleave_bf16_rows(half first, half second)
{
    return (vec)(__builtin_convertvector(first, bits)
                 | __builtin_convertvector(second, bits) << 16);
}

ALWAYS half load_half(const void *row, int64_t c, int64_t d)
{
    const int n = (int)lt_attention_clamp(0, d - c, LANES);
    const uint16_t *h = (const uint16_t *)row + c;
    if (n == LANES)
        return *(const loose_half *)h;
    return load_half_first(h, n);
}

ALWAYS void pack_feature_panels(const lt_attention_pack *p, bool pairs, lt_cpu_store store)
{
    const int64_t step = pairs ? 2 : 1;
    for (int64_t r = 0; r < p->rows; r += step) {
        const void *row = row_address(p->x, r, p->step, store);
        prefetch_rows(p, r + AHEAD, step, store);
        const void *next = r + 1 < p->rows ? row_address(p->x, r + 1, p->step, store) : row;
        float *to = p->feature_panels + r / step * LT_ATTENTION_PANEL;
        for (int64_t c = 0; c < p->d; c += LANES) {
            vec v;
            if (pairs) {
                const half second = load_half(next, c, p->d);
                v = interleave_bf16_rows(load_half(row, c, p->d),
                                         r + 1 < p->rows ? second : (half){0});
            } else {
                v = load(row, c, (int)lt_cpu_min(p->d - c, LANES), store);
            }
            *(loose_vec *)(to + c / LT_ATTENTION_PANEL * p->feature_panel_step
                           + c % LT_ATTENTION_PANEL) = v;
        }
    }
}

ALWAYS void pack_rows(const lt_attention_pack *p, bool pairs, lt_cpu_store store)
{
    if (p->left)
        pack_left_operand(p, pairs, store);
    if (p->row_panels)
        pack_row_panels(p, pairs, store);
    if (p->feature_panels)
        pack_feature_panels(p, pairs, store);
}

ALWAYS void attention_pack_any(const lt_attention_pack *p, lt_cpu_store store)
{
    if (p->pairs && store == LT_STORE_BF16)
        pack_rows(p, true, store);
    else
        pack_rows(p, false, store);
}

/* Computes a tile of c: rows times vecs vectors of columns. */
ALWAYS void product_tile(const lt_attention_product *p, const float *a, const float *b,
                         int64_t depth, float *c, int rows, int vecs, bool pairs, bool add)
{
    enum { MOST = PRODUCT_VECS * LANES / SUMS };
    const int count = vecs * LANES / SUMS;
    sums sum[PRODUCT_ROWS][MOST];
#pragma GCC unroll 8
    for (int r = 0; r < PRODUCT_ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < count; v++)
            sum[r][v] = (sums){0};
    const int64_t a_row = p->a_row, a_step = p->a_step;
    for (int64_t k = 0; k < depth; k++) {
        sums right[MOST];
        for (int v = 0; v < count; v++)
            right[v] = *(const loose_sums *)(b + k * LT_ATTENTION_PANEL + (int64_t)v * SUMS);
#pragma GCC unroll 8
        for (int r = 0; r < PRODUCT_ROWS; r++) {
            const float left = a[r * a_row + k * a_step];
#pragma GCC unroll 8
            for (int v = 0; v < count; v++)
                sum[r][v] = add_product(left, right[v], sum[r][v], pairs);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < PRODUCT_ROWS && r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            loose_sums *to = (loose_sums *)(c + r * p->c_row + (int64_t)v * SUMS);
            if (add)
                sum[r][v] += *to;
            *to = sum[r][v];
        }
}

ALWAYS void product_row_of_tiles(const lt_attention_product *p, const float *a, const float *b,
                                 int64_t depth, float *c, int rows, int vecs, bool add)
{
#define TILE(count)                                                       \
    case count:                                                           \
        if (HAS_PAIRS && p->pairs)                                        \
            product_tile(p, a, b, depth, c, rows, count, HAS_PAIRS, add); \
        else                                                              \
            product_tile(p, a, b, depth, c, rows, count, false, add);     \
        break
    switch (vecs) {
#if defined(__AVX512F__)
        TILE(4);
        TILE(3);
        TILE(2);
#endif
        TILE(1);
    default:
        break;
    }
#undef TILE
}

/* Panels of b take half the L1 cache and are reused by all rows. */
static void attention_product(const lt_attention_product *p)
{
    enum { DEPTH = 128, COLS = PRODUCT_VECS * LANES };
    const int64_t depth = p->pairs ? (p->depth + 1) / 2 : p->depth;
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int64_t c = 0; c < p->cols; c += COLS)
            for (int64_t r = 0; r < p->rows; r += PRODUCT_ROWS) {
                const int rows = (int)lt_cpu_min(p->rows - r, PRODUCT_ROWS);
                const lt_attention_part part = lt_attention_product_part(p, r, rows);
                const int64_t begin = lt_attention_clamp(k, part.begin, k + DEPTH);
                const int64_t words = lt_cpu_min(part.end, k + DEPTH) - begin;
                const bool add = p->add || k > 0;
                if (c >= part.cols || (add && words <= 0))
                    continue;
                const float *b = p->b + c / LT_ATTENTION_PANEL * p->b_panel
                                 + begin * LT_ATTENTION_PANEL + c % LT_ATTENTION_PANEL;
                product_row_of_tiles(p, p->a + r * p->a_row + begin * p->a_step, b, words,
                                     p->c + r * p->c_row + c, rows,
                                     (int)lt_cpu_min((part.cols - c) / LANES, PRODUCT_VECS), add);
            }
}

/* Part of query r's row: keys of the tile that it sees, and
 * columns that products (of several rows, or of pairs) read. */
typedef struct row_part {
    int64_t seen, read;
} row_part;

ALWAYS row_part causal_row_bounds(bool causal, int64_t r, int64_t offset, int64_t cols)
{
    const int64_t most = lt_cpu_round_up(cols, LANES);
    if (!causal)
        return (row_part){cols, most};
    const int64_t seen = r + offset + 1;
    return (row_part){
        lt_attention_clamp(0, seen, cols),
        lt_attention_clamp(0, lt_cpu_round_up(seen + LT_ATTENTION_ROWS, LANES), most)};
}

/* Clears the elements of c .. c+15 of a row from `seen` on. */
ALWAYS vec mask_unseen(vec v, int64_t c, int64_t seen)
{
    return c + LANES <= seen ? v
                             : keep_lanes((1U << lt_attention_clamp(0, seen - c, LANES)) - 1, v);
}

/* Returns the largest score, so that no weight overflows; ignores NaN. */
ALWAYS float row_max(const float *score, int64_t seen)
{
    const vec lowest = vec_set(-__builtin_inff());
    vec top[2] = {lowest, lowest};
    int64_t c = 0;
    for (; c + 2 * LANES <= seen; c += 2 * LANES)
        for (int i = 0; i < 2; i++)
            top[i] = larger(*(const loose_vec *)(score + c + (int64_t)i * LANES), top[i]);
    for (; c < seen; c += LANES) {
        const int n = (int)lt_cpu_min(seen - c, LANES);
        vec v = load(score, c, n, LT_STORE_F32);
        top[0] = larger(n == LANES ? v : choose(first_lanes(n), v, lowest), top[0]);
    }
    return largest_lane(larger(top[0], top[1]));
}

/* Returns exp(scale * score - top). The product is rounded before top is subtracted, as for the maximum and in
 * backward: the weight of the largest score is exactly 1. */
ALWAYS vec softmax_weights(vec score, float scale, float top)
{
    const vec scaled =
        multiply_add(score, vec_set(scale), vec_set(0)); /* not contracted with the difference */
    return exponential_of_2((scaled - vec_set(top)) * vec_set(1.44269504F));
}

/* Updates the running maximum of row r and rescales its sum and output. Returns the maximum. */
ALWAYS float update_row_max(const lt_attention_weights *w, int64_t r, int64_t seen)
{
    const float top = w->scale * row_max(w->score + r * w->row, seen);
    if (w->first || !(top <= w->top[r])) { /* true for NaN, too */
        if (!w->first) {
            const vec less = softmax_weights(vec_set(w->top[r]), 1, top);
            *(loose_vec *)(w->sum + r * LANES) *= less;
            for (int64_t c = 0; c < w->y_row; c += LANES)
                *(loose_vec *)(w->y + r * w->y_row + c) *= less;
        }
        w->top[r] = top;
    }
    return w->top[r];
}

ALWAYS void compute_row_weights(const lt_attention_weights *w, int64_t r, bool pairs)
{
    const row_part part = causal_row_bounds(w->causal, r, w->offset, w->cols);
    float *score = w->score + r * w->row;
    uint16_t *weight = pairs ? w->weight + r * w->row : NULL;
    if (w->first)
        save(w->sum, r * LANES, (vec){0}, LANES, LT_STORE_F32);
    if (part.seen > 0) {
        const float top = update_row_max(w, r, part.seen);
        registers sum = as_registers(load(w->sum, r * LANES, LANES, LT_STORE_F32));
        for (int64_t c = 0; c < part.seen; c += LANES) {
            const vec v = *(const loose_vec *)(score + c);
            const vec e = mask_unseen(softmax_weights(v, w->scale, top), c, part.seen);
            add_to_registers(&sum, e);
            save(pairs ? (void *)weight : score, c, e, LANES, pairs ? LT_STORE_BF16 : LT_STORE_F32);
        }
        save(w->sum, r * LANES, registers_to_vec(&sum), LANES, LT_STORE_F32);
    }
    for (int64_t c = lt_cpu_round_up(part.seen, LANES); c < part.read; c += LANES)
        save(pairs ? (void *)weight : score, c, (vec){0}, LANES,
             pairs ? LT_STORE_BF16 : LT_STORE_F32);
}

static void attention_weights(const lt_attention_weights *w)
{
    for (int64_t r = 0; r < w->rows; r++)
        if (HAS_PAIRS && w->pairs)
            compute_row_weights(w, r, HAS_PAIRS);
        else
            compute_row_weights(w, r, false);
}

/* Computes sixteen softmax weights and score gradients (slopes) of row r. */
ALWAYS void compute_score_grad_lanes(const lt_attention_slopes *s, int64_t r, int64_t c,
                                     int64_t seen, vec *weight, vec *slope)
{
    *weight = *slope = (vec){0};
    if (c >= seen)
        return;
    const vec score = *(const loose_vec *)(s->score + r * s->row + c);
    *weight = mask_unseen(softmax_weights(score, s->scale, s->lse[r]), c, seen);
    if (s->slope) {
        const vec p = *(const loose_vec *)(s->slope + r * s->row + c) - vec_set(s->mean[r]);
        *slope = mask_unseen(*weight * p, c, seen); /* products are not computed past seen */
    }
}

ALWAYS void compute_score_grad_row(const lt_attention_slopes *s, int64_t r)
{
    const row_part part = causal_row_bounds(s->causal, r, s->offset, s->cols);
    for (int64_t c = 0; c < part.read; c += LANES) {
        vec weight, slope;
        compute_score_grad_lanes(s, r, c, part.seen, &weight, &slope);
        *(loose_vec *)(s->score + r * s->row + c) = weight;
        if (s->slope)
            *(loose_vec *)(s->slope + r * s->row + c) = slope;
    }
}

/* Computes score gradients of rows r and r + 1, interleaved in bf16; row r + 1 is 0 past the end. */
ALWAYS void compute_score_grad_row_pair(const lt_attention_slopes *s, int64_t r)
{
    const bool both = r + 1 < s->rows;
    const row_part part[2] = {causal_row_bounds(s->causal, r, s->offset, s->cols),
                              causal_row_bounds(s->causal, r + 1, s->offset, s->cols)};
    for (int64_t c = 0; c < part[1].read; c += LANES) {
        half weight[2] = {{0}}, slope[2] = {{0}};
        for (int i = 0; i < (both ? 2 : 1); i++) {
            vec w, d;
            compute_score_grad_lanes(s, r + i, c, part[i].seen, &w, &d);
            weight[i] = narrow(w);
            slope[i] = narrow(d);
            if (s->slope)
                *(loose_half *)(s->slope_rows + (r + i) * s->row + c) = slope[i];
        }
        *(loose_vec *)(s->score_pairs + r / 2 * s->row + c) =
            interleave_bf16_rows(weight[0], weight[1]);
        if (s->slope)
            *(loose_vec *)(s->slope_pairs + r / 2 * s->row + c) =
                interleave_bf16_rows(slope[0], slope[1]);
    }
}

static void attention_slopes(const lt_attention_slopes *s)
{
    if (s->pairs)
        for (int64_t r = 0; r < s->rows; r += 2)
            compute_score_grad_row_pair(s, r);
    else
        for (int64_t r = 0; r < s->rows; r++)
            compute_score_grad_row(s, r);
}

ALWAYS void attention_save_any(const lt_attention_save *s, lt_cpu_store store)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const vec factor = vec_set(s->scale ? s->factor * s->scale[r] : s->factor);
        void *y = (char *)s->y + r * s->y_row * (store == LT_STORE_BF16 ? 2 : 4);
        FOR_LANES(c, n, s->d, {
            save(y, c, factor * load(s->x + r * s->x_row, c, n, LT_STORE_F32), n, store);
        });
    }
}

ALWAYS float sum_lanes_serially(vec v)
{
    float sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += v[l];
    return sum;
}

/* Computes dot products of rows, dot[r] = a[r] . b[r]. */
ALWAYS void attention_dots_any(const lt_attention_dots *p, lt_cpu_store store)
{
    for (int64_t r = 0; r < p->rows; r++) {
        const void *a = row_address(p->a, r, p->a_step, store),
                   *b = row_address(p->b, r, p->b_step, store);
        registers sum = zero_registers();
        FOR_LANES(c, n, p->d,
                  { add_products_to(&sum, load(a, c, n, store), load(b, c, n, store)); });
        p->dot[r] = sum_lanes_serially(registers_to_vec(&sum));
    }
}

/* Computes scores of sixteen rows at a time: their partial sums are transposed and added. */
ALWAYS void attention_scores_any(const lt_attention_rows *p, lt_cpu_store store)
{
    for (int64_t r = 0; r < p->rows; r += LANES) {
        const int64_t rows = lt_cpu_min(p->rows - r, LANES);
        vec sum[LANES];
        for (int l = 0; l < LANES; l++) {
            registers one = zero_registers();
            const void *row = row_address(p->row, r + (l < rows ? l : 0), p->step, store);
            FOR_LANES(c, n, p->d, {
                const vec x = load(p->x, c, n, LT_STORE_F32);
                add_products_to(&one, load(row, c, n, store), x);
            });
            sum[l] = registers_to_vec(&one);
        }
        transpose(sum);
        for (int apart = LANES / 2; apart; apart /= 2)
            for (int l = 0; l < apart; l++)
                sum[l] += sum[l + apart];
        save(p->score, r, sum[0], LANES, LT_STORE_F32); /* vectors read past the end, too */
    }
}

/* Adds a row: sum[v] += score[r] * row[r] for vecs vectors of columns from c on; the last has `last` lanes. */
ALWAYS void add_weighted_row(const lt_attention_rows *p, int64_t r, int64_t c, int vecs, int last,
                             lt_cpu_store store, registers sum[])
{
    const void *row = row_address(p->row, r, p->step, store);
    for (int v = 0; v < vecs; v++) {
        const vec x = load(row, c + (int64_t)v * LANES, v == vecs - 1 ? last : LANES, store);
        add_products_to(&sum[v], x, vec_set(p->score[r]));
    }
}

/* Sums even and odd rows separately, to hide the latency of additions. */
ALWAYS void sum_weighted_rows(const lt_attention_rows *p, int64_t c, int vecs, int last,
                              lt_cpu_store store)
{
    enum { MOST = 4 };
    registers even[MOST], odd[MOST];
    for (int v = 0; v < vecs; v++)
        even[v] = odd[v] = zero_registers();
    int64_t r = 0;
    for (; r + 2 <= p->rows; r += 2) {
        add_weighted_row(p, r, c, vecs, last, store, even);
        add_weighted_row(p, r + 1, c, vecs, last, store, odd);
    }
    if (r < p->rows)
        add_weighted_row(p, r, c, vecs, last, store, even);
    for (int v = 0; v < vecs; v++)
        save(p->y, c + (int64_t)v * LANES, registers_to_vec(&even[v]) + registers_to_vec(&odd[v]),
             v == vecs - 1 ? last : LANES, LT_STORE_F32);
}

ALWAYS void attention_mix_any(const lt_attention_rows *p, lt_cpu_store store)
{
    enum { MOST = 4 };
    int64_t c = 0;
    for (; c + MOST * LANES <= p->d; c += MOST * LANES)
        sum_weighted_rows(p, c, MOST, LANES, store);
    for (; c < p->d; c += LANES)
        sum_weighted_rows(p, c, 1, (int)lt_cpu_min(p->d - c, LANES), store);
}
