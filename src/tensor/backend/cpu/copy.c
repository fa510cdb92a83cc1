/* Copies between views of different strides, of one dtype or between f32 and bf16. Dimensions are ordered by y's
 * strides and merged where both views allow it. The remaining copies are runs, or blocked transposes where x and y are
 * contiguous along different dimensions. Formula: cast in detail/kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tensor/backend/dtype.h"

#include <string.h>

enum { GRAIN = 65536 }; /* elements of a chunk */
enum { BLOCK = 64 };    /* rows and columns of a transposed block */

typedef enum element_copy {
    SAME_8 = 1,
    SAME_16 = 2,
    SAME_32 = 4,
    SAME_64 = 8,
    NARROW = 16,
    WIDEN = 17
} element_copy;

/* A copy; outermost dimension first. */
typedef struct strided_copy {
    const lt_cpu_kernels *kernels;
    element_copy element_copy;
    const char *from;
    char *to;
    int64_t from_size, to_size; /* bytes of an element */
    int dims;
    int64_t count[LT_MAX_DIMS], x[LT_MAX_DIMS], y[LT_MAX_DIMS];
    int transposed_dim; /* transposes: dimension along which x is contiguous */
    int64_t slabs;      /* transposes: blocks along transposed_dim */
} strided_copy;

static bool choose_element_copy(const lt_view *x, const lt_view *y, element_copy *out)
{
    *out = (element_copy)lt_dtype_size(x->dtype);
    if (x->dtype == y->dtype)
        return true;
    *out = x->dtype == LT_F32 ? NARROW : WIDEN;
    return lt_cpu_is_fast_dtype(x->dtype) && lt_cpu_is_fast_dtype(y->dtype);
}

/* Orders dimensions by falling strides of y and merges adjacent ones. */
static void order_dimensions(strided_copy *w, const lt_view *x, const lt_view *y)
{
    int order[LT_MAX_DIMS];
    const int n = lt_cpu_sort_dims_by_stride(y, -1, order);
    for (int i = 0; i < n; i++) {
        const int d = order[i], last = w->dims - 1;
        const int64_t count = y->shape.dim[d];
        const bool joins =
            i > 0 && w->x[last] == x->stride[d] * count && w->y[last] == y->stride[d] * count;
        const int at = joins ? last : w->dims++;
        w->count[at] = joins ? w->count[at] * count : count;
        w->x[at] = x->stride[d];
        w->y[at] = y->stride[d];
    }
}

/* Copies count elements at strides x and y. */
static void copy_strided(const strided_copy *w, const char *from, int64_t x, char *to, int64_t y,
                         int64_t count)
{
#define MOVE(in, out, expression)                                            \
    do {                                                                     \
        const in *a = (const in *)(const void *)from;                        \
        out *b = (out *)(void *)to; /* NOLINT(bugprone-macro-parentheses) */ \
        for (int64_t i = 0; i < count; i++, a += x, b += y)                  \
            *b = expression;                                                 \
    } while (0)
    switch (w->element_copy) {
    case SAME_8:
        MOVE(uint8_t, uint8_t, *a);
        break;
    case SAME_16:
        MOVE(uint16_t, uint16_t, *a);
        break;
    case SAME_32:
        MOVE(uint32_t, uint32_t, *a);
        break;
    case SAME_64:
        MOVE(uint64_t, uint64_t, *a);
        break;
    case NARROW:
        MOVE(float, uint16_t, lt_bf16_from_f32(*a));
        break;
    case WIDEN:
        MOVE(uint16_t, float, lt_f32_from_bf16(*a));
        break;
    }
#undef MOVE
}

static void copy_run(const strided_copy *w, const char *from, char *to, int64_t count)
{
    if (w->element_copy == NARROW)
        w->kernels->narrow_all((const float *)(const void *)from, to, count);
    else if (w->element_copy == WIDEN)
        w->kernels->widen_all(from, (float *)(void *)to, count);
    else
        memcpy(to, from, (size_t)(count * w->to_size));
}

