/* Returns the prefetch queue's batches as tensors, in order, and lists broken samples.
 *
 * If device memory is host memory, the threads write into a slot's tensors. Otherwise a batch is
 * copied to one pair of tensors at a fixed address, which a captured graph needs, while the
 * previous step runs if the device has upload slots (upload.h). An incomplete batch is copied into
 * tensors of its own size. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/trace.h"
#include "data/loader/prefetch.h"
#include "data/loader/upload.h"
#include "data/transform/augment.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <string.h>

typedef struct pair {
    lt_tensor *inputs, *labels, *targets; /* targets: NULL without mixing */
} pair;

struct lt_loader {
    lt_dataset *dataset;
    lt_device *device;
    lt_prefetch *queue;
    lt_image_cache *cache;   /* NULL: none */
    lt_loader_config config; /* zeros filled in */
    int channels;
    int64_t batches;
    int64_t batch;    /* the next one within the epoch */
    bool begun, lent; /* begun: seek was called; lent: the caller has the oldest slot */
    pair *pairs;      /* [slots], or [1] if the device has memory of its own */
    uint8_t *staging; /* [slots] batches of labels, targets, pixels; NULL in host memory */
    lt_upload *ahead; /* owns the staging; NULL: copies are synchronous */
    int64_t taken;    /* number of the batch lent to the caller */
    pair part;        /* an incomplete batch */
    lt_broken_list bad;
    int64_t samples, delivered; /* delivered: batches */
    double wait_seconds;
    lt_status failed; /* what lt_loader_next() returns until a seek */
    char *why;
};

/* --- The config --- */

/* Fills in what a zero stands for. */
static void fill_in(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { SLOTS = 4 };
    c->size = c->size ? c->size : 1;
    c->threads = c->threads ? c->threads : lt_cpu_threads();
    c->slots = c->slots ? c->slots : SLOTS;
    c->limit = c->limit && c->limit < dataset->count ? c->limit : dataset->count;
}

/* The transform at every size. */
static lt_status check_sizes(lt_loader_config *c)
{
    LT_TRY(lt_size_schedule_check(&c->sizes));
    if (c->sizes.count && c->transform.resize)
        return lt_fail(LT_E_ARG,
                       "loader: resize %d and a schedule of sizes; crop_ratio goes with it",
                       c->transform.resize);
    for (int i = 0; i < c->sizes.count; i++) {
        lt_transform t = c->transform;
        t.size = c->sizes.step[i].size;
        LT_TRY(lt_transform_check(&t));
    }
    if (c->sizes.count)
        c->transform.size = c->sizes.step[0].size;
    return lt_transform_check(&c->transform);
}

/* Mixing and size schedules, which data sets of numbers do not take. */
static lt_status check_inputs(lt_loader_config *c, const lt_dataset *dataset)
{
    LT_TRY(lt_mix_check(&c->mix));
    if (!dataset->shape.ndim)
        return check_sizes(c);
    if (lt_mix_wanted(&c->mix) || c->sizes.count)
        return lt_fail(LT_E_ARG, "loader: %s of numbers; want images",
                       c->sizes.count ? "sizes" : "mixing");
    return LT_OK;
}

/* Fills in what a zero stands for, and checks the rest. Errors: LT_E_ARG, naming the field. */
static lt_status complete_config(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { MOST = 4096 };
    LT_TRY(check_inputs(c, dataset));
    fill_in(c, dataset);
    if (c->batch < 1)
        return lt_fail(LT_E_ARG, "loader: a batch of %d samples", c->batch);
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return lt_fail(LT_E_ARG, "loader: rank %d of %d", c->rank, c->size);
    if (c->threads < 1 || c->threads > MOST || c->slots < 2 || c->slots > MOST)
        return lt_fail(LT_E_ARG, "loader: %d threads and %d slots, not 1 .. %d and 2 .. %d",
                       c->threads, c->slots, MOST, MOST);
    if (c->repeats < 0 || c->repeats > MOST)
        return lt_fail(LT_E_ARG, "loader: %d repeats, not 0 .. %d", c->repeats, MOST);
    if (c->cache_bytes < 0 || c->read_ahead < 0)
        return lt_fail(LT_E_ARG, "loader: a cache of %" PRId64 " bytes, %" PRId64 " samples ahead",
                       c->cache_bytes, c->read_ahead);
    if (c->limit < 1 || c->max_batches < 0)
        return lt_fail(LT_E_ARG, "loader: %" PRId64 " samples, at most %" PRId64 " batches",
                       c->limit, c->max_batches);
    return LT_OK;
}

