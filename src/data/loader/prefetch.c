/* A work item is one sample. Threads draw work items in order under one mutex and process them without it.
 *
 * Invariants, all under the mutex:
 * 1. released <= number of the acquired batch <= next.number. An item is drawn only while next.number < released +
 *    slots, so that batches n and n + slots, which share a slot, never overlap.
 * 2. Only the thread that drew an item writes that sample in the slot. It is read only after done == count: by the
 *    thread that mixes the batch, and after complete is set by the consumer.
 * 3. active counts items in progress; none is drawn while paused is set. So active == 0 means that no thread accesses a
 *    slot. */

#include "data/loader/prefetch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/trace.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

typedef struct work_item {
    int64_t number; /* number of the batch */
    int row;        /* in the batch */
} work_item;

struct lt_prefetch {
    lt_prefetch_config config;
    int channels;
    int64_t samples; /* samples per epoch on this rank */
    pthread_mutex_t mutex;
    pthread_cond_t work;         /* signals that an item may be drawn */
    pthread_cond_t ready;        /* signals that a batch is complete or active is 0 */
    bool stop, paused, borrowed; /* borrowed: the consumer has the oldest batch */
    int active;
    work_item next;
    int64_t released; /* number of the oldest batch that the consumer has not released */
    lt_prefetch_times times;
    lt_batch_slot *slot;
    pthread_t *thread;
    int started;
};

static void clear_reports(lt_batch_slot *s)
{
    for (size_t i = 0; i < s->reports; i++)
        lt_free(s->report[i].why);
    s->reports = 0;
    lt_free(s->why);
    s->why = NULL;
    s->status = LT_OK;
}

static int samples_in_batch(const lt_prefetch *q, int64_t number)
{
    int64_t left = q->samples - number % q->config.batches * q->config.batch;
    return left < q->config.batch ? (int)left : q->config.batch;
}

/* Returns the side of the inputs of a batch. */
static int image_side_of_batch(const lt_prefetch *q, int64_t number)
{
    const lt_prefetch_config *c = &q->config;
    return c->sizes.count ? lt_size_schedule_at(&c->sizes, number / c->batches) : c->transform.size;
}

/* Returns the next work item; the first one of a batch initializes the slot. */
static work_item draw_work_item(lt_prefetch *q)
{
    work_item t = q->next;
    lt_batch_slot *s = &q->slot[t.number % q->config.slots];
    if (t.row == 0) {
        clear_reports(s);
        s->number = t.number;
        s->size = image_side_of_batch(q, t.number);
        s->count = samples_in_batch(q, t.number);
        s->done = 0;
        s->complete = false;
    }
    q->next.row++;
    if (q->next.row == s->count)
        q->next = (work_item){.number = t.number + 1};
    q->active++;
    return t;
}

/* Asks the kernel to read ahead the sample that is config.read_ahead positions later in this epoch. */
static void read_ahead(const lt_prefetch *q, work_item t)
{
    const lt_prefetch_config *c = &q->config;
    const lt_dataset *d = c->dataset;
    int64_t position = t.number % c->batches * c->batch + t.row + c->read_ahead;
    if (!c->read_ahead || !d->ops->ahead || position >= q->samples)
        return;
    int64_t index = lt_sampler_index(&c->sampler, t.number / c->batches, position);
    if (!c->cache || !lt_image_cache_has(c->cache, index))
        d->ops->ahead(d, index);
}

/* Makes the sample of a work item. If it is corrupt, uses the first good sample after it in index order. */
static lt_status make_sample(const lt_prefetch *q, work_item t, lt_sample_workspace *workspace,
                             lt_corrupt_samples *corrupt)
{
    const lt_prefetch_config *c = &q->config;
    const lt_batch_slot *s = &q->slot[t.number % c->slots];
    int64_t epoch = t.number / c->batches;
    int64_t position = t.number % c->batches * c->batch + t.row;
    int64_t wanted = lt_sampler_index(&c->sampler, epoch, position);
    const lt_transform transform =
        c->sizes.count ? lt_transform_with_size(&c->transform, s->size) : c->transform;
    const size_t bytes = lt_sample_bytes(c->dataset, s->size);
    const uint64_t epoch_key = lt_sampler_epoch_key(&c->sampler, epoch);
    int32_t *labels = s->labels + (size_t)t.row * lt_sample_label_count(c->dataset);

    for (int64_t i = 0; i < c->tries; i++) {
        lt_sample sample = {.dataset = c->dataset, .cache = c->cache, .transform = &transform};
        bool fatal = false;
        sample.index = (wanted + i) % (c->sampler.spread ? c->sampler.spread : c->sampler.count);
        sample.epoch_key = epoch_key;
        sample.key = lt_sampler_sample_key(&c->sampler, epoch, position, sample.index);
        s->row[t.row] = (lt_row){.sample = sample.index};
        lt_status st =
            lt_sample_make(&sample, workspace, labels, s->pixels + (size_t)t.row * bytes, &fatal);
        if (!st || fatal)
            return st;
        LT_TRY(lt_corrupt_samples_add(corrupt, c->dataset, sample.index, t.row));
        if (c->keep_corrupt) {
            memset(s->pixels + (size_t)t.row * bytes, 0, bytes);
            *labels = 0;
            return LT_OK;
        }
    }
    return lt_fail(LT_E_FORMAT,
                   "data: %" PRId64 " consecutive images are corrupt, from sample %" PRId64 " on",
                   c->tries, wanted);
}

