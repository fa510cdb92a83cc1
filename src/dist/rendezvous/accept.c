/* Rank 0's side of the rendezvous. Any process can connect: connections are polled together, each has a few seconds for
 * its hello and is rejected unless it proves the job's token. No connection can end the rendezvous or extend its timeout. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "dist/rendezvous/internal.h"

#include "lather/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { SPARE = 64, RETRY_MS = 50 };
static const double hello_seconds = 5;

/* A connection that has not joined yet. */
typedef struct pending {
    int fd;
    double deadline;
    char challenge[LT_TOKEN_NONCE]; /* sent to it */
    size_t got;                     /* bytes in `received` */
    struct {
        lt_socket_header header;
        lt_hello hello;
    } received;
} pending;
_Static_assert(sizeof((pending *)0)->received == sizeof(lt_socket_header) + sizeof(lt_hello),
               "no padding: received as sent");

typedef struct acceptor {
    lt_rendezvous *r;
    pending *pending; /* the oldest first */
    struct pollfd *poll;
    int count, capacity;
    int refused;
    bool no_descriptor; /* accept() failed for lack of one: the next poll() omits the listener */
    char wrong[LT_SOCKET_TEXT]; /* error of the last rejected rank of this job */
} acceptor;

static void close_pending(acceptor *a, int i)
{
    lt_socket_close(&a->pending[i].fd);
    a->count--;
    memmove(&a->pending[i], &a->pending[i + 1], (size_t)(a->count - i) * sizeof *a->pending);
}

/* Logs the first rejection as a warning, as it may be another job of the same user; later ones for debugging only. */
static void reject_connection(acceptor *a, int i, const char *why)
{
    lt_log(a->refused++ ? LT_LOG_DEBUG : LT_LOG_WARN, "dist",
           "comm: rank 0 rejected a connection: %s", why);
    close_pending(a, i);
}

static void send_challenge(acceptor *a, int fd)
{
    pending p = {.fd = fd, .deadline = lt_clock_seconds() + hello_seconds};
    if (a->count == a->capacity)
        reject_connection(a, 0, "too many pending connections; this is the oldest");
    if (lt_token_draw(p.challenge)
        || lt_socket_send(fd, LT_SOCKET_CHALLENGE, p.challenge, sizeof p.challenge,
                          lt_clock_seconds()))
        lt_socket_close(&p.fd);
    else
        a->pending[a->count++] = p;
}

/* Returns true if a rank of this job may join, else sets a->wrong. */
static bool may_join(acceptor *a, const lt_hello *h, const lt_hello *own)
{
    if (lt_hello_check(h, own))
        snprintf(a->wrong, sizeof a->wrong, "%s", lt_error_message());
    else if (a->r->socket[h->rank] >= 0)
        snprintf(a->wrong, sizeof a->wrong, "comm: two processes claim to be rank %d",
                 (int)h->rank);
    else
        return true;
    return false;
}

/* Answers the hello of a rank of this job and keeps its socket, or rejects it. */
static void admit_rank(acceptor *a, int i)
{
    pending *p = &a->pending[i];
    const lt_hello *h = &p->received.hello;
    lt_hello own = {0};
    const bool made = !lt_hello_make(&own, a->r, h->nonce), joins = may_join(a, h, &own);
    const bool answered =
        made && !lt_socket_send(p->fd, LT_SOCKET_HELLO, &own, sizeof own, lt_clock_seconds());
    if (joins && answered) {
        lt_socket_set_options(p->fd);
        a->r->socket[h->rank] = p->fd;
        p->fd = -1;
        close_pending(a, i);
        return;
    }
    if (answered)
        (void)lt_socket_send(p->fd, LT_SOCKET_ABORT, a->wrong, sizeof a->wrong, lt_clock_seconds());
    reject_connection(a, i, joins ? "cannot send the response" : a->wrong);
}

static void check_proof(acceptor *a, int i)
{
    char text[LT_SOCKET_TEXT] =
        "rejected this process: it belongs to another job or lacks the token";
    pending *p = &a->pending[i];
    if (lt_hello_is_proven(&p->received.hello, a->r, p->challenge)) {
        admit_rank(a, i);
        return;
    }
    (void)lt_socket_send(p->fd, LT_SOCKET_ABORT, text, sizeof text, lt_clock_seconds());
    reject_connection(a, i, "wrong job token");
}