/* --- Tensors of a batch, and the memory that batches are made in --- */

static void free_pair(pair *p)
{
    lt_tensor_free(&p->inputs);
    lt_tensor_free(&p->labels);
    lt_tensor_free(&p->targets);
}

static bool mixes(const lt_loader *l)
{
    return lt_mix_wanted(&l->config.mix);
}

/* [count,C,size,size] of images; [count,shape] of numbers. */
static lt_shape batch_shape(const lt_loader *l, int count, int size)
{
    lt_shape numbers = {.ndim = l->dataset->shape.ndim + 1, .dim = {count}};
    if (numbers.ndim == 1)
        return LT_SHAPE(count, l->channels, size, size);
    memcpy(numbers.dim + 1, l->dataset->shape.dim, sizeof numbers.dim - sizeof *numbers.dim);
    return numbers;
}

static lt_status new_pair(pair *out, const lt_loader *l, int count, int size)
{
    const lt_dataset *d = l->dataset;
    lt_dtype dtype = d->tokens ? LT_I32 : d->shape.ndim ? LT_F32 : LT_U8;
    const lt_shape shape = batch_shape(l, count, size);
    LT_TRY(lt_tensor_new_as(&out->inputs, l->device, dtype, shape,
                            shape.ndim == 4 ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS));
    lt_status st =
        lt_tensor_new(&out->labels, l->device, LT_I32, d->tokens ? shape : LT_SHAPE(count));
    if (!st && mixes(l))
        st = lt_tensor_new(&out->targets, l->device, LT_F32, LT_SHAPE(count, d->classes));
    if (st)
        free_pair(out);
    return st;
}

/* The largest side in the size schedule. */
static int largest_size(const lt_loader *l)
{
    const lt_size_schedule *s = &l->config.sizes;
    int size = s->count ? 0 : l->config.transform.size;
    for (int i = 0; i < s->count; i++)
        size = s->step[i].size > size ? s->step[i].size : size;
    return size;
}

/* Changes the side of the images in place; at most the largest one, for which memory was taken. */
static void set_size(const lt_loader *l, lt_tensor *images, int size)
{
    lt_shape shape = batch_shape(l, (int)images->shape.dim[0], size);
    images->shape = shape;
    lt_channels_last_strides(shape, images->stride);
}

static size_t label_bytes(const lt_loader *l, int count)
{
    return (size_t)count * lt_sample_labels(l->dataset) * sizeof(int32_t);
}

static size_t target_bytes(const lt_loader *l, int count)
{
    return mixes(l) ? (size_t)count * (size_t)l->dataset->classes * sizeof(float) : 0;
}

static bool on_host(const lt_loader *l)
{
    return l->device->backend->host_memory;
}

static lt_status make_staging(lt_loader *l, size_t bytes)
{
    const size_t align = 64, all = bytes * (size_t)l->config.slots;
    if (l->device->backend->uploads) {
        LT_TRY(lt_upload_new(&l->ahead, l->device, bytes));
        return lt_upload_host(l->ahead, all, &l->staging);
    }
    l->staging = lt_alloc_aligned(align, all);
    return l->staging ? LT_OK : LT_E_NOMEM;
}

