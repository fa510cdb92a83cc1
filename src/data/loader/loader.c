/* Returns the prefetch queue's batches as tensors, in order, and lists corrupt samples.
 *
 * If device memory is host memory, the threads write into the tensors of a slot. Otherwise each batch is copied to
 * tensors at a fixed address, which captured graphs need; if the device has upload slots (upload.h), while the previous
 * step runs. An incomplete batch is copied to separate tensors of its size. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/trace.h"
#include "data/loader/prefetch.h"
#include "data/loader/upload.h"
#include "data/transform/augment.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <string.h>

typedef struct batch_tensors {
    lt_tensor *inputs, *labels, *targets; /* targets: NULL without mixup and cutmix */
} batch_tensors;

struct lt_loader {
    lt_dataset *dataset;
    lt_device *device;
    lt_prefetch *queue;
    lt_image_cache *cache;   /* NULL without a cache */
    int64_t *by_class;       /* lt_sampler_balance()'s memory */
    lt_loader_config config; /* with defaults in place of zeros */
    int channels;
    int64_t batches;          /* per epoch */
    int64_t batch;            /* index of the next batch in the epoch */
    bool begun, borrowed;     /* begun: seek was called; borrowed: the caller has the oldest slot */
    batch_tensors *buffers;   /* [slots] in host memory, [1] on other devices */
    uint8_t *staging;         /* [slots] of labels, targets, pixels; NULL in host memory */
    lt_upload *upload;        /* owns staging; NULL if copies are synchronous */
    int64_t lent_batch;       /* number of the batch that the caller has */
    batch_tensors incomplete; /* tensors of an incomplete batch */
    lt_corrupt_list corrupt;
    int64_t samples, delivered; /* delivered: batches */
    double wait_seconds;
    lt_status failed; /* status that lt_loader_next() repeats until a seek */
    char *why;        /* error message of `failed` */
};

/* --- The config --- */

static void set_defaults(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { SLOTS = 4 };
    c->size = c->size ? c->size : 1;
    c->grad_accum = c->grad_accum ? c->grad_accum : 1;
    c->threads = c->threads ? c->threads : lt_cpu_threads();
    c->slots = c->slots ? c->slots : SLOTS;
    c->limit = c->limit && c->limit < dataset->count ? c->limit : dataset->count;
}

