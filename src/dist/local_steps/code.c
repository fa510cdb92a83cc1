/* Messages of an outer step: the places of the selected elements, then their values. Places are, whichever is
 * shorter, a bitmap of all elements, or for chunks of CHUNK elements how many are selected in each (u16) and all
 * places within their chunk (u16). Values are f32 or bf16; or two bits each, in blocks of CHUNK selected elements:
 * two f32 levels, low and high, and for each value its sign and which level. With m the mean of |v| in the block, low
 * is the mean of the |v| <= m and high that of the others: the best levels, in squares, for that division. */

#include "dist/local_steps/state.h"
#include "tensor/backend/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096, BITS = 2, PER_BYTE = 4, BYTE = 8 };

static lt_status bad(const char *text)
{
    return lt_fail(LT_E_ARG,
                   "outer compression '%s' is not off or topk:DENSITY[,bf16|,2bit], a density in "
                   "(0,1]",
                   text);
}

lt_status lt_outer_parse(lt_outer_code *out, const char *text)
{
    static const char kind[] = "topk:";
    static const char *const values[] = {
        [LT_OUTER_F32] = ",f32", [LT_OUTER_BF16] = ",bf16", [LT_OUTER_2BIT] = ",2bit"};
    *out = (lt_outer_code){.density = 0};
    if (!text || !strcmp(text, "off"))
        return LT_OK;
    if (strncmp(text, kind, strlen(kind)) != 0)
        return bad(text);
    const char *number = text + strlen(kind);
    char *end;
    const double density = strtod(number, &end);
    if (end == number || !(density > 0 && density <= 1))
        return bad(text);
    for (int i = 0; *end && i < (int)(sizeof values / sizeof *values); i++)
        if (!strcmp(end, values[i])) {
            *out = (lt_outer_code){density, (lt_outer_values)i};
            return LT_OK;
        }
    if (*end)
        return bad(text);
    out->density = density;
    return LT_OK;
}

/* --- Sizes --- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t lt_outer_selected(const lt_outer_code *code, int64_t elements)
{
    const int64_t count = (int64_t)ceil(code->density * (double)elements);
    return count < elements ? count : elements;
}

static bool has_bitmap(int64_t elements, int64_t selected)
{
    return ceil_div(elements, BYTE) < 2 * (selected + ceil_div(elements, CHUNK));
}

static int64_t place_bytes(int64_t elements, int64_t selected)
{
    return has_bitmap(elements, selected) ? ceil_div(elements, BYTE)
                                          : 2 * (selected + ceil_div(elements, CHUNK));
}

static int64_t value_bytes(lt_outer_values values, int64_t selected)
{
    const int64_t levels = 2 * (int64_t)sizeof(float);
    switch (values) {
    case LT_OUTER_F32:
        return selected * (int64_t)sizeof(float);
    case LT_OUTER_BF16:
        return selected * 2;
    case LT_OUTER_2BIT:
        return ceil_div(selected, PER_BYTE) + levels * ceil_div(selected, CHUNK);
    }
    return 0;
}

int64_t lt_outer_bytes(const lt_outer_code *code, int64_t elements)
{
    const int64_t selected = lt_outer_selected(code, elements);
    return place_bytes(elements, selected) + value_bytes(code->values, selected);
}

/* --- Places --- */

static void put16(unsigned char *to, int64_t index, uint16_t value)
{
    memcpy(to + 2 * index, &value, sizeof value);
}

static uint16_t get16(const unsigned char *from, int64_t index)
{
    uint16_t value;
    memcpy(&value, from + 2 * index, sizeof value);
    return value;
}

static void put_places(unsigned char *to, int64_t elements, const uint32_t *index, int64_t selected)
{
    const int64_t chunks = ceil_div(elements, CHUNK);
    for (int64_t i = 0; i < selected; i++) {
        const uint32_t chunk = index[i] / CHUNK;
        if (has_bitmap(elements, selected)) {
            to[index[i] / BYTE] |= (unsigned char)(1U << index[i] % BYTE);
            continue;
        }
        put16(to, chunk, (uint16_t)(get16(to, chunk) + 1));
        put16(to, chunks + i, (uint16_t)(index[i] % CHUNK));
    }
}

static lt_status not_ascending(void)
{
    return lt_fail(LT_E_COMM, "local steps: a message has places that are none");
}

