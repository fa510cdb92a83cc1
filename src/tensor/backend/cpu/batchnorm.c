/* Batch normalisation on channels-last views: chunks of rows, whose partial results are merged in chunk order, so that
 * results do not depend on the number of threads. Moments are merged as in Chan, Golub & LeVeque, "Algorithms for
 * computing the sample variance", The American Statistician 37, 1983. Formulas: detail/norm_kernels.h. */

#include "tensor/backend/cpu/batchnorm.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/cpu/work_split.h"

#include <string.h>

enum { MEAN, INV, SCALE, SHIFT }; /* rows of coef */

static bool has_fast_kernel(const lt_view *x)
{
    return lt_cpu_is_fast_dtype(x->dtype) && lt_view_is_channels_last(x);
}

/* Returns true if v is absent or stored like x. */
static bool is_absent_or_stored_like(const lt_view *v, const lt_view *x)
{
    return !lt_cpu_has_data(v) || lt_cpu_is_channels_last(v, x->dtype);
}

static int64_t row_count(const lt_view *x)
{
    return lt_cpu_element_count(x) / x->shape.dim[1];
}

/* Returns the rows of a chunk: a multiple of 8, so that chunks of a mask begin at whole bytes. */
static int64_t rows_per_chunk(const lt_view *x, int64_t bytes)
{
    const int64_t row = x->shape.dim[1] * (int64_t)lt_dtype_size(x->dtype);
    return lt_cpu_max(8, bytes / row / 8 * 8);
}

static lt_bn_coef get_coef(const lt_view *coef)
{
    const float *f = coef->data;
    const int64_t c = coef->shape.dim[1];
    return (lt_bn_coef){f + MEAN * c, f + INV * c, f + SCALE * c, f + SHIFT * c};
}

enum { SUM_CHUNK = 1 << 20, WRITE_CHUNK = 1 << 18 }; /* bytes */

static int64_t count_chunks(const lt_view *x, int64_t grain)
{
    return lt_cpu_ceil_div(row_count(x), grain);
}

enum { MOMENTS_ROWS = 4 }; /* rows [C] of a chunk's workspace */

lt_status lt_cpu_moments_begin(lt_cpu *cpu, const lt_view *x, int64_t chunks, lt_cpu_moments *m)
{
    const int64_t count = chunks * MOMENTS_ROWS * x->shape.dim[1];
    float *part = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(count + chunks) * sizeof *part);
    *m = (lt_cpu_moments){cpu->kernels, x, chunks, part, part ? part + count : NULL};
    return part ? LT_OK : LT_E_NOMEM;
}

void lt_cpu_moments_of_chunk(const lt_cpu_moments *m, int64_t chunk, float *of[2])
{
    const int64_t c = m->x->shape.dim[1];
    of[0] = m->part + chunk * MOMENTS_ROWS * c;
    of[1] = of[0] + 2 * c;
}

void lt_cpu_moments_chunk(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const lt_cpu_moments *m = context;
    const int64_t c = m->x->shape.dim[1];
    const char *x = (const char *)m->x->data + (size_t)(begin * c) * lt_dtype_size(m->x->dtype);
    float *of[2];
    lt_cpu_moments_of_chunk(m, chunk, of);
    m->count[chunk] = (float)(end - begin);
    m->kernels->of[lt_cpu_store_from_dtype(m->x->dtype)].bn_moments(x, end - begin, c, of[0],
                                                                    of[1]);
}

enum { AT_ONCE = 64 }; /* channels whose partial results are combined together */

/* Merges the chunks by Chan's formula, in double. */
void lt_cpu_moments_end(const lt_cpu_moments *m, float *stats)
{
    const int64_t channels = m->x->shape.dim[1];
    for (int64_t first = 0; first < channels; first += AT_ONCE) {
        double count = 0, mean[AT_ONCE] = {0}, m2[AT_ONCE] = {0};
        const int64_t here = lt_cpu_min(AT_ONCE, channels - first);
        for (int64_t i = 0; i < m->chunks; i++) {
            const float *p = m->part + i * MOMENTS_ROWS * channels + first;
            const double n = (double)m->count[i];
            const double total = count + n, share = n / total, both = count * n / total;
            for (int64_t c = 0; c < here; c++) {
                const double d = (double)p[c] - mean[c];
                mean[c] += d * share;
                m2[c] += (double)p[2 * channels + c] + d * d * both;
            }
            count = total;
        }
        for (int64_t c = 0; c < here; c++) {
            stats[first + c] = (float)count;
            stats[channels + first + c] = (float)mean[c];
            stats[2 * channels + first + c] = (float)m2[c];
        }
    }
}

