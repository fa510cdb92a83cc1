/* A service that makes samples for loaders of other processes. Handlers keep nothing but the workspaces of threads. */

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

enum { PARTS = 2 };

typedef struct workspace {
    lt_scratch scratch;
    struct workspace *next;
} workspace;

struct lt_data_service {
    lt_service *service;
    const lt_dataset *part[PARTS]; /* val, train */
    lt_wire_info info[PARTS];
    pthread_mutex_t mutex;
    workspace *idle;
    _Atomic int64_t samples;
    atomic_bool closing;
};

/* --- Answers --- */

static void *answer(lt_reply *reply, lt_status status, bool fatal, size_t bytes)
{
    const lt_wire_answer head = {.magic = LT_WIRE_MAGIC, .status = status, .fatal = fatal};
    char *to = lt_reply_data(reply, sizeof head + bytes);
    if (!to)
        return NULL;
    memcpy(to, &head, sizeof head);
    return to + sizeof head;
}

static lt_status too_large(size_t bytes)
{
    return lt_fail(LT_E_NOMEM,
                   "data: an answer of %zu bytes is larger than a call may carry, or than memory",
                   bytes);
}

static lt_status answer_failure(lt_reply *reply, lt_status status, bool fatal)
{
    const char *why = lt_error_message();
    const size_t bytes = strlen(why);
    char *to = answer(reply, status, fatal, bytes);
    if (!to)
        return too_large(bytes);
    memcpy(to, why, bytes);
    return LT_OK;
}

/* --- What the data is --- */

