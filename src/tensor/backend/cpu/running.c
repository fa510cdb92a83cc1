/* Running sums and the largest elements of f32 views with contiguous rows. Other strides and dtypes fall back to the
 * reference backend. Formulas: detail/select_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { WIDTH = 256, CHUNK_ELEMENTS = 32768 };

typedef struct sums {
    const lt_view *x, *y;
    bool from_end;
    int64_t blocks; /* blocks of WIDTH columns */
} sums;

static void cumsum_chunk(void *context, int64_t begin, int64_t end)
{
    const sums *j = context;
    const int64_t n = j->x->shape.dim[1], inner = j->x->shape.dim[2];
    for (int64_t t = begin; t < end; t++) {
        const int64_t a = t / j->blocks, first = t % j->blocks * WIDTH;
        const int64_t width = lt_cpu_min(WIDTH, inner - first);
        double total[WIDTH] = {0};
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = j->from_end ? n - 1 - i : i;
            const float *x =
                (const float *)j->x->data + a * j->x->stride[0] + at * j->x->stride[1] + first;
            float *y = (float *)j->y->data + a * j->y->stride[0] + at * j->y->stride[1] + first;
            for (int64_t c = 0; c < width; c++)
                y[c] = (float)(total[c] += (double)x[c]);
        }
    }
}

static bool has_f32_rows(const lt_view *v)
{
    const int last = v->shape.ndim - 1;
    return v->dtype == LT_F32 && (v->stride[last] == 1 || v->shape.dim[last] == 1);
}

lt_status lt_cpu_cumsum(void *ctx, bool from_end, const lt_view *x, const lt_view *y)
{
    const int64_t inner = x->shape.dim[2], block = x->shape.dim[1] * lt_cpu_min(inner, WIDTH);
    if (!has_f32_rows(x) || !has_f32_rows(y))
        return lt_backend_ref()->cumsum(ctx, from_end, x, y);
    sums j = {x, y, from_end, lt_cpu_ceil_div(inner, WIDTH)};
    lt_parallel_range(x->shape.dim[0] * j.blocks, lt_cpu_max(1, CHUNK_ELEMENTS / block),
                      cumsum_chunk, &j);
    return LT_OK;
}

typedef struct choice {
    const lt_view *x, *index;
} choice;

/* Returns true if v comes before w, which has the smaller index. */
static bool is_before(float v, float w)
{
    return v > w || (v != v && w == w);
}

/* Inserts each element into the sorted list of the k largest so far. */
static void choose_largest(const float *x, int64_t count, int32_t *list, int64_t step, int64_t k)
{
    int64_t length = 0;
    for (int64_t i = 0; i < count; i++) {
        if (length == k && !is_before(x[i], x[list[(k - 1) * step]]))
            continue;
        length += length < k;
        int64_t at = length - 1;
        for (; at > 0 && is_before(x[i], x[list[(at - 1) * step]]); at--)
            list[at * step] = list[(at - 1) * step];
        list[at * step] = (int32_t)i;
    }
}

static void topk_chunk(void *context, int64_t begin, int64_t end)
{
    const choice *j = context;
    for (int64_t n = begin; n < end; n++)
        choose_largest(lt_cpu_row(j->x, n), j->x->shape.dim[1], lt_cpu_row(j->index, n),
                       j->index->stride[1], j->index->shape.dim[1]);
}

lt_status lt_cpu_topk(void *ctx, const lt_view *x, const lt_view *index)
{
    choice j = {x, index};
    if (!has_f32_rows(x))
        return lt_backend_ref()->topk(ctx, x, index);
    lt_parallel_range(x->shape.dim[0], lt_cpu_max(1, CHUNK_ELEMENTS / x->shape.dim[1]), topk_chunk,
                      &j);
    return LT_OK;
}
