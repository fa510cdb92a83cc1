/* A data set that services have. Each request goes to the next service in turn; one that does not answer is left out
 * for a while, and the request, which may be done twice, goes to another. */

#include "data/remote/remote.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "data/remote/codec.h"

#include "lather/data_service.h"
#include "lather/log.h"
#include "lather/service.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_WORKERS = 256, ADDRESS = 256 };
/* A call that finds no connection waits for one, and cannot tell that from an image that takes long: the first try is
 * short, the next ones, at other services, are twice as long each. */
static const double first_seconds = 1, longest_seconds = 60;
static const double pause_seconds = 5;    /* in which one that did not answer is left out */
static const double most_seconds = 120;   /* without an answer from any */
static const double opening_seconds = 20; /* likewise, of the first question */

typedef struct worker {
    lt_client *client;
    char address[ADDRESS];
    _Atomic int64_t silent_until; /* nanoseconds of the monotonic clock; 0: it answers */
} worker;

struct lt_remote {
    worker *worker;
    int workers;
    _Atomic unsigned next;
    uint64_t data;
    bool train;
};

typedef struct remote_set {
    lt_dataset base;
    struct lt_remote remote;
    const char **name; /* [classes], into names; NULL: none */
    char *names;
    uint64_t fingerprint; /* of the service's data set */
} remote_set;

/* --- Requests --- */

static lt_wire_request request_of(const struct lt_remote *r, lt_wire_kind kind)
{
    return (lt_wire_request){
        .magic = LT_WIRE_MAGIC, .kind = kind, .train = r->train, .data = r->data};
}

/* One that answers, from place `first` on; if none does, the one there. */
static worker *choose(const struct lt_remote *r, unsigned first)
{
    const int64_t now = lt_clock_nanoseconds();
    for (int i = 0; i < r->workers; i++) {
        worker *w = &r->worker[(first + (unsigned)i) % (unsigned)r->workers];
        if (atomic_load(&w->silent_until) <= now)
            return w;
    }
    return &r->worker[first % (unsigned)r->workers];
}

static void leave_out(worker *w)
{
    const int64_t until = lt_clock_nanoseconds() + (int64_t)(1e9 * pause_seconds);
    if (!atomic_exchange(&w->silent_until, until))
        lt_log(LT_LOG_WARN, "data", "%s does not answer: %s", w->address, lt_error_message());
}

static lt_status call_one(worker *w, const lt_wire_request *request, double seconds,
                          lt_answer *answer)
{
    lt_status st = lt_client_call(w->client, request, sizeof *request, seconds, answer);
    if (st == LT_E_COMM)
        leave_out(w);
    else if (atomic_exchange(&w->silent_until, 0))
        lt_log(LT_LOG_INFO, "data", "%s answers again", w->address);
    return st;
}

static lt_status call(struct lt_remote *r, const lt_wire_request *request, lt_answer *answer)
{
    const double begin = lt_clock_seconds();
    const struct timespec pause = {.tv_nsec = 10000000}; /* a refused connection fails at once */
    unsigned first = atomic_fetch_add(&r->next, 1);
    double seconds = first_seconds;
    for (;;) {
        lt_status st = call_one(choose(r, first++), request, seconds, answer);
        if (st != LT_E_COMM || lt_clock_seconds() - begin > most_seconds)
            return st;
        seconds = seconds < longest_seconds / 2 ? 2 * seconds : longest_seconds;
        nanosleep(&pause, NULL);
    }
}

/* What is behind the header of an answer to a request; a failed sample has its own message and status. */
static lt_status read_answer(const lt_answer *answer, const uint8_t **body, size_t *bytes,
                             bool *fatal)
{
    lt_wire_answer head;
    *fatal = true;
    *body = NULL;
    *bytes = 0;
    if (answer->bytes < sizeof head)
        return lt_fail(LT_E_FORMAT, "data: a service's answer of %zu bytes", answer->bytes);
    memcpy(&head, answer->data, sizeof head);
    if (head.magic != LT_WIRE_MAGIC || head.status < 0 || head.status >= LT_END)
        return lt_fail(LT_E_FORMAT, "data: a service's answer begins with %08" PRIx32 ", status %d",
                       head.magic, (int)head.status);
    *body = (const uint8_t *)answer->data + sizeof head;
    *bytes = answer->bytes - sizeof head;
    *fatal = head.fatal;
    if (!head.status)
        return LT_OK;
    const int most = 4096;
    return lt_fail((lt_status)head.status, "%.*s", *bytes < (size_t)most ? (int)*bytes : most,
                   (const char *)*body);
}