static lt_status make_slots(lt_loader *l)
{
    const lt_loader_config *c = &l->config;
    int pairs = on_host(l) ? c->slots : 1;
    l->pairs = lt_alloc((size_t)pairs, sizeof *l->pairs);
    if (!l->pairs)
        return LT_E_NOMEM;
    for (int i = 0; i < pairs; i++)
        LT_TRY(new_pair(&l->pairs[i], l, c->batch, largest_size(l)));
    if (on_host(l)) {
        for (int i = 0; i < c->slots; i++)
            lt_prefetch_set_memory(l->queue, i, lt_tensor_view(l->pairs[i].inputs).data,
                                   lt_tensor_view(l->pairs[i].labels).data,
                                   mixes(l) ? lt_tensor_view(l->pairs[i].targets).data : NULL);
        return LT_OK;
    }
    size_t labels = label_bytes(l, c->batch), align = 64, targets = target_bytes(l, c->batch);
    size_t images = (size_t)c->batch * lt_sample_bytes(l->dataset, largest_size(l));
    size_t bytes = (labels + targets + images + align - 1) / align * align;
    LT_TRY(make_staging(l, bytes));
    for (int i = 0; i < c->slots; i++) {
        uint8_t *begin = l->staging + (size_t)i * bytes;
        lt_prefetch_set_memory(l->queue, i, begin + labels + targets, (int32_t *)(void *)begin,
                               targets ? (float *)(void *)(begin + labels) : NULL);
    }
    return LT_OK;
}

static lt_status make_queue(lt_loader *l)
{
    enum { MAX_TRIES = 1000 };
    lt_loader_config *c = &l->config;
    const int64_t most = c->max_batches * c->batch * c->size;
    if (c->spread && !c->shuffle && most && most < c->limit)
        c->limit = most;
    lt_prefetch_config queue = {.dataset = l->dataset,
                                .transform = c->transform,
                                .sizes = c->sizes,
                                .mix = c->mix,
                                .sampler = {.count = c->limit,
                                            .rank = c->rank,
                                            .size = c->size,
                                            .seed = c->seed,
                                            .shuffle = c->shuffle,
                                            .drop_last = c->drop_last,
                                            .spread = c->spread ? l->dataset->count : 0,
                                            .repeats = c->repeats},
                                .cache = l->cache,
                                .keep_broken = c->keep_broken,
                                .read_ahead = c->read_ahead,
                                .batch = c->batch,
                                .slots = c->slots,
                                .threads = c->threads};
    int64_t share = lt_sampler_share(&queue.sampler);
    l->batches = share / c->batch + (!c->drop_last && share % c->batch);
    if (c->max_batches && c->max_batches < l->batches)
        l->batches = c->max_batches;
    if (l->batches < 1)
        return lt_fail(LT_E_ARG, "loader: %" PRId64 " samples on %d ranks make no batch of %d",
                       c->limit, c->size, c->batch);
    queue.batches = l->batches;
    queue.tries = c->max_bad < 0 || c->max_bad >= MAX_TRIES ? MAX_TRIES : c->max_bad + 1;
    queue.tries = queue.tries < c->limit ? queue.tries : c->limit;
    return lt_prefetch_new(&l->queue, &queue);
}

/* --- The loader --- */

lt_status lt_loader_new(lt_loader **out, lt_dataset *dataset, lt_device *device,
                        const lt_loader_config *config)
{
    lt_loader_config c = *config;
    LT_TRY(complete_config(&c, dataset));
    lt_loader *l = lt_alloc(1, sizeof *l);
    if (!l)
        return LT_E_NOMEM;
    l->dataset = dataset;
    l->device = device;
    l->config = c;
    l->channels = lt_dataset_channels(dataset);
    l->bad.seen = lt_alloc((size_t)dataset->count / 8 + 1, 1);
    lt_status st = l->bad.seen ? LT_OK : LT_E_NOMEM;
    if (!st && c.cache_bytes && !dataset->tokens)
        st = lt_image_cache_new(&l->cache, dataset->count, c.cache_bytes);
    if (!st)
        st = make_queue(l);
    if (!st)
        st = make_slots(l);
    if (st)
        lt_loader_free(&l);
    else
        *out = l;
    return st;
}

void lt_loader_free(lt_loader **loader)
{
    lt_loader *l = *loader;
    *loader = NULL;
    if (!l)
        return;
    lt_prefetch_free(&l->queue);
    lt_image_cache_free(&l->cache);
    for (int i = 0; l->pairs && i < (on_host(l) ? l->config.slots : 1); i++)
        free_pair(&l->pairs[i]);
    lt_free(l->pairs);
    if (!l->ahead)
        lt_free(l->staging);
    lt_upload_free(&l->ahead);
    free_pair(&l->part);
    lt_broken_list_clear(&l->bad);
    lt_free(l->why);
    lt_free(l);
}

