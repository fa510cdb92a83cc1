/* Blockwise formats of optimizer state: quantized_formats.h. Arithmetic is f32 without contraction: one division,
 * product or comparison at a time, so that all machines and NumPy agree bitwise. */

#include "quantized_formats.h"

#include "base/parallel.h"
#include "base/rng.h"
#include "tensor/backend/dtype.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { MATRIX_BLOCK = 64, MOMENT_BLOCK = 128, DECADES = 7 };
static const float smallest_scale = 0x1p-100F;

/* --- Levels --- */

enum { SIGNED = 128, UNSIGNED = 255, QUARTER = 8 };
/* Lookup buckets: upper halves of f32 numbers in [2^-24, 1]; each has its first candidate for the nearest level. */
enum { FIRST_BUCKET = (127 - 24) << 7, BUCKETS = (127 << 7) + 1 - FIRST_BUCKET };

typedef struct levels {
    int count;
    float value[UNSIGNED], middle[UNSIGNED]; /* middle[c]: midpoint of levels c and c + 1 */
    float per_gap[UNSIGNED];                 /* reciprocal of their distance */
    uint8_t first[BUCKETS];
} levels;

static struct {
    levels is_signed, is_unsigned, quarter;
    /* Values of codes as stored. */
    float of_signed[256], of_unsigned[256], of_even[256], of_quarter[16];
} tables;

/* Decade i ends at 10^(i-6) and has parts << i equal intervals; each level is the upper end of one. */
static void fill_tree_levels(levels *l, int parts)
{
    double value[UNSIGNED] = {0}, decade[DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1};
    int n = 1;
    for (int i = 0; i < DECADES; i++)
        for (int k = 1; k <= parts << i; k++)
            value[n++] = decade[i] * (0.1 + 0.9 * k / (parts << i));
    l->count = n;
    for (int c = 0; c < n; c++) {
        l->value[c] = (float)value[c];
        l->middle[c] = c + 1 < n ? (float)((value[c] + value[c + 1]) / 2) : INFINITY;
        l->per_gap[c] = c + 1 < n ? (float)(1 / (value[c + 1] - value[c])) : 0;
    }
}

static void fill_bucket_starts(levels *l)
{
    for (int b = 0, c = 0; b < BUCKETS; b++) {
        while (lt_f32_from_bits((uint32_t)(b + FIRST_BUCKET) << 16) > l->middle[c])
            c++;
        l->first[b] = (uint8_t)c;
    }
}

static void fill_tables(void)
{
    fill_tree_levels(&tables.is_signed, 1);
    fill_tree_levels(&tables.is_unsigned, 2);
    fill_bucket_starts(&tables.is_signed);
    fill_bucket_starts(&tables.is_unsigned);
    for (int c = 0; c < QUARTER; c++) {
        tables.quarter.value[c] = (float)(c * c / 49.0);
        tables.quarter.middle[c] = (float)((c * c + (c + 1) * (c + 1)) / 98.0);
        tables.quarter.per_gap[c] = c + 1 < QUARTER ? (float)(49.0 / (2 * c + 1)) : 0;
    }
    for (int c = 0; c < 256; c++) {
        const int size = c > 127 ? 256 - c : c, sign = c > 127 ? -1 : 1; /* code 128 is unused */
        tables.of_unsigned[c] = c < UNSIGNED ? tables.is_unsigned.value[c] : 0;
        tables.of_signed[c] = size < SIGNED ? (float)sign * tables.is_signed.value[size] : 0;
        tables.of_even[c] = (float)(sign * (size / 127.0));
    }
    for (int c = 0; c < 16; c++)
        tables.of_quarter[c] = c < QUARTER ? tables.quarter.value[c]
                               : c > 8     ? -tables.quarter.value[16 - c]
                                           : 0;
}

static void fill_tables_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
}