lt_status lt_remote_make(const lt_dataset *d, const lt_remote_sample *s, int32_t *label,
                         uint8_t *out, bool *fatal)
{
    const uint8_t *body;
    size_t bytes;
    lt_answer answer = {0};
    lt_wire_request request = request_of(d->remote, LT_WIRE_SAMPLE);
    request.index = s->index;
    request.key = s->key;
    request.epoch_key = s->epoch_key;
    lt_wire_put_transform(&request, s->transform);
    *fatal = true;
    LT_TRY(call(d->remote, &request, &answer));
    lt_status st = read_answer(&answer, &body, &bytes, fatal);
    if (!st && bytes != s->label_bytes + s->bytes) {
        *fatal = true;
        st = lt_fail(LT_E_FORMAT, "data: a service's sample has %zu bytes, not %zu", bytes,
                     s->label_bytes + s->bytes);
    }
    if (!st) {
        memcpy(label, body, s->label_bytes);
        memcpy(out, body + s->label_bytes, s->bytes);
    }
    lt_answer_free(&answer);
    return st;
}

/* --- The data set --- */

static lt_status take_record(lt_record *record, const uint8_t *body, size_t bytes)
{
    lt_wire_record head;
    if (bytes < sizeof head)
        return lt_fail(LT_E_FORMAT, "data: a service's record of %zu bytes", bytes);
    memcpy(&head, body, sizeof head);
    bytes -= sizeof head;
    if (head.encoding < 0 || head.encoding > LT_ENCODING_TOKENS)
        return lt_fail(LT_E_FORMAT, "data: a service's record of encoding %d", (int)head.encoding);
    const bool dense = head.encoding == LT_ENCODING_PLANES || head.encoding == LT_ENCODING_PIXELS;
    const int64_t side = 1 << 20;
    if (dense
        && (head.width < 1 || head.height < 1 || head.width > side || head.height > side
            || (head.channels != 1 && head.channels != 3)
            || (uint64_t)head.width * (uint64_t)head.height * (uint64_t)head.channels != bytes))
        return lt_fail(LT_E_FORMAT, "data: a service's record of %zu bytes for %d x %d x %d", bytes,
                       (int)head.width, (int)head.height, (int)head.channels);
    LT_TRY(lt_record_reserve(record, bytes));
    memcpy(record->bytes, body + sizeof head, bytes);
    record->size = bytes;
    record->encoding = (lt_encoding)head.encoding;
    record->width = head.width;
    record->height = head.height;
    record->channels = head.channels;
    record->label = head.label;
    return LT_OK;
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const uint8_t *body;
    size_t bytes;
    bool fatal;
    lt_answer answer = {0};
    lt_wire_request request = request_of(self->remote, LT_WIRE_RECORD);
    request.index = index;
    request.epoch_key = record->epoch_key;
    LT_TRY(call(self->remote, &request, &answer));
    lt_status st = read_answer(&answer, &body, &bytes, &fatal);
    if (!st)
        st = take_record(record, body, bytes);
    lt_answer_free(&answer);
    return st;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const remote_set *s = (const remote_set *)self;
    return s->name ? s->name[label] : NULL;
}

static void destroy(lt_dataset *self)
{
    remote_set *s = (remote_set *)self;
    for (int i = 0; i < s->remote.workers; i++)
        lt_client_close(&s->remote.worker[i].client);
    lt_free(s->remote.worker);
    lt_free(s->name);
    lt_free(s->names);
}

static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    (void)hash;
    return ((const remote_set *)self)->fingerprint;
}

static const lt_dataset_ops ops = {.name = "service",
                                   .bytes = sizeof(remote_set),
                                   .read = read_sample,
                                   .class_name = class_name,
                                   .fingerprint = fingerprint,
                                   .destroy = destroy};

/* --- Opening --- */

static lt_status take_names(remote_set *s, const uint8_t *text, size_t bytes)
{
    const size_t classes = (size_t)s->base.classes;
    s->names = lt_alloc(bytes + 1, 1);
    s->name = lt_alloc(classes, sizeof *s->name);
    if (!s->names || !s->name)
        return LT_E_NOMEM;
    memcpy(s->names, text, bytes);
    const char *at = s->names, *end = s->names + bytes;
    for (size_t i = 0; i < classes; i++, at += strlen(at) + 1) {
        if (at >= end)
            return lt_fail(LT_E_FORMAT, "data: a service names %zu of %zu classes", i, classes);
        s->name[i] = at;
    }
    return LT_OK;
}

static lt_status check_number(const char *what, int64_t got, int64_t most)
{
    if (got >= 1 && got <= most)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "data: a service has %" PRId64 " %s, want 1 to %" PRId64, got, what,
                   most);
}

