/* Reductions of dense f32 views and their gradients, in double. Other strides and dtypes fall back to the reference
 * backend. Formulas: detail/select_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"

#include "lather/ext/elementary.h"

#include <math.h>

enum { WIDTH = 256, LANES = 16, CHUNK_ELEMENTS = 32768 };

/* Ways to combine the elements v of a column; `shift` is a number per column. */
typedef enum fold {
    LARGER,
    SMALLER,
    PRODUCT,
    NONZERO, /* product of elements that are not 0 */
    SUM,
    EXPONENTIALS, /* sum of exp(v - shift) */
    SQUARES,      /* sum of (v - shift)^2 */
    EQUALS        /* number of elements equal to shift */
} fold;

/* x as [outer,n,inner] in storage order, y as [outer,inner]. */
typedef struct job {
    const lt_reduce_how *how;
    const float *x, *dy, *y;
    float *out; /* y, or dx */
    int64_t outer, n, inner;
} job;

/* Finds the three sizes. Returns false if the reduced dimensions are not adjacent in storage. */
static bool make_job(const lt_view *x, const lt_view *y, job *j)
{
    int order[LT_MAX_DIMS];
    const int dims = lt_cpu_sort_dims_by_stride(x, -1, order);
    int64_t step = 1;
    j->outer = j->n = j->inner = 1;
    if (x->dtype != LT_F32 || y->dtype != LT_F32 || !lt_view_is_dense(x) || !lt_view_is_dense(y))
        return false;
    for (int i = dims - 1; i >= 0; i--) {
        const int d = order[i];
        const bool reduced = y->shape.dim[d] == 1;
        int64_t *size = reduced ? &j->n : j->n == 1 ? &j->inner : &j->outer;
        if ((reduced && j->outer > 1) || (!reduced && y->stride[d] != step))
            return false;
        *size *= x->shape.dim[d];
        step *= reduced ? 1 : x->shape.dim[d];
    }
    return true;
}

static double neutral(fold f)
{
    switch ((int)f) { /* the others are sums */
    case LARGER:
        return -(double)INFINITY;
    case SMALLER:
        return (double)INFINITY;
    case PRODUCT:
    case NONZERO:
        return 1;
    default:
        return 0;
    }
}

/* Folds n rows of `width` columns, `stride` elements apart, into acc. */
static void fold_rows(fold f, const float *x, int64_t stride, int64_t n, int64_t width,
                      const double *shift, double *acc)
{
#define FOLD(kind, expression)                              \
    case kind:                                              \
        for (int64_t i = 0; i < n; i++)                     \
            for (int64_t c = 0; c < width; c++) {           \
                const double v = (double)x[i * stride + c]; \
                acc[c] = expression;                        \
            }                                               \
        break
    switch (f) {
        FOLD(LARGER, v > acc[c] || v != v ? v : acc[c]);
        FOLD(SMALLER, v < acc[c] || v != v ? v : acc[c]);
        FOLD(PRODUCT, acc[c] * v);
        FOLD(NONZERO, v == 0 ? acc[c] : acc[c] * v);
        FOLD(SUM, acc[c] + v);
        FOLD(EXPONENTIALS, acc[c] + lt_f64_exp(v - shift[c]));
        FOLD(SQUARES, acc[c] + (v - shift[c]) * (v - shift[c]));
        FOLD(EQUALS, acc[c] + (v == shift[c]));
    }
#undef FOLD
}

/* Combines the results of two parts of a column. */
static double join(fold f, double a, double b)
{
    switch ((int)f) { /* the others are sums */
    case LARGER:
        return b > a || b != b ? b : a;
    case SMALLER:
        return b < a || b != b ? b : a;
    case PRODUCT:
    case NONZERO:
        return a * b;
    default:
        return a + b;
    }
}

/* Folds `width` columns, from column c of outer index a on. A single column is cut into lanes. */
static void fold_columns(fold f, const job *j, const float *x, int64_t width, const double *shift,
                         double *acc)
{
    double part[LANES], same[LANES];
    const int64_t rows = j->n / LANES;
    for (int64_t c = 0; c < width; c++)
        acc[c] = neutral(f);
    if (j->inner > 1) {
        fold_rows(f, x, j->inner, j->n, width, shift, acc);
        return;
    }
    for (int i = 0; i < LANES; i++) {
        part[i] = neutral(f);
        same[i] = shift ? *shift : 0;
    }
    fold_rows(f, x, LANES, rows, LANES, same, part);
    fold_rows(f, x + rows * LANES, 1, j->n - rows * LANES, 1, same, acc);
    for (int i = 0; i < LANES; i++)
        *acc = join(f, *acc, part[i]);
}

static void means_of(const job *j, const float *x, int64_t width, double *mean)
{
    fold_columns(SUM, j, x, width, NULL, mean);
    for (int64_t c = 0; c < width; c++)
        mean[c] /= (double)j->n;
}

static void log_sum_exp(const job *j, const float *x, int64_t width, float *y)
{
    double top[WIDTH], sum[WIDTH];
    fold_columns(LARGER, j, x, width, NULL, top);
    fold_columns(EXPONENTIALS, j, x, width, top, sum);
    for (int64_t c = 0; c < width; c++)
        y[c] = (float)(isinf(top[c]) ? top[c] : top[c] + lt_f64_log(sum[c]));
}

static void variances(const job *j, const float *x, int64_t width, float *y)
{
    double mean[WIDTH], squares[WIDTH];
    const double divisor = fmax((double)j->n - j->how->correction, 0);
    means_of(j, x, width, mean);
    fold_columns(SQUARES, j, x, width, mean, squares);
    for (int64_t c = 0; c < width; c++) {
        const double v = squares[c] / divisor;
        y[c] = (float)(j->how->kind == LT_REDUCTION_STD ? sqrt(v) : v);
    }
}

