/* A data set that data services provide. Requests go to the services round-robin. A service that does not respond is
 * skipped for some seconds and the request, which is idempotent, goes to another one. */

#include "data/remote/remote.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "data/remote/codec.h"

#include "lather/data_service.h"
#include "lather/log.h"
#include "lather/service.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SERVERS = 256, ADDRESS = 256 };
/* A call waits for a connection, and cannot distinguish a dead service from a slow sample. So the first timeout is
 * short, and each further one, at another service, is twice as long. */
static const double first_timeout = 1, longest_timeout = 60;
static const double retry_seconds = 5;     /* time for which an unresponsive service is skipped */
static const double give_up_seconds = 120; /* total time of a request */
static const double opening_timeout = 20;  /* timeout of the second request for the description */

typedef struct server {
    lt_client *client;
    char address[ADDRESS];
    _Atomic int64_t down_until; /* nanoseconds of the monotonic clock; 0: the service responds */
} server;

struct lt_remote {
    server *server;
    int servers;
    _Atomic unsigned next;
    uint64_t data;
    bool train;
};

typedef struct remote_dataset {
    lt_dataset base;
    struct lt_remote remote;
    const char **name; /* [classes] pointers into names; NULL without names */
    char *names;
    uint64_t fingerprint; /* the service's data set */
} remote_dataset;

/* --- Requests --- */

static lt_data_request new_request(const struct lt_remote *r, lt_request_kind kind)
{
    return (lt_data_request){
        .magic = LT_DATA_MAGIC, .kind = kind, .train = r->train, .data = r->data};
}

/* Returns the first service from index `first` on that is not marked as down, or service `first` if all are. */
static server *choose_server(const struct lt_remote *r, unsigned first)
{
    const int64_t now = lt_clock_nanoseconds();
    for (int i = 0; i < r->servers; i++) {
        server *s = &r->server[(first + (unsigned)i) % (unsigned)r->servers];
        if (atomic_load(&s->down_until) <= now)
            return s;
    }
    return &r->server[first % (unsigned)r->servers];
}

static void mark_down(server *s)
{
    const int64_t until = lt_clock_nanoseconds() + (int64_t)(1e9 * retry_seconds);
    if (!atomic_exchange(&s->down_until, until))
        lt_log(LT_LOG_WARN, "data", "%s does not respond: %s", s->address, lt_error_message());
}

static lt_status call_server(server *s, const lt_data_request *request, double seconds,
                             lt_response *response)
{
    lt_status st = lt_client_call(s->client, request, sizeof *request, seconds, response);
    if (st == LT_E_COMM)
        mark_down(s);
    else if (atomic_exchange(&s->down_until, 0))
        lt_log(LT_LOG_INFO, "data", "%s responds again", s->address);
    return st;
}

static lt_status call_with_retries(struct lt_remote *r, const lt_data_request *request,
                                   lt_response *response)
{
    const double begin = lt_clock_seconds();
    const struct timespec pause = {.tv_nsec =
                                       10000000}; /* as refused connections fail immediately */
    unsigned first = atomic_fetch_add(&r->next, 1);
    double seconds = first_timeout;
    for (;;) {
        lt_status st = call_server(choose_server(r, first++), request, seconds, response);
        if (st != LT_E_COMM || lt_clock_seconds() - begin > give_up_seconds)
            return st;
        seconds = seconds < longest_timeout / 2 ? 2 * seconds : longest_timeout;
        nanosleep(&pause, NULL);
    }
}

/* Sets *body and *bytes to the data after the header of a response. Returns the status and the message of a failed
 * sample. */
static lt_status read_response(const lt_response *response, const uint8_t **body, size_t *bytes,
                               bool *fatal)
{
    lt_data_response head;
    *fatal = true;
    *body = NULL;
    *bytes = 0;
    if (response->bytes < sizeof head)
        return lt_fail(LT_E_FORMAT, "data: response of a service has %zu bytes, want at least %zu",
                       response->bytes, sizeof head);
    memcpy(&head, response->data, sizeof head);
    if (head.magic != LT_DATA_MAGIC || head.status < 0 || head.status >= LT_END)
        return lt_fail(LT_E_FORMAT,
                       "data: response of a service has magic %08" PRIx32
                       " and status %d; want %08" PRIx32 " and 0 .. %d",
                       head.magic, (int)head.status, LT_DATA_MAGIC, (int)LT_END - 1);
    *body = (const uint8_t *)response->data + sizeof head;
    *bytes = response->bytes - sizeof head;
    *fatal = head.fatal;
    if (!head.status)
        return LT_OK;
    const int most = 4096;
    return lt_fail((lt_status)head.status, "%.*s", *bytes < (size_t)most ? (int)*bytes : most,
                   (const char *)*body);
}

