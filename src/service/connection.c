/* The service's side of connections. A thread per connection reads calls and answers them, so that nothing is passed
 * between threads; the number of concurrent handlers is limited.
 *
 * 1. With a secret, only authenticated connections reach the handler. Before that a client sends one HELLO and one
 *    PROOF, small frames, before a deadline; if there are too many such connections the oldest is dropped.
 * 2. A call that has not begun when the service closes is not executed: the caller sees the connection close.
 * 3. A descriptor is closed and set to -1 under the lock, so that no thread shuts down a reused descriptor. */

#include "service/connection.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "service/challenge_response.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_UNKNOWN = 256 };

struct lt_response_buffer {
    char *data;
    size_t bytes, max_bytes;
};

/* State of a connection's thread. */
typedef struct state {
    lt_connection *connection;
    lt_connections *all;
    lt_frame_kind next; /* kind of frame that the client may send */
    double deadline;    /* lt_clock_seconds() by which the handshake must end; INFINITY after it */
    char version;       /* client's protocol version; 0: this one */
    lt_nonces nonces;
} state;

void *lt_response_allocate(lt_response_buffer *reply, size_t bytes)
{
    if (bytes > reply->max_bytes) {
        (void)lt_fail(LT_E_ARG, "response of %zu bytes, at most %zu are allowed", bytes,
                      reply->max_bytes);
        return NULL;
    }
    lt_free(reply->data);
    reply->data = lt_realloc(NULL, 1, bytes + !bytes);
    reply->bytes = reply->data ? bytes : 0;
    return reply->data;
}

static bool send_frame(const state *s, lt_frame_kind kind, const void *data, size_t bytes)
{
    const lt_frame frame = {.kind = kind, .data = data, .bytes = bytes, .version = s->version};
    return !lt_stream_send(&s->connection->stream, &frame, s->deadline);
}

/* Rejects a connection with a reason; returns false. */
static bool reject_connection(const state *s, const char *why)
{
    (void)send_frame(s, LT_FRAME_REFUSED, why, strlen(why) + 1);
    return false;
}

/* Marks the connection as authenticated: calls may follow. */
static void mark_authenticated(state *s)
{
    s->next = LT_FRAME_CALL;
    s->deadline = (double)INFINITY;
    pthread_mutex_lock(&s->all->lock);
    s->connection->known = true;
    pthread_mutex_unlock(&s->all->lock);
}

static bool answer_hello(state *s, const lt_frame *frame)
{
    snprintf(s->nonces.client, sizeof s->nonces.client, "%s", lt_frame_payload_text(frame, ""));
    if (!lt_token_is_nonce(s->nonces.client))
        return reject_connection(s, "service: HELLO without a nonce");
    if (lt_token_draw(s->nonces.service))
        return reject_connection(s, lt_error_message());
    s->next = LT_FRAME_PROOF;
    return send_frame(s, LT_FRAME_CHALLENGE, s->nonces.service, sizeof s->nonces.service);
}

static bool check_proof_and_admit(state *s, const lt_frame *frame)
{
    char proof[LT_TOKEN_PROOF];
    if (!lt_proof_is_valid(frame, s->all->secret, &s->nonces, LT_PROOF_CLIENT))
        return reject_connection(s, "the secrets of client and service differ");
    lt_proof_make(proof, s->all->secret, &s->nonces, LT_PROOF_SERVICE);
    mark_authenticated(s);
    return send_frame(s, LT_FRAME_RESULT, proof, sizeof proof);
}

/* Waits until a handler may run. Returns false if the service closes. */
static bool acquire_handler_slot(lt_connections *all)
{
    pthread_mutex_lock(&all->lock);
    while (all->handling >= all->threads && !all->closing)
        pthread_cond_wait(&all->changed, &all->lock);
    const bool is_open = !all->closing; /* invariant 2 */
    all->handling += is_open;
    pthread_mutex_unlock(&all->lock);
    return is_open;
}

