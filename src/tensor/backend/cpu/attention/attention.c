/* Attention by tiles of queries and keys with online softmax: the output so far is rescaled when the running maximum
 * grows. Dao et al., "FlashAttention", NeurIPS 2022; Milakov & Gimelshein, "Online normalizer calculation for softmax",
 * 2018. A few queries, as in sampling, read keys and values in place. Other strides and dtypes fall back to the
 * reference backend. */

#include "attention_job.h"
#include "base/parallel.h"

#include "lather/ext/elementary.h"

/* Returns the size of equal parts of at most `most`, a multiple of step. */
static int64_t equal_part_size(int64_t count, int64_t most, int64_t step)
{
    return lt_cpu_round_up(lt_cpu_ceil_div(count, lt_cpu_ceil_div(count, most)), step);
}

lt_attention_job lt_attention_make_job(const lt_cpu *cpu, const lt_attention_config *config,
                                       const lt_view *q, const lt_view *k)
{
    /* Most of a tile; measured: half and twice are 3 % slower. Queries of a tile are a multiple of the product's rows. */
    enum { QUERIES = 72, ROWS = 12, KEYS = 256, AMX_QUERIES = 128, AMX_ROWS = 16 };
    const bool pairs = q->dtype == LT_BF16 && cpu->kernels->pairs;
    const int64_t d = q->shape.dim[3], step = pairs ? 2 : 1;
    lt_attention_job j = {.kernels = cpu->kernels,
                          .product = cpu->kernels->attention_product,
                          .pairs = pairs,
                          .causal = config->causal,
                          .dtype = q->dtype,
                          .batch = q->shape.dim[0],
                          .heads = config->heads,
                          .kv_heads = config->kv_heads,
                          .queries = q->shape.dim[1],
                          .keys = k->shape.dim[1],
                          .d = d,
                          .words = (d + step - 1) / step,
                          .width = lt_cpu_round_up(d, LT_ATTENTION_LANES),
                          .scale = (float)config->scale};
    j.tile = equal_part_size(j.queries, QUERIES, ROWS);
#if defined(__x86_64__)
    if (pairs && cpu->isa == LT_ISA_AMX) {
        j.product = lt_attention_product_amx;
        j.tile = equal_part_size(j.queries, AMX_QUERIES, AMX_ROWS);
    }
#endif
    j.block = equal_part_size(j.keys, KEYS, LT_ATTENTION_PANEL);
    j.row = j.block + LT_ATTENTION_LANES; /* not a power of 2, which would map to few cache sets */
    j.value_depth = (j.keys + step - 1) / step;
    j.packed = j.keys;
    return j;
}

typedef struct operands {
    const lt_view *q, *k, *v, *y, *lse;
} operands;

typedef struct call {
    lt_attention_job job;
    operands x;
    int64_t chunk, chunks; /* queries of a task; tasks per head */
} call;

/* A thread's workspace: packed operands and a tile. */
typedef struct work {
    float *keys, *values, *query, *score, *weight, *y, *top, *sum, *norm;
} work;

static int64_t layout_workspace(const lt_attention_job *j, float *base, work *w)
{
    const int64_t key_columns = lt_cpu_round_up(j->packed, LT_ATTENTION_PANEL);
    int64_t at = 0;
    w->keys = lt_attention_take_floats(base, &at, key_columns * j->words);
    w->values = lt_attention_take_floats(
        base, &at, lt_cpu_round_up(j->width, LT_ATTENTION_PANEL) * j->value_depth);
    w->query = lt_attention_take_floats(base, &at, j->tile * j->words);
    w->score = lt_attention_take_floats(base, &at, j->tile * j->row);
    w->weight = lt_attention_take_floats(base, &at, j->pairs ? j->tile * j->row / 2 : 0);
    w->y = lt_attention_take_floats(base, &at, j->tile * j->width);
    w->top = lt_attention_take_floats(base, &at, j->tile);
    w->sum = lt_attention_take_floats(base, &at, j->tile * LT_ATTENTION_LANES);
    w->norm = lt_attention_take_floats(base, &at, j->tile);
    return at;
}

void lt_attention_pack_rows(const lt_attention_job *j, const lt_view *x, int64_t b, int64_t first,
                            int64_t h, lt_attention_pack to)
{
    to.x = lt_attention_row(x, b, first, h);
    to.step = x->stride[1];
    to.d = j->d;
    to.pairs = j->pairs;
    j->kernels->of[lt_cpu_store_from_dtype(j->dtype)].attention_pack(&to);
}

