/* A client on nng's request socket. A call has a context of its own, so that several are in flight on one
 * connection. nng would send a request again by itself; it is told not to, and whether that is allowed is the
 * client's config. The secret is proved once for each connection, by whichever call finds it new. */

#include "base/alloc.h"
#include "base/clock.h"
#include "service/address.h"
#include "service/peers.h"
#include "service/sockets.h"

#include "lather/service.h"

#include <math.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* One call in flight; kept for the next one. */
typedef struct slot {
    struct slot *next;
    nng_ctx context;
    nng_aio *aio;
} slot;

struct lt_client {
    nng_socket socket;
    char *address, *secret;
    bool repeat;
    size_t max_bytes;
    pthread_mutex_t lock;    /* of free */
    pthread_mutex_t proving; /* held while the secret is proved */
    slot *free;
    atomic_int connection, proved; /* number of the newest connection; of the one that is proved */
    atomic_bool connected;
};

typedef enum outcome { ANSWERED, BROKEN, FAILED } outcome;

static void came(nng_pipe pipe, nng_pipe_ev event, void *context)
{
    (void)pipe;
    lt_client *c = context;
    if (event == NNG_PIPE_EV_ADD_POST)
        atomic_fetch_add(&c->connection, 1);
    atomic_store(&c->connected, event == NNG_PIPE_EV_ADD_POST);
}