lt_status lt_cpu_batchnorm_stats(void *ctx, const lt_view *x, const lt_view *out)
{
    LT_CPU_COUNT_TRAFFIC(x);
    if (!has_fast_kernel(x) || out->dtype != LT_F32)
        return lt_backend_ref()->batchnorm_stats(ctx, x, out);
    lt_cpu_moments m;
    const int64_t grain = rows_per_chunk(x, SUM_CHUNK);
    LT_TRY(lt_cpu_moments_begin(ctx, x, count_chunks(x, grain), &m));
    lt_parallel(row_count(x), grain, lt_cpu_moments_chunk, &m);
    lt_cpu_moments_end(&m, out->data);
    return LT_OK;
}

lt_bn_apply lt_cpu_make_input_norm(const lt_batchnorm_before *norm)
{
    return (lt_bn_apply){
        .coef = get_coef(norm->coef), .channels = norm->x->shape.dim[1], .relu = true};
}

void lt_cpu_apply_norm_chunk(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const lt_cpu_apply *j = context;
    j->kernels->of[j->store].bn_apply(&j->in, begin, end);
}

lt_cpu_apply lt_cpu_make_epilogue(const lt_cpu *cpu, const lt_conv_epilogue *after,
                                  const lt_view *y)
{
    return (lt_cpu_apply){.kernels = cpu->kernels,
                          .store = lt_cpu_store_from_dtype(y->dtype),
                          .in = {.coef = get_coef(after->coef),
                                 .x = y->data,
                                 .residual = after->residual ? after->residual->data : NULL,
                                 .y = y->data,
                                 .channels = y->shape.dim[1],
                                 .relu = after->relu}};
}

lt_status lt_cpu_batchnorm_apply(void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
                                 const lt_view *coef, const lt_view *residual, const lt_view *y,
                                 const lt_view *mask)
{
    LT_CPU_COUNT_TRAFFIC(x, residual, y, mask);
    const lt_cpu *cpu = ctx;
    if (!has_fast_kernel(x) || !is_absent_or_stored_like(y, x)
        || !is_absent_or_stored_like(residual, x) || coef->dtype != LT_F32)
        return lt_backend_ref()->batchnorm_apply(ctx, config, x, coef, residual, y, mask);
    lt_cpu_apply j = {.kernels = cpu->kernels,
                      .store = lt_cpu_store_from_dtype(x->dtype),
                      .in = {.coef = get_coef(coef),
                             .x = x->data,
                             .residual = residual ? residual->data : NULL,
                             .y = y->data,
                             .mask = mask ? mask->data : NULL,
                             .channels = x->shape.dim[1],
                             .relu = config->relu}};
    lt_parallel(row_count(x), rows_per_chunk(x, WRITE_CHUNK), lt_cpu_apply_norm_chunk, &j);
    return LT_OK;
}

static bool has_fast_grad_kernel(const lt_batchnorm_grad *in, const lt_view *out)
{
    return has_fast_kernel(in->x) && is_absent_or_stored_like(&in->dy[0], in->x)
           && is_absent_or_stored_like(&in->dy[1], in->x) && is_absent_or_stored_like(out, in->x)
           && in->coef->dtype == LT_F32;
}

typedef lt_cpu_grad_sums grad_job;

static grad_job make_grad_job(const lt_cpu *cpu, const lt_batchnorm_grad *in, const lt_view *out)
{
    return (grad_job){.kernels = cpu->kernels,
                      .store = lt_cpu_store_from_dtype(in->x->dtype),
                      .in = {.coef = get_coef(in->coef),
                             .dy = {in->dy[0].data, in->dy[1].data},
                             .x = in->x->data,
                             .mask = in->mask ? in->mask->data : NULL,
                             .channels = in->x->shape.dim[1],
                             .relu = in->relu,
                             .out = out ? out->data : NULL}};
}