lt_status lt_remote_make_sample(const lt_dataset *d, const lt_remote_sample *s, int32_t *label,
                                uint8_t *out, bool *fatal)
{
    const uint8_t *body;
    size_t bytes;
    lt_response response = {0};
    lt_data_request request = new_request(d->remote, LT_REQUEST_SAMPLE);
    request.index = s->index;
    request.key = s->key;
    request.epoch_key = s->epoch_key;
    lt_encode_transform(&request, s->transform);
    *fatal = true;
    LT_TRY(call_with_retries(d->remote, &request, &response));
    lt_status st = read_response(&response, &body, &bytes, fatal);
    if (!st && bytes != s->label_bytes + s->bytes) {
        *fatal = true;
        st = lt_fail(LT_E_FORMAT, "data: sample of a service has %zu bytes, want %zu", bytes,
                     s->label_bytes + s->bytes);
    }
    if (!st) {
        memcpy(label, body, s->label_bytes);
        memcpy(out, body + s->label_bytes, s->bytes);
    }
    lt_response_free(&response);
    return st;
}

/* --- The data set --- */

static lt_status copy_record(lt_record *record, const uint8_t *body, size_t bytes)
{
    lt_data_record head;
    if (bytes < sizeof head)
        return lt_fail(LT_E_FORMAT, "data: record of a service has %zu bytes, want at least %zu",
                       bytes, sizeof head);
    memcpy(&head, body, sizeof head);
    bytes -= sizeof head;
    if (head.encoding < 0 || head.encoding > LT_ENCODING_TOKENS)
        return lt_fail(LT_E_FORMAT, "data: record of a service has unknown encoding %d",
                       (int)head.encoding);
    const bool dense = head.encoding == LT_ENCODING_PLANES || head.encoding == LT_ENCODING_PIXELS;
    const int64_t side = 1 << 20;
    if (dense
        && (head.width < 1 || head.height < 1 || head.width > side || head.height > side
            || (head.channels != 1 && head.channels != 3)
            || (uint64_t)head.width * (uint64_t)head.height * (uint64_t)head.channels != bytes))
        return lt_fail(LT_E_FORMAT, "data: record of a service has %zu bytes for %d x %d x %d",
                       bytes, (int)head.width, (int)head.height, (int)head.channels);
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
    lt_response response = {0};
    lt_data_request request = new_request(self->remote, LT_REQUEST_RECORD);
    request.index = index;
    request.epoch_key = record->epoch_key;
    LT_TRY(call_with_retries(self->remote, &request, &response));
    lt_status st = read_response(&response, &body, &bytes, &fatal);
    if (!st)
        st = copy_record(record, body, bytes);
    lt_response_free(&response);
    return st;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const remote_dataset *s = (const remote_dataset *)self;
    return s->name ? s->name[label] : NULL;
}

static void destroy(lt_dataset *self)
{
    remote_dataset *s = (remote_dataset *)self;
    for (int i = 0; i < s->remote.servers; i++)
        lt_client_close(&s->remote.server[i].client);
    lt_free(s->remote.server);
    lt_free(s->name);
    lt_free(s->names);
}

static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    (void)hash;
    return ((const remote_dataset *)self)->fingerprint;
}

static const lt_dataset_ops ops = {.name = "service",
                                   .bytes = sizeof(remote_dataset),
                                   .read = read_sample,
                                   .class_name = class_name,
                                   .fingerprint = fingerprint,
                                   .destroy = destroy};

/* --- Opening --- */

static lt_status copy_names(remote_dataset *s, const uint8_t *text, size_t bytes)
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
            return lt_fail(LT_E_FORMAT, "data: a service sent names of %zu of %zu classes", i,
                           classes);
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