static lt_status make_slot(const lt_client *c, slot **out)
{
    slot *s = lt_alloc(1, sizeof *s);
    if (!s)
        return LT_E_NOMEM;
    int code = nng_ctx_open(&s->context, c->socket);
    if (!code)
        code = nng_ctx_set_ms(s->context, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (!code)
        code = nng_aio_alloc(&s->aio, NULL, NULL);
    if (code) {
        lt_free(s);
        return lt_service_fail(code, "a call to", c->address);
    }
    *out = s;
    return LT_OK;
}

static lt_status take_slot(lt_client *c, slot **out)
{
    pthread_mutex_lock(&c->lock);
    slot *s = c->free;
    if (s)
        c->free = s->next;
    pthread_mutex_unlock(&c->lock);
    if (!s)
        return make_slot(c, out);
    *out = s;
    return LT_OK;
}

static void give_slot(lt_client *c, slot *s)
{
    pthread_mutex_lock(&c->lock);
    s->next = c->free;
    c->free = s;
    pthread_mutex_unlock(&c->lock);
}

static nng_duration milliseconds_until(double deadline)
{
    enum { MOST = 1 << 30 };
    const double left = ceil(1e3 * (deadline - lt_clock_seconds()));
    return left < 1 ? 1 : left > MOST ? MOST : (nng_duration)left;
}

/* Waits for the slot's send or receive. Errors: LT_E_COMM; *how says whether the connection broke. */
static lt_status wait_for(const lt_client *c, const slot *s, outcome *how)
{
    nng_aio_wait(s->aio);
    const int code = nng_aio_result(s->aio);
    *how = code == NNG_ECONNRESET ? BROKEN : FAILED;
    if (code == NNG_ETIMEDOUT)
        return lt_fail(LT_E_COMM, "service: %s: no answer in time%s", c->address,
                       atomic_load(&c->connected) ? "" : ", there is no connection");
    if (code == NNG_ECONNRESET)
        return lt_fail(LT_E_COMM, "service: %s: the connection broke during a call", c->address);
    return code ? lt_fail(LT_E_COMM, "service: %s: %s", c->address, nng_strerror(code)) : LT_OK;
}

/* Sends a message, which it owns, and gets the one that answers it. */
static lt_status exchange(const lt_client *c, const slot *s, nng_msg *message, double deadline,
                          nng_msg **back, outcome *how)
{
    *how = FAILED;
    if (!message)
        return LT_E_NOMEM;
    nng_aio_set_timeout(s->aio, milliseconds_until(deadline));
    nng_aio_set_msg(s->aio, message);
    nng_ctx_send(s->context, s->aio);
    const lt_status st = wait_for(c, s, how);
    if (st) {
        nng_msg_free(message);
        return st;
    }
    nng_aio_set_timeout(s->aio, milliseconds_until(deadline));
    nng_ctx_recv(s->context, s->aio);
    LT_TRY(wait_for(c, s, how));
    *back = nng_aio_get_msg(s->aio);
    *how = ANSWERED;
    return LT_OK;
}

/* Whether the text of a frame ends inside it. */
static const char *text_of(const lt_frame *frame)
{
    const char *text = frame->data;
    return frame->bytes && !text[frame->bytes - 1] ? text : "?";
}

/* A step of the handshake: what the service answers must be of that kind and size. */
static lt_status ask(const lt_client *c, const slot *s, nng_msg *message, double deadline,
                     const lt_frame *want, void *out, outcome *how)
{
    nng_msg *back = NULL;
    lt_frame frame;
    LT_TRY(exchange(c, s, message, deadline, &back, how));
    lt_status st = lt_frame_read(&frame, nng_msg_body(back), nng_msg_len(back));
    if (!st && frame.kind == LT_FRAME_REFUSED)
        st = lt_fail(LT_E_COMM, "service: %s: %s", c->address, text_of(&frame));
    else if (!st && (frame.kind != want->kind || frame.bytes != want->bytes))
        st = lt_fail(LT_E_COMM, "service: %s: no handshake of this protocol", c->address);
    else if (!st && out)
        memcpy(out, frame.data, frame.bytes);
    if (st)
        *how = FAILED;
    nng_msg_free(back);
    return st;
}

static lt_status handshake(const lt_client *c, const slot *s, double deadline, outcome *how)
{
    char nonce[LT_TOKEN_NONCE], proof[LT_TOKEN_PROOF];
    lt_peer_challenge challenge;
    const lt_frame asked = {.kind = LT_FRAME_CHALLENGE, .bytes = sizeof challenge};
    const lt_frame done = {.kind = LT_FRAME_RESULT};
    *how = FAILED;
    LT_TRY(lt_token_draw(nonce));
    LT_TRY(ask(c, s, lt_service_message(LT_FRAME_HELLO, LT_OK, nonce, sizeof nonce), deadline,
               &asked, &challenge, how));
    *how = FAILED;
    challenge.nonce[sizeof challenge.nonce - 1] = challenge.proof[sizeof challenge.proof - 1] = 0;
    LT_TRY(lt_token_prove(proof, c->secret, nonce, LT_PEER_SERVICE));
    if (!lt_token_is_nonce(challenge.nonce) || !lt_peers_equal(proof, challenge.proof))
        return lt_fail(LT_E_COMM, "service: %s does not know this client's secret", c->address);
    LT_TRY(lt_token_prove(proof, c->secret, challenge.nonce, LT_PEER_CLIENT));
    return ask(c, s, lt_service_message(LT_FRAME_PROOF, LT_OK, proof, strlen(proof) + 1), deadline,
               &done, NULL, how);
}

/* Proves the secret if the connection is a new one. */
static lt_status prove(lt_client *c, const slot *s, double deadline, outcome *how)
{
    lt_status st = LT_OK;
    if (!c->secret || atomic_load(&c->proved) == atomic_load(&c->connection))
        return LT_OK;
    pthread_mutex_lock(&c->proving);
    if (atomic_load(&c->proved) != atomic_load(&c->connection)) {
        st = handshake(c, s, deadline, how);
        if (!st)
            atomic_store(&c->proved, atomic_load(&c->connection));
    }
    pthread_mutex_unlock(&c->proving);
    return st;
}

/* Into answer, which takes the message over, or the error that it is. */
static lt_status take_answer(lt_client *c, nng_msg *back, lt_answer *out, outcome *how)
{
    lt_frame frame;
    lt_status st = lt_frame_read(&frame, nng_msg_body(back), nng_msg_len(back));
    if (!st && frame.kind == LT_FRAME_RESULT) {
        *out = (lt_answer){frame.data, frame.bytes, back};
        return LT_OK;
    }
    if (!st && frame.kind == LT_FRAME_REFUSED) {
        st = lt_fail(LT_E_COMM, "service: %s: %s", c->address, text_of(&frame));
        if (c->secret) { /* the connection is another than the one that was proved: the call was not done */
            atomic_store(&c->proved, 0);
            *how = BROKEN;
        }
    } else if (!st && frame.kind == LT_FRAME_ERROR) {
        st = lt_fail(frame.status, "%s: %s", c->address, text_of(&frame));
    } else if (!st) {
        st = lt_fail(LT_E_COMM, "service: %s: no answer of this protocol", c->address);
    }
    nng_msg_free(back);
    return st;
}

/* Once. *again: it was not done, or may be done twice. */
static lt_status attempt(lt_client *c, const slot *s, const lt_frame *request, double deadline,
                         lt_answer *out, bool *again)
{
    outcome how = FAILED;
    nng_msg *back = NULL;
    const lt_status st = prove(c, s, deadline, &how);
    *again = how == BROKEN;
    if (st)
        return st;
    const lt_status sent =
        exchange(c, s, lt_service_message(LT_FRAME_CALL, LT_OK, request->data, request->bytes),
                 deadline, &back, &how);
    *again = how == BROKEN && c->repeat;
    if (sent)
        return sent;
    how = FAILED;
    const lt_status taken = take_answer(c, back, out, &how);
    *again = how == BROKEN;
    return taken;
}

lt_status lt_client_call(lt_client *client, const void *request, size_t bytes, double seconds,
                         lt_answer *answer)
{
    const double deadline = lt_clock_seconds() + seconds;
    const lt_frame frame = {.data = request, .bytes = bytes};
    slot *s = NULL;
    bool again = true;
    lt_status st = LT_OK;
    if (bytes > client->max_bytes)
        return lt_fail(LT_E_ARG, "service: %s: a request of %zu bytes, at most %zu",
                       client->address, bytes, client->max_bytes);
    LT_TRY(take_slot(client, &s));
    while (again) {
        st = attempt(client, s, &frame, deadline, answer, &again);
        again = again && st && lt_clock_seconds() < deadline;
    }
    give_slot(client, s);
    return st;
}

void lt_answer_free(lt_answer *answer)
{
    nng_msg_free(answer->owner);
    *answer = (lt_answer){0};
}

static lt_status dial(lt_client *c)
{
    enum { RECONNECT_MIN_MS = 10, RECONNECT_MAX_MS = 250 };
    int code = nng_req0_open(&c->socket);
    if (!code)
        code = nng_pipe_notify(c->socket, NNG_PIPE_EV_ADD_POST, came, c);
    if (!code)
        code = nng_pipe_notify(c->socket, NNG_PIPE_EV_REM_POST, came, c);
    if (!code)
        code = nng_socket_set_size(c->socket, NNG_OPT_RECVMAXSZ, c->max_bytes + LT_FRAME_BYTES);
    if (!code)
        code = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMINT, RECONNECT_MIN_MS);
    if (!code)
        code = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMAXT, RECONNECT_MAX_MS);
    if (!code)
        code = nng_dial(c->socket, c->address, NULL, NNG_FLAG_NONBLOCK);
    return code ? lt_service_fail(code, "connecting to", c->address) : LT_OK;
}

lt_status lt_client_open(lt_client **out, const lt_client_config *config)
{
    lt_address address;
    LT_TRY(lt_address_parse(&address, config->address));
    LT_TRY(lt_service_check_secret(config->secret));
    if (address.kind == LT_ADDRESS_TCP && !address.port)
        return lt_fail(LT_E_ARG, "service: address %s: port 0 is for a service to listen at",
                       config->address);
    lt_client *c = lt_alloc(1, sizeof *c);
    if (!c)
        return LT_E_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->proving, NULL);
    c->repeat = config->repeat;
    c->max_bytes = config->max_bytes ? config->max_bytes : LT_SERVICE_MAX_BYTES;
    atomic_store(&c->proved, -1);
    c->address = lt_strdup(config->address);
    if (config->secret)
        c->secret = lt_strdup(config->secret);
    const lt_status st = !c->address || (config->secret && !c->secret) ? LT_E_NOMEM : dial(c);
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
    if (nng_socket_id(c->socket) > 0)
        nng_close(c->socket);
    while (c->free) {
        slot *s = c->free;
        c->free = s->next;
        nng_aio_free(s->aio);
        lt_free(s);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->proving);
    lt_free(c->address);
    lt_free(c->secret);
    lt_free(c);
}
