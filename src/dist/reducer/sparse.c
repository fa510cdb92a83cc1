/* Messages of selected elements. */

#include "dist/reducer/sparse.h"

#include "tensor/backend/dtype.h"

#include "lather/ext/fail.h"

#include <string.h>

enum { CHUNK = 4096, WORD = 4, BITS = 8 };

static int64_t filled_up(int64_t bytes)
{
    return (bytes + WORD - 1) / WORD * WORD;
}

static int64_t chunks_of(const lt_sparse *p)
{
    return (p->elements + CHUNK - 1) / CHUNK;
}

lt_sparse lt_sparse_plan(int64_t elements, int64_t count, lt_dtype dtype)
{
    lt_sparse p = {.elements = elements, .count = count, .dtype = dtype};
    const int64_t bytes[] = {WORD * count, filled_up(2 * (count + chunks_of(&p))),
                             filled_up((elements + BITS - 1) / BITS)};
    p.form = LT_SPARSE_PLACES;
    for (lt_sparse_form f = LT_SPARSE_CHUNKS; f <= LT_SPARSE_BITS; f++)
        p.form = bytes[f] < bytes[p.form] ? f : p.form;
    p.value_bytes = filled_up(count * (int64_t)lt_dtype_size(dtype));
    p.bytes = count ? p.value_bytes + bytes[p.form] : 0;
    return p;
}

static void write_values(const lt_sparse *p, const void *x, const uint32_t *index, void *values)
{
    const float *f = x;
    for (int64_t i = 0; i < p->count; i++) {
        if (p->dtype == LT_F64)
            ((double *)values)[i] = ((const double *)x)[index[i]];
        else if (p->dtype == LT_F32)
            ((float *)values)[i] = f[index[i]];
        else
            ((uint16_t *)values)[i] =
                p->dtype == LT_BF16 ? lt_bf16_from_f32(f[index[i]]) : lt_f16_from_f32(f[index[i]]);
    }
}

static double value_at(const lt_sparse *p, const void *values, int64_t i)
{
    if (p->dtype == LT_F64) { /* messages lie one behind the other, at multiples of 4 */
        double value;
        memcpy(&value, (const char *)values + i * (int64_t)sizeof value, sizeof value);
        return value;
    }
    if (p->dtype == LT_F32)
        return (double)((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return (double)(p->dtype == LT_BF16 ? lt_f32_from_bf16(bits) : lt_f32_from_f16(bits));
}

static void write_chunks(const lt_sparse *p, const uint32_t *index, uint16_t *to)
{
    uint16_t *place = to + chunks_of(p);
    for (int64_t i = 0; i < p->count; i++) {
        to[index[i] / CHUNK]++;
        place[i] = (uint16_t)(index[i] % CHUNK);
    }
}

void lt_sparse_write(const lt_sparse *p, const void *x, const uint32_t *index, void *message)
{
    unsigned char *places = (unsigned char *)message + p->value_bytes;
    if (!p->count)
        return;
    memset(message, 0, (size_t)p->bytes);
    write_values(p, x, index, message);
    switch (p->form) {
    case LT_SPARSE_PLACES:
        memcpy(places, index, (size_t)p->count * sizeof *index);
        return;
    case LT_SPARSE_CHUNKS:
        write_chunks(p, index, (uint16_t *)places);
        return;
    case LT_SPARSE_BITS:
        for (int64_t i = 0; i < p->count; i++)
            places[index[i] / BITS] |= (unsigned char)(1U << index[i] % BITS);
        return;
    }
}

/* The values of a message that are added to x; how many were. */
typedef struct sum {
    const lt_sparse *p;
    const void *values;
    double sign;
    void *x;
    int64_t added;
} sum;

/* Adds the next value at a place; false: there is no such value or place. */
static inline bool add(sum *s, int64_t place)
{
    if (s->added >= s->p->count || place >= s->p->elements)
        return false;
    const double term = s->sign * value_at(s->p, s->values, s->added++);
    if (s->p->dtype == LT_F64)
        ((double *)s->x)[place] += term;
    else
        ((float *)s->x)[place] += (float)term;
    return true;
}

static bool add_places(sum *s, const uint32_t *place)
{
    bool fits = true;
    for (int64_t i = 0; i < s->p->count && fits; i++)
        fits = add(s, place[i]);
    return fits;
}

static bool add_chunks(sum *s, const uint16_t *counts)
{
    const int64_t chunks = chunks_of(s->p);
    const uint16_t *place = counts + chunks;
    bool fits = true;
    for (int64_t c = 0; c < chunks; c++)
        for (int i = 0; i < counts[c] && fits; i++)
            fits = s->added < s->p->count && add(s, c * CHUNK + place[s->added]);
    return fits;
}

static bool add_bits(sum *s, const unsigned char *bits)
{
    const int64_t bytes = (s->p->elements + BITS - 1) / BITS;
    bool fits = true;
    for (int64_t b = 0; b < bytes; b++)
        for (int i = 0; bits[b] >> i && fits; i++)
            if (bits[b] >> i & 1)
                fits = add(s, b * BITS + i);
    return fits;
}

lt_status lt_sparse_add(const lt_sparse *p, const void *message, double sign, void *x)
{
    const unsigned char *places = (const unsigned char *)message + p->value_bytes;
    sum s = {.p = p, .values = message, .sign = sign, .x = x};
    bool fits = p->count == 0;
    if (!fits && p->form == LT_SPARSE_PLACES)
        fits = add_places(&s, (const uint32_t *)(const void *)places);
    else if (!fits && p->form == LT_SPARSE_CHUNKS)
        fits = add_chunks(&s, (const uint16_t *)(const void *)places);
    else if (!fits)
        fits = add_bits(&s, places);
    if (fits && s.added == p->count)
        return LT_OK;
    return lt_fail(LT_E_COMM, "compress topk: a message of %lld of %lld elements does not fit them",
                   (long long)p->count, (long long)p->elements);
}