/* Returns the nearest level of x >= 0; of two equally near the lower one. */
static int nearest_level(const levels *l, float x)
{
    if (!(x >= 0x1p-24F))
        return 0;
    if (x >= 1)
        return l->count - 1;
    int c = l->first[(lt_f32_bits(x) >> 16) - FIRST_BUCKET];
    while (x > l->middle[c])
        c++;
    return c;
}

/* --- Stochastic rounding --- */

enum { DRAWS = MOMENT_BLOCK + 8 };

/* Draws random bits of a block: one per element, then 8 of which the first is for its scale. */
static void draw_bits(const lt_quantized_rounding *r, int64_t block, int elements, uint16_t *out)
{
    const int calls = elements / 8 + 1;
    LT_ASSERT(calls > 0);
    for (int i = 0; i < calls; i++) {
        uint32_t word[4];
        lt_philox(r->key, (uint64_t)r->step, (uint64_t)(block * calls + i), word);
        memcpy(out + (ptrdiff_t)8 * i, word, sizeof word);
    }
}

/* Converts a draw to (0,1) in steps of 2^-12, which exceed rounding errors: levels remain unchanged. */
static float rounding_threshold(uint16_t draw)
{
    return ((float)(draw >> 4) + 0.5F) * 0x1p-12F;
}

/* Rounds x >= 0 stochastically to an adjacent level. near: the level nearest to x. */
static int round_stochastically(const levels *l, int near, float x, uint16_t draw)
{
    const int below = near - (l->value[near] > x);
    return below + ((x - l->value[below]) * l->per_gap[below] > rounding_threshold(draw));
}

static uint16_t round_to_bf16(float x, uint16_t draw)
{
    return x != x ? lt_bf16_from_f32(x) : (uint16_t)((lt_f32_bits(x) + draw) >> 16);
}

/* --- Blocks --- */

/* Layout of quantized elements. */
typedef struct coded {
    lt_state_dtype dtype;
    bool moments, positive;
    int64_t count;
    int block, scale_bytes, code_bytes; /* elements of a block; bytes of its scale and codes */
    lt_quantized_rounding rounding;
} coded;

static coded coding_of_format(lt_quantized_format f, int64_t count)
{
    const bool moments = f.kind == LT_QUANTIZED_MOMENT || f.kind == LT_QUANTIZED_NONNEGATIVE;
    coded c = {.dtype = f.dtype,
               .moments = moments,
               .positive = f.kind == LT_QUANTIZED_NONNEGATIVE,
               .count = count,
               .block = moments ? MOMENT_BLOCK : MATRIX_BLOCK};
    switch (f.dtype) {
    case LT_STATE_F32:
        c.code_bytes = c.block * 4;
        break;
    case LT_STATE_BF16:
        c.code_bytes = c.block * 2;
        break;
    case LT_STATE_INT8:
        c.code_bytes = c.block;
        c.scale_bytes = moments ? 4 : 2;
        break;
    case LT_STATE_INT4:
        c.code_bytes = c.block / 2;
        c.scale_bytes = 2;
        break;
    }
    return c;
}

static int64_t blocks_of(const coded *c)
{
    return (c->count + c->block - 1) / c->block;
}

static int elements_at(const coded *c, int64_t block)
{
    const int64_t rest = c->count - block * c->block;
    return rest < c->block ? (int)rest : c->block;
}

/* Returns the bytes: all scales, then all codes. The codes of the last block end with its elements. */
static int64_t coded_bytes(const coded *c)
{
    const int per_two = 2 * c->code_bytes / c->block;
    return blocks_of(c) * c->scale_bytes + (c->count * per_two + 1) / 2;
}

/* Returns the largest magnitude, or NaN if an element is not finite. Magnitudes are ordered as their bits. */
static float largest_magnitude(const float *x, int count)
{
    const int32_t infinity = 0x7F800000;
    int32_t most = 0;
    for (int i = 0; i < count; i++) {
        const int32_t bits = (int32_t)(lt_f32_bits(x[i]) & 0x7FFFFFFF);
        most = bits > most ? bits : most;
    }
    return most >= infinity ? NAN : lt_f32_from_bits((uint32_t)most);
}