static bool may_be_hello(const pending *p)
{
    const lt_socket_header *h = &p->received.header;
    return p->got < sizeof *h
           || (h->magic == LT_SOCKET_MAGIC && h->kind == LT_SOCKET_HELLO
               && h->bytes == sizeof p->received.hello);
}

static void reject_invalid_hello(acceptor *a, int i)
{
    char text[LT_SOCKET_TEXT] = "runs a different version of Lather", rest[1024];
    const int fd = a->pending[i].fd;
    (void)recv(fd, rest, sizeof rest, MSG_DONTWAIT); /* unread bytes would reset the connection */
    (void)lt_socket_send(fd, LT_SOCKET_ABORT, text, sizeof text, lt_clock_seconds());
    reject_connection(a, i, "invalid hello: another program, or another version of Lather");
}

static void receive_hello(acceptor *a, int i)
{
    pending *p = &a->pending[i];
    const ssize_t n =
        recv(p->fd, (char *)&p->received + p->got, sizeof p->received - p->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    p->got += n > 0 ? (size_t)n : 0;
    if (n <= 0)
        reject_connection(a, i, "closed by the peer");
    else if (!may_be_hello(p))
        reject_invalid_hello(a, i);
    else if (p->got == sizeof p->received)
        check_proof(a, i);
}

/* Accepts a connection; closes the oldest pending one if no file descriptor is left. */
static void accept_one(acceptor *a)
{
    const int fd = lt_os_accept(a->r->listener);
    if (fd >= 0) {
        send_challenge(a, fd);
        return;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return;
    snprintf(a->wrong, sizeof a->wrong, "comm: rank 0 cannot accept: %s", strerror(errno));
    if (a->count)
        reject_connection(a, 0, a->wrong);
    else
        a->no_descriptor = true;
}

static int poll_all(acceptor *a, double deadline)
{
    double until = deadline;
    for (int i = 0; i < a->count; i++) {
        a->poll[i] = (struct pollfd){.fd = a->pending[i].fd, .events = POLLIN};
        until = a->pending[i].deadline < until ? a->pending[i].deadline : until;
    }
    a->poll[a->count] =
        (struct pollfd){.fd = a->no_descriptor ? -1 : a->r->listener, .events = POLLIN};
    const double left = 1e3 * (until - lt_clock_seconds());
    const int ms = left > 0 ? (int)left + 1 : 0;
    return poll(a->poll, (nfds_t)a->count + 1, a->no_descriptor && ms > RETRY_MS ? RETRY_MS : ms);
}

static void serve_connections_once(acceptor *a, double deadline)
{
    const int count = a->count, ready = poll_all(a, deadline);
    const bool has_new = ready > 0 && a->poll[count].revents;
    a->no_descriptor = false;
    /* Backwards: removing a connection moves only later ones, which are served already. */
    for (int i = count - 1; i >= 0; i--)
        if (ready > 0 && a->poll[i].revents)
            receive_hello(a, i);
        else if (a->pending[i].deadline <= lt_clock_seconds())
            reject_connection(a, i, "no hello in time");
    if (has_new)
        accept_one(a);
}

static int list_missing_ranks(const lt_rendezvous *r, char *text, size_t bytes)
{
    int count = 0;
    size_t used = 0;
    text[0] = 0;
    for (int i = 1; i < r->size; i++)
        if (r->socket[i] < 0) {
            count++;
            if (used < bytes)
                used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", i);
        }
    return count;
}

static lt_status serve_until_all_joined(acceptor *a)
{
    lt_rendezvous *r = a->r;
    const double deadline = lt_clock_seconds() + r->timeout;
    char who[LT_SOCKET_TEXT / 2];
    while (list_missing_ranks(r, who, sizeof who)) {
        if (lt_clock_seconds() >= deadline)
            return lt_fail(LT_E_COMM, "comm: after %g s these ranks have not joined: %s%s%s",
                           r->timeout, who, *a->wrong ? "; " : "", a->wrong);
        serve_connections_once(a, deadline);
    }
    return LT_OK;
}

lt_status lt_rendezvous_accept_ranks(lt_rendezvous *r)
{
    const int capacity = r->size + SPARE;
    acceptor a = {.r = r, .capacity = capacity};
    a.pending = lt_alloc((size_t)capacity, sizeof *a.pending);
    a.poll = lt_alloc((size_t)capacity + 1, sizeof *a.poll);
    lt_status st = a.pending && a.poll ? serve_until_all_joined(&a) : LT_E_NOMEM;
    while (a.count)
        close_pending(&a, a.count - 1);
    lt_free(a.pending);
    lt_free(a.poll);
    return st;
}
