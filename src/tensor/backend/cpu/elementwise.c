/* Elementwise entries and sums on dense views in f32 and bf16. Other strides and dtypes fall back to the reference
 * backend. Formulas: detail/kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/dtype.h"
#include "tensor/backend/random.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 65536 }; /* elements of a chunk: a multiple of a vector, about the L2 cache */

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    size_t size; /* bytes of an element */
    const char *a, *b;
    char *y;
    double number;
    lt_random random;
} job;

static bool has_fast_kernel(const lt_view *a, const lt_view *b, const lt_view *y)
{
    return lt_cpu_is_fast_dtype(y->dtype) && a->dtype == y->dtype && b->dtype == y->dtype
           && lt_cpu_has_same_layout(y, a) && lt_cpu_has_same_layout(y, b);
}

static job make_job(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    const lt_cpu *cpu = ctx;
    return (job){.kernels = cpu->kernels,
                 .store = lt_cpu_store_from_dtype(y->dtype),
                 .size = lt_dtype_size(y->dtype),
                 .a = a->data,
                 .b = b->data,
                 .y = y->data};
}

/* Runs fn on all elements. Returns false if the views do not allow it. */
static bool run_elementwise(void *ctx, lt_range_fn *fn, double number, const lt_view *a,
                            const lt_view *b, const lt_view *y)
{
    if (!has_fast_kernel(a, b, y))
        return false;
    job j = make_job(ctx, a, b, y);
    j.number = number;
    lt_parallel_range(lt_cpu_element_count(y), GRAIN, fn, &j);
    return true;
}

#define AT(pointer) (j->pointer + (size_t)begin * j->size)

#define CHUNK(name, call)                                               \
    static void name##_chunk(void *context, int64_t begin, int64_t end) \
    {                                                                   \
        const job *j = context;                                         \
        const int64_t count = end - begin;                              \
        j->kernels->of[j->store].call;                                  \
    }

CHUNK(relu, relu(AT(a), AT(y), count))
CHUNK(relu_grad, relu_grad(AT(a), AT(b), AT(y), count))
CHUNK(scale, scale((float)j->number, AT(a), AT(y), count))

lt_status lt_cpu_add(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    LT_CPU_COUNT_TRAFFIC(a, b, y);
    return lt_cpu_pointwise(ctx, &(lt_pointwise){.kind = LT_POINTWISE_ADD}, a, b, y);
}

lt_status lt_cpu_mul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return lt_cpu_pointwise(ctx, &(lt_pointwise){.kind = LT_POINTWISE_MUL}, a, b, y);
}

lt_status lt_cpu_relu(void *ctx, const lt_view *x, const lt_view *y)
{
    return run_elementwise(ctx, relu_chunk, 0, x, x, y) ? LT_OK : lt_backend_ref()->relu(ctx, x, y);
}

lt_status lt_cpu_relu_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    if (run_elementwise(ctx, relu_grad_chunk, 0, dy, y, dx))
        return LT_OK;
    return lt_backend_ref()->relu_grad(ctx, dy, y, dx);
}

static void fill_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const float value = (float)j->number;
    float *y = (float *)(void *)j->y;
    for (int64_t i = begin; i < end; i++)
        y[i] = value;
}

static void fill_bf16_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const uint16_t value = lt_bf16_from_f32(lt_f32_odd_from_f64(j->number));
    uint16_t *y = (uint16_t *)(void *)j->y;
    for (int64_t i = begin; i < end; i++)
        y[i] = value;
}

/* Fills with zero, whose bytes are 0 in every dtype. */
static void clear_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    memset(j->y + (size_t)begin * j->size, 0, (size_t)(end - begin) * j->size);
}

lt_status lt_cpu_fill(void *ctx, double value, const lt_view *y)
{
    const bool zero = fpclassify(value) == FP_ZERO && !signbit(value); /* not -0 */
    if (!lt_view_is_dense(y) || !(zero || lt_cpu_is_fast_dtype(y->dtype)))
        return lt_backend_ref()->fill(ctx, value, y);
    job j = make_job(ctx, y, y, y);
    j.number = value;
    lt_range_fn *fn = y->dtype == LT_BF16 ? fill_bf16_chunk : fill_chunk;
    lt_parallel_range(lt_cpu_element_count(y), GRAIN, zero ? clear_chunk : fn, &j);
    return LT_OK;
}

/* Returns true if x is one element repeated by strides of 0. */
static bool is_broadcast_scalar(const lt_view *x)
{
    bool repeated = true;
    for (int d = 0; d < x->shape.ndim; d++)
        repeated = repeated && (x->stride[d] == 0 || x->shape.dim[d] == 1);
    return repeated;
}

static float first_element(const lt_view *x)
{
    return x->dtype == LT_F32 ? *(const float *)x->data
                              : lt_f32_from_bf16(*(const uint16_t *)x->data);
}