/* Returns the block's scale as decoded. draws: NULL rounds to nearest. */
static float round_block_scale(const coded *c, float most, const uint16_t *draws)
{
    if (most < smallest_scale)
        return 0;
    if (c->scale_bytes != 2)
        return most;
    return lt_f32_from_bf16(draws ? round_to_bf16(most, draws[c->block]) : lt_bf16_from_f32(most));
}

static void put_scale(const coded *c, unsigned char *memory, int64_t block, float s)
{
    const uint16_t narrow = lt_bf16_from_f32(s);
    if (c->scale_bytes == 2)
        memcpy(memory + 2 * block, &narrow, 2);
    else
        memcpy(memory + 4 * block, &s, 4);
}

static float get_scale(const coded *c, const unsigned char *memory, int64_t block)
{
    uint16_t narrow;
    float s;
    if (c->scale_bytes == 4) {
        memcpy(&s, memory + 4 * block, 4);
        return s;
    }
    memcpy(&narrow, memory + 2 * block, 2);
    return lt_f32_from_bf16(narrow);
}

/* Quantizes count magnitudes, relative to their scale, 0 <= a <= 1, in vectorizable loops. draws: NULL rounds to
 * nearest. */
static void encode_uniform(const float *a, const uint16_t *draws, int count, int *code)
{
    const float integers = 0x1.8p23F; /* adding it leaves no fraction: rounds to nearest even */
    for (int i = 0; i < count && !draws; i++)
        code[i] = (int)(a[i] * 127.0F + integers - integers);
    for (int i = 0; i < count && draws; i++) {
        const float x = a[i] * 127.0F, below = (float)(int)x;
        code[i] = (int)x + (x - below > rounding_threshold(draws[i]));
    }
    for (int i = 0; i < count; i++)
        code[i] = code[i] < 127 ? code[i] : 127;
}

static void encode_quadratic(const float *a, const uint16_t *draws, int count, int *code)
{
    const levels *l = &tables.quarter;
    for (int i = 0; i < count && !draws; i++) {
        code[i] = 0;
        for (int k = 0; k + 1 < QUARTER; k++)
            code[i] += a[i] > l->middle[k];
    }
    for (int i = 0; i < count && draws; i++) {
        float below = 0, per_gap = l->per_gap[0];
        int c = 0;
        for (int k = 1; k < QUARTER; k++) {
            below = a[i] >= l->value[k] ? l->value[k] : below;
            per_gap = a[i] >= l->value[k] ? l->per_gap[k] : per_gap;
            c += a[i] >= l->value[k];
        }
        code[i] = c + ((a[i] - below) * per_gap > rounding_threshold(draws[i]));
    }
}

static void encode_tree(const coded *c, const float *a, const uint16_t *draws, int count, int *code)
{
    const levels *l = c->positive ? &tables.is_unsigned : &tables.is_signed;
    for (int i = 0; i < count; i++) {
        const int near = nearest_level(l, a[i]);
        code[i] = draws ? round_stochastically(l, near, a[i], draws[i]) : near;
        if (c->positive && a[i] > 0 && !code[i])
            code[i] = 1;
    }
}

typedef struct block_scale {
    float most, s; /* largest magnitude; scale as decoded */
} block_scale;

/* Quantizes signed elements. The largest magnitude gets the last level, however the scale was rounded. */
static void encode_signed(const coded *c, const float *x, int count, block_scale scale,
                          const uint16_t *draws, int *code)
{
    float a[MOMENT_BLOCK];
    for (int i = 0; i < count; i++)
        a[i] = fabsf(x[i]) / scale.s;
    for (int i = 0; i < count; i++)
        a[i] = fabsf(x[i]) >= scale.most ? 1 : a[i];
    if (c->dtype == LT_STATE_INT4)
        encode_quadratic(a, draws, count, code);
    else if (c->moments)
        encode_tree(c, a, draws, count, code);
    else
        encode_uniform(a, draws, count, code);
    for (int i = 0; i < count; i++)
        code[i] = x[i] < 0 ? -code[i] : code[i];
}