/* Checks the transform at every size of the schedule. */
static lt_status check_sizes(lt_loader_config *c)
{
    LT_TRY(lt_size_schedule_check(&c->sizes));
    if (c->sizes.count && c->transform.resize)
        return lt_fail(LT_E_ARG,
                       "loader: resize %d cannot be combined with a size schedule; use crop_ratio",
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

/* Checks mixing and the size schedule, which are for images only. */
static lt_status check_mix_and_sizes(lt_loader_config *c, const lt_dataset *dataset)
{
    LT_TRY(lt_mix_check(&c->mix));
    if (!dataset->shape.ndim)
        return check_sizes(c);
    if (lt_mix_is_enabled(&c->mix) || c->sizes.count)
        return lt_fail(LT_E_ARG, "loader: %s needs images, but the samples are numbers",
                       c->sizes.count ? "a size schedule" : "mixup or cutmix");
    return LT_OK;
}

static lt_status check_limits(const lt_loader_config *c)
{
    if (c->limit < 1 || c->max_batches < 0 || c->grad_accum < 0)
        return lt_fail(LT_E_ARG,
                       "loader: limit is %" PRId64 ", max_batches is %" PRId64
                       ", grad_accum is %" PRId64 "; want 0 or more",
                       c->limit, c->max_batches, c->grad_accum);
    return LT_OK;
}

/* Sets defaults in place of zeros and checks all fields. Errors: LT_E_ARG. */
static lt_status complete_config(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { MOST = 4096 };
    LT_TRY(check_mix_and_sizes(c, dataset));
    set_defaults(c, dataset);
    if (c->batch < 1)
        return lt_fail(LT_E_ARG, "loader: batch is %d, want 1 or more", c->batch);
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return lt_fail(LT_E_ARG, "loader: rank is %d, size is %d; want 0 <= rank < size", c->rank,
                       c->size);
    if (c->threads < 1 || c->threads > MOST || c->slots < 2 || c->slots > MOST)
        return lt_fail(LT_E_ARG,
                       "loader: threads is %d, slots is %d; want 1 .. %d threads, 2 .. %d slots",
                       c->threads, c->slots, MOST, MOST);
    if (c->repeats < 0 || c->repeats > MOST)
        return lt_fail(LT_E_ARG, "loader: repeats is %d, want 0 .. %d", c->repeats, MOST);
    if (c->cache_bytes < 0 || c->read_ahead < 0)
        return lt_fail(LT_E_ARG,
                       "loader: cache_bytes is %" PRId64 ", read_ahead is %" PRId64
                       "; want 0 or more",
                       c->cache_bytes, c->read_ahead);
    return check_limits(c);
}

/* --- Tensors and memory of batches --- */

static void free_tensors(batch_tensors *p)
{
    lt_tensor_free(&p->inputs);
    lt_tensor_free(&p->labels);
    lt_tensor_free(&p->targets);
}

static bool is_mixing(const lt_loader *l)
{
    return lt_mix_is_enabled(&l->config.mix);
}

/* Returns [count,C,size,size] for images, [count,shape] for numbers. */
static lt_shape batch_shape(const lt_loader *l, int count, int size)
{
    lt_shape numbers = {.ndim = l->dataset->shape.ndim + 1, .dim = {count}};
    if (numbers.ndim == 1)
        return LT_SHAPE(count, l->channels, size, size);
    memcpy(numbers.dim + 1, l->dataset->shape.dim, sizeof numbers.dim - sizeof *numbers.dim);
    return numbers;
}

static lt_status new_tensors(batch_tensors *out, const lt_loader *l, int count, int size)
{
    const lt_dataset *d = l->dataset;
    lt_dtype dtype = d->tokens ? LT_I32 : d->shape.ndim ? LT_F32 : LT_U8;
    const lt_shape shape = batch_shape(l, count, size);
    LT_TRY(lt_tensor_new_as(&out->inputs, l->device, dtype, shape,
                            shape.ndim == 4 ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS));
    lt_status st =
        lt_tensor_new(&out->labels, l->device, LT_I32, d->tokens ? shape : LT_SHAPE(count));
    if (!st && is_mixing(l))
        st =
            lt_tensor_new(&out->targets, l->device, LT_F32, LT_SHAPE(count, lt_dataset_classes(d)));
    if (st)
        free_tensors(out);
    return st;
}

/* Returns the largest side in the size schedule. */
static int largest_size(const lt_loader *l)
{
    const lt_size_schedule *s = &l->config.sizes;
    int size = s->count ? 0 : l->config.transform.size;
    for (int i = 0; i < s->count; i++)
        size = s->step[i].size > size ? s->step[i].size : size;
    return size;
}

/* Changes the side of the images in place. Memory is allocated for largest_size(). */
static void set_image_size(const lt_loader *l, lt_tensor *images, int size)
{
    lt_shape shape = batch_shape(l, (int)images->shape.dim[0], size);
    images->shape = shape;
    lt_channels_last_strides(shape, images->stride);
}

static size_t label_bytes(const lt_loader *l, int count)
{
    return (size_t)count * lt_sample_label_count(l->dataset) * sizeof(int32_t);
}

static size_t target_bytes(const lt_loader *l, int count)
{
    return is_mixing(l) ? (size_t)count * (size_t)lt_dataset_classes(l->dataset) * sizeof(float)
                        : 0;
}

static bool is_host_memory(const lt_loader *l)
{
    return l->device->backend->host_memory;
}

static lt_status make_staging(lt_loader *l, size_t bytes)
{
    const size_t align = 64, all = bytes * (size_t)l->config.slots;
    if (l->device->backend->uploads) {
        LT_TRY(lt_upload_new(&l->upload, l->device, bytes));
        return lt_upload_alloc_pinned(l->upload, all, &l->staging);
    }
    l->staging = lt_alloc_aligned(align, all);
    return l->staging ? LT_OK : LT_E_NOMEM;
}

static lt_status make_slots(lt_loader *l)
{
    const lt_loader_config *c = &l->config;
    int buffers = is_host_memory(l) ? c->slots : 1;
    LT_TRY(LT_ALLOC(&l->buffers, buffers));
    for (int i = 0; i < buffers; i++)
        LT_TRY(new_tensors(&l->buffers[i], l, c->batch, largest_size(l)));
    if (is_host_memory(l)) {
        for (int i = 0; i < c->slots; i++)
            lt_prefetch_set_slot_buffers(l->queue, i, lt_tensor_view(l->buffers[i].inputs).data,
                                         lt_tensor_view(l->buffers[i].labels).data,
                                         is_mixing(l) ? lt_tensor_view(l->buffers[i].targets).data
                                                      : NULL);
        return LT_OK;
    }
    size_t labels = label_bytes(l, c->batch), align = 64, targets = target_bytes(l, c->batch);
    size_t images = (size_t)c->batch * lt_sample_bytes(l->dataset, largest_size(l));
    size_t bytes = (labels + targets + images + align - 1) / align * align;
    LT_TRY(make_staging(l, bytes));
    for (int i = 0; i < c->slots; i++) {
        uint8_t *begin = l->staging + (size_t)i * bytes;
        lt_prefetch_set_slot_buffers(l->queue, i, begin + labels + targets,
                                     (int32_t *)(void *)begin,
                                     targets ? (float *)(void *)(begin + labels) : NULL);
    }
    return LT_OK;
}

static lt_status balance_classes(lt_loader *l, lt_sampler *sampler)
{
    const lt_loader_config *c = &l->config;
    if (!c->weighted)
        return LT_OK;
    if (!c->shuffle || c->limit < l->dataset->count || l->dataset->remote)
        return lt_fail(LT_E_ARG, "weighted sampling needs shuffle and all samples, and no service");
    return lt_sampler_balance(sampler, &l->by_class, l->dataset);
}

static lt_status make_queue(lt_loader *l)
{
    enum { MAX_TRIES = 1000 };
    lt_loader_config *c = &l->config;
    const int64_t most = c->max_batches * c->batch * c->size;
    const bool in_blocks = lt_device_is_reproducible(l->device);
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
                                            .repeats = c->repeats,
                                            .batch = in_blocks ? c->batch : 0,
                                            .accum = c->grad_accum},
                                .cache = l->cache,
                                .keep_corrupt = c->keep_broken,
                                .read_ahead = c->read_ahead,
                                .batch = c->batch,
                                .slots = c->slots,
                                .threads = c->threads};
    LT_TRY(balance_classes(l, &queue.sampler));
    int64_t samples = lt_sampler_rank_samples(&queue.sampler);
    l->batches = samples / c->batch + (!c->drop_last && samples % c->batch);
    if (c->max_batches && c->max_batches < l->batches)
        l->batches = c->max_batches;
    if (l->batches < 1)
        return lt_fail(LT_E_ARG,
                       "loader: %" PRId64 " samples on %d ranks are too few for a batch of %d",
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
    lt_loader *l = NULL;
    LT_TRY(LT_ALLOC(&l, 1));
    l->dataset = dataset;
    l->device = device;
    l->config = c;
    l->channels = lt_dataset_channels(dataset);
    l->corrupt.seen = lt_alloc((size_t)dataset->count / 8 + 1, 1);
    lt_status st = l->corrupt.seen ? LT_OK : LT_E_NOMEM;
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
    lt_free(l->by_class);
    for (int i = 0; l->buffers && i < (is_host_memory(l) ? l->config.slots : 1); i++)
        free_tensors(&l->buffers[i]);
    lt_free(l->buffers);
    if (!l->upload)
        lt_free(l->staging);
    lt_upload_free(&l->upload);
    free_tensors(&l->incomplete);
    lt_corrupt_list_clear(&l->corrupt);
    lt_free(l->why);
    lt_free(l);
}

lt_status lt_loader_seek(lt_loader *l, int64_t epoch, int64_t batch)
{
    const int64_t most = INT64_MAX / 2; /* leaves half the range for later batches */
    int64_t number = 0;
    if (epoch < 0 || batch < 0 || batch > l->batches)
        return lt_fail(LT_E_ARG,
                       "loader: cannot seek to batch %" PRId64 " of epoch %" PRId64
                       "; an epoch has %" PRId64 " batches",
                       batch, epoch, l->batches);
    if (__builtin_mul_overflow(epoch, l->batches, &number) || number > most - batch)
        return lt_fail(LT_E_ARG,
                       "loader: cannot seek to epoch %" PRId64 " of %" PRId64
                       " batches: more than %" PRId64 " batches",
                       epoch, l->batches, most);
    l->begun = true;
    l->borrowed = false;
    l->failed = LT_OK;
    lt_free(l->why);
    l->why = NULL;
    l->batch = batch;
    if (l->upload)
        LT_TRY(lt_upload_reset(l->upload));
    lt_prefetch_seek(l->queue, number + batch);
    return LT_OK;
}

/* --- Batches --- */

static lt_status list_corrupt_and_check(lt_loader *l, const lt_batch_slot *slot)
{
    for (size_t i = 0; i < slot->reports; i++)
        LT_TRY(lt_corrupt_list_add(&l->corrupt, &slot->report[i]));
    if (l->config.max_bad >= 0 && l->corrupt.count > (size_t)l->config.max_bad)
        return lt_fail(LT_E_FORMAT,
                       "data: %zu corrupt images, %" PRId64
                       " allowed (--max-bad-images); the last one: %s",
                       l->corrupt.count, l->config.max_bad, l->corrupt.text[l->corrupt.count - 1]);
    if (slot->status)
        return lt_fail(slot->status, "%s", slot->why ? slot->why : "data: no memory");
    return LT_OK;
}

static lt_status copy_batch(lt_loader *l, const lt_batch_slot *slot, batch_tensors *to)
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
    return be->sync(ctx); /* before a thread writes to the slot again */
}