void lt_attention_multiply(const lt_attention_job *j, const float *a, const float *b, int64_t rows,
                           int64_t cols, int64_t offset, float *y)
{
    const lt_attention_product product = {.a = a,
                                          .a_row = j->words,
                                          .a_step = 1,
                                          .b = b,
                                          .b_panel = LT_ATTENTION_PANEL * j->words,
                                          .c = y,
                                          .c_row = j->row,
                                          .rows = rows,
                                          .cols = lt_cpu_round_up(cols, LT_ATTENTION_LANES),
                                          .depth = j->d,
                                          .pairs = j->pairs,
                                          .bound =
                                              lt_attention_causal_bound(j, LT_ATTENTION_COLUMNS),
                                          .offset = offset};
    j->product(&product);
}

/* Computes lse and 1 / sum per row. */
static void finish_softmax(const work *w, int64_t rows, float *lse)
{
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int l = 0; l < LT_ATTENTION_LANES; l++)
            sum += w->sum[r * LT_ATTENTION_LANES + l];
        w->norm[r] = 1 / sum;
        lse[r] = w->top[r] + (float)lt_f64_log((double)sum);
    }
}

static float *lse_row(const call *c, int64_t b, int64_t h, int64_t i)
{
    return (float *)c->x.lse->data + (b * c->job.heads + h) * c->job.queries + i;
}

/* Processes one block of keys for a tile of queries: y = or += weights v. */
static void attend_key_block(const lt_attention_job *j, const work *w, int64_t rows,
                             int64_t first_query, int64_t key)
{
    const int64_t cols = j->keys - key < j->block ? j->keys - key : j->block;
    const int64_t offset = lt_attention_visible_keys(j, first_query) - 1 - key;
    lt_attention_multiply(j, w->query, w->keys + key * j->words, rows, cols, offset, w->score);
    const lt_attention_weights weights = {.score = w->score,
                                          .weight = (uint16_t *)(void *)w->weight,
                                          .row = j->row,
                                          .rows = rows,
                                          .cols = cols,
                                          .scale = j->scale,
                                          .top = w->top,
                                          .sum = w->sum,
                                          .y = w->y,
                                          .y_row = j->width,
                                          .pairs = j->pairs,
                                          .first = key == 0,
                                          .causal = j->causal,
                                          .offset = offset};
    j->kernels->attention_weights(&weights);
    const lt_attention_product values = {.a = j->pairs ? w->weight : w->score,
                                         .a_row = j->pairs ? j->row / 2 : j->row,
                                         .a_step = 1,
                                         .b = w->values
                                              + (j->pairs ? key / 2 : key) * LT_ATTENTION_PANEL,
                                         .b_panel = j->value_depth * LT_ATTENTION_PANEL,
                                         .c = w->y,
                                         .c_row = j->width,
                                         .rows = rows,
                                         .cols = j->width,
                                         .depth = cols,
                                         .pairs = j->pairs,
                                         .add = key > 0,
                                         .bound = lt_attention_causal_bound(j, LT_ATTENTION_END),
                                         .offset = offset};
    j->product(&values);
}

/* Computes the output of queries first .. first+rows-1 of a head. */
static void attend_tile(const call *c, const work *w, int64_t b, int64_t h, int64_t first,
                        int64_t rows)
{
    const lt_attention_job *j = &c->job;
    const operands *x = &c->x;
    lt_attention_pack_rows(j, x->q, b, first, h,
                           (lt_attention_pack){.rows = rows, .left = w->query});
    for (int64_t key = 0; key < lt_attention_visible_keys(j, first + rows - 1); key += j->block)
        attend_key_block(j, w, rows, first, key);
    finish_softmax(w, rows, lse_row(c, b, h, first));
    const lt_attention_save out = {.x = w->y,
                                   .scale = w->norm,
                                   .x_row = j->width,
                                   .factor = 1,
                                   .y = lt_attention_row(x->y, b, first, h),
                                   .y_row = x->y->stride[1],
                                   .rows = rows,
                                   .d = j->d};
    j->kernels->of[lt_cpu_store_from_dtype(j->dtype)].attention_save(&out);
}

static void attend_task(void *context, int64_t begin, int64_t end, int64_t index)
{
    (void)end;
    (void)index;
    const call *c = context;
    const lt_attention_job *j = &c->job;
    const operands *x = &c->x;
    const int64_t h = begin / c->chunks % j->heads, b = begin / c->chunks / j->heads;
    const int64_t g = h / (j->heads / j->kv_heads), first = begin % c->chunks * c->chunk;
    const int64_t last = first + c->chunk < j->queries ? first + c->chunk : j->queries;
    work w;
    layout_workspace(j, lt_attention_thread_workspace(j), &w);
    const int64_t seen = lt_attention_visible_keys(j, last - 1);
    lt_attention_pack_rows(j, x->k, b, 0, g,
                           (lt_attention_pack){.rows = seen, .row_panels = w.keys});
    lt_attention_pack_rows(
        j, x->v, b, 0, g,
        (lt_attention_pack){.rows = seen,
                            .feature_panels = w.values,
                            .feature_panel_step = j->value_depth * LT_ATTENTION_PANEL});
    for (int64_t i = first; i < last; i += j->tile)
        attend_tile(c, &w, b, h, i, last - i < j->tile ? last - i : j->tile);
}

