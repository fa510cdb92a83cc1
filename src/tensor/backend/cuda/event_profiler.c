/* Profiler of entries by CUDA events: event_profiler.h. */

#include "event_profiler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SPANS = 1024 };

typedef struct span {
    const char *entry;
    lt_cuda_event from, to;
} span;

/* The part LT_CUDA_PROFILER of a context. */
typedef struct times {
    const char *path;
    bool on, is_open; /* is_open: the last span has not ended */
    span *span;
    size_t count, capacity;
} times;

typedef struct total {
    const char *entry;
    int calls;
    double milliseconds;
} total;

static void clear_spans(lt_cuda *c, times *t)
{
    for (size_t i = 0; i < t->count; i++) {
        c->api->event_destroy(t->span[i].from);
        c->api->event_destroy(t->span[i].to);
    }
    t->count = 0;
    t->is_open = false;
}

static void close_times(lt_cuda *c, void *data)
{
    times *t = data;
    clear_spans(c, t);
    free(t->span);
    free(t);
}

lt_status lt_cuda_profiler_start(lt_cuda *c)
{
    const char *path = getenv("LATHER_PROFILE_EVENTS");
    lt_cuda_part *part = &c->part[LT_CUDA_PROFILER];
    if (!path || !*path)
        return LT_OK;
    times *t = part->data ? part->data : calloc(1, sizeof *t);
    if (!t)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for times of entries", c->ordinal);
    part->data = t;
    part->close = close_times;
    t->path = path;
    t->on = true;
    return LT_OK;
}

static times *get_active_times(const lt_cuda *c)
{
    times *t = c->part[LT_CUDA_PROFILER].data;
    return t && t->on && !c->capturing ? t : NULL;
}

/* Ensures capacity for another span. */
static lt_status grow_spans(lt_cuda *c, times *t)
{
    if (t->count < t->capacity)
        return LT_OK;
    const size_t capacity = t->capacity ? 2 * t->capacity : LEAST_SPANS;
    span *grown = realloc(t->span, capacity * sizeof *grown);
    if (!grown)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for times of entries", c->ordinal);
    t->span = grown;
    t->capacity = capacity;
    return LT_OK;
}

lt_status lt_cuda_profiler_begin(lt_cuda *c, const char *entry)
{
    times *t = get_active_times(c);
    span s = {.entry = entry};
    if (!t)
        return LT_OK;
    LT_TRY(lt_cuda_profiler_end(c));
    LT_TRY(grow_spans(c, t));
    LT_CUDA_TRY(c, "cudaEventCreate", c->api->event_create(&s.from, true));
    const int code = c->api->event_create(&s.to, true);
    if (code)
        c->api->event_destroy(s.from);
    LT_CUDA_TRY(c, "cudaEventCreate", code);
    t->span[t->count++] = s;
    LT_CUDA_TRY(c, "cudaEventRecord", c->api->event_record(s.from, c->stream[LT_CUDA_MAIN]));
    t->is_open = true;
    return LT_OK;
}

lt_status lt_cuda_profiler_end(lt_cuda *c)
{
    times *t = get_active_times(c);
    if (!t || !t->is_open)
        return LT_OK;
    t->is_open = false;
    LT_CUDA_TRY(c, "cudaEventRecord",
                c->api->event_record(t->span[t->count - 1].to, c->stream[LT_CUDA_MAIN]));
    return LT_OK;
}

/* --- The table --- */

static total *find_total(total *of, size_t *count, const char *entry)
{
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(of[i].entry, entry))
            return &of[i];
    of[*count] = (total){.entry = entry};
    return &of[(*count)++];
}

static int compare_milliseconds(const void *a, const void *b)
{
    const double x = ((const total *)a)->milliseconds, y = ((const total *)b)->milliseconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

static lt_status sum_spans(lt_cuda *c, const times *t, total *of, size_t *count)
{
    for (size_t i = 0; i < t->count; i++) {
        float milliseconds = 0;
        LT_CUDA_TRY(c, "cudaEventElapsedTime",
                    c->api->event_milliseconds(&milliseconds, t->span[i].from, t->span[i].to));
        total *sum = find_total(of, count, t->span[i].entry);
        sum->calls++;
        sum->milliseconds += (double)milliseconds;
    }
    qsort(of, *count, sizeof *of, compare_milliseconds);
    return LT_OK;
}

static lt_status write_table(const times *t, const total *of, size_t count)
{
    FILE *file = fopen(t->path, "w");
    bool good = file && fprintf(file, "ms a step\tcalls\tentry\n") > 0;
    for (size_t i = 0; i < count && good; i++)
        good = fprintf(file, "%.4f\t%d\t%s\n", of[i].milliseconds, of[i].calls, of[i].entry) > 0;
    if (file && fclose(file))
        good = false;
    return good ? LT_OK
                : lt_fail(LT_E_IO, "LATHER_PROFILE_EVENTS=%s: %s", t->path, strerror(errno));
}

lt_status lt_cuda_profiler_stop(lt_cuda *c)
{
    times *t = get_active_times(c);
    size_t count = 0;
    if (!t)
        return LT_OK;
    lt_status st = lt_cuda_profiler_end(c);
    t->on = false;
    total *of = calloc(t->count + 1, sizeof *of);
    if (!of && !st)
        st = lt_fail(LT_E_NOMEM, "cuda:%d: no memory for times of entries", c->ordinal);
    if (!st)
        st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->stream_sync(c->stream[LT_CUDA_MAIN]),
                           "cudaStreamSynchronize");
    if (!st)
        st = sum_spans(c, t, of, &count);
    if (!st)
        st = write_table(t, of, count);
    free(of);
    clear_spans(c, t);
    return st;
}