static void release_handler_slot(lt_connections *all)
{
    pthread_mutex_lock(&all->lock);
    const bool was_full = all->handling-- == all->threads;
    if (was_full || all->closing)
        pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static bool handle_call(const state *s, const lt_frame *frame)
{
    lt_connections *all = s->all;
    lt_response_buffer reply = {.max_bytes = all->max_bytes};
    if (!acquire_handler_slot(all))
        return false;
    const lt_status st = all->handler(all->context, frame->data, frame->bytes, &reply);
    release_handler_slot(all);
    lt_frame back = {.kind = LT_FRAME_RESULT, .data = reply.data, .bytes = reply.bytes};
    if (st)
        back = (lt_frame){.kind = LT_FRAME_ERROR,
                          .status = st,
                          .data = lt_error_message(),
                          .bytes = strlen(lt_error_message()) + 1};
    const bool sent = !lt_stream_send(&s->connection->stream, &back, (double)INFINITY);
    lt_free(reply.data);
    return sent;
}

/* Rejects a frame that the client may not send now. */
static bool reject_frame_kind(const state *s, lt_frame_kind kind)
{
    if (s->next != LT_FRAME_CALL && kind == LT_FRAME_CALL)
        return reject_connection(s, "the service requires a secret"); /* invariant 1 */
    if (!s->all->secret && kind == LT_FRAME_HELLO)
        return reject_connection(s, "the service has no secret");
    return reject_connection(s, "unexpected message");
}

/* Receives a frame and responds. Returns false if the connection ends. */
static bool serve_frame(state *s)
{
    lt_frame frame;
    const bool calls = s->next == LT_FRAME_CALL;
    const lt_stream_end got = lt_stream_receive(
        &s->connection->stream, &frame, calls ? s->all->max_bytes : LT_TOKEN_PROOF, s->deadline);
    if (got == LT_STREAM_OTHER)
        s->version = frame.version; /* so that the client can read the reason */
    if (got == LT_STREAM_FORGED && !calls)
        return reject_frame_kind(s, LT_FRAME_CALL);
    if (got == LT_STREAM_FORGED || got == LT_STREAM_NOMEM || got == LT_STREAM_OTHER)
        return reject_connection(s, lt_error_message());
    if (got)
        return false;
    if (frame.kind != s->next)
        return reject_frame_kind(s, frame.kind);
    if (frame.kind == LT_FRAME_HELLO)
        return answer_hello(s, &frame);
    if (frame.kind == LT_FRAME_PROOF)
        return check_proof_and_admit(s, &frame);
    if (!s->connection->known)
        mark_authenticated(s);
    return handle_call(s, &frame);
}

static void *run_connection_thread(void *context)
{
    lt_connection *c = context;
    state s = {
        .connection = c, .all = c->owner, .next = LT_FRAME_CALL, .deadline = (double)INFINITY};
    if (s.all->secret) {
        s.next = LT_FRAME_HELLO;
        s.deadline = lt_clock_seconds() + s.all->handshake_seconds;
    }
    while (serve_frame(&s)) {
    }
    lt_stream_clear(&c->stream);
    pthread_mutex_lock(&s.all->lock);
    (void)close(c->stream.fd);
    c->stream.fd = -1; /* invariant 3 */
    s.all->open--;
    pthread_cond_broadcast(&s.all->changed);
    pthread_mutex_unlock(&s.all->lock);
    return NULL;
}

void lt_connections_init(lt_connections *all)
{
    all->handshake_seconds = 30;
    pthread_mutex_init(&all->lock, NULL);
    lt_cond_init(&all->changed);
}

/* Joins finished threads and frees their connections. */
static void join_finished_threads(lt_connections *all)
{
    lt_connection *over = NULL;
    pthread_mutex_lock(&all->lock);
    for (lt_connection **c = &all->first; *c;) {
        lt_connection *this = *c;
        if (this->stream.fd >= 0) {
            c = &this->next;
            continue;
        }
        *c = this->next;
        this->next = over;
        over = this;
    }
    pthread_mutex_unlock(&all->lock);
    while (over) {
        lt_connection *next = over->next;
        pthread_join(over->thread, NULL);
        lt_free(over);
        over = next;
    }
}

void lt_connections_drop_oldest(lt_connections *all, int most)
{
    lt_connection *oldest = NULL;
    int count = 0;
    pthread_mutex_lock(&all->lock);
    for (lt_connection *c = all->first; c; c = c->next) /* the newest first */
        if (c->stream.fd >= 0 && !c->known && !c->dropped) {
            oldest = c;
            count++;
        }
    if (oldest && count > most) {
        oldest->dropped = true;
        (void)shutdown(oldest->stream.fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&all->lock);
}

void lt_connections_add(lt_connections *all, int fd)
{
    lt_connection *c = lt_alloc(1, sizeof *c);
    join_finished_threads(all);
    if (all->secret)
        lt_connections_drop_oldest(all, MOST_UNKNOWN - 1);
    if (!c) {
        (void)close(fd);
        return;
    }
    c->owner = all;
    c->stream.fd = fd;
    pthread_mutex_lock(&all->lock);
    if (pthread_create(&c->thread, NULL, run_connection_thread, c) == 0) {
        c->next = all->first;
        all->first = c;
        all->open++;
        c = NULL;
    }
    pthread_mutex_unlock(&all->lock);
    if (c) { /* no thread: the client sees the connection close */
        (void)close(fd);
        lt_free(c);
        lt_connections_drop_oldest(all, 0);
    }
}

/* Shuts down all connections. Call with the lock held. */
static void shut_down(lt_connections *all, int how)
{
    for (lt_connection *c = all->first; c; c = c->next)
        if (c->stream.fd >= 0)
            (void)shutdown(c->stream.fd, how);
}

void lt_connections_close(lt_connections *all)
{
    int late = 0;
    pthread_mutex_lock(&all->lock);
    all->closing = true;
    shut_down(all, SHUT_RD);
    pthread_cond_broadcast(&all->changed);
    while (all->handling)
        pthread_cond_wait(&all->changed, &all->lock);
    const double grace = lt_clock_seconds() + 1;
    while (all->open && !late)
        late = lt_cond_wait_until(&all->changed, &all->lock, grace);
    shut_down(all, SHUT_RDWR);
    while (all->open)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
    join_finished_threads(all);
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->changed);
}
