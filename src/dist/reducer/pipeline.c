/* Pipeline with a thread per stage.
 *
 * 1. stage[s].passed buckets have passed stage s since the start; stage s takes the next bucket as soon as it has passed
 *    stage s - 1, or was begun. So passed never increases along the chain, and buckets keep their order.
 * 2. One stage at a time accesses a bucket; the mutex orders its writes before the next stage's reads. */

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
    lt_pipeline *pipeline;
    lt_stage_fn *fn;
    pthread_t thread;
    uint64_t passed;
} stage;

struct lt_pipeline {
    lt_reducer *reducer;
    stage stage[STAGES];
    size_t count, started;
    size_t *order; /* [capacity] ring of buckets in flight: the i-th begun is at i % capacity */
    size_t capacity;
    uint64_t begun, finished;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool stop, synchronous;
    lt_status status; /* first error of any stage */
    char message[TEXT];
};

/* Returns the number of buckets available to this stage so far. */
static uint64_t count_available_buckets(const stage *s)
{
    const lt_pipeline *all = s->pipeline;
    return s == all->stage ? all->begun : (s - 1)->passed;
}

static void note_failure(lt_pipeline *all, lt_status st)
{
    if (!st || all->status)
        return;
    all->status = st;
    snprintf(all->message, sizeof all->message, "%s", lt_error_message());
}

/* Processes the next bucket, or skips it after a failure. The caller holds the mutex, which is released while fn runs. */
static void process_next_bucket(stage *s)
{
    lt_pipeline *all = s->pipeline;
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

static void *run_stage_thread(void *context)
{
    stage *s = context;
    lt_pipeline *all = s->pipeline;
    lt_profile_thread("reducer");
    pthread_mutex_lock(&all->mutex);
    while (!all->stop || s->passed < all->begun) {
        if (s->passed < count_available_buckets(s))
            process_next_bucket(s);
        else
            pthread_cond_wait(&all->moved, &all->mutex);
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

static lt_status start_threads(lt_pipeline *all)
{
    for (; all->started < all->count; all->started++) {
        stage *s = &all->stage[all->started];
        if (lt_thread_start(&s->thread, run_stage_thread, s))
            return lt_fail(LT_E_COMM, "reducer %s: cannot start a thread", all->reducer->ops->kind);
    }
    return LT_OK;
}

lt_status lt_pipeline_open(lt_pipeline **out, lt_reducer *reducer, lt_stage_fn *const *fn,
                           size_t count)
{
    lt_pipeline *all = NULL;
    LT_TRY(LT_ALLOC(&all, 1));
    LT_ASSERT(count <= STAGES);
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->moved, NULL);
    all->reducer = reducer;
    all->count = count;
    all->capacity = reducer->buckets;
    all->synchronous = !reducer->device->backend->host_memory;
    for (size_t i = 0; i < count; i++)
        all->stage[i] = (stage){.pipeline = all, .fn = fn[i]};
    lt_status st = LT_ALLOC(&all->order, all->capacity);
    if (!st && !all->synchronous)
        st = start_threads(all);
    if (st)
        lt_pipeline_close(&all);
    else
        *out = all;
    return st;
}

static lt_status run_all_stages(const lt_pipeline *all, size_t bucket)
{
    for (size_t i = 0; i < all->count; i++)
        LT_TRY(all->stage[i].fn(all->reducer, bucket));
    return LT_OK;
}

lt_status lt_pipeline_begin(lt_pipeline *all, size_t bucket)
{
    if (all->synchronous)
        return run_all_stages(all, bucket);
    pthread_mutex_lock(&all->mutex);
    LT_ASSERT(all->begun - all->finished < all->capacity);
    all->order[all->begun++ % all->capacity] = bucket;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
    return LT_OK;
}

lt_status lt_pipeline_finish(lt_pipeline *all, size_t bucket)
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

void lt_pipeline_close(lt_pipeline **pipeline)
{
    lt_pipeline *all = *pipeline;
    *pipeline = NULL;
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