/* Inserts the reports by row, so that the list does not depend on the order in which threads finish. */
static lt_status add_reports(lt_batch_slot *s, lt_corrupt_samples *corrupt)
{
    LT_TRY(LT_GROW(&s->report, &s->capacity, s->reports + corrupt->count));
    for (size_t i = 0; i < corrupt->count; i++) {
        size_t at = s->reports++;
        for (; at > 0 && s->report[at - 1].row > corrupt->item[i].row; at--)
            s->report[at] = s->report[at - 1];
        s->report[at] = corrupt->item[i];
    }
    corrupt->count = 0;
    return LT_OK;
}

static void record_result(lt_prefetch *q, work_item t, lt_status st, lt_sample_workspace *workspace,
                          lt_corrupt_samples *corrupt)
{
    lt_batch_slot *s = &q->slot[t.number % q->config.slots];
    if (corrupt->count)
        s->row[t.row].why = corrupt->item[0].why;
    if (corrupt->count && add_reports(s, corrupt))
        st = LT_E_NOMEM;
    if (st && (!s->status || t.row < s->failed)) {
        lt_free(s->why);
        s->why = lt_strdup(lt_error_message());
        s->status = st;
        s->failed = t.row;
    }
    q->times.read_seconds += workspace->read_seconds;
    q->times.decode_seconds += workspace->decode_seconds;
    q->times.resize_seconds += workspace->resize_seconds;
    workspace->read_seconds = workspace->decode_seconds = workspace->resize_seconds = 0;
    s->done++;
}

/* Mixes a batch whose samples are all done. */
static void mix_batch(const lt_prefetch *q, lt_batch_slot *s)
{
    const lt_prefetch_config *c = &q->config;
    uint64_t epoch = (uint64_t)(s->number / c->batches), batch = (uint64_t)(s->number % c->batches);
    uint64_t accum = (uint64_t)(c->sampler.batch ? c->sampler.accum : 1);
    uint64_t shard = (uint64_t)c->sampler.rank * accum + batch % accum;
    lt_rng rng = {.key =
                      lt_rng_key(lt_rng_key(c->sampler.seed, LT_STREAM_MIX, epoch, batch / accum),
                                 LT_STREAM_MIX, shard, 0)};
    lt_mixing mixing = lt_mix_draw(&c->mix, s->size, &rng);
    lt_mix_pixels(&mixing, s->pixels, s->count, s->size, q->channels);
    lt_mix_targets(&mixing, s->labels, s->count, lt_dataset_classes(c->dataset), s->targets);
}

/* Ends a work item, with the mutex locked; the thread that ends the last one of a batch mixes it, without the mutex. */
static void finish_work_item(lt_prefetch *q, lt_batch_slot *s)
{
    if (s->done == s->count) {
        if (s->targets && !s->status) {
            pthread_mutex_unlock(&q->mutex);
            mix_batch(q, s);
            pthread_mutex_lock(&q->mutex);
        }
        s->complete = true;
    }
    q->active--;
    if (s->complete || q->active == 0)
        pthread_cond_signal(&q->ready);
}

/* Waits until an item may be drawn or stop is set. Counts the time that the queue is full as idle. */
static void wait_for_work(lt_prefetch *q)
{
    while (!q->stop
           && (q->paused || q->next.number >= q->released + q->config.slots)) { /* invariant 1 */
        bool full = !q->paused;
        double begin = lt_clock_seconds();
        pthread_cond_wait(&q->work, &q->mutex);
        if (full)
            q->times.idle_seconds += lt_clock_seconds() - begin;
    }
}

static void *run_loader_thread(void *context)
{
    lt_prefetch *q = context;
    lt_sample_workspace workspace = {0};
    lt_corrupt_samples corrupt = {0};
    lt_profile_thread("loader");
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        wait_for_work(q);
        if (q->stop)
            break;
        work_item t = draw_work_item(q);
        pthread_mutex_unlock(&q->mutex);
        read_ahead(q, t);
        lt_status st = make_sample(q, t, &workspace, &corrupt);
        pthread_mutex_lock(&q->mutex);
        record_result(q, t, st, &workspace, &corrupt);
        finish_work_item(q, &q->slot[t.number % q->config.slots]);
    }
    pthread_mutex_unlock(&q->mutex);
    lt_corrupt_samples_clear(&corrupt);
    lt_sample_workspace_clear(&workspace);
    return NULL;
}