static void quantize_and_pack_codes(const coded *c, const float *x, int count, block_scale scale,
                                    const uint16_t *draws, unsigned char *out)
{
    const bool four = c->dtype == LT_STATE_INT4;
    int code[MOMENT_BLOCK + 1] = {0};
    if (scale.s > 0) /* otherwise 0 or NaN: all codes are 0 */
        encode_signed(c, x, count, scale, draws, code);
    for (int i = 0; i < count && !four; i++)
        out[i] = (unsigned char)code[i];
    for (int i = 0; i < count && four; i += 2)
        out[i / 2] = (unsigned char)((code[i] & 15) | (code[i + 1] & 15) << 4);
}

static void encode_bf16(const float *x, int count, const uint16_t *draws, unsigned char *code)
{
    for (int i = 0; i < count; i++) {
        const uint16_t narrow = draws ? round_to_bf16(x[i], draws[i]) : lt_bf16_from_f32(x[i]);
        memcpy(code + (ptrdiff_t)2 * i, &narrow, 2);
    }
}

static void encode_block(const coded *c, const float *x, int64_t block, unsigned char *memory)
{
    const int count = elements_at(c, block);
    unsigned char *code = memory + blocks_of(c) * c->scale_bytes + block * c->code_bytes;
    uint16_t drawn[DRAWS];
    const uint16_t *draws = c->rounding.stochastic ? drawn : NULL;
    if (c->dtype == LT_STATE_F32) {
        memcpy(code, x, (size_t)count * sizeof *x);
        return;
    }
    if (draws)
        draw_bits(&c->rounding, block, c->block, drawn);
    if (c->dtype == LT_STATE_BF16) {
        encode_bf16(x, count, draws, code);
        return;
    }
    block_scale scale = {.most = largest_magnitude(x, count)};
    scale.s = round_block_scale(c, scale.most, draws);
    put_scale(c, memory, block, scale.s);
    quantize_and_pack_codes(c, x, count, scale, draws, code);
}

static void decode_codes(const coded *c, const unsigned char *code, int count, float s, float *x)
{
    const float *value = !c->moments   ? tables.of_even
                         : c->positive ? tables.of_unsigned
                                       : tables.of_signed;
    if (c->dtype == LT_STATE_INT4) {
        for (int i = 0; i < count; i++)
            x[i] = tables.of_quarter[code[i / 2] >> i % 2 * 4 & 15] * s;
        return;
    }
    for (int i = 0; i < count; i++)
        x[i] = value[code[i]] * s;
}

static void decode_block(const coded *c, const unsigned char *memory, int64_t block, float *x)
{
    const int count = elements_at(c, block);
    const unsigned char *code = memory + blocks_of(c) * c->scale_bytes + block * c->code_bytes;
    if (c->dtype == LT_STATE_F32) {
        memcpy(x, code, (size_t)count * sizeof *x);
        return;
    }
    for (int i = 0; i < count && c->dtype == LT_STATE_BF16; i++) {
        uint16_t narrow;
        memcpy(&narrow, code + (ptrdiff_t)2 * i, 2);
        x[i] = lt_f32_from_bf16(narrow);
    }
    if (c->dtype != LT_STATE_BF16)
        decode_codes(c, code, count, get_scale(c, memory, block), x);
}

/* --- Triangles --- */

/* Returns the row of element p of the triangle below the diagonal, stored row by row. */
static int64_t triangle_row(int64_t p)
{
    int64_t row = (int64_t)((1 + sqrt(1 + 8 * (double)p)) / 2);
    while (row * (row - 1) / 2 > p)
        row--;
    while (row * (row + 1) / 2 <= p)
        row++;
    return row;
}

typedef enum half { BELOW, ABOVE } half;

