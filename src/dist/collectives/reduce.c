/* Sum, mean and maximum over ranks, added in rank order or in a binary tree over ranks. */

#include "dist/collectives/collectives.h"
#include "tensor/backend/dtype.h"

#include <string.h>

enum { BLOCK = 1024 }; /* elements: their sums fit in the L1 cache */

/* Adds the term x to acc, or sets acc to the maximum of both, elementwise. NaN propagates. */
/* NOLINTBEGIN(bugprone-macro-parentheses): `type` declares */
#define COMBINE(name, type, sum)                                        \
    static void name(type *acc, const type *x, int64_t n, lt_reduce op) \
    {                                                                   \
        if (op == LT_REDUCE_MAX)                                        \
            for (int64_t i = 0; i < n; i++)                             \
                acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i]; \
        else                                                            \
            for (int64_t i = 0; i < n; i++)                             \
                acc[i] = sum;                                           \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

COMBINE(combine_f32, float, acc[i] + x[i])
COMBINE(combine_f64, double, acc[i] + x[i])
/* Integers wrap around on overflow. */
COMBINE(combine_i32, int32_t, (int32_t)((uint32_t)acc[i] + (uint32_t)x[i]))
COMBINE(combine_i64, int64_t, (int64_t)((uint64_t)acc[i] + (uint64_t)x[i]))

/* Returns the dtype in which terms of dtype are added. */
static lt_dtype accumulation_dtype(lt_dtype dtype)
{
    return dtype == LT_F16 || dtype == LT_BF16 ? LT_F32 : dtype;
}

static void widen_to_f32(void *to, const void *from, int64_t n, lt_dtype dtype)
{
    float *y = to;
    const uint16_t *x = from;
    if (dtype == LT_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = lt_f32_from_bf16(x[i]);
    else if (dtype == LT_F16)
        for (int64_t i = 0; i < n; i++)
            y[i] = lt_f32_from_f16(x[i]);
    else
        memcpy(to, from, (size_t)n * lt_dtype_size(dtype));
}

static void narrow_from_f32(void *to, const void *from, int64_t n, lt_dtype dtype)
{
    uint16_t *y = to;
    const float *x = from;
    if (dtype == LT_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = lt_bf16_from_f32(x[i]);
    else if (dtype == LT_F16)
        for (int64_t i = 0; i < n; i++)
            y[i] = lt_f16_from_f32(x[i]);
    else
        memcpy(to, from, (size_t)n * lt_dtype_size(dtype));
}

static void combine_terms(void *acc, const void *x, int64_t n, lt_dtype dtype, lt_reduce op)
{
    if (dtype == LT_F32)
        combine_f32(acc, x, n, op);
    else if (dtype == LT_F64)
        combine_f64(acc, x, n, op);
    else if (dtype == LT_I32)
        combine_i32(acc, x, n, op);
    else
        combine_i64(acc, x, n, op);
}

static void divide_by_term_count(void *acc, int64_t n, lt_dtype dtype, int terms)
{
    float *f = acc;
    double *d = acc;
    if (dtype == LT_F32)
        for (int64_t i = 0; i < n; i++)
            f[i] /= (float)terms;
    else
        for (int64_t i = 0; i < n; i++)
            d[i] /= terms;
}

/* Combines n elements of the terms from byte `at` on into acc, in the accumulation dtype. */
static void combine_block(void *acc, const void *const *term, int terms, size_t at, int64_t n,
                          const lt_comm_call *call)
{
    _Alignas(64) char next[BLOCK * sizeof(double)];
    const lt_dtype wide = accumulation_dtype(call->dtype);
    if (call->tree && terms % 2 == 0) {
        combine_block(acc, term, terms / 2, at, n, call);
        combine_block(next, term + terms / 2, terms / 2, at, n, call);
        combine_terms(acc, next, n, wide, call->op);
        return;
    }
    widen_to_f32(acc, (const char *)term[0] + at, n, call->dtype);
    for (int t = 1; t < terms; t++) {
        const void *x = (const char *)term[t] + at;
        if (wide != call->dtype) {
            widen_to_f32(next, x, n, call->dtype);
            x = next;
        }
        combine_terms(acc, x, n, wide, call->op);
    }
}

void lt_reduce_terms(void *out, const void *const *term, int terms, int64_t count,
                     const lt_comm_call *call)
{
    _Alignas(64) char acc[BLOCK * sizeof(double)];
    const size_t element = lt_dtype_size(call->dtype);
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        int64_t n = count - begin < BLOCK ? count - begin : BLOCK;
        size_t at = (size_t)begin * element;
        combine_block(acc, term, terms, at, n, call);
        if (call->op == LT_REDUCE_MEAN)
            divide_by_term_count(acc, n, accumulation_dtype(call->dtype), terms);
        narrow_from_f32((char *)out + at, acc, n, call->dtype);
    }
}
