/* Gradient of attention by tiles: recomputes scores from q and k and weights from lse, one tile at a time. Dao et al.,
 * "FlashAttention", NeurIPS 2022, algorithm 4; formulas: detail/attention_kernels.h.
 *
 * A task is one head and an interval of its keys, for all queries that see it. If a head has several intervals, dq of a
 * task is a partial sum; if several heads share k and v, so are dk and dv. Partial sums are then added in order. */

#include "attention_job.h"
#include "base/parallel.h"

#include <string.h>

typedef struct call {
    lt_attention_job job;
    const lt_attention_grad *g;
    int64_t chunk, chunks; /* keys of a task; tasks per head */
    float *part_q, *part_k,
        *part_v; /* [chunks][B][heads][Tq][width], [B][heads][Tk][width]; or NULL */
} call;

/* A thread's workspace: packed operands, a tile, and a task's sums. */
typedef struct work {
    float *keys, *values, *key_rows;                               /* the task's keys */
    float *query, *query_rows, *dy, *dy_rows, *lse, *mean;         /* the tile's queries */
    float *score, *slope, *score_pairs, *slope_pairs, *slope_rows; /* the tile */
    float *dq, *dk, *dv;
} work;

static int64_t layout_workspace(const call *c, float *base, work *w)
{
    const lt_attention_job *j = &c->job;
    const int64_t panels = lt_cpu_round_up(j->width, LT_ATTENTION_PANEL), tile = j->tile * j->row;
    int64_t at = 0;
    w->keys = lt_attention_take_floats(base, &at, c->chunk * j->words);
    w->values = lt_attention_take_floats(base, &at, c->chunk * j->words);
    w->key_rows = lt_attention_take_floats(base, &at, panels * c->chunk);
    w->query = lt_attention_take_floats(base, &at, j->tile * j->words);
    w->query_rows = lt_attention_take_floats(base, &at, panels * j->tile);
    w->dy = lt_attention_take_floats(base, &at, j->tile * j->words);
    w->dy_rows = lt_attention_take_floats(base, &at, panels * j->tile);
    w->lse = lt_attention_take_floats(base, &at, j->tile);
    w->mean = lt_attention_take_floats(base, &at, j->tile);
    w->score = lt_attention_take_floats(base, &at, tile);
    w->slope = lt_attention_take_floats(base, &at, tile);
    w->score_pairs = lt_attention_take_floats(base, &at, j->pairs ? tile / 2 : 0);
    w->slope_pairs = lt_attention_take_floats(base, &at, j->pairs ? tile / 2 : 0);
    w->slope_rows = lt_attention_take_floats(base, &at, j->pairs ? tile / 2 : 0);
    w->dq = lt_attention_take_floats(base, &at, j->tile * j->width);
    w->dk = lt_attention_take_floats(base, &at, c->chunk * j->width);
    w->dv = lt_attention_take_floats(base, &at, c->chunk * j->width);
    return at;
}

/* Position of a task: image, head, key-value head, keys, queries of the tile. */
typedef struct position {
    int64_t b, h, g, key, keys, query, queries, chunk;
} position;

static void pack_keys(const call *c, const work *w, const position *p)
{
    const lt_attention_grad *g = c->g;
    lt_attention_pack_rows(
        &c->job, g->k, p->b, p->key, p->g,
        (lt_attention_pack){.rows = p->keys,
                            .row_panels = w->keys,
                            .feature_panels = g->dq ? w->key_rows : NULL,
                            .feature_panel_step = c->chunk * LT_ATTENTION_PANEL});
    if (g->dq || g->dk)
        lt_attention_pack_rows(&c->job, g->v, p->b, p->key, p->g,
                               (lt_attention_pack){.rows = p->keys, .row_panels = w->values});
}

