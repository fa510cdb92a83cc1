/* A service on nng's reply socket: each thread has a context of its own, so that calls are answered at once and
 * each answer goes back where its call came from.
 *
 * 1. A thread takes calls until its aio is stopped; a handler that runs then is waited for, and answers.
 * 2. With a secret only a connection that has proved it (peers.h) reaches the handler. */

#include "lather/service.h"

#include "base/alloc.h"
#include "service/address.h"
#include "service/peers.h"
#include "service/sockets.h"

#include <nng/protocol/reqrep0/rep.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, MOST_THREADS = 1024 };

typedef struct worker {
    lt_service *service;
    pthread_t thread;
    bool started;
    nng_ctx context;
    nng_aio *receive, *send;
} worker;

struct lt_service {
    nng_socket socket;
    nng_listener listener;
    lt_service_handler handler;
    void *context;
    size_t max_bytes;
    char *address, *secret;
    lt_peers peers;
    worker *worker;
    int threads;
};

struct lt_reply {
    nng_msg *message;
    size_t max_bytes;
};

void *lt_reply_data(lt_reply *reply, size_t bytes)
{
    if (bytes > reply->max_bytes) {
        (void)lt_fail(LT_E_ARG, "an answer of %zu bytes, at most %zu", bytes, reply->max_bytes);
        return NULL;
    }
    nng_msg_free(reply->message);
    reply->message = lt_service_message(LT_FRAME_RESULT, LT_OK, NULL, bytes);
    return reply->message ? lt_service_payload(reply->message) : NULL;
}

static nng_msg *text_message(lt_frame_kind kind, lt_status status, const char *text)
{
    return lt_service_message(kind, status, text, strlen(text) + 1);
}

static nng_msg *error_message(lt_status status)
{
    return text_message(LT_FRAME_ERROR, status, lt_error_message());
}

static nng_msg *handle(const lt_service *s, const lt_frame *frame)
{
    lt_reply reply = {NULL, s->max_bytes};
    const lt_status st = s->handler(s->context, frame->data, frame->bytes, &reply);
    if (st) {
        nng_msg_free(reply.message);
        return error_message(st);
    }
    return reply.message ? reply.message : lt_service_message(LT_FRAME_RESULT, LT_OK, NULL, 0);
}

/* A text of a frame: with its NUL inside it, or "". */
static const char *text_of(const lt_frame *frame)
{
    const char *text = frame->data;
    return frame->bytes && !text[frame->bytes - 1] ? text : "";
}

static nng_msg *greet(lt_service *s, uint32_t id, const lt_frame *frame)
{
    lt_peer_challenge challenge;
    if (!s->secret)
        return text_message(LT_FRAME_REFUSED, LT_OK, "the service has no secret");
    if (lt_peers_challenge(&s->peers, id, text_of(frame), &challenge))
        return text_message(LT_FRAME_REFUSED, LT_OK, lt_error_message());
    return lt_service_message(LT_FRAME_CHALLENGE, LT_OK, &challenge, sizeof challenge);
}

static nng_msg *admit(lt_service *s, uint32_t id, const lt_frame *frame)
{
    if (!s->secret || lt_peers_prove(&s->peers, id, text_of(frame)))
        return text_message(LT_FRAME_REFUSED, LT_OK, "the service has another secret");
    return lt_service_message(LT_FRAME_RESULT, LT_OK, NULL, 0);
}

static nng_msg *answer(lt_service *s, nng_msg *message)
{
    lt_frame frame;
    const uint32_t id = (uint32_t)nng_pipe_id(nng_msg_get_pipe(message));
    if (lt_frame_read(&frame, nng_msg_body(message), nng_msg_len(message)))
        return text_message(LT_FRAME_REFUSED, LT_OK, lt_error_message());
    if (frame.kind == LT_FRAME_HELLO)
        return greet(s, id, &frame);
    if (frame.kind == LT_FRAME_PROOF)
        return admit(s, id, &frame);
    if (frame.kind != LT_FRAME_CALL)
        return text_message(LT_FRAME_REFUSED, LT_OK, "this is no call");
    if (s->secret && !lt_peers_proved(&s->peers, id)) /* invariant 2 */
        return text_message(LT_FRAME_REFUSED, LT_OK, "the service wants a secret");
    return handle(s, &frame);
}

static void send_answer(const worker *w, nng_msg *message)
{
    if (!message)
        return;
    nng_aio_set_msg(w->send, message);
    nng_ctx_send(w->context, w->send);
    nng_aio_wait(w->send);
    if (nng_aio_result(w->send)) /* the caller is gone */
        nng_msg_free(message);
}

static void *work(void *context)
{
    worker *w = context;
    for (;;) {
        nng_ctx_recv(w->context, w->receive);
        nng_aio_wait(w->receive);
        const int code = nng_aio_result(w->receive);
        if (code == NNG_ECANCELED || code == NNG_ECLOSED) /* invariant 1 */
            return NULL;
        if (code)
            continue;
        nng_msg *message = nng_aio_get_msg(w->receive);
        send_answer(w, answer(w->service, message));
        nng_msg_free(message);
    }
}

