/* Ranks as threads that hold shards of parameters, compared with one rank that holds them whole. */
#ifndef LT_TESTS_OPTIM_SHARDED_RANKS_H
#define LT_TESTS_OPTIM_SHARDED_RANKS_H

#include "base/alloc.h"
#include "makers.h"
#include "optim/sharding/sharded.h"
#include "ranks.h"
#include "tensor/tensor.h"

#include "lather/detail/sharded_optim.h"
#include "lather/ext/fail.h"

#include <string.h>

enum { PARAMS = 5, MOST = 288, ELEMENTS = 240 + 288 + 176 + 6 + 48, RANKS = 16, STEPS = 20 };
enum { NO_GRADIENT = 3, WRITTEN = 5, NOT_A_NUMBER = 6, SOME_ONLY = 9, STATE_BYTES = 1 << 18 };

static const char *const names[PARAMS] = {"in_proj", "table", "out", "gain", "kernel"};
/* The kernel is channels-last. Blocks of the wide ones have long runs with gaps between them; the even ones
 * are split in five. */
static const lt_shape uneven[PARAMS] = {
    {2, {12, 5}}, {2, {7, 3}}, {2, {4, 6}}, {1, {6}}, {4, {4, 3, 2, 2}}};
static const lt_shape wide[PARAMS] = {
    {2, {6, 40}}, {2, {8, 36}}, {2, {4, 44}}, {1, {6}}, {4, {4, 3, 2, 2}}};
static const lt_shape even[PARAMS] = {
    {2, {5, 6}}, {2, {5, 6}}, {2, {5, 6}}, {2, {5, 6}}, {2, {5, 6}}};
static const lt_shape *shapes = uneven;

/* Grid of a copy's ranks: one dimension, or rows x rows x depth. */
typedef struct grid {
    int line, rows, depth;
} grid;

static inline int ranks_of(grid g)
{
    return g.line ? g.line : g.rows * g.rows * g.depth;
}

/* Returns the shard of rank `rank` of a copy. */
static inline lt_shard_spec shard_of_rank(grid g, int k, int rank)
{
    const lt_shape view = k == 0 && shapes == uneven ? LT_SHAPE(3, 4, 1, 5) : shapes[k];
    lt_shard_spec p = {shapes[k], view, {.ndim = view.ndim}, view};
    const int i = g.line ? 0 : rank / g.rows % g.rows, j = g.line ? 0 : rank % g.rows;
    static const int line[PARAMS] = {1, 0, 1, -1, -1};
    static const int by_row[PARAMS] = {3, 0, 1, -1, -1}, by_column[PARAMS] = {1, 1, 0, 0, -1};
    if (shapes == even)
        lt_shard_spec_split(&p, 0, g.line, rank);
    else if (g.line && line[k] >= 0)
        lt_shard_spec_split(&p, line[k], g.line, rank);
    if (!g.line && by_row[k] >= 0)
        lt_shard_spec_split(&p, view.ndim > by_row[k] ? by_row[k] : 1, g.rows, i);
    if (!g.line && by_column[k] >= 0)
        lt_shard_spec_split(&p, view.ndim == 2 && !k ? 0 : by_column[k], g.rows, j);
    return p;
}

struct rank_run;

typedef struct scenario {
    make_fn *make;
    bool in_place;      /* made over the shards */
    const char *preset; /* preset of Shampoo, used instead of make */
    const char *kind;
    bool f64, half;
    double clip;
    lt_dtype dtype;
    bool gather_params;
    lt_balance balance;
    int from, to;                                /* first and last step; 0: 1 and STEPS */
    void (*corrupt)(struct rank_run *p);         /* called before the sharded parameters are made */
    lt_status (*make_other)(struct rank_run *p); /* makes the optimizer instead */
    lt_status (*before)(struct rank_run *p, int t); /* called before each step on each rank */
    lt_status (*after)(struct rank_run *p);         /* called after all steps */
} scenario;

/* All state tensors and numbers, in the order of visits. */
typedef struct record {
    unsigned char *bytes;
    size_t used, entries, count;
    size_t length[1024]; /* bytes of each tensor */
    bool here[1024];
    lt_shard_spec spec[1024]; /* a rank's shard; ndim 0: whole */
    int64_t numbers[4096];
    bool restore;
} record;

/* Start of a run, instead of the initial values and no state. */
typedef struct checkpoint {
    record state;
    double value[ELEMENTS];
} checkpoint;