static lt_status check_description(const lt_data_info *in)
{
    const int64_t most_samples = INT64_C(1) << 40, most_classes = 1 << 24;
    /* A response has an id and a label of 4 bytes, or an f32, for each element. */
    const int64_t most = LT_SERVICE_MAX_BYTES / (in->tokens ? 8 : 4);
    int64_t elements = 1;
    if (in->ndim < 0 || in->ndim >= LT_MAX_DIMS || (in->channels != 1 && in->channels != 3)
        || (in->tokens && !in->ndim))
        return lt_fail(LT_E_FORMAT,
                       "data: a service has samples of %d dimensions and %d channels, tokens: %d",
                       (int)in->ndim, (int)in->channels, (int)in->tokens);
    LT_TRY(check_number("samples", in->count, most_samples));
    LT_TRY(check_number("classes", in->classes, most_classes));
    for (int i = 0; i < in->ndim; i++) {
        LT_TRY(check_number("elements in a dimension of a sample", in->dim[i], most));
        elements *= in->dim[i]; /* at most most^2 */
        LT_TRY(check_number("elements in a sample", elements, most));
    }
    return LT_OK;
}

static lt_status copy_description(remote_dataset *s, const uint8_t *body, size_t bytes)
{
    lt_data_info in;
    lt_dataset *d = &s->base;
    if (bytes < sizeof in)
        return lt_fail(LT_E_FORMAT,
                       "data: description of a service has %zu bytes, want at least %zu", bytes,
                       sizeof in);
    memcpy(&in, body, sizeof in);
    LT_TRY(check_description(&in));
    d->count = in.count;
    d->classes = in.classes;
    d->channels = in.channels;
    d->tokens = in.tokens;
    d->unsplit = in.unsplit;
    s->fingerprint = in.fingerprint;
    d->shape.ndim = in.ndim;
    memcpy(d->shape.dim, in.dim, sizeof in.dim);
    s->remote.data = in.data;
    return in.names && !s->name ? copy_names(s, body + sizeof in, bytes - sizeof in) : LT_OK;
}

/* Requests the description from one service; it must equal those of the services before. */
static lt_status request_description_from(remote_dataset *s, int index, double seconds)
{
    const uint8_t *body;
    size_t bytes;
    bool fatal;
    lt_response response = {0};
    const uint64_t before = s->remote.data;
    const lt_data_request request = new_request(&s->remote, LT_REQUEST_INFO);
    LT_TRY(call_server(&s->remote.server[index], &request, seconds, &response));
    lt_status st = read_response(&response, &body, &bytes, &fatal);
    if (!st)
        st = copy_description(s, body, bytes);
    lt_response_free(&response);
    if (!st && before && s->remote.data != before)
        st = lt_fail(LT_E_ARG, "data: %s has other data than the services listed before it",
                     s->remote.server[index].address);
    return st;
}

/* Requests the description from all services; at least one must respond. Others may start later, as every request names
 * its data. */
static lt_status request_description(remote_dataset *s)
{
    const double timeout[] = {first_timeout, opening_timeout};
    lt_status st = LT_OK;
    for (int k = 0; k < 2 && !s->remote.data; k++)
        for (int i = 0; i < s->remote.servers; i++) {
            st = request_description_from(s, i, timeout[k]);
            if (st && st != LT_E_COMM)
                return st;
        }
    return s->remote.data ? LT_OK : st;
}

static lt_status open_servers(struct lt_remote *r, const char *addresses, const char *secret)
{
    size_t most = 1;
    for (const char *c = addresses; *c; c++)
        most += *c == ',';
    if (most > MOST_SERVERS)
        return lt_fail(LT_E_ARG, "data: got %zu services, want at most %d", most, MOST_SERVERS);
    LT_TRY(LT_ALLOC(&r->server, most));
    for (const char *at = addresses; r->servers < (int)most; at += strcspn(at, ",") + 1) {
        server *s = &r->server[r->servers];
        const size_t bytes = strcspn(at, ",");
        if (!bytes || bytes >= ADDRESS)
            return lt_fail(LT_E_ARG, "data: '%s' is not a list of addresses ADDRESS[,ADDRESS]",
                           addresses);
        snprintf(s->address, ADDRESS, "%.*s", (int)bytes, at);
        const lt_client_config c = {.address = s->address, .secret = secret};
        LT_TRY(lt_client_open(&s->client, &c));
        r->servers++;
    }
    return LT_OK;
}

lt_status lt_remote_secret_from_env(char text[LT_TOKEN_BYTES], const char **secret)
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
    LT_TRY(lt_remote_secret_from_env(text, &secret));
    LT_TRY(lt_dataset_new(&d, &ops));
    remote_dataset *s = (remote_dataset *)d;
    d->remote = &s->remote;
    s->remote.train = train;
    lt_status st = open_servers(&s->remote, addresses, secret);
    if (!st)
        st = request_description(s);
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}
