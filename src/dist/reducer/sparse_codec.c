/* Codec of sparse messages. */

#include "dist/reducer/sparse_codec.h"

#include "dist/comm/element.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 4096, WORD = 4, BITS = 8, VALUES_PER_BYTE = 4 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up_to_word(int64_t bytes)
{
    return ceil_div(bytes, WORD) * WORD;
}

static int64_t count_index_blocks(const lt_sparse *p)
{
    return ceil_div(p->elements, BLOCK);
}

static int64_t count_value_blocks(int64_t count)
{
    return ceil_div(count, BLOCK);
}

int64_t lt_sparse_count_selected(double density, int64_t elements)
{
    const int64_t count = (int64_t)ceil(density * (double)elements);
    return count < elements ? count : elements;
}

/* Chooses the smallest encoding of the indices, and sets the byte counts. */
static lt_sparse choose_encoding(lt_sparse p, int64_t value_bytes)
{
    const int64_t bytes[] = {WORD * p.count,
                             round_up_to_word(2 * (p.count + count_index_blocks(&p))),
                             round_up_to_word(ceil_div(p.elements, BITS))};
    p.form = LT_SPARSE_INDICES;
    for (lt_sparse_form f = LT_SPARSE_BLOCKS; f <= LT_SPARSE_BITS; f++)
        p.form = bytes[f] < bytes[p.form] ? f : p.form;
    p.value_bytes = round_up_to_word(value_bytes);
    p.bytes = p.count ? p.value_bytes + bytes[p.form] : 0;
    return p;
}

lt_sparse lt_sparse_layout(int64_t elements, int64_t count, lt_dtype dtype)
{
    return choose_encoding((lt_sparse){.elements = elements, .count = count, .dtype = dtype},
                           count * (int64_t)lt_dtype_size(dtype));
}

/* --- Values in two bits --- */

typedef struct levels {
    float low, high;
} levels;

static levels compute_2bit_levels(const float *x, const uint32_t *index, int64_t count,
                                  double *mean)
{
    double sum[2] = {0}, all = 0;
    int64_t number[2] = {0};
    for (int64_t i = 0; i < count; i++)
        all += fabs((double)x[index[i]]);
    *mean = all / (double)count;
    for (int64_t i = 0; i < count; i++) {
        const double a = fabs((double)x[index[i]]);
        sum[a > *mean] += a;
        number[a > *mean]++;
    }
    const double low = number[0] ? sum[0] / (double)number[0] : 0;
    return (levels){(float)low, (float)(number[1] ? sum[1] / (double)number[1] : low)};
}

static void encode_2bit_block(unsigned char *bits, levels *to, const float *x,
                              const uint32_t *index, int64_t count)
{
    double mean;
    *to = compute_2bit_levels(x, index, count, &mean);
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)x[index[i]];
        const unsigned value = (v < 0) | (unsigned)(fabs(v) > mean) << 1;
        bits[i / VALUES_PER_BYTE] |= (unsigned char)(value << 2 * (i % VALUES_PER_BYTE));
    }
}

/* Encodes values in 2 bits, block by block; each block but the last fills whole bytes. */
static void encode_2bit(unsigned char *to, const float *x, const uint32_t *index, int64_t count)
{
    const int64_t blocks = count_value_blocks(count);
    unsigned char *bits = to + (size_t)blocks * sizeof(levels);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * BLOCK, left = count - at;
        levels level;
        encode_2bit_block(bits + at / VALUES_PER_BYTE, &level, x, index + at,
                          left < BLOCK ? left : BLOCK);
        memcpy(to + (size_t)b * sizeof level, &level, sizeof level);
    }
}

static double decode_2bit(const unsigned char *from, int64_t count, int64_t i)
{
    const unsigned char *bits = from + (size_t)count_value_blocks(count) * sizeof(levels);
    const unsigned value = bits[i / VALUES_PER_BYTE] >> 2 * (i % VALUES_PER_BYTE) & 3U;
    levels level;
    memcpy(&level, from + (size_t)(i / BLOCK) * sizeof level, sizeof level);
    const double size = (double)(value & 2 ? level.high : level.low);
    return value & 1 ? -size : size;
}

lt_sparse lt_sparse_layout_2bit(int64_t elements, int64_t count)
{
    return choose_encoding(
        (lt_sparse){.elements = elements, .count = count, .dtype = LT_F32, .two_bits = true},
        count_value_blocks(count) * (int64_t)sizeof(levels) + ceil_div(count, VALUES_PER_BYTE));
}

/* --- Messages --- */

