/* A client. A call uses a free connection, or opens one, and runs entirely on its caller's thread; N concurrent calls
 * use N connections, which are kept for reuse.
 *
 * 1. A connection in the free list is authenticated and idle. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "service/challenge_response.h"
#include "service/endpoint.h"
#include "service/stream.h"

#include "lather/service.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

typedef struct connection {
    struct connection *next;
    lt_stream stream;
} connection;

struct lt_client {
    lt_address target; /* parsed address; points into the string `address` */
    char *address, *secret;
    bool repeat;
    size_t max_bytes;
    pthread_mutex_t lock; /* protects free */
    connection *free;
};

/* A running call. */
typedef struct call {
    lt_client *client;
    const lt_frame *request;
    double deadline;
    bool again; /* the call may be retried: it was not executed, or is idempotent */
} call;

static void close_connection(connection *c)
{
    if (!c)
        return;
    lt_endpoint_close(c->stream.fd);
    lt_stream_clear(&c->stream);
    lt_free(c);
}

static lt_status stream_error(const lt_client *c, lt_stream_end end)
{
    if (end == LT_STREAM_LATE)
        return lt_fail(LT_E_COMM, "service: %s: no response within the timeout", c->address);
    if (end == LT_STREAM_BROKEN)
        return lt_fail(LT_E_COMM, "service: %s: the connection broke during a call", c->address);
    if (end == LT_STREAM_NOMEM)
        return LT_E_NOMEM;
    return lt_fail(LT_E_COMM, "%s: %s", c->address, lt_error_message());
}

/* Sends a frame and receives the response. Also receives after a broken send: a service that rejects a large frame
 * responds and closes before it has read all of it. */
static lt_stream_end send_and_receive(connection *c, const lt_frame *out, lt_frame *back,
                                      size_t most, const call *k)
{
    const lt_stream_end sent = lt_stream_send(&c->stream, out, k->deadline);
    if (sent && sent != LT_STREAM_BROKEN)
        return sent;
    return lt_stream_receive(&c->stream, back, most, k->deadline);
}

/* Runs a step of the handshake; the response must have the kind and size of `want`. */
static lt_status do_handshake_step(connection *c, const lt_frame *out, const lt_frame *want,
                                   void *answer, call *k)
{
    lt_frame back;
    const lt_stream_end end = send_and_receive(c, out, &back, LT_STREAM_SMALL, k);
    k->again = end == LT_STREAM_BROKEN;
    if (end)
        return stream_error(k->client, end);
    if (back.kind == LT_FRAME_REFUSED)
        return lt_fail(LT_E_COMM, "service: %s: %s", k->client->address,
                       lt_frame_payload_text(&back, "?"));
    if (back.kind != want->kind || back.bytes != want->bytes)
        return lt_fail(LT_E_COMM, "service: %s: unexpected handshake", k->client->address);
    memcpy(answer, back.data, back.bytes);
    return LT_OK;
}

static lt_status authenticate(connection *c, call *k)
{
    lt_nonces nonces;
    char own[LT_TOKEN_PROOF], other[LT_TOKEN_PROOF];
    const char *secret = k->client->secret;
    LT_TRY(lt_token_draw(nonces.client));
    const lt_frame hello = {
        .kind = LT_FRAME_HELLO, .data = nonces.client, .bytes = sizeof nonces.client};
    LT_TRY(do_handshake_step(
        c, &hello, &(lt_frame){.kind = LT_FRAME_CHALLENGE, .bytes = sizeof nonces.service},
        nonces.service, k));
    if (!lt_token_is_nonce(nonces.service))
        return lt_fail(LT_E_COMM, "service: %s: unexpected handshake", k->client->address);
    lt_proof_make(own, secret, &nonces, LT_PROOF_CLIENT);
    const lt_frame proof = {.kind = LT_FRAME_PROOF, .data = own, .bytes = sizeof own};
    const lt_frame back = {.kind = LT_FRAME_RESULT, .data = other, .bytes = sizeof other};
    LT_TRY(do_handshake_step(c, &proof, &back, other, k));
    if (!lt_proof_is_valid(&back, secret, &nonces, LT_PROOF_SERVICE))
        return lt_fail(LT_E_COMM, "service: %s does not know this client's secret",
                       k->client->address);
    return LT_OK;
}

static lt_status open_connection(connection **out, call *k)
{
    const lt_client *client = k->client;
    connection *c = NULL;
    LT_TRY(LT_ALLOC(&c, 1));
    lt_status st =
        lt_endpoint_connect(&c->stream.fd, &client->target, client->address, k->deadline);
    k->again = st != LT_OK;
    if (!st && client->secret)
        st = authenticate(c, k);
    if (st)
        close_connection(c);
    else
        *out = c;
    return st;
}

