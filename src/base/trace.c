/* Profiler: spans in a ring buffer, and totals by name. Written in Chrome's trace event format ("Trace Event Format",
 * complete events "X" and thread_name metadata), which Perfetto reads. */

#include "base/trace.h"

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/json.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum { DEFAULT_EVENTS = 1 << 18, MAX_THREADS = 256, THREAD_NAME = 32 };

typedef struct event {
    int64_t begin, nanoseconds, bytes;
    const char *name;
    int kind, thread;
} event;

typedef struct total {
    const char *name;
    lt_profile_kind kind;
    int64_t count, nanoseconds, longest, bytes;
} total;

/* One lock protects everything: spans take microseconds, an uncontended lock about 20 ns. */
typedef struct recorder {
    char *path;
    event *ring;
    int64_t capacity, recorded;
    int64_t begin;
    total *totals;
    size_t total_count, total_capacity;
    int threads;
    char thread_name[MAX_THREADS][THREAD_NAME];
} recorder;

static const char *const kind_names[] = {"forward", "backward", "optim",  "loader",
                                         "comm",    "copy",     "program"};

atomic_bool lt_trace_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static recorder now;
static _Thread_local int own_thread = -1;

/* Returns the calling thread's number, in order of first use; threads past the table share the last one. */
static int thread_index(void)
{
    if (own_thread < 0)
        own_thread = now.threads < MAX_THREADS ? now.threads++ : MAX_THREADS - 1;
    return own_thread;
}

/* Finds or adds a total. Linear search, by pointer first, as there are few names. Returns NULL without memory. */
static total *find_or_add_total(lt_profile_kind kind, const char *name)
{
    for (size_t i = 0; i < now.total_count; i++)
        if (now.totals[i].kind == kind
            && (now.totals[i].name == name || !strcmp(now.totals[i].name, name)))
            return &now.totals[i];
    if (LT_GROW(&now.totals, &now.total_capacity, now.total_count + 1))
        return NULL;
    now.totals[now.total_count] = (total){.name = name, .kind = kind};
    return &now.totals[now.total_count++];
}

void lt_trace_record(int64_t begin, lt_profile_kind kind, const char *name, int64_t bytes)
{
    int64_t nanoseconds = lt_clock_nanoseconds() - begin;
    pthread_mutex_lock(&lock);
    if (now.ring && begin >= now.begin) {
        now.ring[now.recorded++ % now.capacity] = (event){.begin = begin,
                                                          .nanoseconds = nanoseconds,
                                                          .bytes = bytes,
                                                          .name = name,
                                                          .kind = (int)kind,
                                                          .thread = thread_index()};
        total *t = find_or_add_total(kind, name);
        if (t) {
            t->count++;
            t->nanoseconds += nanoseconds;
            t->bytes += bytes;
            if (nanoseconds > t->longest)
                t->longest = nanoseconds;
        }
    }
    pthread_mutex_unlock(&lock);
}

int64_t lt_profile_begin(void)
{
    return lt_trace_begin();
}

void lt_profile_end(int64_t begin, lt_profile_kind kind, const char *name, int64_t bytes)
{
    lt_trace_end(begin, kind, name, bytes);
}

void lt_profile_thread(const char *name)
{
    pthread_mutex_lock(&lock);
    snprintf(now.thread_name[thread_index()], THREAD_NAME, "%s", name);
    pthread_mutex_unlock(&lock);
}

/* Creates the trace file empty, and its folder if missing. */
static lt_status create_trace_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash && slash > path ? lt_format("%.*s", (int)(slash - path), path) : NULL;
    lt_status st = folder ? lt_make_folders(folder) : LT_OK;
    lt_free(folder);
    LT_TRY(st);
    FILE *file = fopen(path, "w");
    if (!file)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return LT_OK;
}

lt_status lt_profile_start(const char *path, int64_t events)
{
    if (atomic_load(&lt_trace_on))
        return lt_fail(LT_E_ARG, "profile: already recording");
    if (events < 0)
        return lt_fail(LT_E_ARG, "profile: %" PRId64 " events", events);
    if (path)
        LT_TRY(create_trace_file(path)); /* fails before training rather than after it */

    int64_t capacity = events ? events : DEFAULT_EVENTS;
    event *ring = lt_alloc((size_t)capacity, sizeof *ring);
    char *copy = path ? lt_strdup(path) : NULL;
    if (!ring || (path && !copy)) {
        lt_free(ring);
        lt_free(copy);
        return LT_E_NOMEM;
    }
    pthread_mutex_lock(&lock);
    now.path = copy;
    now.ring = ring;
    now.capacity = capacity;
    now.recorded = 0;
    now.begin = lt_clock_nanoseconds();
    pthread_mutex_unlock(&lock);
    atomic_store(&lt_trace_on, true);
    return LT_OK;
}