static void pack_queries(const call *c, const work *w, const position *p)
{
    const lt_attention_job *j = &c->job;
    const lt_attention_grad *g = c->g;
    const int64_t panel = j->tile * LT_ATTENTION_PANEL;
    const float *lse =
        (const float *)g->lse->data + (p->b * j->heads + p->h) * j->queries + p->query;
    lt_attention_pack_rows(j, g->q, p->b, p->query, p->h,
                           (lt_attention_pack){.rows = p->queries,
                                               .left = w->query,
                                               .feature_panels = g->dk ? w->query_rows : NULL,
                                               .feature_panel_step = panel});
    lt_attention_pack_rows(j, g->dy, p->b, p->query, p->h,
                           (lt_attention_pack){.rows = p->queries,
                                               .left = g->dq || g->dk ? w->dy : NULL,
                                               .feature_panels = g->dv ? w->dy_rows : NULL,
                                               .feature_panel_step = panel});
    const lt_attention_dots dots = {.a = lt_attention_row(g->dy, p->b, p->query, p->h),
                                    .b = lt_attention_row(g->y, p->b, p->query, p->h),
                                    .a_step = g->dy->stride[1],
                                    .b_step = g->y->stride[1],
                                    .rows = p->queries,
                                    .d = j->d,
                                    .dot = w->mean};
    j->kernels->of[lt_cpu_store_from_dtype(j->dtype)].attention_dots(&dots);
    memcpy(w->lse, lse, (size_t)p->queries * sizeof *lse);
}

/* A tile: keys first .. first+cols-1 of the task. */
typedef struct tile {
    int64_t first, cols, offset;
} tile;

/* dk or dv of the tile's keys += transposed tile times the packed rows of its queries. */
static void add_key_grads(const lt_attention_job *j, const position *p, const tile *t,
                          const float *a, const float *b, float *y)
{
    const lt_attention_product product = {.a = a,
                                          .a_row = 1,
                                          .a_step = j->row,
                                          .b = b,
                                          .b_panel = j->tile * LT_ATTENTION_PANEL,
                                          .c = y + t->first * j->width,
                                          .c_row = j->width,
                                          .rows = t->cols,
                                          .cols = j->width,
                                          .depth = p->queries,
                                          .pairs = j->pairs,
                                          .add = true,
                                          .bound = lt_attention_causal_bound(j, LT_ATTENTION_BEGIN),
                                          .offset = t->offset};
    j->product(&product);
}

/* dq of the tile's queries = or += slopes times keys. */
static void add_query_grads(const call *c, const work *w, const position *p, const tile *t)
{
    const lt_attention_job *j = &c->job;
    const lt_attention_product product = {
        .a = j->pairs ? w->slope_rows : w->slope,
        .a_row = j->pairs ? j->row / 2 : j->row,
        .a_step = 1,
        .b = w->key_rows + (j->pairs ? t->first / 2 : t->first) * LT_ATTENTION_PANEL,
        .b_panel = c->chunk * LT_ATTENTION_PANEL,
        .c = w->dq,
        .c_row = j->width,
        .rows = p->queries,
        .cols = j->width,
        .depth = t->cols,
        .pairs = j->pairs,
        .add = t->first > 0,
        .bound = lt_attention_causal_bound(j, LT_ATTENTION_END),
        .offset = t->offset};
    j->product(&product);
}

static void add_tile_grads(const call *c, const work *w, const position *p, const tile *t)
{
    const lt_attention_job *j = &c->job;
    const bool slopes = c->g->dq || c->g->dk;
    const int64_t first = t->first * j->words; /* offset of the tile's packed keys */
    lt_attention_multiply(j, w->query, w->keys + first, p->queries, t->cols, t->offset, w->score);
    if (slopes)
        lt_attention_multiply(j, w->dy, w->values + first, p->queries, t->cols, t->offset,
                              w->slope);
    const lt_attention_slopes s = {.score = w->score,
                                   .slope = slopes ? w->slope : NULL,
                                   .slope_rows = (uint16_t *)(void *)w->slope_rows,
                                   .score_pairs = w->score_pairs,
                                   .slope_pairs = w->slope_pairs,
                                   .row = j->row,
                                   .rows = p->queries,
                                   .cols = t->cols,
                                   .scale = j->scale,
                                   .lse = w->lse,
                                   .mean = w->mean,
                                   .pairs = j->pairs,
                                   .causal = j->causal,
                                   .offset = t->offset};
    j->kernels->attention_slopes(&s);
    if (c->g->dv)
        add_key_grads(j, p, t, j->pairs ? w->score_pairs : w->score, w->dy_rows, w->dv);
    if (c->g->dk)
        add_key_grads(j, p, t, j->pairs ? w->slope_pairs : w->slope, w->query_rows, w->dk);
    if (c->g->dq)
        add_query_grads(c, w, p, t);
}