lt_status lt_cpu_grad_sums_begin(lt_cpu *cpu, const lt_batchnorm_grad *in, const lt_view *g,
                                 int64_t chunks, lt_cpu_grad_sums *s)
{
    const int64_t count = chunks * 2 * in->x->shape.dim[1];
    *s = make_grad_job(cpu, in, g);
    s->chunks = chunks;
    s->part = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)count * sizeof(float));
    return s->part ? LT_OK : LT_E_NOMEM;
}

void lt_cpu_grad_sums_of_chunk(const lt_cpu_grad_sums *s, int64_t chunk, float *of[2])
{
    of[0] = s->part + chunk * 2 * s->in.channels;
    of[1] = of[0] + s->in.channels;
}

void lt_cpu_grad_sums_chunk(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const lt_cpu_grad_sums *j = context;
    float *of[2];
    lt_cpu_grad_sums_of_chunk(j, chunk, of);
    j->kernels->of[j->store].bn_grad_sums(&j->in, begin, end, of[0], of[1]);
}

void lt_cpu_grad_sums_end(const lt_cpu_grad_sums *s, float *out)
{
    const int64_t channels = s->in.channels;
    for (int64_t first = 0; first < channels; first += AT_ONCE) {
        double total[AT_ONCE] = {0}, product[AT_ONCE] = {0};
        const int64_t here = lt_cpu_min(AT_ONCE, channels - first);
        for (int64_t i = 0; i < s->chunks; i++) {
            const float *p = s->part + i * 2 * channels + first;
            for (int64_t c = 0; c < here; c++) {
                total[c] += (double)p[c];
                product[c] += (double)p[channels + c];
            }
        }
        for (int64_t c = 0; c < here; c++) {
            out[first + c] = (float)total[c];
            out[channels + first + c] = (float)(product[c] * (double)s->in.coef.inv[first + c]);
        }
    }
}

lt_status lt_cpu_batchnorm_grad_stats(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                                      const lt_view *sums)
{
    LT_CPU_COUNT_TRAFFIC(&in->dy[0], &in->dy[1], in->x, in->mask, g);
    if (!has_fast_grad_kernel(in, g) || sums->dtype != LT_F32)
        return lt_backend_ref()->batchnorm_grad_stats(ctx, in, g, sums);
    grad_job j;
    const int64_t grain = rows_per_chunk(in->x, SUM_CHUNK);
    LT_TRY(lt_cpu_grad_sums_begin(ctx, in, g, count_chunks(in->x, grain), &j));
    lt_parallel(row_count(in->x), grain, lt_cpu_grad_sums_chunk, &j);
    lt_cpu_grad_sums_end(&j, sums->data);
    return LT_OK;
}

static void grad_x_chunk(void *context, int64_t begin, int64_t end)
{
    const grad_job *j = context;
    j->kernels->of[j->store].bn_grad_x(&j->in, begin, end);
}

/* dx = scale * g + slope * (x - mean) + offset, the last two per channel. */
lt_status lt_cpu_batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                                  double count, const lt_view *dx)
{
    LT_CPU_COUNT_TRAFFIC(&in->dy[0], &in->dy[1], in->x, in->mask, dx);
    lt_cpu *cpu = ctx;
    if (!has_fast_grad_kernel(in, dx) || sums->dtype != LT_F32)
        return lt_backend_ref()->batchnorm_grad_x(ctx, in, sums, count, dx);
    grad_job j = make_grad_job(cpu, in, dx);
    const int64_t c = j.in.channels;
    float *line = lt_cpu_scratch(cpu, LT_CPU_COEF, (size_t)(2 * c) * sizeof *line);
    if (!line)
        return LT_E_NOMEM;
    const float *s = sums->data;
    for (int64_t k = 0; k < c; k++) {
        const double scale = (double)j.in.coef.scale[k], inv = (double)j.in.coef.inv[k];
        line[k] = count > 0 ? (float)(-scale * inv * (double)s[c + k] / count) : 0;
        line[c + k] = count > 0 ? (float)(-scale * (double)s[k] / count) : 0;
    }
    for (int i = 0; i < 2; i++)
        if (in->affine[i].data)
            memcpy(in->affine[i].data, s + i * c, (size_t)c * sizeof *s);
    j.in.slope = line;
    j.in.offset = line + c;
    lt_parallel_range(row_count(in->x), rows_per_chunk(in->x, WRITE_CHUNK), grad_x_chunk, &j);
    return LT_OK;
}