lt_status lt_loader_seek(lt_loader *l, int64_t epoch, int64_t batch)
{
    const int64_t most = INT64_MAX / 2; /* leaves half the range to count further */
    int64_t number = 0;
    if (epoch < 0 || batch < 0 || batch > l->batches)
        return lt_fail(LT_E_ARG, "loader: batch %" PRId64 " of epoch %" PRId64 "; it has %" PRId64,
                       batch, epoch, l->batches);
    if (__builtin_mul_overflow(epoch, l->batches, &number) || number > most - batch)
        return lt_fail(LT_E_ARG,
                       "loader: epoch %" PRId64 " of %" PRId64 " batches; %" PRId64
                       " batches can be counted",
                       epoch, l->batches, most);
    l->begun = true;
    l->lent = false;
    l->failed = LT_OK;
    lt_free(l->why);
    l->why = NULL;
    l->batch = batch;
    if (l->ahead)
        LT_TRY(lt_upload_reset(l->ahead));
    lt_prefetch_seek(l->queue, number + batch);
    return LT_OK;
}

/* --- Batches --- */

static lt_status check(lt_loader *l, const lt_batch_slot *slot)
{
    for (size_t i = 0; i < slot->reports; i++)
        LT_TRY(lt_broken_list_add(&l->bad, &slot->report[i]));
    if (l->config.max_bad >= 0 && l->bad.count > (size_t)l->config.max_bad)
        return lt_fail(LT_E_FORMAT, "data: %zu broken images, %" PRId64 " allowed; the last: %s",
                       l->bad.count, l->config.max_bad, l->bad.text[l->bad.count - 1]);
    if (slot->status)
        return lt_fail(slot->status, "%s", slot->why ? slot->why : "data: no memory");
    return LT_OK;
}

static lt_status upload(lt_loader *l, const lt_batch_slot *slot, pair *to)
{
    const lt_backend *be = l->device->backend;
    void *ctx = l->device->ctx;
    size_t count = (size_t)slot->count;
    LT_TRY(be->copy(ctx, lt_tensor_view(to->inputs).data, slot->pixels,
                    count * lt_sample_bytes(l->dataset, slot->size), LT_COPY_IN));
    LT_TRY(be->copy(ctx, lt_tensor_view(to->labels).data, slot->labels, label_bytes(l, slot->count),
                    LT_COPY_IN));
    if (to->targets)
        LT_TRY(be->copy(ctx, lt_tensor_view(to->targets).data, slot->targets,
                        target_bytes(l, slot->count), LT_COPY_IN));
    return be->sync(ctx); /* before the slot is written again */
}

/* Completes the upload of a whole batch, and starts that of the next one if it is ready. */
static lt_status deliver_ahead(lt_loader *l, const lt_batch_slot *slot, const pair *to)
{
    const lt_batch_slot *next = lt_prefetch_peek(l->queue);
    const lt_upload_part parts[] = {
        {to->labels, slot->labels},
        {to->targets, slot->targets},
        {to->inputs, slot->pixels},
    };
    LT_TRY(lt_upload_begin(l->ahead, slot, lt_sample_bytes(l->dataset, slot->size)));
    LT_TRY(lt_upload_place(l->ahead, slot, parts, sizeof parts / sizeof *parts));
    bool whole = next && next->count == l->config.batch;
    return whole ? lt_upload_begin(l->ahead, next, lt_sample_bytes(l->dataset, next->size)) : LT_OK;
}