static void write_values(const lt_sparse *p, const void *x, const uint32_t *index, void *values)
{
    const lt_dtype wide = p->dtype == LT_F64 ? LT_F64 : LT_F32;
    if (p->two_bits) {
        encode_2bit(values, x, index, p->count);
        return;
    }
    for (int64_t i = 0; i < p->count; i++)
        lt_element_set(p->dtype, values, i, lt_element(wide, x, index[i]));
}

/* Decodes value i; values is aligned to 4 bytes only, as messages are concatenated. */
static double decode_value(const lt_sparse *p, const void *values, int64_t i)
{
    return p->two_bits ? decode_2bit(values, p->count, i) : lt_element(p->dtype, values, i);
}

static void write_block_indices(const lt_sparse *p, const uint32_t *index, uint16_t *to)
{
    uint16_t *in_block = to + count_index_blocks(p);
    for (int64_t i = 0; i < p->count; i++) {
        to[index[i] / BLOCK]++;
        in_block[i] = (uint16_t)(index[i] % BLOCK);
    }
}

void lt_sparse_encode(const lt_sparse *p, const void *x, const uint32_t *index, void *message)
{
    unsigned char *indices = (unsigned char *)message + p->value_bytes;
    if (!p->count)
        return;
    memset(message, 0, (size_t)p->bytes);
    write_values(p, x, index, message);
    switch (p->form) {
    case LT_SPARSE_INDICES:
        memcpy(indices, index, (size_t)p->count * sizeof *index);
        return;
    case LT_SPARSE_BLOCKS:
        write_block_indices(p, index, (uint16_t *)indices);
        return;
    case LT_SPARSE_BITS:
        for (int64_t i = 0; i < p->count; i++)
            indices[index[i] / BITS] |= (unsigned char)(1U << index[i] % BITS);
        return;
    }
}

/* Progress of adding a message to x. */
typedef struct sum {
    const lt_sparse *p;
    const void *values;
    double sign;
    void *x;
    lt_dtype dtype;
    int64_t added, last; /* number of values added; last index, -1 before the first */
} sum;

/* Adds the next value at an index. Returns false if no value is left or the index is not above the last one. */
static inline bool add_next_value(sum *s, int64_t index)
{
    if (s->added >= s->p->count || index >= s->p->elements || index <= s->last)
        return false;
    s->last = index;
    const double term = s->sign * decode_value(s->p, s->values, s->added++);
    if (s->dtype == LT_F64)
        ((double *)s->x)[index] += term;
    else
        ((float *)s->x)[index] += (float)term;
    return true;
}

static bool add_values_at_indices(sum *s, const uint32_t *index)
{
    bool fits = true;
    for (int64_t i = 0; i < s->p->count && fits; i++)
        fits = add_next_value(s, index[i]);
    return fits;
}

static bool add_values_at_block_indices(sum *s, const uint16_t *counts)
{
    const int64_t blocks = count_index_blocks(s->p);
    const uint16_t *index = counts + blocks;
    bool fits = true;
    for (int64_t c = 0; c < blocks; c++)
        for (int i = 0; i < counts[c] && fits; i++)
            fits = s->added < s->p->count && add_next_value(s, c * BLOCK + index[s->added]);
    return fits;
}

static bool add_values_in_bitmap(sum *s, const unsigned char *bits)
{
    const int64_t bytes = ceil_div(s->p->elements, BITS);
    bool fits = true;
    for (int64_t b = 0; b < bytes; b++)
        for (int i = 0; bits[b] >> i && fits; i++)
            if (bits[b] >> i & 1)
                fits = add_next_value(s, b * BITS + i);
    return fits;
}

lt_status lt_sparse_add_message(const lt_sparse *p, const void *message, double sign, void *x,
                                lt_dtype dtype)
{
    const unsigned char *indices = (const unsigned char *)message + p->value_bytes;
    sum s = {.p = p, .values = message, .sign = sign, .x = x, .dtype = dtype, .last = -1};
    bool fits = p->count == 0;
    if (!fits && p->form == LT_SPARSE_INDICES)
        fits = add_values_at_indices(&s, (const uint32_t *)(const void *)indices);
    else if (!fits && p->form == LT_SPARSE_BLOCKS)
        fits = add_values_at_block_indices(&s, (const uint16_t *)(const void *)indices);
    else if (!fits)
        fits = add_values_in_bitmap(&s, indices);
    if (fits && s.added == p->count)
        return LT_OK;
    return lt_fail(LT_E_COMM, "compress: corrupt sparse message of %lld of %lld elements",
                   (long long)p->count, (long long)p->elements);
}