static void gone(nng_pipe pipe, nng_pipe_ev event, void *context)
{
    (void)event;
    lt_service *s = context;
    lt_peers_remove(&s->peers, (uint32_t)nng_pipe_id(pipe));
}

static lt_status start(lt_service *s)
{
    for (int i = 0; i < s->threads; i++) {
        worker *w = &s->worker[i];
        w->service = s;
        if (nng_aio_alloc(&w->receive, NULL, NULL) || nng_aio_alloc(&w->send, NULL, NULL)
            || nng_ctx_open(&w->context, s->socket)
            || pthread_create(&w->thread, NULL, work, w) != 0)
            return lt_fail(LT_E_NOMEM, "service: %s: no thread number %d", s->address, i);
        w->started = true;
    }
    return LT_OK;
}

/* The address for clients: the port that it got, and this machine's name for 0.0.0.0. */
static lt_status publish(lt_service *s, const lt_address *address)
{
    char host[LT_ADDRESS_HOST];
    int port = 0;
    if (address->kind != LT_ADDRESS_TCP)
        return LT_OK;
    const int code = nng_listener_get_int(s->listener, NNG_OPT_TCP_BOUND_PORT, &port);
    if (code)
        return lt_service_fail(code, "the port of", s->address);
    snprintf(host, sizeof host, "%s", address->host);
    if (address->is_any && gethostname(host, sizeof host - 1))
        return lt_fail(LT_E_IO, "service: %s: this machine has no name", s->address);
    const bool brackets = strchr(host, ':') != NULL;
    char *text = lt_format("tcp://%s%s%s:%d", brackets ? "[" : "", host, brackets ? "]" : "", port);
    if (!text)
        return LT_E_NOMEM;
    lt_free(s->address);
    s->address = text;
    return LT_OK;
}

static lt_status listen_at(lt_service *s, const lt_address *address)
{
    enum { OURS_ALONE = 0600 };
    int code = nng_rep0_open(&s->socket);
    if (!code)
        code = nng_pipe_notify(s->socket, NNG_PIPE_EV_REM_POST, gone, s);
    if (!code)
        code = nng_socket_set_size(s->socket, NNG_OPT_RECVMAXSZ, s->max_bytes + LT_FRAME_BYTES);
    if (!code)
        code = nng_listener_create(&s->listener, s->socket, s->address);
    if (!code && address->kind == LT_ADDRESS_IPC)
        code = nng_listener_set_int(s->listener, NNG_OPT_IPC_PERMISSIONS, OURS_ALONE);
    if (!code)
        code = nng_listener_start(s->listener, 0);
    return code ? lt_service_fail(code, "listening at", s->address) : LT_OK;
}

static lt_status fill(lt_service *s, const lt_service_config *config, const lt_address *address)
{
    s->handler = config->handler;
    s->context = config->context;
    s->max_bytes = config->max_bytes ? config->max_bytes : LT_SERVICE_MAX_BYTES;
    s->threads = config->threads ? config->threads : THREADS;
    pthread_mutex_init(&s->peers.lock, NULL);
    s->address = lt_strdup(config->address);
    s->worker = lt_alloc((size_t)s->threads, sizeof *s->worker);
    if (config->secret)
        s->secret = lt_strdup(config->secret);
    if (!s->address || !s->worker || (config->secret && !s->secret))
        return LT_E_NOMEM;
    s->peers.secret = s->secret;
    LT_TRY(listen_at(s, address));
    LT_TRY(publish(s, address));
    return start(s);
}

lt_status lt_service_open(lt_service **out, const lt_service_config *config)
{
    lt_address address;
    LT_TRY(lt_address_parse(&address, config->address));
    LT_TRY(lt_service_check_secret(config->secret));
    if (!address.is_loopback && !config->secret)
        return lt_fail(LT_E_ARG, "service: %s is reached from other machines: a secret is required",
                       config->address);
    if (config->threads < 0 || config->threads > MOST_THREADS)
        return lt_fail(LT_E_ARG, "service: %d threads, want 0 to %d", config->threads,
                       MOST_THREADS);
    lt_service *s = lt_alloc(1, sizeof *s);
    if (!s)
        return LT_E_NOMEM;
    const lt_status st = fill(s, config, &address);
    if (st)
        lt_service_close(&s);
    else
        *out = s;
    return st;
}

const char *lt_service_address(const lt_service *service)
{
    return service->address;
}

static void stop(lt_service *s)
{
    for (int i = 0; i < s->threads; i++)
        nng_aio_stop(s->worker[i].receive); /* of NULL nothing */
    for (int i = 0; i < s->threads; i++)
        if (s->worker[i].started)
            pthread_join(s->worker[i].thread, NULL);
    if (nng_socket_id(s->socket) > 0)
        nng_close(s->socket); /* with its contexts */
    for (int i = 0; i < s->threads; i++) {
        nng_aio_free(s->worker[i].receive);
        nng_aio_free(s->worker[i].send);
    }
}

void lt_service_close(lt_service **service)
{
    lt_service *s = *service;
    if (!s)
        return;
    *service = NULL;
    if (s->worker)
        stop(s);
    lt_peers_clear(&s->peers);
    pthread_mutex_destroy(&s->peers.lock);
    lt_free(s->worker);
    lt_free(s->address);
    lt_free(s->secret);
    lt_free(s);
}
