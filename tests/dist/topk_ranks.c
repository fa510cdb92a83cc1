/* Ranks that are threads, each with a reducer and buckets of its own. */

#include "topk_ranks.h"

#include "base/alloc.h"

const int64_t sizes[PARAMS] = {108, 997, 13};
const size_t first_of[BUCKETS] = {1, 0}, count_of[BUCKETS] = {2, 1};

int64_t start_of(size_t param)
{
    int64_t at = 0;
    for (size_t p = 0; p < param; p++)
        at += sizes[p];
    return at;
}

lt_status differs(const char *what, double got, double want)
{
    return lt_fail(LT_E_FORMAT, "%s: %.9g, want %.9g", what, got, want);
}

/* --- A reducer with its buckets --- */

lt_status lay_out(rank *r)
{
    lt_reducer *red = r->reducer;
    red->bucket = lt_alloc(BUCKETS, sizeof *red->bucket);
    LT_ASSERT(red->bucket);
    red->buckets = BUCKETS;
    for (size_t b = 0; b < BUCKETS; b++) {
        lt_reducer_bucket *k = &red->bucket[b];
        lt_reducer_part *part = lt_alloc(count_of[b], sizeof *part);
        LT_ASSERT(part);
        k->part = part;
        k->parts = count_of[b];
        for (size_t p = 0; p < k->parts; p++) {
            const size_t at = first_of[b] + p;
            part[p] = (lt_reducer_part){&r->param[at], k->elements, sizes[at]};
            k->elements += sizes[at];
        }
        LT_TRY(lt_tensor_new(&k->flat, r->at.device, r->s->dtype,
                             LT_SHAPE(k->elements + (int64_t)k->parts)));
    }
    return lt_reducer_open(red);
}

lt_status open_reducer(rank *r)
{
    const lt_reducer_config config = {.comm = r->at.comm,
                                      .device = r->at.device,
                                      .nodes = &r->nodes,
                                      .params = &r->params,
                                      .compress = r->s->compress};
    return lt_reducer_new(&r->reducer, &config);
}

static lt_status set_up(rank *r)
{
    static const char *const names[PARAMS] = {"conv", "fc", "bias"};
    LT_TRY(lt_comm_nodes(&r->nodes, r->at.comm, r->s->per_node));
    LT_TRY(lt_tensor_new(&r->scale, r->at.device, LT_F64, LT_SCALAR));
    for (int p = 0; p < PARAMS; p++) {
        LT_TRY(p == 0 ? lt_param_init_filter(&r->param[p], r->at.device, "", names[p],
                                             LT_SHAPE(4, 3, 3, 3))
                      : lt_param_init(&r->param[p], r->at.device, "", names[p], LT_SHAPE(sizes[p]),
                                      0));
        r->param[p].has_grad = true;
        LT_TRY(lt_params_add(&r->params, &r->param[p]));
    }
    return open_reducer(r);
}

static void tear_down(void *context)
{
    rank *r = context;
    lt_reducer_free(&r->reducer);
    for (int p = 0; p < PARAMS; p++)
        lt_param_clear(&r->param[p]);
    lt_params_clear(&r->params);
    lt_tensor_free(&r->scale);
    lt_nodes_clear(&r->nodes);
}

/* --- Updates --- */

static lt_status put_gradients(rank *r, size_t bucket, int step, double scale)
{
    const lt_reducer_bucket *k = &r->reducer->bucket[bucket];
    double values[MOST];
    int64_t n = 0;
    for (size_t p = 0; p < k->parts; p++)
        for (int64_t i = 0; i < k->part[p].elements; i++, n++) {
            const int64_t at = start_of(first_of[bucket] + p) + i;
            const double g = r->s->gradient(r, step, at);
            values[n] = g * scale;
            r->in[at] += g;
        }
    for (size_t p = 0; p < k->parts; p++)
        values[n++] = 1;
    lt_view flat = lt_tensor_view(k->flat);
    const lt_view wide = {.data = values, .dtype = LT_F64, .shape = flat.shape, .stride = {1}};
    return lt_backend_ref()->cast(NULL, &wide, &flat);
}

