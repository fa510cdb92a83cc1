/* The service's end of connections. A thread reads a call, answers it and reads the next, so that nothing is handed
 * from thread to thread; how many handlers run at once is counted.
 *
 * 1. With a secret only a connection that has proved it reaches the handler, and until then sends small frames,
 *    in a limited time.
 * 2. A call that was not begun when the service closes is not begun: the caller sees the connection end.
 * 3. Whoever closes the descriptor holds the lock and writes -1, so that no thread shuts down another's. */

#include "service/connection.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "service/proof.h"

#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct lt_reply {
    char *data;
    size_t bytes, max_bytes;
};

/* What a thread knows of its connection. */
typedef struct state {
    lt_connection *connection;
    lt_connections *all;
    char nonce[LT_TOKEN_NONCE]; /* what the client is to prove; "": nothing asked */
    bool proved;
} state;

void *lt_reply_data(lt_reply *reply, size_t bytes)
{
    if (bytes > reply->max_bytes) {
        (void)lt_fail(LT_E_ARG, "an answer of %zu bytes, at most %zu", bytes, reply->max_bytes);
        return NULL;
    }
    lt_free(reply->data);
    reply->data = lt_realloc(NULL, 1, bytes + !bytes);
    reply->bytes = reply->data ? bytes : 0;
    return reply->data;
}

static bool send_frame(const state *s, lt_frame_kind kind, const void *data, size_t bytes)
{
    const lt_frame frame = {kind, LT_OK, data, bytes};
    return !lt_stream_send(&s->connection->stream, &frame, (double)INFINITY);
}

/* The last word of a connection. */
static bool refuse(const state *s, const char *why)
{
    (void)send_frame(s, LT_FRAME_REFUSED, why, strlen(why) + 1);
    return false;
}

static bool greet(state *s, const lt_frame *frame)
{
    lt_challenge challenge;
    if (!s->all->secret)
        return refuse(s, "the service has no secret");
    if (lt_challenge_make(&challenge, s->all->secret, lt_frame_text(frame, "")))
        return refuse(s, lt_error_message());
    memcpy(s->nonce, challenge.nonce, sizeof s->nonce);
    return send_frame(s, LT_FRAME_CHALLENGE, &challenge, sizeof challenge);
}

static bool admit(state *s, const lt_frame *frame)
{
    if (!s->all->secret
        || lt_proof_check(lt_frame_text(frame, ""), s->all->secret, s->nonce, LT_PROOF_CLIENT))
        return refuse(s, "the service has another secret");
    s->nonce[0] = 0; /* a nonce is for one answer */
    s->proved = true;
    return send_frame(s, LT_FRAME_RESULT, NULL, 0);
}

/* Waits for a turn; false: the service closes. */
static bool begin(lt_connections *all)
{
    pthread_mutex_lock(&all->lock);
    while (all->handling >= all->threads && !all->closing)
        pthread_cond_wait(&all->changed, &all->lock);
    const bool is_open = !all->closing; /* invariant 2 */
    all->handling += is_open;
    pthread_mutex_unlock(&all->lock);
    return is_open;
}

static void end(lt_connections *all)
{
    pthread_mutex_lock(&all->lock);
    const bool was_full = all->handling-- == all->threads;
    if (was_full || all->closing)
        pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static bool handle(const state *s, const lt_frame *frame)
{
    lt_connections *all = s->all;
    lt_reply reply = {.max_bytes = all->max_bytes};
    if (!begin(all))
        return false;
    const lt_status st = all->handler(all->context, frame->data, frame->bytes, &reply);
    end(all);
    lt_frame back = {LT_FRAME_RESULT, LT_OK, reply.data, reply.bytes};
    if (st)
        back = (lt_frame){LT_FRAME_ERROR, st, lt_error_message(), strlen(lt_error_message()) + 1};
    const bool sent = !lt_stream_send(&s->connection->stream, &back, (double)INFINITY);
    lt_free(reply.data);
    return sent;
}

/* A frame and its answer; false: the connection ends. */
static bool serve(state *s)
{
    enum { PATIENCE = 30 };
    lt_frame frame;
    const bool known = s->proved || !s->all->secret;
    const lt_stream_end got = lt_stream_receive(
        &s->connection->stream, &frame, known ? s->all->max_bytes : sizeof(lt_challenge),
        known ? (double)INFINITY : lt_clock_seconds() + PATIENCE);
    if (!known && (got == LT_STREAM_FORGED || (!got && frame.kind == LT_FRAME_CALL)))
        return refuse(s, "the service wants a secret"); /* invariant 1 */
    if (got == LT_STREAM_FORGED || got == LT_STREAM_NOMEM)
        return refuse(s, lt_error_message());
    if (got)
        return false;
    if (frame.kind == LT_FRAME_CALL)
        return handle(s, &frame);
    if (frame.kind == LT_FRAME_HELLO)
        return greet(s, &frame);
    return frame.kind == LT_FRAME_PROOF ? admit(s, &frame) : refuse(s, "this is no call");
}

static void *run(void *context)
{
    lt_connection *c = context;
    state s = {.connection = c, .all = c->owner};
    while (serve(&s)) {
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
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Joins threads at their end and frees their connections. */
static void reap(lt_connections *all)
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

void lt_connections_add(lt_connections *all, int fd)
{
    lt_connection *c = lt_alloc(1, sizeof *c);
    reap(all);
    if (!c) {
        (void)close(fd);
        return;
    }
    c->owner = all;
    c->stream.fd = fd;
    pthread_mutex_lock(&all->lock);
    if (pthread_create(&c->thread, NULL, run, c) == 0) {
        c->next = all->first;
        all->first = c;
        all->open++;
        c = NULL;
    }
    pthread_mutex_unlock(&all->lock);
    if (c) { /* no thread: the client sees that the connection ends */
        (void)close(fd);
        lt_free(c);
    }
}

/* Under the lock. */
static void shut_down(lt_connections *all, int how)
{
    for (lt_connection *c = all->first; c; c = c->next)
        if (c->stream.fd >= 0)
            (void)shutdown(c->stream.fd, how);
}

void lt_connections_close(lt_connections *all)
{
    struct timespec grace;
    int late = 0;
    pthread_mutex_lock(&all->lock);
    all->closing = true;
    shut_down(all, SHUT_RD);
    pthread_cond_broadcast(&all->changed);
    while (all->handling)
        pthread_cond_wait(&all->changed, &all->lock);
    clock_gettime(CLOCK_MONOTONIC, &grace);
    grace.tv_sec++;
    while (all->open && !late)
        late = pthread_cond_timedwait(&all->changed, &all->lock, &grace);
    shut_down(all, SHUT_RDWR);
    while (all->open)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
    reap(all);
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->changed);
}
