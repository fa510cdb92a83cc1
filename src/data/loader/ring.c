/* A ticket per sample, taken in order under one mutex; the work itself is done without it.
 *
 * Invariants, all under the mutex:
 * 1. released <= taken number <= next_number; next_number < released + slots for a ticket to be
 *    given, so that batch n and batch n + slots, which share a slot, never overlap.
 * 2. A sample's bytes in its slot are written by the one thread that has its ticket, and read
 *    only after done == count: by the thread that mixes the batch, then, with complete, by the taker.
 * 3. active counts tickets in work; with paused set none is given, so active == 0 means that no
 *    thread touches any slot. */

#include "data/loader/ring.h"

#include "base/alloc.h"
#include "base/trace.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

typedef struct ticket {
    int64_t number; /* of the batch */
    int place;      /* in it */
} ticket;

struct lt_ring {
    lt_ring_config config;
    int channels;
    int64_t share;
    pthread_mutex_t mutex;
    pthread_cond_t work;     /* a ticket may be given */
    pthread_cond_t ready;    /* a batch is complete, or nothing is active any more */
    bool stop, paused, lent; /* lent: the oldest batch is the taker's */
    int active;
    ticket next;
    int64_t released; /* all batches before it were given back */
    lt_ring_times times;
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

static int batch_count(const lt_ring *r, int64_t number)
{
    int64_t left = r->share - number % r->config.batches * r->config.batch;
    return left < r->config.batch ? (int)left : r->config.batch;
}

/* Side of the inputs of a batch. */
static int batch_size(const lt_ring *r, int64_t number)
{
    const lt_ring_config *c = &r->config;
    return c->sizes.count ? lt_size_schedule_at(&c->sizes, number / c->batches) : c->transform.size;
}

/* The next ticket; begins its batch's slot with the first. */
static ticket draw(lt_ring *r)
{
    ticket t = r->next;
    lt_batch_slot *s = &r->slot[t.number % r->config.slots];
    if (t.place == 0) {
        clear_reports(s);
        s->number = t.number;
        s->size = batch_size(r, t.number);
        s->count = batch_count(r, t.number);
        s->done = 0;
        s->complete = false;
    }
    r->next.place++;
    if (r->next.place == s->count)
        r->next = (ticket){.number = t.number + 1};
    r->active++;
    return t;
}

/* Asks the system for a sample that is wanted in a while, of this epoch. */
static void read_ahead(const lt_ring *r, ticket t)
{
    const lt_ring_config *c = &r->config;
    const lt_dataset *d = c->dataset;
    int64_t place = t.number % c->batches * c->batch + t.place + c->read_ahead;
    if (!c->read_ahead || !d->ops->ahead || place >= r->share)
        return;
    int64_t index = lt_sampler_index(&c->sampler, t.number / c->batches, place);
    if (!c->cache || !lt_picture_cache_has(c->cache, index))
        d->ops->ahead(d, index);
}

/* Fills the ticket's place: with its own sample, or the first good one after it. */
static lt_status make_sample(const lt_ring *r, ticket t, lt_scratch *scratch, lt_failures *broken)
{
    const lt_ring_config *c = &r->config;
    const lt_batch_slot *s = &r->slot[t.number % c->slots];
    int64_t epoch = t.number / c->batches;
    int64_t place = t.number % c->batches * c->batch + t.place;
    int64_t wanted = lt_sampler_index(&c->sampler, epoch, place);
    const lt_transform transform =
        c->sizes.count ? lt_transform_sized(&c->transform, s->size) : c->transform;
    size_t bytes = lt_sample_bytes(c->dataset, s->size);

    for (int64_t i = 0; i < c->tries; i++) {
        lt_sample sample = {.dataset = c->dataset, .cache = c->cache, .transform = &transform};
        bool fatal = false;
        sample.index = (wanted + i) % c->sampler.count;
        sample.key = lt_sampler_key(&c->sampler, epoch, place, sample.index);
        s->row[t.place] = (lt_row){.sample = sample.index};
        lt_status st = lt_sample_make(&sample, scratch, &s->labels[t.place],
                                      s->pixels + (size_t)t.place * bytes, &fatal);
        if (!st || fatal)
            return st;
        LT_TRY(lt_failures_add(broken, c->dataset, sample.index, t.place));
        if (c->keep_broken) {
            memset(s->pixels + (size_t)t.place * bytes, 0, bytes);
            s->labels[t.place] = 0;
            return LT_OK;
        }
    }
    return lt_fail(LT_E_FORMAT, "data: %" PRId64 " broken pictures in a row from sample %" PRId64,
                   c->tries, wanted);
}

/* Inserts by place, so that the list does not depend on which thread was first. */
static lt_status hand_over(lt_batch_slot *s, lt_failures *broken)
{
    size_t count = s->reports + broken->count;
    if (count > s->capacity) {
        lt_report *grown = lt_realloc(s->report, 2 * count, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        s->report = grown;
        s->capacity = 2 * count;
    }
    for (size_t i = 0; i < broken->count; i++) {
        size_t at = s->reports++;
        for (; at > 0 && s->report[at - 1].place > broken->item[i].place; at--)
            s->report[at] = s->report[at - 1];
        s->report[at] = broken->item[i];
    }
    broken->count = 0;
    return LT_OK;
}

static void finish(lt_ring *r, ticket t, lt_status st, lt_scratch *scratch, lt_failures *broken)
{
    lt_batch_slot *s = &r->slot[t.number % r->config.slots];
    if (broken->count)
        s->row[t.place].why = broken->item[0].why;
    if (broken->count && hand_over(s, broken))
        st = LT_E_NOMEM;
    if (st && (!s->status || t.place < s->failed)) {
        lt_free(s->why);
        s->why = lt_strdup(lt_error_message());
        s->status = st;
        s->failed = t.place;
    }
    r->times.read_seconds += scratch->read_seconds;
    r->times.decode_seconds += scratch->decode_seconds;
    r->times.resize_seconds += scratch->resize_seconds;
    scratch->read_seconds = scratch->decode_seconds = scratch->resize_seconds = 0;
    s->done++;
}

/* Mixes the batch, of which this thread made the last sample. */
static void mix(const lt_ring *r, lt_batch_slot *s)
{
    const lt_ring_config *c = &r->config;
    uint64_t epoch = (uint64_t)(s->number / c->batches), batch = (uint64_t)(s->number % c->batches);
    lt_rng rng = {.key = lt_rng_key(lt_rng_key(c->sampler.seed, LT_STREAM_MIX, epoch, batch),
                                    LT_STREAM_MIX, (uint64_t)c->sampler.rank, 0)};
    lt_mix_plan plan = lt_mix_draw(&c->mix, s->size, &rng);
    lt_mix_pixels(&plan, s->pixels, s->count, s->size, r->channels);
    lt_mix_targets(&plan, s->labels, s->count, c->dataset->classes, s->targets);
}

/* The end of a ticket's work, with the mutex locked; mixing is done without it. */
static void complete(lt_ring *r, lt_batch_slot *s)
{
    if (s->done == s->count) {
        if (s->targets && !s->status) {
            pthread_mutex_unlock(&r->mutex);
            mix(r, s);
            pthread_mutex_lock(&r->mutex);
        }
        s->complete = true;
    }
    r->active--;
    if (s->complete || r->active == 0)
        pthread_cond_signal(&r->ready);
}

/* Waits until a ticket may be given, or the end; what a full ring costs is counted. */
static void wait_for_work(lt_ring *r)
{
    while (!r->stop
           && (r->paused || r->next.number >= r->released + r->config.slots)) { /* invariant 1 */
        bool full = !r->paused;
        double begin = lt_seconds();
        pthread_cond_wait(&r->work, &r->mutex);
        if (full)
            r->times.idle_seconds += lt_seconds() - begin;
    }
}

static void *run(void *context)
{
    lt_ring *r = context;
    lt_scratch scratch = {0};
    lt_failures broken = {0};
    lt_profile_thread("loader");
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        wait_for_work(r);
        if (r->stop)
            break;
        ticket t = draw(r);
        pthread_mutex_unlock(&r->mutex);
        read_ahead(r, t);
        lt_status st = make_sample(r, t, &scratch, &broken);
        pthread_mutex_lock(&r->mutex);
        finish(r, t, st, &scratch, &broken);
        complete(r, &r->slot[t.number % r->config.slots]);
    }
    pthread_mutex_unlock(&r->mutex);
    lt_failures_clear(&broken);
    lt_scratch_clear(&scratch);
    return NULL;
}

static lt_status start_threads(lt_ring *r)
{
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lt_status st = LT_OK;
    while (!st && r->started < r->config.threads) {
        int error = pthread_create(&r->thread[r->started], NULL, run, r);
        if (error)
            st = lt_fail(LT_E_NOMEM, "data: no thread %d of %d: %s", r->started + 1,
                         r->config.threads, strerror(error));
        else
            r->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

lt_status lt_ring_new(lt_ring **out, const lt_ring_config *config)
{
    lt_ring *r = lt_alloc(1, sizeof *r);
    if (!r)
        return LT_E_NOMEM;
    r->config = *config;
    r->channels = lt_dataset_channels(config->dataset);
    r->share = lt_sampler_share(&config->sampler);
    r->paused = true;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->ready, NULL);
    r->slot = lt_alloc((size_t)config->slots, sizeof *r->slot);
    r->thread = lt_alloc((size_t)config->threads, sizeof *r->thread);
    bool room = r->slot && r->thread;
    for (int i = 0; room && i < config->slots; i++)
        room = (r->slot[i].row = lt_alloc((size_t)config->batch, sizeof(lt_row))) != NULL;
    lt_status st = room ? start_threads(r) : LT_E_NOMEM;
    if (st)
        lt_ring_free(&r);
    else
        *out = r;
    return st;
}

void lt_ring_free(lt_ring **ring)
{
    lt_ring *r = *ring;
    *ring = NULL;
    if (!r)
        return;
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
    for (int i = 0; i < r->started; i++)
        pthread_join(r->thread[i], NULL);
    for (int i = 0; r->slot && i < r->config.slots; i++) {
        clear_reports(&r->slot[i]);
        lt_free(r->slot[i].report);
        lt_free(r->slot[i].row);
    }
    lt_free(r->slot);
    lt_free(r->thread);
    pthread_cond_destroy(&r->ready);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->mutex);
    lt_free(r);
}

void lt_ring_set_memory(lt_ring *r, int slot, uint8_t *pixels, int32_t *labels, float *targets)
{
    r->slot[slot].targets = targets;
    r->slot[slot].pixels = pixels;
    r->slot[slot].labels = labels;
}

void lt_ring_seek(lt_ring *r, int64_t number)
{
    LT_ASSERT(number >= 0); /* % of a negative one is before the slots */
    pthread_mutex_lock(&r->mutex);
    r->paused = true;
    while (r->active > 0) /* invariant 3 */
        pthread_cond_wait(&r->ready, &r->mutex);
    for (int i = 0; i < r->config.slots; i++)
        r->slot[i].number = -1;
    r->next = (ticket){.number = number};
    r->released = number;
    r->lent = false;
    r->paused = false;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
}

/* Complete batches that were not taken; from the oldest on, or with those behind a gap. */
static int count_ready(const lt_ring *r)
{
    int ready = 0;
    for (int i = 0; i < r->config.slots; i++)
        ready += r->slot[i].complete && r->slot[i].number >= r->released + r->lent;
    return ready;
}

const lt_batch_slot *lt_ring_take(lt_ring *r, int *slot)
{
    pthread_mutex_lock(&r->mutex);
    *slot = (int)(r->released % r->config.slots);
    const lt_batch_slot *s = &r->slot[*slot];
    r->times.ready += count_ready(r);
    r->times.starved += s->number != r->released || !s->complete;
    while (s->number != r->released || !s->complete)
        pthread_cond_wait(&r->ready, &r->mutex);
    r->lent = true;
    pthread_mutex_unlock(&r->mutex);
    return s;
}

const lt_batch_slot *lt_ring_peek(lt_ring *r)
{
    pthread_mutex_lock(&r->mutex);
    const lt_batch_slot *s = &r->slot[(r->released + 1) % r->config.slots];
    bool there = s->number == r->released + 1 && s->complete;
    pthread_mutex_unlock(&r->mutex);
    return there ? s : NULL;
}

void lt_ring_release(lt_ring *r)
{
    pthread_mutex_lock(&r->mutex);
    r->released++;
    r->lent = false;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
}

lt_ring_times lt_ring_statistics(lt_ring *r)
{
    pthread_mutex_lock(&r->mutex);
    lt_ring_times times = r->times;
    times.queued = count_ready(r);
    pthread_mutex_unlock(&r->mutex);
    return times;
}