/* Gathers elements [p, p + count) of a triangle; ABOVE reads the transposed positions. */
static void gather_triangle(const float *x, int64_t n, half which, int64_t p, int count, float *out)
{
    int64_t row = triangle_row(p), col = p - row * (row - 1) / 2;
    for (int done = 0; done < count; row++, col = 0) {
        const int64_t left = count - done, some = row - col < left ? row - col : left;
        for (int64_t i = 0; i < some; i++)
            out[done + i] = which == BELOW ? x[row * n + col + i] : x[(col + i) * n + row];
        done += (int)some;
    }
}

static void scatter_triangle(float *x, int64_t n, half which, int64_t p, int count, const float *in)
{
    int64_t row = triangle_row(p), col = p - row * (row - 1) / 2;
    for (int done = 0; done < count; row++, col = 0) {
        const int64_t left = count - done, some = row - col < left ? row - col : left;
        for (int64_t i = 0; i < some; i++)
            x[which == BELOW ? row * n + col + i : (col + i) * n + row] = in[done + i];
        done += (int)some;
    }
}

static void mirror_lower_triangle(float *x, int64_t n)
{
    enum { TILE = 16 };
    for (int64_t i = 0; i < n; i += TILE)
        for (int64_t j = 0; j <= i; j += TILE)
            for (int64_t r = i; r < n && r < i + TILE; r++)
                for (int64_t c = j; c < r && c < j + TILE; c++)
                    x[c * n + r] = x[r * n + c];
}

/* --- Whole arrays --- */

typedef struct pass {
    lt_quantized_format format;
    /* error: codes of the quantization error, rounded stochastically; the main codes are then rounded to nearest */
    coded coded, error;
    int64_t n; /* rows of a square matrix; 0: not square */
    const float *x;
    float *out;
    unsigned char *memory, *errors;
    bool apart; /* main codes below the diagonal, errors above it */
} pass;

static bool is_square_matrix_kind(lt_quantized_kind kind)
{
    return kind == LT_QUANTIZED_SYMMETRIC || kind == LT_QUANTIZED_CHOLESKY;
}

static bool stores_quantization_error(lt_quantized_format f)
{
    return f.kind == LT_QUANTIZED_CHOLESKY && f.dtype >= LT_STATE_INT8;
}

static int64_t matrix_side(int64_t elements)
{
    return (int64_t)llrint(sqrt((double)elements));
}

/* memory: NULL if only sizes matter. */
static pass begin_conversion(lt_quantized_format f, int64_t elements, const unsigned char *memory)
{
    pass p = {.format = f};
    p.n = is_square_matrix_kind(f.kind) ? matrix_side(elements) : 0;
    const lt_quantized_format of_errors = {f.kind, LT_STATE_INT4};
    p.coded = coding_of_format(f, p.n ? p.n * (p.n - 1) / 2 : elements);
    p.error = coding_of_format(of_errors, stores_quantization_error(f) ? p.coded.count : 0);
    p.memory = memory ? (unsigned char *)(uintptr_t)memory + p.n * 4 : NULL;
    p.errors = memory && stores_quantization_error(f) ? p.memory + coded_bytes(&p.coded) : NULL;
    fill_tables_once();
    return p;
}

int64_t lt_quantized_bytes(lt_quantized_format f, int64_t elements)
{
    const pass p = begin_conversion(f, elements, NULL);
    return p.n * 4 + coded_bytes(&p.coded) + coded_bytes(&p.error);
}

/* Encodes a block of the Cholesky factor L, and its quantization error. */
static void encode_block_and_error(const pass *p, int64_t block, const float *x)
{
    float error[MATRIX_BLOCK] = {0};
    const int count = elements_at(&p->coded, block);
    encode_block(&p->coded, x, block, p->memory);
    if (p->apart) {
        gather_triangle(p->x, p->n, ABOVE, block * p->coded.block, count, error);
    } else {
        decode_block(&p->coded, p->memory, block, error);
        for (int i = 0; i < count; i++)
            error[i] = x[i] - error[i];
    }
    encode_block(&p->error, error, block, p->errors);
}

