/* Selection by masks and indices, for any strides and elements of one size; sums in f32. Other dtypes fall back to
 * the reference backend. Formulas: detail/select_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tensor/backend/index_at.h"

#include <string.h>

enum { GRAIN = 16384, COLUMNS = 64 };

/* Rows of a selection; dimensions in y's storage order, the last one within a row. */
typedef struct selection {
    lt_view mask, a, b, y;
    int64_t size; /* bytes of an element */
} selection;

static lt_view reorder(const lt_view *v, const int *order, int dims)
{
    lt_view out = {.data = v->data, .dtype = v->dtype, .shape = {.ndim = dims ? dims : 1}};
    out.shape.dim[0] = 1;
    for (int i = 0; i < dims; i++) {
        out.shape.dim[i] = v->shape.dim[order[i]];
        out.stride[i] = v->stride[order[i]];
    }
    return out;
}

/* Returns the address of row r. */
static char *row_of(const lt_view *v, int64_t r, int64_t size)
{
    int64_t offset = 0;
    for (int d = v->shape.ndim - 2; d >= 0; d--) {
        offset += r % v->shape.dim[d] * v->stride[d];
        r /= v->shape.dim[d];
    }
    return (char *)v->data + offset * size;
}

static void where_chunk(void *context, int64_t begin, int64_t end)
{
    const selection *s = context;
    const int last = s->y.shape.ndim - 1;
    const int64_t count = s->y.shape.dim[last], m = s->mask.stride[last], u = s->a.stride[last],
                  v = s->b.stride[last], w = s->y.stride[last];
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *mask = (const uint8_t *)row_of(&s->mask, r, 1);
        const void *a = row_of(&s->a, r, s->size), *b = row_of(&s->b, r, s->size);
        void *y = row_of(&s->y, r, s->size);
#define SELECT(type)                    \
    for (int64_t i = 0; i < count; i++) \
    ((type *)y)[i * w] = mask[i * m] ? ((const type *)a)[i * u] : ((const type *)b)[i * v]
        if (s->size == sizeof(uint32_t))
            SELECT(uint32_t);
        else if (s->size == sizeof(uint16_t))
            SELECT(uint16_t);
        else
            SELECT(uint64_t);
#undef SELECT
    }
}

lt_status lt_cpu_where(void *ctx, const lt_view *mask, const lt_view *a, const lt_view *b,
                       const lt_view *y)
{
    int order[LT_MAX_DIMS];
    const int dims = lt_cpu_sort_dims_by_stride(y, -1, order);
    if (a->dtype != y->dtype || b->dtype != y->dtype || lt_dtype_size(y->dtype) < 2)
        return lt_backend_ref()->where(ctx, mask, a, b, y);
    selection s = {reorder(mask, order, dims), reorder(a, order, dims), reorder(b, order, dims),
                   reorder(y, order, dims), (int64_t)lt_dtype_size(y->dtype)};
    const int64_t count = s.y.shape.dim[s.y.shape.ndim - 1];
    lt_parallel_range(lt_shape_count(y->shape) / count, lt_cpu_max(1, GRAIN / count), where_chunk,
                      &s);
    return LT_OK;
}

typedef struct job {
    const lt_index *index;
    const lt_view *x, *y;
    int64_t size, blocks; /* bytes of an element; blocks of COLUMNS columns */
} job;

static char *at(const lt_view *v, int64_t a, int64_t i, int64_t b, int64_t size)
{
    return (char *)v->data + (a * v->stride[0] + i * v->stride[1] + b * v->stride[2]) * size;
}

static void gather_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t m = j->y->shape.dim[1], columns = j->y->shape.dim[2];
    const lt_view *index = &j->index->index;
    const bool runs = index->stride[2] == 0 && j->x->stride[2] == 1 && j->y->stride[2] == 1;
    const int64_t step = runs ? columns : 1;
    for (int64_t r = begin; r < end; r++)
        for (int64_t b = 0; b < columns; b += step) {
            const int64_t a = r / m, i = r % m;
            const int32_t from = lt_index_at(index, a, i, b);
            void *to = at(j->y, a, i, b, j->size);
            if (from < 0)
                memset(to, 0, (size_t)(step * j->size));
            else
                memcpy(to, at(j->x, a, from, b, j->size), (size_t)(step * j->size));
        }
}

lt_status lt_cpu_gather_by_index(void *ctx, const lt_index *index, const lt_view *x,
                                 const lt_view *y)
{
    const int64_t columns = y->shape.dim[2];
    if (x->dtype != y->dtype)
        return lt_backend_ref()->gather_by_index(ctx, index, x, y);
    LT_TRY(lt_index_check(index, x->shape.dim[1]));
    job j = {.index = index, .x = x, .y = y, .size = (int64_t)lt_dtype_size(x->dtype)};
    lt_parallel_range(y->shape.dim[0] * y->shape.dim[1], lt_cpu_max(1, GRAIN / columns),
                      gather_chunk, &j);
    return LT_OK;
}

static void scatter_add_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int64_t t = begin; t < end; t++) {
        const int64_t a = t / j->blocks, first = t % j->blocks * COLUMNS;
        const int64_t last = lt_cpu_min(first + COLUMNS, j->x->shape.dim[2]);
        for (int64_t i = 0; i < j->x->shape.dim[1]; i++)
            for (int64_t b = first; b < last; b++) {
                const int32_t to = lt_index_at(&j->index->index, a, i, b);
                const float *x = (const void *)at(j->x, a, i, b, j->size);
                float *y = (void *)at(j->y, a, to < 0 ? 0 : to, b, j->size);
                *y += to < 0 ? 0 : *x;
            }
    }
}

lt_status lt_cpu_scatter_add(void *ctx, const lt_index *index, const lt_view *x, const lt_view *y)
{
    if (x->dtype != LT_F32 || y->dtype != LT_F32)
        return lt_backend_ref()->scatter_add(ctx, index, x, y);
    LT_TRY(lt_index_check(index, y->shape.dim[1]));
    job j = {index, x, y, sizeof(float), lt_cpu_ceil_div(x->shape.dim[2], COLUMNS)};
    const int64_t task = x->shape.dim[1] * lt_cpu_min(COLUMNS, x->shape.dim[2]);
    lt_parallel_range(x->shape.dim[0] * j.blocks, lt_cpu_max(1, GRAIN / task), scatter_add_chunk,
                      &j);
    return LT_OK;
}
