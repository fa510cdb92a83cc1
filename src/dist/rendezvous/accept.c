/* How rank 0 meets the others. Anybody can connect to it: connections are polled together, each has a
 * few seconds for its hello, and one that does not prove the job's token is refused. Nothing that comes
 * from a connection ends the rendezvous, or makes it longer than the patience. */

#include "base/alloc.h"
#include "base/clock.h"
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
    double end;
    char asked[LT_TOKEN_NONCE]; /* the challenge that it was sent */
    size_t got;                 /* bytes of: */
    struct {
        lt_wire_head head;
        lt_hello hello;
    } said;
} pending;
_Static_assert(sizeof((pending *)0)->said == sizeof(lt_wire_head) + sizeof(lt_hello),
               "as it is sent");

typedef struct rendezvous {
    lt_star *star;
    pending *pending; /* the oldest first */
    struct pollfd *poll;
    int count, room;
    int refused;
    bool no_descriptor;        /* left for accept(): the next poll() is without the listener */
    char wrong[LT_WIRE_WORDS]; /* what the last rank of this job had wrong */
} rendezvous;

static void close_pending(rendezvous *v, int i)
{
    lt_star_hang_up(&v->pending[i].fd);
    v->count--;
    memmove(&v->pending[i], &v->pending[i + 1], (size_t)(v->count - i) * sizeof *v->pending);
}

/* The first refusal is a warning, since it may be the user's own second job; the others are not. */
static void refuse(rendezvous *v, int i, const char *why)
{
    lt_log(v->refused++ ? LT_LOG_DEBUG : LT_LOG_WARN, "dist",
           "comm: rank 0 refused a connection: %s", why);
    close_pending(v, i);
}

static void challenge(rendezvous *v, int fd)
{
    const char *why;
    pending g = {.fd = fd, .end = lt_clock_seconds() + hello_seconds};
    if (v->count == v->room)
        refuse(v, 0, "too many wait, and this one for longest");
    if (lt_token_draw(g.asked)
        || !lt_wire_put(fd, LT_WIRE_ASK, g.asked, sizeof g.asked, lt_clock_seconds(), &why))
        lt_star_hang_up(&g.fd);
    else
        v->pending[v->count++] = g;
}

/* What is wrong with a rank of this job, in v->wrong, or false. */
static bool is_wrong(rendezvous *v, const lt_hello *h, const lt_hello *mine)
{
    if (lt_hello_is_wrong(h, mine, v->wrong))
        return true;
    if (v->star->link[h->rank] < 0)
        return false;
    snprintf(v->wrong, sizeof v->wrong, "comm: two processes say that they are rank %d",
             (int)h->rank);
    return true;
}

/* A rank of this job is answered, and joins if nothing is wrong with it. */
static void admit(rendezvous *v, int i)
{
    lt_star *s = v->star;
    pending *g = &v->pending[i];
    const lt_hello *h = &g->said.hello;
    const char *why;
    lt_hello mine = {0};
    const lt_status st = lt_hello_make(&mine, s, h->nonce);
    const bool wrong = is_wrong(v, h, &mine);
    const bool told =
        !st && lt_wire_put(g->fd, LT_WIRE_HELLO, &mine, sizeof mine, lt_clock_seconds(), &why);
    if (!wrong && told) {
        lt_wire_set_options(g->fd);
        s->link[h->rank] = g->fd;
        g->fd = -1;
        close_pending(v, i);
        return;
    }
    if (told)
        lt_wire_put(g->fd, LT_WIRE_END, v->wrong, sizeof v->wrong, lt_clock_seconds(), &why);
    refuse(v, i, wrong ? v->wrong : "the answer could not be sent");
}

static void check_proof(rendezvous *v, int i)
{
    char words[LT_WIRE_WORDS] = "does not know this process: another job's, or without its token";
    const char *why;
    pending *g = &v->pending[i];
    if (lt_hello_is_proven(&g->said.hello, v->star, g->asked)) {
        admit(v, i);
        return;
    }
    lt_wire_put(g->fd, LT_WIRE_END, words, sizeof words, lt_clock_seconds(), &why);
    refuse(v, i, "it does not know this job's token");
}

