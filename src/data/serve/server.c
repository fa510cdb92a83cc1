/* A service that makes samples for loaders of other processes. Requests are stateless; only workspaces are reused. */

#include "base/alloc.h"
#include "base/hash.h"
#include "data/loader/corrupt_samples.h"
#include "data/loader/sample.h"
#include "data/remote/codec.h"
#include "data/remote/remote.h"

#include "lather/data_service.h"
#include "lather/service.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SPLITS = 2 };

typedef struct thread_state {
    lt_sample_workspace workspace;
    struct thread_state *next;
} thread_state;

struct lt_data_service {
    lt_service *service;
    const lt_dataset *split[SPLITS]; /* [0]: validation data, [1]: training data; NULL if absent */
    lt_data_info info[SPLITS];
    pthread_mutex_t mutex;
    thread_state *idle;
    _Atomic int64_t samples;
    atomic_bool closing;
};

/* --- Responses --- */

/* Writes the header; returns the memory for `bytes` bytes after it, or NULL if that is too large. */
static void *begin_response(lt_response_buffer *reply, lt_status status, bool fatal, size_t bytes)
{
    const lt_data_response head = {.magic = LT_DATA_MAGIC, .status = status, .fatal = fatal};
    char *to = lt_response_allocate(reply, sizeof head + bytes);
    if (!to)
        return NULL;
    memcpy(to, &head, sizeof head);
    return to + sizeof head;
}

static lt_status too_large_error(size_t bytes)
{
    return lt_fail(LT_E_NOMEM,
                   "data: a response of %zu bytes exceeds the memory or the limit of a call",
                   bytes);
}

static lt_status respond_error(lt_response_buffer *reply, lt_status status, bool fatal)
{
    const char *why = lt_error_message();
    const size_t bytes = strlen(why);
    char *to = begin_response(reply, status, fatal, bytes);
    if (!to)
        return too_large_error(bytes);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the length precedes the text */
    memcpy(to, why, bytes);
    return LT_OK;
}

/* --- Description of the data set --- */

static lt_data_info make_dataset_info(const lt_dataset *d)
{
    lt_data_info in = {.count = d->count,
                       .classes = d->classes,
                       .channels = lt_dataset_channels(d),
                       .ndim = d->shape.ndim,
                       .tokens = d->tokens,
                       .unsplit = d->unsplit,
                       .names = lt_dataset_class_name(d, 0) != NULL};
    memcpy(in.dim, d->shape.dim, sizeof in.dim);
    in.fingerprint = lt_dataset_fingerprint(d);
    uint64_t hash = lt_fnv1a_text(LT_FNV1A_BEGIN, lt_version());
    hash = lt_fnv1a(hash, &in, sizeof in);
    in.data = hash ? hash : 1;
    return in;
}

static lt_status respond_info(const lt_data_service *s, const lt_data_request *q,
                              lt_response_buffer *reply)
{
    const lt_dataset *d = s->split[q->train];
    const lt_data_info *in = &s->info[q->train];
    size_t bytes = sizeof *in;
    for (int i = 0; in->names && i < d->classes; i++)
        bytes += strlen(lt_dataset_class_name(d, i)) + 1;
    char *to = begin_response(reply, LT_OK, false, bytes);
    if (!to)
        return too_large_error(bytes);
    memcpy(to, in, sizeof *in);
    to += sizeof *in;
    for (int i = 0; in->names && i < d->classes; i++) {
        const char *name = lt_dataset_class_name(d, i);
        memcpy(to, name, strlen(name) + 1);
        to += strlen(name) + 1;
    }
    return LT_OK;
}

/* --- Samples --- */

static thread_state *acquire_state(lt_data_service *s)
{
    pthread_mutex_lock(&s->mutex);
    thread_state *t = s->idle;
    if (t)
        s->idle = t->next;
    pthread_mutex_unlock(&s->mutex);
    t = t ? t : lt_alloc(1, sizeof *t);
    if (t)
        t->workspace.stop = &s->closing;
    return t;
}

static void release_state(lt_data_service *s, thread_state *t)
{
    pthread_mutex_lock(&s->mutex);
    t->next = s->idle;
    s->idle = t;
    pthread_mutex_unlock(&s->mutex);
}

/* Responds with the same description of a corrupt sample as a loader that reads the data directly. */
static lt_status respond_corrupt(const lt_dataset *d, int64_t index, lt_status st, bool fatal,
                                 lt_response_buffer *reply)
{
    lt_corrupt_samples one = {0};
    if (fatal || st == LT_E_NOMEM)
        return respond_error(reply, st, fatal);
    LT_TRY(lt_corrupt_samples_add(&one, d, index, 0));
    (void)lt_fail(st, "%s", one.item[0].why);
    lt_corrupt_samples_clear(&one);
    return respond_error(reply, st, false);
}