static void write_event(lt_json_writer *w, const event *e)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "name", e->name);
    lt_json_put_string(w, "cat", kind_names[e->kind]);
    lt_json_put_string(w, "ph", "X");
    lt_json_put_number(w, "ts", (double)(e->begin - now.begin) / 1e3);
    lt_json_put_number(w, "dur", (double)e->nanoseconds / 1e3);
    lt_json_put_integer(w, "pid", 1);
    lt_json_put_integer(w, "tid", e->thread);
    if (e->bytes) {
        lt_json_begin_object(w, "args");
        lt_json_put_integer(w, "bytes", e->bytes);
        lt_json_end(w);
    }
    lt_json_end(w);
}

static void write_thread_name(lt_json_writer *w, int thread)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "name", "thread_name");
    lt_json_put_string(w, "ph", "M");
    lt_json_put_integer(w, "pid", 1);
    lt_json_put_integer(w, "tid", thread);
    lt_json_begin_object(w, "args");
    lt_json_put_string(w, "name", now.thread_name[thread]);
    lt_json_end(w);
    lt_json_end(w);
}

static lt_status write_trace(void)
{
    int64_t first = now.recorded > now.capacity ? now.recorded - now.capacity : 0;
    lt_json_writer w = {0};
    lt_json_begin_object(&w, NULL);
    lt_json_begin_array(&w, "traceEvents");
    for (int i = 0; i < now.threads; i++)
        if (now.thread_name[i][0])
            write_thread_name(&w, i);
    for (int64_t i = first; i < now.recorded; i++)
        write_event(&w, &now.ring[i % now.capacity]);
    lt_json_end(&w);
    lt_json_put_string(&w, "displayTimeUnit", "ms");
    lt_json_put_integer(&w, "dropped", first);
    lt_json_end(&w);
    lt_status st = lt_json_save(&w, now.path);
    lt_json_writer_clear(&w);
    return st;
}

static int longer_first(const void *a, const void *b)
{
    const total *x = a, *y = b;
    return (x->nanoseconds < y->nanoseconds) - (x->nanoseconds > y->nanoseconds);
}

static lt_status write_summary(FILE *out, int64_t wall)
{
    if (now.total_count) /* else totals may be NULL */
        qsort(now.totals, now.total_count, sizeof *now.totals, longer_first);
    fprintf(out, "%-9s %-28s %9s %11s %9s %9s %7s %8s\n", "kind", "name", "calls", "total ms",
            "mean us", "max us", "% wall", "GB/s");
    for (size_t i = 0; i < now.total_count; i++) {
        const total *t = &now.totals[i];
        double ns = (double)t->nanoseconds;
        fprintf(out, "%-9s %-28.28s %9" PRId64 " %11.3f %9.1f %9.1f %7.1f", kind_names[t->kind],
                t->name, t->count, ns / 1e6, ns / 1e3 / (double)t->count, (double)t->longest / 1e3,
                wall ? 100 * ns / (double)wall : 0.0);
        if (t->bytes && t->nanoseconds)
            fprintf(out, " %8.2f\n", (double)t->bytes / ns);
        else
            fprintf(out, " %8s\n", "-");
    }
    fprintf(out, "%" PRId64 " spans in %.3f s; spans nest, so shares may add to more than 100 %%\n",
            now.recorded, (double)wall / 1e9);
    return ferror(out) ? lt_fail(LT_E_IO, "profile: cannot write the table") : LT_OK;
}

lt_status lt_profile_finish(FILE *summary)
{
    if (!atomic_exchange(&lt_trace_on, false))
        return LT_OK;
    pthread_mutex_lock(&lock);
    int64_t wall = lt_clock_nanoseconds() - now.begin;
    lt_status st = now.path ? write_trace() : LT_OK;
    lt_status printed = summary ? write_summary(summary, wall) : LT_OK;
    lt_free(now.path);
    lt_free(now.ring);
    lt_free(now.totals);
    now.path = NULL;
    now.ring = NULL;
    now.totals = NULL;
    now.total_count = now.total_capacity = 0;
    pthread_mutex_unlock(&lock);
    return st ? st : printed;
}