/* Returns true unless the service has closed the connection. */
static bool is_alive(const connection *c)
{
    char byte;
    return recv(c->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0
           && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static connection *take_free_connection(lt_client *client)
{
    for (;;) {
        pthread_mutex_lock(&client->lock);
        connection *c = client->free;
        if (c)
            client->free = c->next;
        pthread_mutex_unlock(&client->lock);
        if (!c || is_alive(c))
            return c;
        close_connection(c);
    }
}

static void return_connection(lt_client *client, connection *c)
{
    pthread_mutex_lock(&client->lock);
    c->next = client->free;
    client->free = c;
    pthread_mutex_unlock(&client->lock);
}

/* Moves the payload to the caller. */
static lt_status take_payload(connection *c, const lt_frame *back, lt_response *out)
{
    void *owner = c->stream.large;
    if (!owner) {
        owner = lt_realloc(NULL, 1, back->bytes + !back->bytes);
        if (!owner)
            return LT_E_NOMEM;
        memcpy(owner, back->data, back->bytes);
    }
    c->stream.large = NULL;
    *out = (lt_response){owner, back->bytes, owner};
    return LT_OK;
}

/* Runs a call; sets *done if the connection can be reused. */
static lt_status run_call(connection *c, call *k, lt_response *out, bool *done)
{
    lt_frame back;
    const lt_client *client = k->client;
    const size_t most = client->max_bytes > LT_STREAM_SMALL ? client->max_bytes : LT_STREAM_SMALL;
    const lt_stream_end end = send_and_receive(c, k->request, &back, most, k);
    k->again = end == LT_STREAM_BROKEN && client->repeat;
    if (end)
        return stream_error(client, end);
    *done = back.kind == LT_FRAME_RESULT || back.kind == LT_FRAME_ERROR;
    if (back.kind == LT_FRAME_RESULT && back.bytes > client->max_bytes)
        return lt_fail(LT_E_COMM, "service: %s: response of %zu bytes, at most %zu are allowed",
                       client->address, back.bytes, client->max_bytes);
    if (back.kind == LT_FRAME_RESULT)
        return take_payload(c, &back, out);
    if (back.kind == LT_FRAME_ERROR)
        return lt_fail(back.status, "%s: %s", client->address, lt_frame_payload_text(&back, "?"));
    if (back.kind == LT_FRAME_REFUSED)
        return lt_fail(LT_E_COMM, "service: %s: %s", client->address,
                       lt_frame_payload_text(&back, "?"));
    return lt_fail(LT_E_COMM, "service: %s: unexpected response", client->address);
}

static lt_status attempt_call(call *k, lt_response *out)
{
    bool done = false;
    connection *c = take_free_connection(k->client);
    k->again = false;
    if (!c)
        LT_TRY(open_connection(&c, k));
    const lt_status st = run_call(c, k, out, &done);
    if (done)
        return_connection(k->client, c);
    else
        close_connection(c);
    return st;
}

static void pause_for(double seconds)
{
    const struct timespec t = lt_timespec_from_seconds(seconds);
    (void)nanosleep(&t, NULL);
}

lt_status lt_client_call(lt_client *client, const void *request, size_t bytes, double seconds,
                         lt_response *answer)
{
    static const double first = 0.01, most = 0.25; /* seconds between attempts */
    const lt_frame frame = {.kind = LT_FRAME_CALL, .data = request, .bytes = bytes};
    call k = {.client = client, .request = &frame, .deadline = lt_clock_seconds() + seconds};
    if (bytes > client->max_bytes)
        return lt_fail(LT_E_ARG, "service: %s: request of %zu bytes, at most %zu are allowed",
                       client->address, bytes, client->max_bytes);
    double pause = first;
    for (;;) {
        const lt_status st = attempt_call(&k, answer);
        const double left = k.deadline - lt_clock_seconds();
        if (!st || !k.again || left <= 0)
            return st;
        pause_for(fmin(pause, left));
        pause = fmin(2 * pause, most);
    }
}

void lt_response_free(lt_response *answer)
{
    lt_free(answer->owner);
    *answer = (lt_response){0};
}

lt_status lt_client_open(lt_client **out, const lt_client_config *config)
{
    lt_address address;
    LT_TRY(lt_address_parse(&address, config->address));
    LT_TRY(lt_token_check(config->secret, "service"));
    if (address.kind == LT_ADDRESS_TCP && !address.port)
        return lt_fail(LT_E_ARG, "service: address %s: a client cannot connect to port 0",
                       config->address);
    lt_client *c = NULL;
    LT_TRY(LT_ALLOC(&c, 1));
    pthread_mutex_init(&c->lock, NULL);
    c->repeat = config->repeat;
    c->max_bytes = config->max_bytes ? config->max_bytes : LT_SERVICE_MAX_BYTES;
    c->address = lt_strdup(config->address);
    c->secret = config->secret ? lt_strdup(config->secret) : NULL;
    lt_status st = c->address && (c->secret || !config->secret) ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = lt_address_parse(&c->target, c->address);
    if (st)
        lt_client_close(&c);
    else
        *out = c;
    return st;
}

void lt_client_close(lt_client **client)
{
    lt_client *c = *client;
    if (!c)
        return;
    *client = NULL;
    while (c->free) {
        connection *next = c->free->next;
        close_connection(c->free);
        c->free = next;
    }
    pthread_mutex_destroy(&c->lock);
    lt_free(c->address);
    lt_free(c->secret);
    lt_free(c);
}