typedef struct rank_run {
    test_rank base;
    const scenario *scenario;
    bool whole;
    grid layout;
    lt_comm *copy; /* base.comm is the world */
    lt_param param[PARAMS];
    lt_params list;
    lt_sharded_optim *sharded;
    lt_optim *optim;
    const checkpoint *start; /* or NULL */
    record state;
    double value[ELEMENTS]; /* logical elements; of a shard those that it has, else 0 */
    bool has[ELEMENTS];
    double norm[STEPS + 1];
    bool applied[STEPS + 1];
    lt_sharded_traffic traffic;
    int64_t parts_elements; /* elements of its parts */
    int64_t shard_elements; /* elements of its shards */
    int64_t foreign,
        /* elements of its parts: outside of its shards; sent to other ranks that hold them */
        pushed;
    uint64_t gradient_bytes, all_bytes; /* bytes of the last step: over copy; over copy and world */
    size_t state_bytes;
} rank_run;

/* --- State --- */

/* Reads or writes the state of a shard at its logical indices. */
static inline lt_status on_shard(record *r, const lt_state_entry *entry)
{
    char box[MOST * sizeof(double)];
    const lt_shard_spec *spec = entry->sharded_like->spec;
    const size_t size = lt_dtype_size(entry->dtype), i = r->entries++;
    const size_t own = (size_t)lt_shard_spec_count(spec) * size;
    unsigned char *at = r->bytes + r->used;
    assert_true(own <= sizeof box && i < COUNT_OF(r->length));
    r->spec[i] = *spec;
    r->here[i] = true;
    r->length[i] = (size_t)lt_shape_count(spec->logical) * size;
    r->used += r->length[i];
    assert_in_range(r->used, 1, STATE_BYTES);
    if (r->restore) {
        lt_shard_spec_read(spec, at, box, size);
        return lt_tensor_write(entry->tensor, box, own);
    }
    LT_TRY(lt_tensor_read(entry->tensor, box, own));
    lt_shard_spec_write(spec, box, at, size);
    return LT_OK;
}

static inline lt_status on_entry(void *context, const lt_state_entry *entry)
{
    record *r = context;
    if (entry->sharded_like && entry->sharded_like->spec)
        return on_shard(r, entry);
    const size_t bytes = (size_t)lt_shape_count(entry->extent) * lt_dtype_size(entry->dtype);
    unsigned char *at = r->bytes + r->used;
    assert_true(r->used + bytes <= STATE_BYTES && r->entries < COUNT_OF(r->length));
    r->used += bytes;
    r->here[r->entries] = entry->tensor != NULL;
    r->length[r->entries++] = bytes;
    if (!entry->tensor)
        return LT_OK;
    return r->restore ? lt_tensor_write(entry->tensor, at, bytes)
                      : lt_tensor_read(entry->tensor, at, bytes);
}

static inline lt_status on_number(void *context, const char *name, int64_t *value)
{
    record *r = context;
    (void)name;
    assert_true(r->count < COUNT_OF(r->numbers));
    if (r->restore)
        *value = r->numbers[r->count++];
    else
        r->numbers[r->count++] = *value;
    return LT_OK;
}

static inline lt_status visit(rank_run *p, record *r, bool restore)
{
    r->used = r->entries = r->count = 0;
    r->restore = restore;
    if (!restore)
        LT_TRY(lt_shard_share_counters(p->optim));
    return lt_optim_visit(p->optim, &(lt_state_visitor){on_entry, on_number, r});
}

/* --- A run --- */

static inline lt_status make_optim(const scenario *s, lt_optim **out, const lt_params *params)
{
    return s->preset ? make_preset(out, params, s->preset, 4) : s->make(out, params);
}

static inline double start_of(int k, int64_t i)
{
    return (i % 2 ? -0.1 : 0.1) * (double)(i % 48 + 1) + 0.01 * k;
}

static inline double gradient_of(const rank_run *p, int t, int k, int64_t i)
{
    const double x = (double)i;
    if (t == NOT_A_NUMBER && k == 1 && i == 5)
        return (double)NAN;
    return sin(1 + 7.0 * t + 3.0 * k + 1.7 * x + 0.9 * t * x) * (p->scenario->half ? 1024 : 1);
}

typedef double number_fn(const rank_run *p, int t, int k, int64_t i);

static inline lt_shard_spec place_of_player(const rank_run *p, int k)
{
    return p->whole ? lt_shard_spec_whole(shapes[k])
                    : shard_of_rank(p->layout, k, p->base.rank % ranks_of(p->layout));
}

/* Fills a tensor by logical indices. */
static inline void fill(const rank_run *p, lt_tensor *tensor, number_fn *number, int t, int k)
{
    double values[MOST];
    const lt_shard_spec spec = place_of_player(p, k);
    for (int64_t i = 0; i < lt_shard_spec_count(&spec); i++)
        values[i] = number(p, t, k, lt_shard_spec_index(&spec, i));
    put(tensor, values);
}