static lt_status respond_sample(const lt_dataset *d, const lt_data_request *q, thread_state *t,
                                lt_response_buffer *reply)
{
    lt_transform transform = {0};
    bool fatal = false;
    if (!d->shape.ndim)
        LT_TRY(lt_decode_transform(&transform, q));
    const size_t bytes = lt_sample_bytes(d, transform.size);
    const size_t labels = lt_sample_label_count(d) * sizeof(int32_t);
    const lt_sample sample = {.dataset = d,
                              .transform = &transform,
                              .index = q->index,
                              .key = q->key,
                              .epoch_key = q->epoch_key};
    uint8_t *made = begin_response(reply, LT_OK, false, labels + bytes);
    if (!made)
        return too_large_error(labels + bytes);
    const lt_status st =
        lt_sample_make(&sample, &t->workspace, (int32_t *)(void *)made, made + labels, &fatal);
    if (st && atomic_load(t->workspace.stop))
        return lt_fail(LT_E_COMM, "data: the service is closing"); /* the sample is not corrupt */
    return st ? respond_corrupt(d, q->index, st, fatal, reply) : LT_OK;
}

static lt_status respond_record(const lt_dataset *d, const lt_data_request *q, thread_state *t,
                                lt_response_buffer *reply)
{
    lt_record *r = &t->workspace.record;
    r->epoch_key = q->epoch_key;
    lt_status st = d->ops->read(d, q->index, r);
    if (st)
        return respond_corrupt(d, q->index, st, false, reply);
    const lt_data_record head = {.encoding = (int32_t)r->encoding,
                                 .width = r->width,
                                 .height = r->height,
                                 .channels = r->channels,
                                 .label = r->label};
    char *to = begin_response(reply, LT_OK, false, sizeof head + r->size);
    if (!to)
        return too_large_error(r->size);
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, r->bytes, r->size);
    return LT_OK;
}

static lt_status check_request(const lt_data_service *s, const lt_data_request *q)
{
    if (q->magic != LT_DATA_MAGIC || q->kind >= LT_REQUEST_KINDS || q->train >= SPLITS)
        return lt_fail(LT_E_FORMAT,
                       "data: request has magic %08" PRIx32 ", kind %" PRIu32 ", train %" PRIu32
                       "; want %08" PRIx32 ", a kind below %d, 0 or 1",
                       q->magic, q->kind, q->train, LT_DATA_MAGIC, (int)LT_REQUEST_KINDS);
    const lt_dataset *d = s->split[q->train];
    if (!d)
        return lt_fail(LT_E_ARG, "data: this service has no %s data",
                       q->train ? "training" : "validation");
    if (q->kind == LT_REQUEST_INFO)
        return LT_OK;
    if (q->data != s->info[q->train].data)
        return lt_fail(LT_E_ARG,
                       "data: this service has data %016" PRIx64 ", the request wants %016" PRIx64,
                       s->info[q->train].data, q->data);
    if (q->index < 0 || q->index >= d->count)
        return lt_fail(LT_E_ARG, "data: request for sample %" PRId64 " of %" PRId64, q->index,
                       d->count);
    return LT_OK;
}

static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    lt_data_service *s = context;
    lt_data_request q;
    if (bytes != sizeof q)
        return lt_fail(LT_E_FORMAT, "data: request of %zu bytes, want %zu", bytes, sizeof q);
    memcpy(&q, request, sizeof q);
    LT_TRY(check_request(s, &q));
    if (q.kind == LT_REQUEST_INFO)
        return respond_info(s, &q, reply);
    thread_state *t = acquire_state(s);
    if (!t)
        return LT_E_NOMEM;
    const lt_dataset *d = s->split[q.train];
    lt_status st = q.kind == LT_REQUEST_SAMPLE ? respond_sample(d, &q, t, reply)
                                               : respond_record(d, &q, t, reply);
    release_state(s, t);
    s->samples += !st;
    return st;
}

/* --- Opening and closing --- */

lt_status lt_data_service_open(lt_data_service **out, const lt_data_service_config *config)
{
    char text[LT_TOKEN_BYTES];
    const char *secret = config->secret;
    LT_TRY(lt_remote_secret_from_env(text, &secret));
    lt_data_service *s = NULL;
    LT_TRY(LT_ALLOC(&s, 1));
    pthread_mutex_init(&s->mutex, NULL);
    s->split[0] = config->val;
    s->split[1] = config->train;
    for (int i = 0; i < SPLITS; i++)
        if (s->split[i])
            s->info[i] = make_dataset_info(s->split[i]);
    const lt_service_config c = {.address = config->address,
                                 .handler = handle_request,
                                 .context = s,
                                 .secret = secret,
                                 .threads = config->threads ? config->threads : lt_cpu_threads()};
    lt_status st = lt_service_open(&s->service, &c);
    if (st)
        lt_data_service_close(&s);
    else
        *out = s;
    return st;
}

const char *lt_data_service_address(const lt_data_service *service)
{
    return lt_service_address(service->service);
}

int64_t lt_data_service_samples(const lt_data_service *service)
{
    return service->samples;
}

void lt_data_service_close(lt_data_service **service)
{
    lt_data_service *s = *service;
    *service = NULL;
    if (!s)
        return;
    atomic_store(&s->closing, true);
    lt_service_close(&s->service);
    while (s->idle) {
        thread_state *t = s->idle;
        s->idle = t->next;
        lt_sample_workspace_clear(&t->workspace);
        lt_free(t);
    }
    pthread_mutex_destroy(&s->mutex);
    lt_free(s);
}