static lt_wire_info describe(const lt_dataset *d)
{
    lt_wire_info in = {.count = d->count,
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

static lt_status answer_info(const lt_data_service *s, const lt_wire_request *q, lt_reply *reply)
{
    const lt_dataset *d = s->part[q->train];
    const lt_wire_info *in = &s->info[q->train];
    size_t bytes = sizeof *in;
    for (int i = 0; in->names && i < d->classes; i++)
        bytes += strlen(lt_dataset_class_name(d, i)) + 1;
    char *to = answer(reply, LT_OK, false, bytes);
    if (!to)
        return too_large(bytes);
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

static workspace *borrow(lt_data_service *s)
{
    pthread_mutex_lock(&s->mutex);
    workspace *w = s->idle;
    if (w)
        s->idle = w->next;
    pthread_mutex_unlock(&s->mutex);
    w = w ? w : lt_alloc(1, sizeof *w);
    if (w)
        w->scratch.stop = &s->closing;
    return w;
}

static void give_back(lt_data_service *s, workspace *w)
{
    pthread_mutex_lock(&s->mutex);
    w->next = s->idle;
    s->idle = w;
    pthread_mutex_unlock(&s->mutex);
}

/* The whole description of a sample that cannot be made, as a loader beside the data has it. */
static lt_status answer_broken(const lt_dataset *d, int64_t index, lt_status st, bool fatal,
                               lt_reply *reply)
{
    lt_broken_samples one = {0};
    if (fatal || st == LT_E_NOMEM)
        return answer_failure(reply, st, fatal);
    LT_TRY(lt_broken_samples_add(&one, d, index, 0));
    (void)lt_fail(st, "%s", one.item[0].why);
    lt_broken_samples_clear(&one);
    return answer_failure(reply, st, false);
}

static lt_status answer_sample(const lt_dataset *d, const lt_wire_request *q, workspace *w,
                               lt_reply *reply)
{
    lt_transform transform = {0};
    bool fatal = false;
    if (!d->shape.ndim)
        LT_TRY(lt_wire_get_transform(&transform, q));
    const size_t bytes = lt_sample_bytes(d, transform.size);
    const size_t labels = lt_sample_labels(d) * sizeof(int32_t);
    const lt_sample sample = {.dataset = d,
                              .transform = &transform,
                              .index = q->index,
                              .key = q->key,
                              .epoch_key = q->epoch_key};
    uint8_t *made = answer(reply, LT_OK, false, labels + bytes);
    if (!made)
        return too_large(labels + bytes);
    const lt_status st =
        lt_sample_make(&sample, &w->scratch, (int32_t *)(void *)made, made + labels, &fatal);
    if (st && atomic_load(w->scratch.stop))
        return lt_fail(LT_E_COMM, "data: the service closes"); /* the sample is not broken */
    return st ? answer_broken(d, q->index, st, fatal, reply) : LT_OK;
}

static lt_status answer_record(const lt_dataset *d, const lt_wire_request *q, workspace *w,
                               lt_reply *reply)
{
    lt_record *r = &w->scratch.record;
    r->epoch_key = q->epoch_key;
    lt_status st = d->ops->read(d, q->index, r);
    if (st)
        return answer_broken(d, q->index, st, false, reply);
    const lt_wire_record head = {.encoding = (int32_t)r->encoding,
                                 .width = r->width,
                                 .height = r->height,
                                 .channels = r->channels,
                                 .label = r->label};
    char *to = answer(reply, LT_OK, false, sizeof head + r->size);
    if (!to)
        return too_large(r->size);
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, r->bytes, r->size);
    return LT_OK;
}

static lt_status check(const lt_data_service *s, const lt_wire_request *q)
{
    if (q->magic != LT_WIRE_MAGIC || q->kind >= LT_WIRE_KINDS || q->train >= PARTS)
        return lt_fail(LT_E_FORMAT, "data: a request that begins with %08" PRIx32 " %" PRIu32,
                       q->magic, q->kind);
    const lt_dataset *d = s->part[q->train];
    if (!d)
        return lt_fail(LT_E_ARG, "data: this service has nothing to %s",
                       q->train ? "train on" : "evaluate");
    if (q->kind == LT_WIRE_INFO)
        return LT_OK;
    if (q->data != s->info[q->train].data)
        return lt_fail(LT_E_ARG,
                       "data: this service has data %016" PRIx64 ", asked was %016" PRIx64,
                       s->info[q->train].data, q->data);
    if (q->index < 0 || q->index >= d->count)
        return lt_fail(LT_E_ARG, "data: sample %" PRId64 " of %" PRId64, q->index, d->count);
    return LT_OK;
}

static lt_status handle(void *context, const void *request, size_t bytes, lt_reply *reply)
{
    lt_data_service *s = context;
    lt_wire_request q;
    if (bytes != sizeof q)
        return lt_fail(LT_E_FORMAT, "data: a request of %zu bytes, not %zu", bytes, sizeof q);
    memcpy(&q, request, sizeof q);
    LT_TRY(check(s, &q));
    if (q.kind == LT_WIRE_INFO)
        return answer_info(s, &q, reply);
    workspace *w = borrow(s);
    if (!w)
        return LT_E_NOMEM;
    const lt_dataset *d = s->part[q.train];
    lt_status st =
        q.kind == LT_WIRE_SAMPLE ? answer_sample(d, &q, w, reply) : answer_record(d, &q, w, reply);
    give_back(s, w);
    s->samples += !st;
    return st;
}

/* --- Its life --- */

lt_status lt_data_service_open(lt_data_service **out, const lt_data_service_config *config)
{
    char text[LT_TOKEN_BYTES];
    const char *secret = config->secret;
    LT_TRY(lt_remote_secret(text, &secret));
    lt_data_service *s = lt_alloc(1, sizeof *s);
    if (!s)
        return LT_E_NOMEM;
    pthread_mutex_init(&s->mutex, NULL);
    s->part[0] = config->val;
    s->part[1] = config->train;
    for (int i = 0; i < PARTS; i++)
        if (s->part[i])
            s->info[i] = describe(s->part[i]);
    const lt_service_config c = {.address = config->address,
                                 .handler = handle,
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
        workspace *w = s->idle;
        s->idle = w->next;
        lt_scratch_clear(&w->scratch);
        lt_free(w);
    }
    pthread_mutex_destroy(&s->mutex);
    lt_free(s);
}
