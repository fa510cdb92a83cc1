/* Ranks that are threads, each with a reducer and buckets of its own. */

#include "topk_ranks.h"

#include "base/alloc.h"
#include "near.h"

#include <stdio.h>

const int64_t sizes[PARAMS] = {108, 997, 13};
const size_t first_of[BUCKETS] = {1, 0}, count_of[BUCKETS] = {2, 1};

int64_t start_of(size_t param)
{
    int64_t at = 0;
    for (size_t p = 0; p < param; p++)
        at += sizes[p];
    return at;
}

bool fails(rank *r, const char *what, double got, double want)
{
    snprintf(r->why, sizeof r->why, "rank %d: %s: %.9g, want %.9g", r->index, what, got, want);
    return false;
}

bool fine(rank *r, lt_status st)
{
    if (!st)
        return true;
    snprintf(r->why, sizeof r->why, "rank %d: %s", r->index, lt_error_message());
    lt_comm_abort(r->comm);
    return false;
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
        LT_TRY(lt_tensor_new(&k->flat, r->device, r->s->dtype,
                             LT_SHAPE(k->elements + (int64_t)k->parts)));
    }
    return lt_reducer_open(red);
}

lt_status open_reducer(rank *r)
{
    const lt_reducer_config config = {.comm = r->comm,
                                      .device = r->device,
                                      .nodes = &r->nodes,
                                      .params = &r->params,
                                      .compress = r->s->compress};
    return lt_reducer_new(&r->reducer, &config);
}

static lt_status set_up(rank *r)
{
    static const char *const names[PARAMS] = {"conv", "fc", "bias"};
    LT_TRY(lt_comm_nodes(&r->nodes, r->comm, r->s->per_node));
    LT_TRY(lt_tensor_new(&r->scale, r->device, LT_F64, LT_SCALAR));
    for (int p = 0; p < PARAMS; p++) {
        LT_TRY(
            p == 0
                ? lt_param_init_filter(&r->param[p], r->device, "", names[p], LT_SHAPE(4, 3, 3, 3))
                : lt_param_init(&r->param[p], r->device, "", names[p], LT_SHAPE(sizes[p]), 0));
        r->param[p].has_grad = true;
        LT_TRY(lt_params_add(&r->params, &r->param[p]));
    }
    return open_reducer(r);
}

static void tear_down(rank *r)
{
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

static void *run_rank(void *context)
{
    rank *r = context;
    if (fine(r, set_up(r)) && fine(r, lay_out(r)) && r->s->play(r) && fine(r, read_residual(r)))
        r->reducer->ops->sent(r->reducer, &r->bytes);
    return NULL;
}

void open_ranks(const scene *s, rank *ranks)
{
    const int size = s->nodes * s->per_node;
    lt_device *device[RANKS] = {NULL};
    lt_comm *comm[RANKS];
    const lt_device_config f64 = {.f64 = true};
    memset(ranks, 0, RANKS * sizeof *ranks);
    for (int i = 0; i < size; i++)
        assert_ok(lt_device_open(&device[i], "ref", s->dtype == LT_F64 ? &f64 : NULL));
    assert_ok(lt_comm_open_threads(comm, device, size));
    for (int i = 0; i < size; i++) {
        ranks[i].s = s;
        ranks[i].index = i;
        ranks[i].device = device[i];
        ranks[i].comm = comm[i];
    }
}

void run_threads(rank *ranks, int size)
{
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
}

void close_ranks(rank *ranks, int size)
{
    for (int i = 0; i < size; i++)
        tear_down(&ranks[i]);
    for (int i = 0; i < size; i++)
        lt_comm_close(&ranks[i].comm);
    for (int i = 0; i < size; i++)
        lt_device_close(&ranks[i].device);
}

void run(const scene *s, rank *ranks)
{
    const int size = s->nodes * s->per_node;
    open_ranks(s, ranks);
    run_threads(ranks, size);
    close_ranks(ranks, size);
    for (int i = 0; i < size; i++)
        if (ranks[i].why[0])
            fail_msg("%s", ranks[i].why);
    for (int i = 1; i < size; i++)
        assert_memory_equal(ranks[i].applied, ranks[0].applied, sizeof ranks->applied);
}