static lt_status take_mean(rank *r, size_t bucket)
{
    const lt_reducer_bucket *k = &r->reducer->bucket[bucket];
    double values[MOST];
    const lt_view flat = lt_tensor_view(k->flat);
    const lt_view wide = {.data = values, .dtype = LT_F64, .shape = flat.shape, .stride = {1}};
    LT_TRY(lt_backend_ref()->cast(NULL, &flat, &wide));
    memcpy(r->out + start_of(first_of[bucket]), values, (size_t)k->elements * sizeof *values);
    return LT_OK;
}

/* A mean, not yet committed. */
lt_status reduce(rank *r, int step, double scale)
{
    r->reducer->loss_scale = scale > 0 ? r->scale : NULL;
    LT_TRY(lt_tensor_fill(r->scale, scale > 0 ? scale : 1));
    for (size_t b = 0; b < BUCKETS; b++) {
        LT_TRY(put_gradients(r, b, step, scale > 0 ? scale : 1));
        LT_TRY(r->reducer->ops->begin(r->reducer, b));
    }
    for (size_t b = 0; b < BUCKETS; b++) {
        LT_TRY(r->reducer->ops->finish(r->reducer, b));
        LT_TRY(take_mean(r, b));
    }
    return LT_OK;
}

lt_status update(rank *r, int step, double scale)
{
    LT_TRY(reduce(r, step, scale));
    for (int i = 0; i < ALL; i++)
        r->applied[i] += r->out[i] / (scale > 0 ? scale : 1);
    return r->reducer->ops->commit(r->reducer, true);
}

/* --- Residuals, as checkpoints see them --- */

typedef struct reading {
    double *residual; /* [ALL] */
    int entries;
    bool load;
} reading;

static lt_status see_entry(void *context, const lt_state_entry *e)
{
    reading *to = context;
    to->entries++;
    if (!e->tensor)
        return LT_OK;
    const size_t p = !strcmp(e->param, "conv") ? 0 : !strcmp(e->param, "fc") ? 1 : 2;
    lt_view x = lt_tensor_view(e->tensor);
    x.shape = LT_SHAPE(sizes[p]); /* as it lies */
    x.stride[0] = 1;
    const lt_view wide = {
        .data = to->residual + start_of(p), .dtype = LT_F64, .shape = x.shape, .stride = {1}};
    return to->load ? lt_backend_ref()->cast(NULL, &wide, &x)
                    : lt_backend_ref()->cast(NULL, &x, &wide);
}

lt_status visit(rank *r, bool load)
{
    reading to = {r->residual, 0, load};
    lt_state_visitor visitor = {.entry = see_entry, .context = &to};
    LT_TRY(r->reducer->ops->visit(r->reducer, &visitor));
    return to.entries == PARAMS * r->nodes.count ? LT_OK
                                                 : lt_fail(LT_E_ARG, "%d entries", to.entries);
}

lt_status read_residual(rank *r)
{
    LT_TRY(r->reducer->ops->gather(r->reducer));
    return visit(r, false);
}

/* --- Ranks --- */

static lt_status play_scene(void *context)
{
    rank *r = context;
    LT_TRY(set_up(r));
    LT_TRY(lay_out(r));
    LT_TRY(r->s->play(r));
    LT_TRY(read_residual(r));
    r->reducer->ops->sent(r->reducer, &r->bytes);
    return LT_OK;
}

rank_group group_of(const scene *s, rank *ranks)
{
    const int size = s->nodes * s->per_node;
    memset(ranks, 0, RANKS * sizeof *ranks);
    for (int i = 0; i < size; i++)
        ranks[i].s = s;
    return (rank_group){RANKS_OF(ranks, size), .f64 = s->dtype == LT_F64, .same_refusal = true,
                        .run = play_scene, .end = tear_down};
}

void run(const scene *s, rank *ranks)
{
    const rank_group g = group_of(s, ranks);
    play_ranks_well(&g);
    for (int i = 1; i < g.count; i++)
        assert_memory_equal(ranks[i].applied, ranks[0].applied, sizeof ranks->applied);
}
