/* Rotary position embedding by a table of cosines and sines, which is cached, as all layers of a model use the same.
 * Formula: ops/attention.h. */

#include "attention_job.h"
#include "base/parallel.h"

#include "lather/ext/elementary.h"

#include <string.h>

/* Table [positions][2][d]: cosines, then signed sines. */
typedef struct table_job {
    const lt_rotary_config *config;
    int64_t d;
    float *table;
} table_job;

static void fill_table(void *context, int64_t begin, int64_t end)
{
    const table_job *j = context;
    const int64_t pairs = j->d / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double rate = lt_f64_pow(j->config->base, -2 * (double)i / (double)j->d);
        const int64_t a = j->config->interleaved ? 2 * i : i;
        const int64_t b = j->config->interleaved ? a + 1 : a + pairs;
        for (int64_t t = begin; t < end; t++) {
            float *row = j->table + 2 * t * j->d;
            const double angle = (double)(j->config->first + t) * rate;
            row[a] = row[b] = (float)lt_f64_cos(angle);
            row[j->d + b] = (float)lt_f64_sin(angle);
            row[j->d + a] = -row[j->d + b];
        }
    }
}

/* Returns the table of `tokens` positions, cached if the last call used the same; NULL without memory. */
static const float *get_cached_table(lt_cpu *cpu, const lt_rotary_config *config, int64_t tokens,
                                     int64_t d)
{
    enum { GRAIN = 16 };
    const lt_cpu_rotary_key key = {config->base, config->first, tokens, d, config->interleaved};
    const lt_cpu_rotary_key *last = &cpu->rotary;
    if (key.base == last->base && key.first == last->first && key.tokens == last->tokens
        && key.d == last->d && key.interleaved == last->interleaved)
        return cpu->slot[LT_CPU_ROTARY].data;
    cpu->rotary = (lt_cpu_rotary_key){0};
    table_job job = {config, d,
                     lt_cpu_scratch(cpu, LT_CPU_ROTARY, (size_t)(2 * tokens * d) * sizeof(float))};
    if (!job.table)
        return NULL;
    lt_parallel_range(tokens, GRAIN, fill_table, &job);
    cpu->rotary = key;
    return job.table;
}

typedef struct rotate_job {
    const lt_cpu_kernels *kernels;
    const lt_view *x, *y;
    const float *table;
    float sign;
    bool interleaved;
} rotate_job;

/* Rotates the heads of tokens begin .. end-1: token n is number n % T of image n / T. */
static void rotate_rows(void *context, int64_t begin, int64_t end)
{
    const rotate_job *j = context;
    const lt_shape s = j->x->shape;
    for (int64_t n = begin; n < end; n++) {
        const float *table = j->table + n % s.dim[1] * 2 * s.dim[3];
        for (int64_t h = 0; h < s.dim[2]; h++) {
            const lt_rotary_row row = {.x = lt_attention_row(j->x, n / s.dim[1], n % s.dim[1], h),
                                       .y = lt_attention_row(j->y, n / s.dim[1], n % s.dim[1], h),
                                       .cosine = table,
                                       .sine = table + s.dim[3],
                                       .sign = j->sign,
                                       .d = s.dim[3],
                                       .interleaved = j->interleaved};
            j->kernels->of[lt_cpu_store_from_dtype(j->x->dtype)].rotary(&row);
        }
    }
}

lt_status lt_cpu_rotary(void *ctx, const lt_rotary_config *config, bool inverse, const lt_view *x,
                        const lt_view *y)
{
    enum { GRAIN = 16 };
    lt_cpu *cpu = ctx;
    if (!lt_cpu_is_fast_dtype(x->dtype) || y->dtype != x->dtype
        || !lt_attention_has_contiguous_rows(x) || !lt_attention_has_contiguous_rows(y))
        return lt_backend_ref()->rotary(ctx, config, inverse, x, y);
    rotate_job job = {.kernels = cpu->kernels,
                      .x = x,
                      .y = y,
                      .table = get_cached_table(cpu, config, x->shape.dim[1], x->shape.dim[3]),
                      .sign = inverse ? -1 : 1,
                      .interleaved = config->interleaved};
    if (!job.table)
        return LT_E_NOMEM;
    lt_parallel_range(x->shape.dim[0] * x->shape.dim[1], GRAIN, rotate_rows, &job);
    return LT_OK;
}