/* Scales views of different strides, as a product with a repeated number. */
static lt_status scale_strided(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    float number = (float)factor;
    const lt_view b = {.data = &number, .dtype = LT_F32, .shape = y->shape};
    if (!lt_cpu_is_fast_dtype(x->dtype) || !lt_cpu_is_fast_dtype(y->dtype))
        return lt_backend_ref()->scale(ctx, factor, x, y);
    if (is_broadcast_scalar(x) && lt_view_is_dense(y))
        return lt_cpu_fill(ctx, (double)(number * first_element(x)), y);
    return lt_cpu_pointwise(ctx, &(lt_pointwise){.kind = LT_POINTWISE_MUL}, x, &b, y);
}

lt_status lt_cpu_scale(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    return run_elementwise(ctx, scale_chunk, factor, x, x, y) ? LT_OK
                                                              : scale_strided(ctx, factor, x, y);
}

static void narrow_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    j->kernels->narrow_all((const float *)(const void *)j->a + begin,
                           (uint16_t *)(void *)j->y + begin, end - begin);
}

static void widen_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    j->kernels->widen_all((const uint16_t *)(const void *)j->a + begin,
                          (float *)(void *)j->y + begin, end - begin);
}

static void copy_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    memcpy(AT(y), AT(a), (size_t)(end - begin) * j->size);
}

lt_status lt_cpu_cast(void *ctx, const lt_view *x, const lt_view *y)
{
    LT_CPU_COUNT_TRAFFIC(x, y);
    lt_range_fn *fn = NULL;
    if (x->dtype == y->dtype)
        fn = copy_chunk;
    else if (x->dtype == LT_F32 && y->dtype == LT_BF16)
        fn = narrow_chunk;
    else if (x->dtype == LT_BF16 && y->dtype == LT_F32)
        fn = widen_chunk;
    if (!fn || !lt_cpu_has_same_layout(x, y))
        return lt_cpu_copy_strided(ctx, x, y) ? LT_OK : lt_backend_ref()->cast(ctx, x, y);
    job j = make_job(ctx, x, x, y);
    lt_parallel_range(lt_cpu_element_count(y), GRAIN, fn, &j);
    return LT_OK;
}

/* Requires contiguous views: random words are numbered in logical order. */
static void dropout_chunk(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const float factor = (float)(1 / (1 - j->number));
    const float *x = (const float *)(const void *)j->a;
    float *y = (float *)(void *)j->y;
    lt_random_words words = {.group = -1};
    for (int64_t i = begin; i < end; i++) {
        const uint32_t word = lt_random_word(&words, &j->random, i);
        y[i] = (double)word * 0x1p-32 >= j->number ? x[i] * factor : 0;
    }
}

lt_status lt_cpu_dropout(void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y)
{
    if (!has_fast_kernel(x, x, y) || y->dtype != LT_F32 || !lt_view_is_contiguous(y))
        return lt_backend_ref()->dropout(ctx, random, p, x, y);
    job j = make_job(ctx, x, x, y);
    j.number = p;
    j.random = random;
    lt_parallel_range(lt_cpu_element_count(y), GRAIN, dropout_chunk, &j);
    return LT_OK;
}

typedef struct pixels {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    const lt_normalize_config *config;
    const lt_view *x, *y;
} pixels;

static void normalize_chunk(void *context, int64_t begin, int64_t end)
{
    const pixels *p = context;
    const int64_t channels = p->x->shape.dim[1];
    char *y = (char *)p->y->data + (size_t)(begin * channels) * lt_dtype_size(p->y->dtype);
    p->kernels->of[p->store].normalize((const uint8_t *)p->x->data + begin * channels,
                                       p->config->mean, p->config->deviation, channels, y,
                                       end - begin);
}

lt_status lt_cpu_normalize(void *ctx, const lt_normalize_config *config, const lt_view *x,
                           const lt_view *y)
{
    LT_CPU_COUNT_TRAFFIC(x, y);
    const lt_cpu *cpu = ctx;
    if (!lt_cpu_is_fast_dtype(y->dtype) || !lt_view_is_channels_last(x)
        || !lt_view_is_channels_last(y))
        return lt_backend_ref()->normalize(ctx, config, x, y);
    const lt_cpu_store store = lt_cpu_store_from_dtype(y->dtype);
    pixels p = {cpu->kernels, store, config, x, y};
    lt_parallel_range(lt_cpu_element_count(x) / x->shape.dim[1], GRAIN / 4, normalize_chunk, &p);
    return LT_OK;
}

typedef struct rows {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    const lt_view *x;
    int64_t channels, parts;
    float *part; /* [chunks, channels]; for wide rows the sums themselves */
    double factor;
} rows;

static void sum_chunk(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const rows *r = context;
    const char *x = r->x->data;
    r->kernels->of[r->store].add_rows(
        x + (size_t)(begin * r->channels) * lt_dtype_size(r->x->dtype), end - begin, r->channels,
        r->part + chunk * r->channels);
}

