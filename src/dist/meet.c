/* How rank 0 meets the others. Anybody can connect to it: newcomers are heard together, each for a few
 * seconds, and one who does not know the job's token is sent away. Nothing that a newcomer does ends
 * the meeting, or makes it longer than the patience; the longest wait is for the last hello. */

#include "dist/meet.h"

#include "base/alloc.h"

#include "lather/log.h"
#include "lather/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { SPARE = 64, RETRY_MS = 50 };
static const double hello_seconds = 5;

/* A newcomer. */
typedef struct guest {
    int fd;
    double end;
    char asked[LT_TOKEN_NONCE];
    size_t got; /* bytes of: */
    struct {
        lt_wire_head head;
        lt_hello hello;
    } said;
} guest;
_Static_assert(sizeof((guest *)0)->said == sizeof(lt_wire_head) + sizeof(lt_hello),
               "as it is sent");

typedef struct door {
    lt_star *star;
    guest *guest; /* the one who came first is first */
    struct pollfd *poll;
    int count, room;
    int dropped;
    bool shut;                 /* no descriptors: do not accept until this is false */
    char wrong[LT_WIRE_WORDS]; /* what the last rank of this job had wrong */
} door;

static void dismiss(door *d, int i)
{
    lt_star_hang_up(&d->guest[i].fd);
    d->count--;
    memmove(&d->guest[i], &d->guest[i + 1], (size_t)(d->count - i) * sizeof *d->guest);
}

/* The first is worth a warning: it may be the user's own second job. */
static void drop(door *d, int i, const char *why)
{
    lt_log(d->dropped++ ? LT_LOG_DEBUG : LT_LOG_WARN, "dist",
           "comm: rank 0 sent a newcomer away: %s", why);
    dismiss(d, i);
}

static void greet(door *d, int fd)
{
    const char *why;
    guest g = {.fd = fd, .end = lt_wire_now() + hello_seconds};
    if (d->count == d->room)
        drop(d, 0, "others came, and it had said nothing");
    if (lt_token_draw(g.asked)
        || !lt_wire_put(fd, LT_WIRE_ASK, g.asked, sizeof g.asked, lt_wire_now(), &why))
        lt_star_hang_up(&g.fd);
    else
        d->guest[d->count++] = g;
}

/* What is wrong with a rank of this job, in d->wrong, or false. */
static bool is_wrong(door *d, const lt_hello *h, const lt_hello *mine)
{
    if (lt_hello_is_wrong(h, mine, d->wrong))
        return true;
    if (d->star->link[h->rank] < 0)
        return false;
    snprintf(d->wrong, sizeof d->wrong, "comm: two processes say that they are rank %d",
             (int)h->rank);
    return true;
}

/* A rank of this job: it is told, and seated if nothing is wrong. */
static void seat(door *d, int i)
{
    lt_star *s = d->star;
    guest *g = &d->guest[i];
    const lt_hello *h = &g->said.hello;
    const char *why;
    lt_hello mine = {0};
    const lt_status st = lt_hello_make(&mine, s, h->nonce);
    const bool wrong = is_wrong(d, h, &mine);
    const bool told =
        !st && lt_wire_put(g->fd, LT_WIRE_HELLO, &mine, sizeof mine, lt_wire_now(), &why);
    if (!wrong && told) {
        lt_wire_set_options(g->fd);
        s->link[h->rank] = g->fd;
        g->fd = -1;
        dismiss(d, i);
        return;
    }
    if (told)
        lt_wire_put(g->fd, LT_WIRE_END, d->wrong, sizeof d->wrong, lt_wire_now(), &why);
    drop(d, i, wrong ? d->wrong : "it did not hear the answer");
}

static void judge(door *d, int i)
{
    char words[LT_WIRE_WORDS] = "does not know this process: another job's, or without its token";
    const char *why;
    guest *g = &d->guest[i];
    if (lt_hello_is_proven(&g->said.hello, d->star, g->asked)) {
        seat(d, i);
        return;
    }
    lt_wire_put(g->fd, LT_WIRE_END, words, sizeof words, lt_wire_now(), &why);
    drop(d, i, "it does not know this job's token");
}

static bool is_hello(const guest *g)
{
    const lt_wire_head *h = &g->said.head;
    return g->got < sizeof *h
           || (h->magic == LT_WIRE_MAGIC && h->kind == LT_WIRE_HELLO
               && h->bytes == sizeof g->said.hello);
}

static void hear(door *d, int i)
{
    guest *g = &d->guest[i];
    const ssize_t n = recv(g->fd, (char *)&g->said + g->got, sizeof g->said - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0)
        drop(d, i, "it went away");
    else if (!is_hello(g))
        drop(d, i, "it is no rank");
    else if (g->got == sizeof g->said)
        judge(d, i);
}

/* Without a descriptor for one more, the guest who has been silent for longest makes room. */
static void open_door(door *d)
{
    const int fd = accept4(d->star->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        greet(d, fd);
        return;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return;
    snprintf(d->wrong, sizeof d->wrong, "comm: rank 0 cannot accept: %s", strerror(errno));
    if (d->count)
        drop(d, 0, d->wrong);
    else
        d->shut = true;
}

static int poll_all(door *d, double end)
{
    double until = end;
    for (int i = 0; i < d->count; i++) {
        d->poll[i] = (struct pollfd){.fd = d->guest[i].fd, .events = POLLIN};
        until = d->guest[i].end < until ? d->guest[i].end : until;
    }
    d->poll[d->count] = (struct pollfd){.fd = d->shut ? -1 : d->star->listener, .events = POLLIN};
    const double left = 1e3 * (until - lt_wire_now());
    const int ms = left > 0 ? (int)left + 1 : 0;
    return poll(d->poll, (nfds_t)d->count + 1, d->shut && ms > RETRY_MS ? RETRY_MS : ms);
}

static void attend(door *d, double end)
{
    const int count = d->count, ready = poll_all(d, end);
    const bool knocked = ready > 0 && d->poll[count].revents;
    d->shut = false;
    for (int i = count - 1; i >= 0; i--) /* backwards: those who leave move only who was seen */
        if (ready > 0 && d->poll[i].revents)
            hear(d, i);
        else if (d->guest[i].end <= lt_wire_now())
            drop(d, i, "it said nothing");
    if (knocked)
        open_door(d);
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

static lt_status wait_at(door *d)
{
    lt_star *s = d->star;
    const double end = lt_wire_now() + s->patience;
    char who[LT_WIRE_WORDS / 2];
    while (missing(s, who, sizeof who)) {
        if (lt_wire_now() >= end)
            return lt_fail(LT_E_COMM, "comm: after %g s these ranks have not come: %s%s%s",
                           s->patience, who, *d->wrong ? "; " : "", d->wrong);
        attend(d, end);
    }
    return LT_OK;
}

lt_status lt_star_wait_for_all(lt_star *s)
{
    const int room = s->size + SPARE;
    door d = {.star = s, .room = room};
    d.guest = lt_alloc((size_t)room, sizeof *d.guest);
    d.poll = lt_alloc((size_t)room + 1, sizeof *d.poll);
    lt_status st = d.guest && d.poll ? wait_at(&d) : LT_E_NOMEM;
    while (d.count)
        dismiss(&d, d.count - 1);
    lt_free(d.guest);
    lt_free(d.poll);
    lt_star_hang_up(&s->listener);
    return st;
}