static inline double first_value(const rank_run *p, int t, int k, int64_t i)
{
    int64_t first = 0;
    (void)t;
    for (int j = 0; j < k; j++)
        first += lt_shape_count(shapes[j]);
    return p->start ? p->start->value[first + i] : start_of(k, i);
}

static inline double written_value(const rank_run *p, int t, int k, int64_t i)
{
    (void)p, (void)t;
    return 0.5 - start_of(k, i);
}

static inline void open_params(rank_run *p)
{
    const scenario *s = p->scenario;
    const lt_device_config config = {.f64 = s->f64, .threads = 1};
    assert_ok(lt_device_open(&p->base.device, s->kind ? s->kind : "ref", &config));
    for (int k = 0; k < PARAMS; k++) {
        lt_param *param = &p->param[k];
        const lt_shard_spec spec = place_of_player(p, k);
        assert_ok(spec.extent.ndim == 4 && k == 4
                      ? lt_param_init_filter(param, p->base.device, "", names[k], spec.extent)
                      : lt_param_init(param, p->base.device, "", names[k], spec.extent, 0));
        if (!p->whole)
            assert_ok(lt_param_set_shard_spec(param, &spec));
        param->role = k == 3 ? LT_PARAM_NORM : LT_PARAM_WEIGHT;
        fill(p, param->value, first_value, 0, k);
        assert_ok(lt_params_add(&p->list, param));
    }
}

static inline void set_gradients(rank_run *p, int t)
{
    for (int k = 0; k < PARAMS; k++) {
        fill(p, p->param[k].grad, gradient_of, t, k);
        p->param[k].has_grad = t != NO_GRADIENT && ((t != SOME_ONLY && t != STEPS) || k % 2 == 0);
        if (t == WRITTEN) /* as a loaded checkpoint would */
            fill(p, p->param[k].value, written_value, t, k);
    }
}

static inline lt_status step(rank_run *p, int t)
{
    lt_step_result result;
    set_gradients(p, t);
    if (p->scenario->before)
        LT_TRY(p->scenario->before(p, t));
    const lt_step numbers = {.lr = 0.01, .clip_norm = p->scenario->clip, .attempt = t};
    const uint64_t copy = p->copy ? lt_comm_bytes(p->copy) : 0;
    const uint64_t world = p->base.comm ? lt_comm_bytes(p->base.comm) : 0;
    LT_TRY(lt_optim_step(p->optim, &numbers));
    p->gradient_bytes = p->copy ? lt_comm_bytes(p->copy) - copy : 0;
    p->all_bytes = p->gradient_bytes + (p->base.comm ? lt_comm_bytes(p->base.comm) - world : 0);
    LT_TRY(lt_optim_result(p->optim, &result));
    p->norm[t] = result.grad_norm;
    p->applied[t] = result.applied;
    return LT_OK;
}

/* Returns the row-major index, in the parameter, of element i of a region. */
static inline int64_t element_of_part(lt_shape shape, lt_shape offset, lt_shape extent, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        at += (offset.dim[d] + i % extent.dim[d]) * step;
        step *= shape.dim[d];
        i /= extent.dim[d];
    }
    return at;
}

static inline bool holds(const rank_run *p, int rank, int k, int64_t element)
{
    const lt_shard_spec spec = shard_of_rank(p->layout, k, rank % ranks_of(p->layout));
    for (int64_t i = 0; i < lt_shard_spec_count(&spec); i++)
        if (lt_shard_spec_index(&spec, i) == element)
            return true;
    return false;
}

/* Counts elements one by one from the shards and the owners. */
static inline void count_elements(rank_run *p)
{
    const lt_shard *s = p->optim->shard;
    for (int k = 0; k < PARAMS; k++)
        p->shard_elements += lt_tensor_count(p->param[k].value);
    for (size_t i = 0; i < s->count; i++) {
        const int k = (int)(s->part[i].slot - p->optim->slot);
        lt_shape offset, extent;
        lt_shard_part_region(p->optim, i, &offset, &extent);
        assert_int_equal(lt_shape_count(extent), s->part[i].elements);
        for (int64_t e = 0; e < s->part[i].elements && s->part[i].owner == p->base.rank; e++) {
            const int64_t at = element_of_part(shapes[k], offset, extent, e);
            p->parts_elements++;
            p->foreign += !holds(p, p->base.rank, k, at);
            for (int r = 0; r < p->base.ranks; r++)
                p->pushed += r != p->base.rank && holds(p, r, k, at);
        }
    }
}