static lt_status start_threads(lt_prefetch *q)
{
    lt_status st = LT_OK;
    while (!st && q->started < q->config.threads) {
        int error = lt_thread_start(&q->thread[q->started], run_loader_thread, q);
        if (error)
            st = lt_fail(LT_E_NOMEM, "data: cannot start thread %d of %d: %s", q->started + 1,
                         q->config.threads, strerror(error));
        else
            q->started++;
    }
    return st;
}

lt_status lt_prefetch_new(lt_prefetch **out, const lt_prefetch_config *config)
{
    lt_prefetch *q = NULL;
    LT_TRY(LT_ALLOC(&q, 1));
    q->config = *config;
    q->channels = lt_dataset_channels(config->dataset);
    q->samples = lt_sampler_rank_samples(&config->sampler);
    q->paused = true;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->ready, NULL);
    q->slot = lt_alloc((size_t)config->slots, sizeof *q->slot);
    q->thread = lt_alloc((size_t)config->threads, sizeof *q->thread);
    bool allocated = q->slot && q->thread;
    for (int i = 0; allocated && i < config->slots; i++)
        allocated = (q->slot[i].row = lt_alloc((size_t)config->batch, sizeof(lt_row))) != NULL;
    lt_status st = allocated ? start_threads(q) : LT_E_NOMEM;
    if (st)
        lt_prefetch_free(&q);
    else
        *out = q;
    return st;
}

void lt_prefetch_free(lt_prefetch **queue)
{
    lt_prefetch *q = *queue;
    *queue = NULL;
    if (!q)
        return;
    pthread_mutex_lock(&q->mutex);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->mutex);
    for (int i = 0; i < q->started; i++)
        pthread_join(q->thread[i], NULL);
    for (int i = 0; q->slot && i < q->config.slots; i++) {
        clear_reports(&q->slot[i]);
        lt_free(q->slot[i].report);
        lt_free(q->slot[i].row);
    }
    lt_free(q->slot);
    lt_free(q->thread);
    pthread_cond_destroy(&q->ready);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->mutex);
    lt_free(q);
}

void lt_prefetch_set_slot_buffers(lt_prefetch *q, int slot, uint8_t *pixels, int32_t *labels,
                                  float *targets)
{
    q->slot[slot].targets = targets;
    q->slot[slot].pixels = pixels;
    q->slot[slot].labels = labels;
}

void lt_prefetch_seek(lt_prefetch *q, int64_t number)
{
    LT_ASSERT(number >= 0); /* % of a negative number would be a negative index */
    pthread_mutex_lock(&q->mutex);
    q->paused = true;
    while (q->active > 0) /* invariant 3 */
        pthread_cond_wait(&q->ready, &q->mutex);
    for (int i = 0; i < q->config.slots; i++)
        q->slot[i].number = -1;
    q->next = (work_item){.number = number};
    q->released = number;
    q->borrowed = false;
    q->paused = false;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->mutex);
}

/* Counts complete batches that were not acquired; they need not be consecutive. */
static int count_ready(const lt_prefetch *q)
{
    int ready = 0;
    for (int i = 0; i < q->config.slots; i++)
        ready += q->slot[i].complete && q->slot[i].number >= q->released + q->borrowed;
    return ready;
}

const lt_batch_slot *lt_prefetch_acquire(lt_prefetch *q, int *slot)
{
    pthread_mutex_lock(&q->mutex);
    *slot = (int)(q->released % q->config.slots);
    const lt_batch_slot *s = &q->slot[*slot];
    q->times.ready += count_ready(q);
    q->times.starved += s->number != q->released || !s->complete;
    while (s->number != q->released || !s->complete)
        pthread_cond_wait(&q->ready, &q->mutex);
    q->borrowed = true;
    pthread_mutex_unlock(&q->mutex);
    return s;
}

const lt_batch_slot *lt_prefetch_peek(lt_prefetch *q)
{
    pthread_mutex_lock(&q->mutex);
    const lt_batch_slot *s = &q->slot[(q->released + 1) % q->config.slots];
    bool is_ready = s->number == q->released + 1 && s->complete;
    pthread_mutex_unlock(&q->mutex);
    return is_ready ? s : NULL;
}

void lt_prefetch_release(lt_prefetch *q)
{
    pthread_mutex_lock(&q->mutex);
    q->released++;
    q->borrowed = false;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->mutex);
}

lt_prefetch_times lt_prefetch_statistics(lt_prefetch *q)
{
    pthread_mutex_lock(&q->mutex);
    lt_prefetch_times times = q->times;
    times.queued = count_ready(q);
    pthread_mutex_unlock(&q->mutex);
    return times;
}
