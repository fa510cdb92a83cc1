/* Stages as threads.
 *
 * 1. passed[s] buckets have passed stage s, counted from the start; stage s takes the next as soon as it has passed the
 *    stage before, or was begun. So passed[] never rises along the chain, and buckets keep their order.
 * 2. A bucket is touched by one stage at a time; the mutex orders one's writes before the next one's reads. */

#include "dist/reducer/pipeline.h"

#include "base/alloc.h"
#include "base/thread.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/profile.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 8, TEXT = 512 };

typedef struct stage {
    lt_stages *stages;
    lt_stage_fn *fn;
    pthread_t thread;
    uint64_t passed;
} stage;

struct lt_stages {
    lt_reducer *reducer;
    stage stage[STAGES];
    size_t count, started;
    size_t *order; /* the buckets in flight: the i-th that was begun is at i % capacity */
    size_t capacity;
    uint64_t begun, finished;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool stop, synchronous;
    lt_status status; /* of the first stage that failed */
    char message[TEXT];
};

/* How many buckets this stage may have taken. */
static uint64_t offered(const stage *s)
{
    const lt_stages *all = s->stages;
    return s == all->stage ? all->begun : (s - 1)->passed;
}

static void note_failure(lt_stages *all, lt_status st)
{
    if (!st || all->status)
        return;
    all->status = st;
    snprintf(all->message, sizeof all->message, "%s", lt_error_message());
}

/* With the mutex locked, but while fn runs. After a failure a bucket passes untouched. */
static void pass(stage *s)
{
    lt_stages *all = s->stages;
    const size_t bucket = all->order[s->passed % all->capacity];
    lt_status st = LT_OK;
    if (!all->status) {
        pthread_mutex_unlock(&all->mutex);
        st = s->fn(all->reducer, bucket);
        pthread_mutex_lock(&all->mutex);
    }
    note_failure(all, st);
    s->passed++; /* invariant 1 */
    pthread_cond_broadcast(&all->moved);
}

static void *run(void *context)
{
    stage *s = context;
    lt_stages *all = s->stages;
    lt_profile_thread("reducer");
    pthread_mutex_lock(&all->mutex);
    while (!all->stop || s->passed < all->begun) {
        if (s->passed < offered(s))
            pass(s);
        else
            pthread_cond_wait(&all->moved, &all->mutex);
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

static lt_status start_threads(lt_stages *all)
{
    for (; all->started < all->count; all->started++) {
        stage *s = &all->stage[all->started];
        if (lt_thread_start(&s->thread, run, s))
            return lt_fail(LT_E_COMM, "reducer %s: no thread can be started",
                           all->reducer->ops->kind);
    }
    return LT_OK;
}

lt_status lt_stages_open(lt_stages **out, lt_reducer *reducer, lt_stage_fn *const *fn, size_t count)
{
    lt_stages *all = lt_alloc(1, sizeof *all);
    if (!all)
        return LT_E_NOMEM;
    LT_ASSERT(count <= STAGES);
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->moved, NULL);
    all->reducer = reducer;
    all->count = count;
    all->capacity = reducer->buckets;
    all->synchronous = !reducer->device->backend->host_memory;
    for (size_t i = 0; i < count; i++)
        all->stage[i] = (stage){.stages = all, .fn = fn[i]};
    all->order = lt_alloc(all->capacity, sizeof *all->order);
    lt_status st = all->order ? LT_OK : LT_E_NOMEM;
    if (!st && !all->synchronous)
        st = start_threads(all);
    if (st)
        lt_stages_close(&all);
    else
        *out = all;
    return st;
}

static lt_status run_all(const lt_stages *all, size_t bucket)
{
    for (size_t i = 0; i < all->count; i++)
        LT_TRY(all->stage[i].fn(all->reducer, bucket));
    return LT_OK;
}

lt_status lt_stages_begin(lt_stages *all, size_t bucket)
{
    if (all->synchronous)
        return run_all(all, bucket);
    pthread_mutex_lock(&all->mutex);
    LT_ASSERT(all->begun - all->finished < all->capacity);
    all->order[all->begun++ % all->capacity] = bucket;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
    return LT_OK;
}

lt_status lt_stages_finish(lt_stages *all, size_t bucket)
{
    if (all->synchronous)
        return LT_OK;
    pthread_mutex_lock(&all->mutex);
    LT_ASSERT(all->finished < all->begun && all->order[all->finished % all->capacity] == bucket);
    while (all->stage[all->count - 1].passed <= all->finished)
        pthread_cond_wait(&all->moved, &all->mutex);
    all->finished++;
    lt_status st = all->status ? lt_fail(all->status, "%s", all->message) : LT_OK;
    pthread_mutex_unlock(&all->mutex);
    return st;
}

void lt_stages_close(lt_stages **stages)
{
    lt_stages *all = *stages;
    *stages = NULL;
    if (!all)
        return;
    pthread_mutex_lock(&all->mutex);
    all->stop = true;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
    for (size_t i = 0; i < all->started; i++)
        pthread_join(all->stage[i].thread, NULL);
    pthread_cond_destroy(&all->moved);
    pthread_mutex_destroy(&all->mutex);
    lt_free(all->order);
    lt_free(all);
}