static void reduce_columns(const job *j, const float *x, int64_t width, float *y)
{
    static const fold folds[] = {
        [LT_REDUCTION_MAX] = LARGER, [LT_REDUCTION_MIN] = SMALLER, [LT_REDUCTION_PROD] = PRODUCT};
    double acc[WIDTH];
    if (j->how->kind == LT_REDUCTION_LOGSUMEXP) {
        log_sum_exp(j, x, width, y);
    } else if (j->how->kind > LT_REDUCTION_LOGSUMEXP) {
        variances(j, x, width, y);
    } else {
        fold_columns(folds[j->how->kind], j, x, width, NULL, acc);
        for (int64_t c = 0; c < width; c++)
            y[c] = (float)acc[c];
    }
}

/* Blocks of columns of one outer index. */
static int64_t blocks_of(const job *j)
{
    return lt_cpu_ceil_div(j->inner, WIDTH);
}

static void reduce_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int64_t i = begin; i < end; i++) {
        const int64_t a = i / blocks_of(j), c = i % blocks_of(j) * WIDTH;
        reduce_columns(j, j->x + a * j->n * j->inner + c, lt_cpu_min(WIDTH, j->inner - c),
                       j->out + a * j->inner + c);
    }
}

static void run(lt_range_fn *fn, job *j)
{
    const int64_t block = j->n * lt_cpu_min(j->inner, WIDTH);
    lt_parallel_range(j->outer * blocks_of(j), lt_cpu_max(1, CHUNK_ELEMENTS / block), fn, j);
}

lt_status lt_cpu_reduce(void *ctx, const lt_reduce_how *how, const lt_view *x, const lt_view *y)
{
    job j = {.how = how, .x = x->data, .out = y->data};
    if (!make_job(x, y, &j))
        return lt_backend_ref()->reduce(ctx, how, x, y);
    run(reduce_chunk, &j);
    return LT_OK;
}

/* Numbers of a column from which its gradient follows. */
typedef struct slopes {
    double shift[WIDTH], factor[WIDTH];
} slopes;

static void slopes_of(const job *j, const float *x, const float *dy, const float *y, int64_t width,
                      slopes *s)
{
    const double divisor = fmax((double)j->n - j->how->correction, 0);
    double count[WIDTH];
    for (int64_t c = 0; c < width; c++) {
        s->shift[c] = j->how->kind == LT_REDUCTION_PROD ? 0 : (double)y[c];
        s->factor[c] = (double)dy[c];
    }
    if (j->how->kind >= LT_REDUCTION_VAR) {
        means_of(j, x, width, s->shift);
        for (int64_t c = 0; c < width && j->how->kind == LT_REDUCTION_VAR; c++)
            s->factor[c] *= 2 / divisor;
        for (int64_t c = 0; c < width && j->how->kind == LT_REDUCTION_STD; c++)
            s->factor[c] = y[c] == 0 ? 0 : s->factor[c] / (divisor * (double)y[c]);
        return;
    }
    if (j->how->kind == LT_REDUCTION_LOGSUMEXP)
        return;
    fold_columns(EQUALS, j, x, width, s->shift, count);
    for (int64_t c = 0; c < width && j->how->kind != LT_REDUCTION_PROD; c++)
        s->factor[c] /= count[c];
    if (j->how->kind != LT_REDUCTION_PROD)
        return;
    fold_columns(NONZERO, j, x, width, NULL, s->shift);
    for (int64_t c = 0; c < width; c++) {
        s->factor[c] = count[c] > 1 ? 0 : s->factor[c] * s->shift[c];
        s->shift[c] = count[c];
    }
}

/* Gradient of an element v; for products `shift` is the number of zeros, and factor dy times the product of the
 * others. */
static double slope(lt_reduce_kind kind, double v, double shift, double factor)
{
    switch ((int)kind) { /* the others have one formula */
    case LT_REDUCTION_MAX:
    case LT_REDUCTION_MIN:
        return v == shift ? factor : 0;
    case LT_REDUCTION_PROD:
        if (shift == 0)
            return factor / v;
        return v == 0 ? factor : 0;
    case LT_REDUCTION_LOGSUMEXP:
        return factor * lt_f64_exp(v - shift);
    default:
        return factor * (v - shift);
    }
}

static void grad_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int64_t i = begin; i < end; i++) {
        const int64_t a = i / blocks_of(j), c = i % blocks_of(j) * WIDTH, at = a * j->inner + c;
        const int64_t first = a * j->n * j->inner + c, width = lt_cpu_min(WIDTH, j->inner - c);
        slopes s;
        slopes_of(j, j->x + first, j->dy + at, j->y + at, width, &s);
        for (int64_t r = 0; r < j->n; r++)
            for (int64_t k = 0; k < width; k++) {
                const int64_t e = first + r * j->inner + k;
                j->out[e] = (float)slope(j->how->kind, (double)j->x[e], s.shift[k], s.factor[k]);
            }
    }
}

lt_status lt_cpu_reduce_grad(void *ctx, const lt_reduce_how *how, const lt_view *dy,
                             const lt_view *x, const lt_view *y, const lt_view *dx)
{
    job j = {.how = how, .x = x->data, .dy = dy->data, .y = y->data, .out = dx->data};
    job same = j;
    if (!make_job(x, y, &j) || !make_job(dx, dy, &same) || !lt_cpu_has_same_layout(x, dx)
        || !lt_cpu_has_same_layout(y, dy))
        return lt_backend_ref()->reduce_grad(ctx, how, dy, x, y, dx);
    run(grad_chunk, &j);
    return LT_OK;
}