/* Computes one query, reading keys and values in place. */
static void attend_query(const call *c, int64_t b, int64_t h, int64_t i)
{
    const lt_attention_job *j = &c->job;
    const int64_t g = h / (j->heads / j->kv_heads);
    const lt_cpu_store store = lt_cpu_store_from_dtype(j->dtype);
    work w;
    layout_workspace(j, lt_attention_thread_workspace(j), &w);
    const lt_attention_pack query = {
        .x = lt_attention_row(c->x.q, b, i, h), .rows = 1, .d = j->d, .left = w.query};
    j->kernels->of[store].attention_pack(&query);
    lt_attention_rows rows = {.row = lt_attention_row(c->x.k, b, 0, g),
                              .step = c->x.k->stride[1],
                              .rows = lt_attention_visible_keys(j, i),
                              .d = j->d,
                              .x = w.query,
                              .score = w.score,
                              .y = w.y};
    j->kernels->of[store].attention_scores(&rows);
    const lt_attention_weights weights = {.score = w.score,
                                          .rows = 1,
                                          .cols = rows.rows,
                                          .scale = j->scale,
                                          .top = w.top,
                                          .sum = w.sum,
                                          .first = true};
    j->kernels->attention_weights(&weights);
    rows.row = lt_attention_row(c->x.v, b, 0, g);
    rows.step = c->x.v->stride[1];
    j->kernels->of[store].attention_mix(&rows);
    finish_softmax(&w, 1, lse_row(c, b, h, i));
    const lt_attention_save out = {.x = w.y,
                                   .scale = w.norm,
                                   .factor = 1,
                                   .y = lt_attention_row(c->x.y, b, i, h),
                                   .rows = 1,
                                   .d = j->d};
    j->kernels->of[store].attention_save(&out);
}

/* Task for few queries: all query heads that share a key-value head, so that its keys are read from memory once. */
static void attend_few_queries(void *context, int64_t begin, int64_t end, int64_t index)
{
    (void)end;
    (void)index;
    const call *c = context;
    const lt_attention_job *j = &c->job;
    const int64_t group = j->heads / j->kv_heads, g = begin % j->kv_heads;
    for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = 0; i < j->queries; i++)
            attend_query(c, begin / j->kv_heads, h, i);
}

static bool has_fast_kernel(const lt_attention_config *config, const operands *x)
{
    const lt_view *const views[] = {x->q, x->k, x->v, x->y};
    for (int i = 0; i < 4; i++)
        if (views[i]->dtype != x->q->dtype || !lt_attention_has_contiguous_rows(views[i]))
            return false;
    return lt_cpu_is_fast_dtype(x->q->dtype) && x->lse->dtype == LT_F32 && config->scale > 0;
}

lt_status lt_cpu_attention(void *ctx, const lt_attention_config *config, const lt_view *q,
                           const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse)
{
    enum { FEW = 4 };
    lt_cpu *cpu = ctx;
    call c = {.x = {q, k, v, y, lse}};
    if (!has_fast_kernel(config, &c.x))
        return lt_backend_ref()->attention(ctx, config, q, k, v, y, lse);
    lt_attention_job *j = &c.job;
    *j = lt_attention_make_job(cpu, config, q, k);
    const bool few = j->queries < FEW;
    if (few) { /* one row of scores in f32 */
        j->pairs = false;
        j->tile = 1;
        j->words = j->d;
        j->row = lt_cpu_round_up(j->keys, LT_ATTENTION_LANES);
        j->packed = 0;
        j->value_depth = 0;
    }
    work unused;
    j->memory_floats = layout_workspace(j, NULL, &unused);
    j->memory = lt_cpu_scratch(cpu, LT_CPU_ATTENTION,
                               (size_t)(lt_parallel_threads() * j->memory_floats) * sizeof(float));
    if (!j->memory)
        return LT_E_NOMEM;
    if (few) {
        lt_parallel(j->batch * j->kv_heads, 1, attend_few_queries, &c);
        return LT_OK;
    }
    const int64_t tiles = (j->queries + j->tile - 1) / j->tile, heads = j->batch * j->heads;
    c.chunk = lt_cpu_ceil_div(tiles, lt_cpu_ceil_div(LT_ATTENTION_TASKS, heads)) * j->tile;
    c.chunks = lt_cpu_ceil_div(j->queries, c.chunk);
    lt_parallel(heads * c.chunks, 1, attend_task, &c);
    return LT_OK;
}