/* Completes the upload of a full batch, and starts that of the next one if it is ready. */
static lt_status finish_upload_start_next(lt_loader *l, const lt_batch_slot *slot,
                                          const batch_tensors *to)
{
    const lt_batch_slot *next = lt_prefetch_peek(l->queue);
    const lt_upload_part parts[] = {
        {to->labels, slot->labels},
        {to->targets, slot->targets},
        {to->inputs, slot->pixels},
    };
    LT_TRY(lt_upload_begin(l->upload, slot, lt_sample_bytes(l->dataset, slot->size)));
    LT_TRY(lt_upload_copy_to_tensors(l->upload, slot, parts, sizeof parts / sizeof *parts));
    bool is_full = next && next->count == l->config.batch;
    return is_full ? lt_upload_begin(l->upload, next, lt_sample_bytes(l->dataset, next->size))
                   : LT_OK;
}

/* Sets *out to the slot's batch as tensors on the device. */
static lt_status deliver_batch(lt_loader *l, const lt_batch_slot *slot, int number, lt_batch *out)
{
    batch_tensors *p = is_host_memory(l) ? &l->buffers[number] : l->buffers;
    set_image_size(l, p->inputs, slot->size);
    if (slot->count < l->config.batch) {
        p = &l->incomplete;
        const lt_shape shape = batch_shape(l, slot->count, slot->size);
        if (p->inputs && !lt_shape_equal(p->inputs->shape, shape))
            free_tensors(p);
        if (!p->inputs)
            LT_TRY(new_tensors(p, l, slot->count, slot->size));
        LT_TRY(copy_batch(l, slot, p));
    } else if (l->upload) {
        LT_TRY(finish_upload_start_next(l, slot, p));
    } else if (!is_host_memory(l)) {
        LT_TRY(copy_batch(l, slot, p));
    }
    *out = (lt_batch){.inputs = p->inputs,
                      .labels = p->labels,
                      .targets = p->targets,
                      .count = slot->count,
                      .index = slot->number % l->batches,
                      .row = slot->row};
    lt_tensor_bump_version(p->inputs);
    lt_tensor_bump_version(p->labels);
    if (p->targets)
        lt_tensor_bump_version(p->targets);
    return LT_OK;
}