/* Converts an index over the first dims dimensions without one (-1: all), the last fastest, to offsets in x and y. */
static void index_to_offsets(const strided_copy *w, int64_t index, int dims, int without,
                             int64_t *x, int64_t *y)
{
    *x = *y = 0;
    for (int d = dims - 1; d >= 0; d--) {
        if (d == without)
            continue;
        *x += index % w->count[d] * w->x[d];
        *y += index % w->count[d] * w->y[d];
        index /= w->count[d];
    }
}

/* Copies runs of the last dimension. */
static void copy_runs(void *context, int64_t begin, int64_t end)
{
    const strided_copy *w = context;
    const int last = w->dims - 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t x, y;
        index_to_offsets(w, i, last, -1, &x, &y);
        const char *from = w->from + x * w->from_size;
        char *to = w->to + y * w->to_size;
        if (w->x[last] == 1 && w->y[last] == 1)
            copy_run(w, from, to, w->count[last]);
        else
            copy_strided(w, from, w->x[last], to, w->y[last], w->count[last]);
    }
}

/* Transposes a block of a matrix that is contiguous along rows of x and along columns of y. */
static void transpose_block(const strided_copy *w, const char *from, char *to, int64_t rows,
                            int64_t cols)
{
    const int last = w->dims - 1;
    const int64_t x = w->x[last], y = w->y[w->transposed_dim];
    if (w->element_copy == SAME_32) {
        w->kernels->transpose_block((const float *)(const void *)from, x, cols, rows,
                                    (float *)(void *)to, y);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        copy_strided(w, from + r * w->from_size, x, to + r * y * w->to_size, 1, cols);
}

/* Copies slabs of BLOCK rows of y each, by blocked transposes. */
static void transpose_slabs(void *context, int64_t begin, int64_t end)
{
    const strided_copy *w = context;
    const int last = w->dims - 1;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i % w->slabs * BLOCK, left = w->count[w->transposed_dim] - row;
        int64_t x, y;
        index_to_offsets(w, i / w->slabs, last, w->transposed_dim, &x, &y);
        for (int64_t col = 0; col < w->count[last]; col += BLOCK) {
            const int64_t cols = lt_cpu_min(BLOCK, w->count[last] - col);
            transpose_block(w, w->from + (x + row + col * w->x[last]) * w->from_size,
                            w->to + (y + row * w->y[w->transposed_dim] + col) * w->to_size,
                            lt_cpu_min(BLOCK, left), cols);
        }
    }
}

static bool find_transposed_dim(strided_copy *w)
{
    const int last = w->dims - 1;
    if (w->y[last] != 1 || w->x[last] == 1 || w->x[last] == 0 || w->count[last] < 4)
        return false;
    for (int d = 0; d < last; d++)
        if (w->x[d] == 1 && w->count[d] >= 4) {
            w->transposed_dim = d;
            w->slabs = lt_cpu_ceil_div(w->count[d], BLOCK);
            return true;
        }
    return false;
}

bool lt_cpu_copy_strided(const lt_cpu *cpu, const lt_view *x, const lt_view *y)
{
    strided_copy w = {.kernels = cpu->kernels,
                      .from = x->data,
                      .to = y->data,
                      .from_size = (int64_t)lt_dtype_size(x->dtype),
                      .to_size = (int64_t)lt_dtype_size(y->dtype)};
    if (!choose_element_copy(x, y, &w.element_copy))
        return false;
    order_dimensions(&w, x, y);
    if (!w.dims) /* one element */
        w = (strided_copy){
            w.kernels, w.element_copy, w.from, w.to, w.from_size, w.to_size, 1, {1}, {1}, {1}, 0,
            0};
    const int64_t count = lt_cpu_element_count(y), run = w.count[w.dims - 1];
    if (find_transposed_dim(&w)) {
        const int64_t slab = BLOCK * run, items = count / run / w.count[w.transposed_dim] * w.slabs;
        lt_parallel_range(items, slab < GRAIN ? GRAIN / slab : 1, transpose_slabs, &w);
    } else if (count > 0) {
        lt_parallel_range(count / run, run < GRAIN ? GRAIN / run : 1, copy_runs, &w);
    }
    return true;
}