static lt_status check_info(const lt_wire_info *in)
{
    const int64_t most_samples = INT64_C(1) << 40, most_classes = 1 << 24;
    /* A response has an id and a label of 4 bytes, or an f32, for each element. */
    const int64_t most = LT_SERVICE_MAX_BYTES / (in->tokens ? 8 : 4);
    int64_t elements = 1;
    if (in->ndim < 0 || in->ndim >= LT_MAX_DIMS || (in->channels != 1 && in->channels != 3)
        || (in->tokens && !in->ndim))
        return lt_fail(LT_E_FORMAT, "data: a service's data set makes no sense");
    LT_TRY(check_number("samples", in->count, most_samples));
    LT_TRY(check_number("classes", in->classes, most_classes));
    for (int i = 0; i < in->ndim; i++) {
        LT_TRY(check_number("elements in a dimension of a sample", in->dim[i], most));
        elements *= in->dim[i]; /* most * most at most */
        LT_TRY(check_number("elements in a sample", elements, most));
    }
    return LT_OK;
}

static lt_status take_info(remote_set *s, const uint8_t *body, size_t bytes)
{
    lt_wire_info in;
    lt_dataset *d = &s->base;
    if (bytes < sizeof in)
        return lt_fail(LT_E_FORMAT, "data: a service describes its data in %zu bytes", bytes);
    memcpy(&in, body, sizeof in);
    LT_TRY(check_info(&in));
    d->count = in.count;
    d->classes = in.classes;
    d->channels = in.channels;
    d->tokens = in.tokens;
    d->unsplit = in.unsplit;
    s->fingerprint = in.fingerprint;
    d->shape.ndim = in.ndim;
    memcpy(d->shape.dim, in.dim, sizeof in.dim);
    s->remote.data = in.data;
    return in.names && !s->name ? take_names(s, body + sizeof in, bytes - sizeof in) : LT_OK;
}

/* Asks one of them; the others must say the same. */
static lt_status ask(remote_set *s, int index, double seconds)
{
    const uint8_t *body;
    size_t bytes;
    bool fatal;
    lt_answer answer = {0};
    const uint64_t before = s->remote.data;
    const lt_wire_request request = request_of(&s->remote, LT_WIRE_INFO);
    LT_TRY(call_one(&s->remote.worker[index], &request, seconds, &answer));
    lt_status st = read_answer(&answer, &body, &bytes, &fatal);
    if (!st)
        st = take_info(s, body, bytes);
    lt_answer_free(&answer);
    if (!st && before && s->remote.data != before)
        st = lt_fail(LT_E_ARG, "data: %s has other data than the services before it",
                     s->remote.worker[index].address);
    return st;
}

/* Those that are there; one at least. The others may come later: requests say which data they want. */
static lt_status ask_all(remote_set *s)
{
    const double patience[] = {first_seconds, opening_seconds};
    lt_status st = LT_OK;
    for (int k = 0; k < 2 && !s->remote.data; k++)
        for (int i = 0; i < s->remote.workers; i++) {
            st = ask(s, i, patience[k]);
            if (st && st != LT_E_COMM)
                return st;
        }
    return s->remote.data ? LT_OK : st;
}

static lt_status open_workers(struct lt_remote *r, const char *addresses, const char *secret)
{
    size_t most = 1;
    for (const char *c = addresses; *c; c++)
        most += *c == ',';
    if (most > MOST_WORKERS)
        return lt_fail(LT_E_ARG, "data: %zu services, at most %d are possible", most, MOST_WORKERS);
    r->worker = lt_alloc(most, sizeof *r->worker);
    if (!r->worker)
        return LT_E_NOMEM;
    for (const char *at = addresses; r->workers < (int)most; at += strcspn(at, ",") + 1) {
        worker *w = &r->worker[r->workers];
        const size_t bytes = strcspn(at, ",");
        if (!bytes || bytes >= ADDRESS)
            return lt_fail(LT_E_ARG, "data: '%s' is no list of addresses", addresses);
        snprintf(w->address, ADDRESS, "%.*s", (int)bytes, at);
        const lt_client_config c = {.address = w->address, .secret = secret};
        LT_TRY(lt_client_open(&w->client, &c));
        r->workers++;
    }
    return LT_OK;
}

lt_status lt_remote_secret(char text[LT_TOKEN_BYTES], const char **secret)
{
    const char *own = getenv("LATHER_JOB_TOKEN"), *file = getenv("LATHER_JOB_TOKEN_FILE");
    if (!*secret && own && *own) {
        LT_TRY(lt_token_check(own, "data: LATHER_JOB_TOKEN"));
        *secret = own;
    }
    if (*secret || !file || !*file)
        return LT_OK;
    LT_TRY(lt_token_read(text, file));
    *secret = text;
    return LT_OK;
}

lt_status lt_dataset_service(lt_dataset **out, const char *addresses, const char *secret,
                             bool train)
{
    char text[LT_TOKEN_BYTES];
    lt_dataset *d = NULL;
    LT_TRY(lt_remote_secret(text, &secret));
    LT_TRY(lt_dataset_new(&d, &ops));
    remote_set *s = (remote_set *)d;
    d->remote = &s->remote;
    s->remote.train = train;
    lt_status st = open_workers(&s->remote, addresses, secret);
    if (!st)
        st = ask_all(s);
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}