/* Returns true if x is dense and consists of rows of the *channels elements that y keeps. */
static bool is_sum_of_rows(const lt_view *x, const lt_view *y, int64_t *channels)
{
    int64_t inner = lt_cpu_element_count(y);
    *channels = inner;
    for (int d = 0; d < x->shape.ndim; d++) {
        const bool kept = y->shape.dim[d] > 1;
        if (kept && x->shape.dim[d] > 1 && (x->stride[d] >= inner || x->stride[d] != y->stride[d]))
            return false;
        if (!kept && x->shape.dim[d] > 1 && x->stride[d] < inner)
            return false;
    }
    return lt_cpu_is_fast_dtype(x->dtype) && lt_view_is_dense(x) && lt_view_is_dense(y);
}

enum { CHUNK_ELEMENTS = 32768, COLUMNS = 64, WIDE = 4096, WIDE_COLUMNS = 1024 };

/* Allocates and clears the sums of chunks. */
static lt_status allocate_partial_sums(lt_cpu *cpu, const lt_view *x, int64_t channels,
                                       int64_t chunks, rows *r)
{
    const size_t bytes = (size_t)(chunks * channels) * sizeof(float);
    *r = (rows){.kernels = cpu->kernels,
                .store = lt_cpu_store_from_dtype(x->dtype),
                .x = x,
                .channels = channels,
                .part = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, bytes)};
    if (!r->part)
        return LT_E_NOMEM;
    memset(r->part, 0, bytes);
    return LT_OK;
}

/* Sums all elements: as rows of COLUMNS elements, and a remainder. */
static lt_status sum_all(lt_cpu *cpu, double factor, const lt_view *x, float *y)
{
    const int64_t count = lt_cpu_element_count(x), whole = count / COLUMNS, rest = count % COLUMNS;
    const int64_t grain = CHUNK_ELEMENTS / COLUMNS, chunks = (whole + grain - 1) / grain;
    const size_t parts = (size_t)((chunks + 1) * COLUMNS);
    rows r;
    LT_TRY(allocate_partial_sums(cpu, x, COLUMNS, chunks + 1, &r));
    lt_parallel(whole, grain, sum_chunk, &r);
    const char *end = (const char *)x->data + (size_t)(count - rest) * lt_dtype_size(x->dtype);
    r.kernels->of[r.store].add_rows(end, 1, rest, r.part + chunks * COLUMNS);
    double total = 0;
    for (size_t i = 0; i < parts; i++)
        total += (double)r.part[i];
    *y = (float)(factor * total);
    return LT_OK;
}

/* Sums columns begin .. end-1 of wide rows: in f32 over ROWS rows, then in double. */
static void sum_columns_of_wide_rows(void *context, int64_t begin, int64_t end)
{
    enum { ROWS = 32 };
    const rows *r = context;
    const size_t size = lt_dtype_size(r->x->dtype);
    float part[WIDE_COLUMNS];
    double total[WIDE_COLUMNS] = {0};
    for (int64_t row = 0; row < r->parts; row++) {
        if (row % ROWS == 0)
            memset(part, 0, sizeof part);
        const char *x = (const char *)r->x->data + (size_t)(row * r->channels + begin) * size;
        r->kernels->of[r->store].add_rows(x, 1, end - begin, part);
        for (int64_t c = 0; c < end - begin && (row % ROWS == ROWS - 1 || row + 1 == r->parts); c++)
            total[c] += (double)part[c];
    }
    for (int64_t c = 0; c < end - begin; c++)
        r->part[begin + c] = (float)(r->factor * total[c]);
}

/* Sums chunks in f32, then the chunks' sums in double. */
lt_status lt_cpu_sum(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    lt_cpu *cpu = ctx;
    int64_t channels;
    if (y->dtype != LT_F32 || !is_sum_of_rows(x, y, &channels))
        return lt_backend_ref()->sum(ctx, factor, x, y);
    if (channels == 1)
        return sum_all(cpu, factor, x, y->data);
    const int64_t count = lt_cpu_element_count(x) / channels;
    if (channels > WIDE) {
        rows wide = {.kernels = cpu->kernels,
                     .store = lt_cpu_store_from_dtype(x->dtype),
                     .x = x,
                     .channels = channels,
                     .parts = count,
                     .part = y->data,
                     .factor = factor};
        lt_parallel_range(channels, WIDE_COLUMNS, sum_columns_of_wide_rows, &wide);
        return LT_OK;
    }
    const int64_t grain = channels < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / channels : 1;
    const int64_t chunks = (count + grain - 1) / grain;
    rows r;
    LT_TRY(allocate_partial_sums(cpu, x, channels, chunks, &r));
    lt_parallel(count, grain, sum_chunk, &r);
    float *out = y->data;
    for (int64_t c = 0; c < channels; c++) {
        double total = 0;
        for (int64_t i = 0; i < chunks; i++)
            total += (double)r.part[i * channels + c];
        out[c] = (float)(factor * total);
    }
    return LT_OK;
}