static inline lt_status make_sharded(rank_run *p)
{
    const scenario *s = p->scenario;
    const lt_shard_config c = {.comm = p->base.comm,
                               .dtype = s->dtype,
                               .gather_params = s->gather_params,
                               .balance = s->balance};
    if (p->whole) {
        LT_TRY(make_optim(s, &p->optim, &p->list));
        if (s->dtype) /* one rank rounds its updates too */
            LT_TRY(lt_optim_shard(p->optim, &c));
        return lt_optim_shard_gradients(p->optim, NULL);
    }
    LT_TRY(lt_comm_split(p->base.comm, p->base.rank / ranks_of(p->layout), p->base.rank, &p->copy));
    if (s->corrupt)
        s->corrupt(p);
    LT_TRY(lt_sharded_optim_new(&p->sharded, &p->list, p->base.comm, p->copy));
    if (s->in_place) {
        LT_TRY(s->make_other ? s->make_other(p) : make_optim(s, &p->optim, &p->list));
        LT_TRY(lt_sharded_optim_attach_shards(p->sharded, p->optim));
        return lt_sharded_optim_traffic(p->sharded, &p->traffic);
    }
    LT_TRY(s->make_other ? s->make_other(p)
                         : make_optim(s, &p->optim, lt_sharded_optim_params(p->sharded)));
    LT_TRY(lt_sharded_optim_attach(p->sharded, p->optim, &c));
    count_elements(p);
    return lt_sharded_optim_traffic(p->sharded, &p->traffic);
}

static inline lt_status run(void *rank)
{
    rank_run *p = rank;
    const scenario *s = p->scenario;
    LT_TRY(make_sharded(p));
    lt_alloc_fail_at(0); /* attaching succeeded */
    if (s->half)
        LT_TRY(lt_optim_scale_loss(p->optim, &(lt_loss_scaling){1024, 2, 0.5, 4, 0}));
    if (p->start) {
        record r = p->start->state;
        LT_TRY(visit(p, &r, true));
    }
    for (int t = s->from ? s->from : 1; t <= (s->to ? s->to : STEPS); t++)
        LT_TRY(step(p, t));
    p->state_bytes = lt_optim_state_bytes(p->optim);
    if (s->after)
        LT_TRY(s->after(p));
    return visit(p, &p->state, false);
}

static inline void end_run(void *rank)
{
    rank_run *p = rank;
    lt_optim_free(&p->optim);
    lt_sharded_optim_free(&p->sharded);
    if (p->copy)
        lt_comm_close(&p->copy);
}

/* Reads the values and frees the parameters. */
static inline void take_values(rank_run *p)
{
    double values[MOST];
    int64_t first = 0;
    for (int k = 0; k < PARAMS; k++) {
        const lt_shard_spec spec = place_of_player(p, k);
        get(p->param[k].value, values);
        for (int64_t i = 0; i < lt_shard_spec_count(&spec); i++) {
            const int64_t at = first + lt_shard_spec_index(&spec, i);
            p->value[at] = values[i];
            p->has[at] = true;
        }
        first += lt_shape_count(shapes[k]);
        lt_param_clear(&p->param[k]);
    }
    assert_in_range(first, 1, ELEMENTS);
    lt_params_clear(&p->list);
}

/* If not 0: number of the allocation that fails, counted over all ranks once they run. */
static int64_t fail_at;

/* Runs all ranks; layout and whole are set already. */
static inline void run_all(rank_run *p, int ranks, const scenario *s, const checkpoint *start)
{
    const rank_group g = {RANKS_OF(p, ranks), .fail_at = fail_at, .run = run, .end = end_run};
    for (int r = 0; r < ranks; r++) {
        p[r].base = (test_rank){.rank = r, .ranks = ranks};
        p[r].scenario = s;
        p[r].start = start;
        p[r].state.bytes = lt_alloc(STATE_BYTES, 1);
        assert_non_null(p[r].state.bytes);
        open_params(&p[r]);
    }
    open_ranks(&g);
    run_ranks(&g);
    fail_at = 0;
    for (int r = 0; r < ranks; r++)
        take_values(&p[r]);
    close_ranks(&g);
    for (int r = 0; r < ranks; r++)
        lt_device_close(&p[r].base.device);
}

/* Runs one rank with whole parameters. */
static inline void run_whole(rank_run *p, const scenario *s, const checkpoint *start)
{
    *p = (rank_run){.whole = true, .layout = {1, 0, 0}};
    run_all(p, 1, s, start);
    if (p->base.status)
        fail_msg("one rank: %s", p->base.message);
}

static inline void run_shards(rank_run *p, const scenario *s, grid layout, int copies,
                              const checkpoint *start)
{
    const int ranks = ranks_of(layout) * copies;
    for (int r = 0; r < ranks; r++)
        p[r] = (rank_run){.layout = layout};
    run_all(p, ranks, s, start);
}

static inline void free_records(rank_run *p, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        lt_free(p[r].state.bytes);
        p[r].state.bytes = NULL;
    }
}

#endif