static lt_status release_lent(lt_loader *l)
{
    if (!l->borrowed)
        return LT_OK;
    if (l->upload)
        LT_TRY(lt_upload_wait(l->upload, l->lent_batch));
    lt_prefetch_release(l->queue);
    l->borrowed = false;
    return LT_OK;
}

lt_status lt_loader_next(lt_loader *l, lt_batch *out)
{
    if (!l->begun)
        LT_TRY(lt_loader_seek(l, 0, 0));
    if (l->failed)
        return lt_fail(l->failed, "%s", l->why ? l->why : "data: no memory");
    LT_TRY(release_lent(l));
    if (l->batch == l->batches) {
        l->batch = 0;
        return LT_END;
    }
    int number;
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    const lt_batch_slot *slot = lt_prefetch_acquire(l->queue, &number);
    l->wait_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "wait for a batch", 0);
    lt_status st = list_corrupt_and_check(l, slot);
    if (!st)
        st = deliver_batch(l, slot, number, out);
    if (st) {
        l->failed = st;
        l->why = lt_strdup(lt_error_message());
        return st;
    }
    l->borrowed = true;
    l->lent_batch = slot->number;
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
                         .bad = (int64_t)l->corrupt.count,
                         .read_seconds = t.read_seconds,
                         .decode_seconds = t.decode_seconds,
                         .resize_seconds = t.resize_seconds,
                         .idle_seconds = t.idle_seconds,
                         .wait_seconds = l->wait_seconds,
                         .batches = l->delivered,
                         .starved = t.starved,
                         .ready = t.ready,
                         .queued = t.queued,
                         .capacity = l->config.slots}; /* reached only if no batch is lent */
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

const char *lt_loader_bottleneck(const lt_loader_stats *stats, double seconds)
{
    const double share = 0.03;
    return stats->wait_seconds > share * seconds ? "loader-bound" : "compute-bound";
}

const char *lt_loader_corrupt(const lt_loader *loader, int64_t i)
{
    return i >= 0 && (size_t)i < loader->corrupt.count ? loader->corrupt.text[i] : NULL;
}