static void encode_blocks(void *context, int64_t from, int64_t to)
{
    const pass *p = context;
    float x[MATRIX_BLOCK] = {0};
    for (int64_t b = from; b < to; b++) {
        if (!p->n) {
            encode_block(&p->coded, p->x + b * p->coded.block, b, p->memory);
            continue;
        }
        gather_triangle(p->x, p->n, BELOW, b * p->coded.block, elements_at(&p->coded, b), x);
        if (p->errors)
            encode_block_and_error(p, b, x);
        else
            encode_block(&p->coded, x, b, p->memory);
    }
}

static void decode_blocks(void *context, int64_t from, int64_t to)
{
    const pass *p = context;
    float x[MATRIX_BLOCK], error[MATRIX_BLOCK];
    for (int64_t b = from; b < to; b++) {
        const int64_t at = b * p->coded.block;
        const int count = elements_at(&p->coded, b);
        if (!p->n) {
            decode_block(&p->coded, p->memory, b, p->out + at);
            continue;
        }
        decode_block(&p->coded, p->memory, b, x);
        memset(error, 0, sizeof error);
        if (p->errors)
            decode_block(&p->error, p->errors, b, error);
        for (int i = 0; i < count && !p->apart; i++)
            x[i] += error[i];
        scatter_triangle(p->out, p->n, BELOW, at, count, x);
        if (p->apart && p->format.kind == LT_QUANTIZED_CHOLESKY)
            scatter_triangle(p->out, p->n, ABOVE, at, count, error);
    }
}

static const int64_t grain = 64; /* blocks per parallel chunk */

void lt_quantized_encode(lt_quantized_format f, const float *x, int64_t elements,
                         unsigned char *memory, bool apart, lt_quantized_rounding rounding)
{
    pass p = begin_conversion(f, elements, memory);
    p.x = x;
    p.apart = apart;
    if (p.errors)
        p.error.rounding = rounding;
    else
        p.coded.rounding = rounding;
    for (int64_t i = 0; i < p.n; i++)
        memcpy(memory + 4 * i, &x[i * (p.n + 1)], 4);
    lt_parallel_range(blocks_of(&p.coded), grain, encode_blocks, &p);
}

void lt_quantized_decode(lt_quantized_format f, const unsigned char *memory, int64_t elements,
                         bool apart, float *x)
{
    pass p = begin_conversion(f, elements, memory);
    p.out = x;
    p.apart = apart;
    for (int64_t i = 0; i < p.n; i++)
        memcpy(&x[i * (p.n + 1)], memory + 4 * i, 4);
    lt_parallel_range(blocks_of(&p.coded), grain, decode_blocks, &p);
    if (f.kind == LT_QUANTIZED_SYMMETRIC)
        mirror_lower_triangle(x, p.n);
}

/* --- Cholesky --- */

/* Dot product in a fixed order: sixteen partial sums. */
static float dot(const float *a, const float *b, int64_t count)
{
    enum { WIDTH = 16 };
    float sum[WIDTH] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH)
        for (int k = 0; k < WIDTH; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        rest += a[i] * b[i];
    for (int step = WIDTH / 2; step; step /= 2)
        for (int k = 0; k < step; k++)
            sum[k] += sum[k + step];
    return sum[0] + rest;
}

void lt_quantized_cholesky(float *x, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = x[i * (n + 1)] > largest ? x[i * (n + 1)] : largest;
    const float least = largest * (float)fmax(1e-6, (double)n * 0x1p-24);
    const float root = sqrtf(least);
    for (int64_t i = 0; i < n; i++) {
        float *row = x + i * n;
        for (int64_t j = 0; j < i; j++) {
            const float *above = x + j * n, pivot = above[j];
            /* a raised pivot equals root exactly; its column is 0 */
            row[j] = pivot > root ? (row[j] - dot(row, above, j)) / pivot : 0;
        }
        const float square = row[i] - dot(row, row, i);
        row[i] = square <= least ? root : sqrtf(square);
    }
}