/* The slot's batch as tensors on the device. */
static lt_status deliver(lt_loader *l, const lt_batch_slot *slot, int number, lt_batch *out)
{
    pair *p = on_host(l) ? &l->pairs[number] : l->pairs;
    set_size(l, p->inputs, slot->size);
    if (slot->count < l->config.batch) {
        p = &l->part;
        const lt_shape shape = batch_shape(l, slot->count, slot->size);
        if (p->inputs && !lt_shape_equal(p->inputs->shape, shape))
            free_pair(p);
        if (!p->inputs)
            LT_TRY(new_pair(p, l, slot->count, slot->size));
        LT_TRY(upload(l, slot, p));
    } else if (l->ahead) {
        LT_TRY(deliver_ahead(l, slot, p));
    } else if (!on_host(l)) {
        LT_TRY(upload(l, slot, p));
    }
    *out = (lt_batch){.inputs = p->inputs,
                      .labels = p->labels,
                      .targets = p->targets,
                      .count = slot->count,
                      .index = slot->number % l->batches,
                      .row = slot->row};
    lt_tensor_touch(p->inputs);
    lt_tensor_touch(p->labels);
    if (p->targets)
        lt_tensor_touch(p->targets);
    return LT_OK;
}

static lt_status take_back(lt_loader *l)
{
    if (!l->lent)
        return LT_OK;
    if (l->ahead)
        LT_TRY(lt_upload_wait(l->ahead, l->taken));
    lt_prefetch_release(l->queue);
    l->lent = false;
    return LT_OK;
}

lt_status lt_loader_next(lt_loader *l, lt_batch *out)
{
    if (!l->begun)
        LT_TRY(lt_loader_seek(l, 0, 0));
    if (l->failed)
        return lt_fail(l->failed, "%s", l->why ? l->why : "data: no memory");
    LT_TRY(take_back(l));
    if (l->batch == l->batches) {
        l->batch = 0;
        return LT_END;
    }
    int number;
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    const lt_batch_slot *slot = lt_prefetch_take(l->queue, &number);
    l->wait_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "wait for a batch", 0);
    lt_status st = check(l, slot);
    if (!st)
        st = deliver(l, slot, number, out);
    if (st) {
        l->failed = st;
        l->why = lt_strdup(lt_error_message());
        return st;
    }
    l->lent = true;
    l->taken = slot->number;
    l->batch++;
    l->samples += slot->count;
    l->delivered++;
    return LT_OK;
}

int64_t lt_loader_batches(const lt_loader *loader)
{
    return loader->batches;
}

/* --- Counters --- */

lt_loader_stats lt_loader_statistics(const lt_loader *l)
{
    lt_prefetch_times t = lt_prefetch_statistics(l->queue);
    lt_loader_stats s = {.samples = l->samples,
                         .bad = (int64_t)l->bad.count,
                         .read_seconds = t.read_seconds,
                         .decode_seconds = t.decode_seconds,
                         .resize_seconds = t.resize_seconds,
                         .idle_seconds = t.idle_seconds,
                         .wait_seconds = l->wait_seconds,
                         .batches = l->delivered,
                         .starved = t.starved,
                         .ready = t.ready,
                         .queued = t.queued,
                         .capacity = l->config.slots}; /* before the caller has one */
    if (l->cache) {
        const lt_image_cache_counts images = lt_image_cache_statistics(l->cache);
        s.cache_hits = images.hits;
        s.cache_misses = images.misses;
        s.cache_bytes = images.bytes;
    }
    return s;
}

lt_loader_stats lt_loader_stats_since(const lt_loader_stats *now, const lt_loader_stats *before)
{
    lt_loader_stats s = *now;
    s.samples -= before->samples;
    s.batches -= before->batches;
    s.bad -= before->bad;
    s.read_seconds -= before->read_seconds;
    s.decode_seconds -= before->decode_seconds;
    s.resize_seconds -= before->resize_seconds;
    s.idle_seconds -= before->idle_seconds;
    s.wait_seconds -= before->wait_seconds;
    s.starved -= before->starved;
    s.ready -= before->ready;
    s.cache_hits -= before->cache_hits;
    s.cache_misses -= before->cache_misses;
    return s;
}

const char *lt_loader_bound(const lt_loader_stats *stats, double seconds)
{
    const double share = 0.03;
    return stats->wait_seconds > share * seconds ? "loader-bound" : "compute-bound";
}

const char *lt_loader_bad(const lt_loader *loader, int64_t i)
{
    return i >= 0 && (size_t)i < loader->bad.count ? loader->bad.text[i] : NULL;
}
