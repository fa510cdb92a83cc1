/* TCP connections from rank 0 to every other rank. */

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/rendezvous/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static lt_star *new_star(const lt_star_config *config)
{
    lt_star *s = lt_alloc(1, sizeof *s + (size_t)config->size * sizeof *s->link);
    if (!s)
        return NULL;
    s->rank = config->rank;
    s->size = config->size;
    s->patience = config->patience;
    s->listener = -1;
    snprintf(s->token, sizeof s->token, "%s", config->token ? config->token : "");
    for (int r = 0; r < s->size; r++)
        s->link[r] = -1;
    return s;
}

/* What others still send is read before the end, or the system would throw away the words too that
 * they have not read yet. */
static void drain(int link, double end)
{
    char bytes[LT_WIRE_WORDS];
    while (lt_wire_ready(link, POLLIN, end))
        if (recv(link, bytes, sizeof bytes, 0) <= 0)
            return;
}

void lt_star_hang_up(int *link)
{
    if (*link >= 0)
        close(*link);
    *link = -1;
}

/* Before the port is free: whoever has that next writes a file of the same name. */
static void remove_token(lt_star *s)
{
    if (s->token_file && !s->rank)
        unlink(s->token_file);
    s->token_file = NULL;
}

void lt_star_close(lt_star **star)
{
    lt_star *s = *star;
    if (!s)
        return;
    remove_token(s);
    lt_star_hang_up(&s->listener);
    const double end = lt_clock_seconds() + 1;
    for (int r = 0; r < s->size; r++) {
        if (s->told && s->link[r] >= 0)
            drain(s->link[r], end);
        lt_star_hang_up(&s->link[r]);
    }
    lt_free(s);
    *star = NULL;
}

lt_status lt_star_listen(lt_star **star, const lt_star_config *config, int *port)
{
    struct addrinfo *all;
    lt_star *s = new_star(config);
    if (!s)
        return LT_E_NOMEM;
    lt_status st = lt_wire_find(config, true, &all);
    if (st) {
        lt_star_close(&s);
        return st;
    }
    for (const struct addrinfo *a = all; a && s->listener < 0; a = a->ai_next)
        s->listener = lt_wire_listen(a);
    const int why = errno;
    freeaddrinfo(all);
    if (s->listener < 0) {
        lt_star_close(&s);
        return lt_fail(LT_E_COMM, "comm: rank 0 cannot listen on %s, port %d: %s",
                       config->address ? config->address : "*", config->port, strerror(why));
    }
    *port = lt_wire_port(s->listener);
    *star = s;
    return LT_OK;
}

lt_status lt_star_join(lt_star **star, const lt_star_config *config)
{
    if (!*star)
        *star = new_star(config);
    if (!*star)
        return LT_E_NOMEM;
    (*star)->token_file = config->token_file; /* not before: without the port it is another job's */
    lt_status st = config->rank ? lt_star_reach(*star, config) : lt_star_wait_for_all(*star);
    remove_token(*star);
    lt_star_hang_up(&(*star)->listener);
    char words[LT_WIRE_WORDS];
    if (!st || config->rank) {
        if (st)
            lt_star_close(star);
        return st;
    }
    snprintf(words, sizeof words, "%s", lt_error_message());
    lt_star_tell(*star, words);
    lt_star_close(star);
    return lt_fail(st, "%s", words);
}

static lt_status lost(const lt_star *s, int rank, const char *why)
{
    return lt_fail(LT_E_COMM, "comm: rank %d of %d: rank %d: %s", s->rank, s->size, rank, why);
}

lt_status lt_star_share(lt_star *star, void *bytes, size_t count)
{
    const double end = lt_clock_seconds() + star->patience;
    const char *why = "";
    if (star->rank)
        return lt_wire_get(star->link[0], LT_WIRE_DATA, bytes, count, end, &why)
                   ? LT_OK
                   : lost(star, 0, why);
    for (int r = 1; r < star->size; r++)
        if (!lt_wire_put(star->link[r], LT_WIRE_DATA, bytes, count, end, &why))
            return lost(star, r, why);
    return LT_OK;
}

lt_status lt_star_collect(lt_star *star, const void *mine, void *all, size_t each)
{
    const double end = lt_clock_seconds() + star->patience;
    const char *why = "";
    char *to = all;
    memcpy(to + (size_t)star->rank * each, mine, each);
    if (star->rank && !lt_wire_put(star->link[0], LT_WIRE_DATA, mine, each, end, &why))
        return lost(star, 0, why);
    for (int r = 1; r < star->size && !star->rank; r++)
        if (!lt_wire_get(star->link[r], LT_WIRE_DATA, to + (size_t)r * each, each, end, &why))
            return lost(star, r, why);
    return lt_star_share(star, all, each * (size_t)star->size);
}

static void send_to_all(lt_star *star, lt_wire_kind what, const char *words, size_t bytes)
{
    const char *why = "";
    for (int r = 0; r < star->size; r++)
        if (star->link[r] >= 0)
            lt_wire_put(star->link[r], what, words, bytes, lt_clock_seconds() + 1, &why);
}

void lt_star_tell(lt_star *star, const char *why)
{
    char words[LT_WIRE_WORDS] = "";
    snprintf(words, sizeof words, "%s", why);
    send_to_all(star, LT_WIRE_END, words, sizeof words);
    star->told = true;
    for (int r = 0; r < star->size; r++)
        if (star->link[r] >= 0)
            shutdown(star->link[r], SHUT_WR);
}

void lt_star_leave(lt_star *star)
{
    send_to_all(star, LT_WIRE_LEAVE, NULL, 0);
}

/* Reads what came from a rank; true: the end. */
static bool listen_to(lt_star *star, int rank, char *words)
{
    lt_wire_head h;
    const char *why = "";
    const double end = lt_clock_seconds() + 1;
    const bool came = lt_wire_transfer(star->link[rank], &h, sizeof h, false, end, &why);
    const bool told = came && h.magic == LT_WIRE_MAGIC && h.kind == LT_WIRE_END
                      && h.bytes == LT_WIRE_WORDS
                      && lt_wire_transfer(star->link[rank], words, LT_WIRE_WORDS, false, end, &why);
    const bool left = came && h.magic == LT_WIRE_MAGIC && h.kind == LT_WIRE_LEAVE;
    lt_star_hang_up(&star->link[rank]);
    if (!told && !left)
        snprintf(words, LT_WIRE_WORDS, "comm: rank %d %s", rank,
                 came ? "says something else" : why);
    words[LT_WIRE_WORDS - 1] = 0;
    return !left;
}

bool lt_star_heard(lt_star *star, char *why, size_t bytes)
{
    char words[LT_WIRE_WORDS] = "";
    for (int r = 0; r < star->size; r++) {
        if (star->link[r] < 0 || !lt_wire_ready(star->link[r], POLLIN, 0))
            continue;
        if (!listen_to(star, r, words))
            continue;
        if (!star->rank)
            lt_star_tell(star, words);
        snprintf(why, bytes, "%s", words);
        return true;
    }
    return false;
}