static bool is_hello(const pending *g)
{
    const lt_wire_head *h = &g->said.head;
    return g->got < sizeof *h
           || (h->magic == LT_WIRE_MAGIC && h->kind == LT_WIRE_HELLO
               && h->bytes == sizeof g->said.hello);
}

static void receive(rendezvous *v, int i)
{
    pending *g = &v->pending[i];
    const ssize_t n = recv(g->fd, (char *)&g->said + g->got, sizeof g->said - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0)
        refuse(v, i, "it was closed");
    else if (!is_hello(g))
        refuse(v, i, "it sent no hello");
    else if (g->got == sizeof g->said)
        check_proof(v, i);
}

/* Without a descriptor for one more, the oldest pending connection is closed. */
static void accept_one(rendezvous *v)
{
    const int fd = accept4(v->star->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        challenge(v, fd);
        return;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return;
    snprintf(v->wrong, sizeof v->wrong, "comm: rank 0 cannot accept: %s", strerror(errno));
    if (v->count)
        refuse(v, 0, v->wrong);
    else
        v->no_descriptor = true;
}

static int poll_all(rendezvous *v, double end)
{
    double until = end;
    for (int i = 0; i < v->count; i++) {
        v->poll[i] = (struct pollfd){.fd = v->pending[i].fd, .events = POLLIN};
        until = v->pending[i].end < until ? v->pending[i].end : until;
    }
    v->poll[v->count] =
        (struct pollfd){.fd = v->no_descriptor ? -1 : v->star->listener, .events = POLLIN};
    const double left = 1e3 * (until - lt_clock_seconds());
    const int ms = left > 0 ? (int)left + 1 : 0;
    return poll(v->poll, (nfds_t)v->count + 1, v->no_descriptor && ms > RETRY_MS ? RETRY_MS : ms);
}

static void serve_once(rendezvous *v, double end)
{
    const int count = v->count, ready = poll_all(v, end);
    const bool has_new = ready > 0 && v->poll[count].revents;
    v->no_descriptor = false;
    /* Backwards: what is removed moves only those behind it, which were served. */
    for (int i = count - 1; i >= 0; i--)
        if (ready > 0 && v->poll[i].revents)
            receive(v, i);
        else if (v->pending[i].end <= lt_clock_seconds())
            refuse(v, i, "it sent nothing in time");
    if (has_new)
        accept_one(v);
}

static int missing(const lt_star *s, char *text, size_t bytes)
{
    int count = 0;
    size_t used = 0;
    text[0] = 0;
    for (int r = 1; r < s->size; r++)
        if (s->link[r] < 0) {
            count++;
            if (used < bytes)
                used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", r);
        }
    return count;
}

static lt_status serve(rendezvous *v)
{
    lt_star *s = v->star;
    const double end = lt_clock_seconds() + s->patience;
    char who[LT_WIRE_WORDS / 2];
    while (missing(s, who, sizeof who)) {
        if (lt_clock_seconds() >= end)
            return lt_fail(LT_E_COMM, "comm: after %g s these ranks have not come: %s%s%s",
                           s->patience, who, *v->wrong ? "; " : "", v->wrong);
        serve_once(v, end);
    }
    return LT_OK;
}

lt_status lt_star_wait_for_all(lt_star *s)
{
    const int room = s->size + SPARE;
    rendezvous v = {.star = s, .room = room};
    v.pending = lt_alloc((size_t)room, sizeof *v.pending);
    v.poll = lt_alloc((size_t)room + 1, sizeof *v.poll);
    lt_status st = v.pending && v.poll ? serve(&v) : LT_E_NOMEM;
    while (v.count)
        close_pending(&v, v.count - 1);
    lt_free(v.pending);
    lt_free(v.poll);
    return st;
}