/* Stores rows of sums, times factor, to y, a row of view `of`. */
static void store_scaled_rows(const lt_attention_job *j, const float *x, float factor, int64_t rows,
                              void *y, const lt_view *of)
{
    const lt_attention_save out = {.x = x,
                                   .x_row = j->width,
                                   .factor = factor,
                                   .y = y,
                                   .y_row = of->stride[1],
                                   .rows = rows,
                                   .d = j->d};
    j->kernels->of[lt_cpu_store_from_dtype(of->dtype)].attention_save(&out);
}

static void store_query_grads(const call *c, const work *w, const position *p)
{
    const lt_attention_job *j = &c->job;
    const int64_t row = ((p->chunk * j->batch + p->b) * j->heads + p->h) * j->queries + p->query;
    if (c->part_q)
        memcpy(c->part_q + row * j->width, w->dq, (size_t)(p->queries * j->width) * sizeof *w->dq);
    else
        store_scaled_rows(j, w->dq, j->scale, p->queries,
                          lt_attention_row(c->g->dq, p->b, p->query, p->h), c->g->dq);
}

static void store_key_grads(const call *c, const float *sum, float factor, const position *p,
                            float *part, const lt_view *to)
{
    const lt_attention_job *j = &c->job;
    const int64_t row = (p->b * j->heads + p->h) * j->keys + p->key;
    if (part)
        memcpy(part + row * j->width, sum, (size_t)(p->keys * j->width) * sizeof *sum);
    else
        store_scaled_rows(j, sum, factor, p->keys, lt_attention_row(to, p->b, p->key, p->g), to);
}

/* Computes the gradients of a tile of queries with the task's keys: adds to dk and dv, stores dq. */
static void compute_query_tile_grads(const call *c, const work *w, const position *p)
{
    const lt_attention_job *j = &c->job;
    const int64_t all = lt_attention_visible_keys(j, p->query + p->queries - 1) - p->key;
    const int64_t seen = all < p->keys ? all : p->keys;
    if (seen > 0)
        pack_queries(c, w, p);
    else /* these queries see only earlier intervals */
        memset(w->dq, 0, (size_t)(p->queries * j->width) * sizeof *w->dq);
    for (int64_t first = 0; first < seen; first += j->block) {
        const int64_t rest = p->keys - first;
        const tile t = {first, rest < j->block ? rest : j->block,
                        lt_attention_visible_keys(j, p->query) - 1 - p->key - first};
        add_tile_grads(c, w, p, &t);
    }
    if (c->g->dq)
        store_query_grads(c, w, p);
}

static void compute_key_task_grads(void *context, int64_t begin, int64_t end, int64_t index)
{
    (void)end;
    (void)index;
    const call *c = context;
    const lt_attention_job *j = &c->job;
    position p = {.chunk = begin % c->chunks,
                  .h = begin / c->chunks % j->heads,
                  .b = begin / c->chunks / j->heads};
    p.g = p.h / (j->heads / j->kv_heads);
    p.key = p.chunk * c->chunk;
    p.keys = j->keys - p.key < c->chunk ? j->keys - p.key : c->chunk;
    work w;
    layout_workspace(c, lt_attention_thread_workspace(j), &w);
    pack_keys(c, &w, &p);
    memset(w.dk, 0, (size_t)(p.keys * j->width) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(p.keys * j->width) * sizeof *w.dv);
    for (p.query = 0; p.query < j->queries; p.query += j->tile) {
        const int64_t rest = j->queries - p.query;
        p.queries = rest < j->tile ? rest : j->tile;
        compute_query_tile_grads(c, &w, &p);
    }
    if (c->g->dk)
        store_key_grads(c, w.dk, j->scale, &p, c->part_k, c->g->dk);
    if (c->g->dv)
        store_key_grads(c, w.dv, 1, &p, c->part_v, c->g->dv);
}

/* Adds `parts` arrays of count floats, `apart` floats from each other, in order into the first. */
static void add_partial_sums(const lt_attention_job *j, float *sum, int64_t parts, int64_t apart,
                             int64_t count)
{
    for (int64_t i = 1; i < parts; i++)
        j->kernels->of[LT_STORE_F32].add(sum, sum + i * apart, sum, count);
}

/* Adds a head's partial sums of dq, of all key intervals, and stores the result. */
static void sum_query_grads(void *context, int64_t begin, int64_t end, int64_t index)
{
    (void)end;
    (void)index;
    const call *c = context;
    const lt_attention_job *j = &c->job;
    const int64_t count = j->queries * j->width, h = begin % j->heads, b = begin / j->heads;
    float *sum = c->part_q + begin * count;
    add_partial_sums(j, sum, c->chunks, j->batch * j->heads * count, count);
    store_scaled_rows(j, sum, j->scale, j->queries, lt_attention_row(c->g->dq, b, 0, h), c->g->dq);
}