static lt_status get_bitmap(const unsigned char *from, int64_t elements, int64_t selected,
                            int64_t *place)
{
    int64_t found = 0;
    for (int64_t i = 0; i < elements; i++)
        if (from[i / BYTE] >> i % BYTE & 1) {
            if (found == selected)
                return not_ascending();
            place[found++] = i;
        }
    return found == selected ? LT_OK : not_ascending();
}

static lt_status get_chunks(const unsigned char *from, int64_t elements, int64_t selected,
                            int64_t *place)
{
    const int64_t chunks = ceil_div(elements, CHUNK);
    int64_t found = 0, last = -1;
    for (int64_t c = 0; c < chunks; c++)
        for (int left = get16(from, c); left > 0; left--) {
            if (found == selected)
                return not_ascending();
            const int64_t at = c * CHUNK + get16(from, chunks + found);
            if (at <= last || at >= elements)
                return not_ascending();
            place[found++] = last = at;
        }
    return found == selected ? LT_OK : not_ascending();
}

/* --- Values in two bits --- */

typedef struct levels {
    float low, high;
} levels;

static levels find_levels(const float *x, const uint32_t *index, int64_t count, double *mean)
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

static void put_block(unsigned char *bits, levels *to, const float *x, const uint32_t *index,
                      int64_t count)
{
    double mean;
    *to = find_levels(x, index, count, &mean);
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)x[index[i]];
        const unsigned value = (v < 0) | (unsigned)(fabs(v) > mean) << 1;
        bits[i / PER_BYTE] |= (unsigned char)(value << BITS * (i % PER_BYTE));
    }
}

/* A block is a whole number of bytes, but for the last. */
static void put_2bit(unsigned char *to, const float *x, const uint32_t *index, int64_t selected)
{
    const int64_t blocks = ceil_div(selected, CHUNK);
    unsigned char *bits = to + (size_t)blocks * sizeof(levels);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * CHUNK, left = selected - at;
        levels level;
        put_block(bits + at / PER_BYTE, &level, x, index + at, left < CHUNK ? left : CHUNK);
        memcpy(to + (size_t)b * sizeof level, &level, sizeof level);
    }
}

static double get_2bit(const unsigned char *from, int64_t selected, int64_t i)
{
    const unsigned char *bits = from + (size_t)ceil_div(selected, CHUNK) * sizeof(levels);
    const unsigned value = bits[i / PER_BYTE] >> BITS * (i % PER_BYTE) & 3U;
    levels level;
    memcpy(&level, from + (size_t)(i / CHUNK) * sizeof level, sizeof level);
    const double size = (double)(value & 2 ? level.high : level.low);
    return value & 1 ? -size : size;
}

/* --- Messages --- */

void lt_outer_encode(const lt_outer_code *code, const float *x, int64_t elements,
                     const uint32_t *index, unsigned char *message)
{
    const int64_t selected = lt_outer_selected(code, elements);
    unsigned char *values = message + place_bytes(elements, selected);
    put_places(message, elements, index, selected);
    if (code->values == LT_OUTER_2BIT) {
        put_2bit(values, x, index, selected);
        return;
    }
    for (int64_t i = 0; i < selected; i++) {
        const float v = x[index[i]];
        if (code->values == LT_OUTER_BF16)
            put16(values, i, lt_bf16_from_f32(v));
        else
            memcpy(values + (size_t)i * sizeof v, &v, sizeof v);
    }
}

static double value_of(const lt_outer_code *code, const unsigned char *values, int64_t selected,
                       int64_t i)
{
    float v;
    if (code->values == LT_OUTER_2BIT)
        return get_2bit(values, selected, i);
    if (code->values == LT_OUTER_BF16)
        return (double)lt_f32_from_bf16(get16(values, i));
    memcpy(&v, values + (size_t)i * sizeof v, sizeof v);
    return (double)v;
}

lt_status lt_outer_decode(const lt_outer_code *code, const unsigned char *message, int64_t elements,
                          double *sum)
{
    const int64_t selected = lt_outer_selected(code, elements);
    const unsigned char *values = message + place_bytes(elements, selected);
    int64_t *place = malloc((size_t)selected * sizeof *place);
    if (!place)
        return lt_fail(LT_E_NOMEM, "local steps: no memory for %lld places", (long long)selected);
    lt_status st = has_bitmap(elements, selected) ? get_bitmap(message, elements, selected, place)
                                                  : get_chunks(message, elements, selected, place);
    for (int64_t i = 0; i < selected && !st; i++)
        sum[place[i]] += value_of(code, values, selected, i);
    free(place);
    return st;
}