static void sum_key_grads(void *context, int64_t begin, int64_t end, int64_t index)
{
    (void)end;
    (void)index;
    const call *c = context;
    const lt_attention_job *j = &c->job;
    const int64_t count = j->keys * j->width, g = begin % j->kv_heads, b = begin / j->kv_heads;
    const int64_t group = j->heads / j->kv_heads, first = begin * group * count;
    if (c->part_k) {
        add_partial_sums(j, c->part_k + first, group, count, count);
        store_scaled_rows(j, c->part_k + first, j->scale, j->keys,
                          lt_attention_row(c->g->dk, b, 0, g), c->g->dk);
    }
    if (c->part_v) {
        add_partial_sums(j, c->part_v + first, group, count, count);
        store_scaled_rows(j, c->part_v + first, 1, j->keys, lt_attention_row(c->g->dv, b, 0, g),
                          c->g->dv);
    }
}

static bool has_fast_kernel(const lt_attention_config *config, const lt_attention_grad *g)
{
    const lt_view *const in[] = {g->q, g->k, g->v, g->y, g->dy}, *const out[] = {g->dq, g->dk,
                                                                                 g->dv};
    for (int i = 0; i < 5; i++)
        if (in[i]->dtype != g->q->dtype || !lt_attention_has_contiguous_rows(in[i]))
            return false;
    for (int i = 0; i < 3; i++)
        if (out[i]
            && (!lt_cpu_is_fast_dtype(out[i]->dtype) || !lt_attention_has_contiguous_rows(out[i])))
            return false;
    return lt_cpu_is_fast_dtype(g->q->dtype) && g->lse->dtype == LT_F32 && config->scale > 0;
}

/* Allocates the threads' workspaces and partial sums. */
static lt_status allocate_workspaces(lt_cpu *cpu, call *c)
{
    lt_attention_job *j = &c->job;
    const int64_t rows = j->batch * j->heads * j->width;
    const int64_t of_q = c->g->dq && c->chunks > 1 ? c->chunks * rows * j->queries : 0;
    const bool shared = j->heads > j->kv_heads;
    const int64_t of_k = c->g->dk && shared ? rows * j->keys : 0;
    const int64_t of_v = c->g->dv && shared ? rows * j->keys : 0;
    work unused;
    j->memory_floats = layout_workspace(c, NULL, &unused);
    j->memory = lt_cpu_scratch(cpu, LT_CPU_ATTENTION,
                               (size_t)(lt_parallel_threads() * j->memory_floats) * sizeof(float));
    if (!j->memory)
        return LT_E_NOMEM;
    if (of_q + of_k + of_v == 0)
        return LT_OK;
    float *part = lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(of_q + of_k + of_v) * sizeof *part);
    if (!part)
        return LT_E_NOMEM;
    c->part_q = of_q ? part : NULL;
    c->part_k = of_k ? part + of_q : NULL;
    c->part_v = of_v ? part + of_q + of_k : NULL;
    return LT_OK;
}

lt_status lt_cpu_attention_grad(void *ctx, const lt_attention_config *config,
                                const lt_attention_grad *g)
{
    if (!has_fast_kernel(config, g))
        return lt_backend_ref()->attention_grad(ctx, config, g);
    call c = {.job = lt_attention_make_job(ctx, config, g->q, g->k), .g = g};
    lt_attention_job *j = &c.job;
    const int64_t blocks = lt_cpu_ceil_div(j->keys, j->block), heads = j->batch * j->heads;
    c.chunk = lt_cpu_ceil_div(blocks, lt_cpu_ceil_div(LT_ATTENTION_TASKS / 2, heads)) * j->block;
    c.chunks = lt_cpu_ceil_div(j->keys, c.chunk);
    LT_TRY(allocate_workspaces(ctx, &c));
    lt_parallel(heads * c.chunks, 1, compute_key_task_grads, &c);
    if (c.part_q)
        lt_parallel(heads, 1, sum_query_grads, &c);
    if (c.part_k || c.part_v)
        lt_parallel(j->batch * j->kv_heads, 1, sum_key_grads, &c);
    return LT_OK;
}
