/* TCP rendezvous: opening, closing, broadcast, all-gather and aborts. */

#include "dist/rendezvous/rendezvous.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/rendezvous/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static lt_rendezvous *new_rendezvous(const lt_rendezvous_config *config)
{
    lt_rendezvous *r = lt_alloc(1, sizeof *r + (size_t)config->size * sizeof *r->socket);
    if (!r)
        return NULL;
    r->rank = config->rank;
    r->size = config->size;
    r->timeout = config->timeout;
    r->listener = -1;
    snprintf(r->token, sizeof r->token, "%s", config->token ? config->token : "");
    for (int i = 0; i < r->size; i++)
        r->socket[i] = -1;
    return r;
}

/* Reads until the peer closes. Closing a socket with unread data resets the connection, and the peer may then lose an
 * abort sent to it. */
static void read_until_closed(int fd, double deadline)
{
    char bytes[LT_SOCKET_TEXT];
    while (lt_socket_wait(fd, POLLIN, deadline))
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return;
}

/* Removes the token's file; before the port is closed, as the next job on it writes a file of the same name. */
static void remove_token_file(lt_rendezvous *r)
{
    if (r->token_file && !r->rank)
        unlink(r->token_file);
    r->token_file = NULL;
}

void lt_rendezvous_close(lt_rendezvous **out)
{
    lt_rendezvous *r = *out;
    if (!r)
        return;
    remove_token_file(r);
    lt_socket_close(&r->listener);
    const double end = lt_clock_seconds() + 1;
    for (int i = 0; i < r->size; i++) {
        if (r->aborted && r->socket[i] >= 0)
            read_until_closed(r->socket[i], end);
        lt_socket_close(&r->socket[i]);
    }
    lt_free(r);
    *out = NULL;
}

lt_status lt_rendezvous_listen(lt_rendezvous **out, const lt_rendezvous_config *config, int *port)
{
    struct addrinfo *all;
    lt_rendezvous *r = new_rendezvous(config);
    if (!r)
        return LT_E_NOMEM;
    lt_status st = lt_socket_resolve(config->address, config->port, true, &all);
    if (st) {
        lt_rendezvous_close(&r);
        return st;
    }
    for (const struct addrinfo *a = all; a && r->listener < 0; a = a->ai_next)
        r->listener = lt_socket_listen(a);
    const int why = errno;
    freeaddrinfo(all);
    if (r->listener < 0) {
        lt_rendezvous_close(&r);
        return lt_fail(LT_E_COMM, "comm: rank 0 cannot listen on %s, port %d: %s",
                       config->address ? config->address : "*", config->port, strerror(why));
    }
    *port = lt_socket_port(r->listener);
    *out = r;
    return LT_OK;
}

lt_status lt_rendezvous_join(lt_rendezvous **out, const lt_rendezvous_config *config)
{
    if (!*out)
        *out = new_rendezvous(config);
    if (!*out)
        return LT_E_NOMEM;
    (*out)->token_file =
        config->token_file; /* set only now: until rank 0 listens, the file is another job's */
    lt_status st = config->rank ? lt_rendezvous_connect(*out, config->address, config->port)
                                : lt_rendezvous_accept_ranks(*out);
    remove_token_file(*out);
    lt_socket_close(&(*out)->listener);
    char text[LT_SOCKET_TEXT];
    if (!st || config->rank) {
        if (st)
            lt_rendezvous_close(out);
        return st;
    }
    snprintf(text, sizeof text, "%s", lt_error_message());
    lt_rendezvous_abort(*out, text);
    lt_rendezvous_close(out);
    return lt_fail(st, "%s", text);
}

static lt_status peer_error(const lt_rendezvous *r, int rank)
{
    return lt_fail(LT_E_COMM, "comm: rank %d of %d: rank %d: %s", r->rank, r->size, rank,
                   lt_error_message());
}

lt_status lt_rendezvous_broadcast(lt_rendezvous *r, void *bytes, size_t count)
{
    const double deadline = lt_clock_seconds() + r->timeout;
    if (r->rank && lt_socket_recv(r->socket[0], LT_SOCKET_DATA, bytes, count, deadline))
        return peer_error(r, 0);
    for (int i = 1; i < r->size && !r->rank; i++)
        if (lt_socket_send(r->socket[i], LT_SOCKET_DATA, bytes, count, deadline))
            return peer_error(r, i);
    return LT_OK;
}

lt_status lt_rendezvous_allgather(lt_rendezvous *r, const void *own, void *all, size_t each)
{
    const double deadline = lt_clock_seconds() + r->timeout;
    char *to = all;
    memcpy(to + (size_t)r->rank * each, own, each);
    if (r->rank && lt_socket_send(r->socket[0], LT_SOCKET_DATA, own, each, deadline))
        return peer_error(r, 0);
    for (int i = 1; i < r->size && !r->rank; i++)
        if (lt_socket_recv(r->socket[i], LT_SOCKET_DATA, to + (size_t)i * each, each, deadline))
            return peer_error(r, i);
    return lt_rendezvous_broadcast(r, all, each * (size_t)r->size);
}

/* Ignores failures: an unreachable rank sees the end of the connection. */
static void send_to_all(lt_rendezvous *r, lt_socket_kind kind, const char *text, size_t bytes)
{
    for (int i = 0; i < r->size; i++)
        if (r->socket[i] >= 0)
            (void)lt_socket_send(r->socket[i], kind, text, bytes, lt_clock_seconds() + 1);
}

void lt_rendezvous_abort(lt_rendezvous *r, const char *why)
{
    char text[LT_SOCKET_TEXT] = "";
    snprintf(text, sizeof text, "%s", why);
    send_to_all(r, LT_SOCKET_ABORT, text, sizeof text);
    r->aborted = true;
    for (int i = 0; i < r->size; i++)
        if (r->socket[i] >= 0)
            shutdown(r->socket[i], SHUT_WR);
}

void lt_rendezvous_leave(lt_rendezvous *r)
{
    send_to_all(r, LT_SOCKET_LEAVE, NULL, 0);
}

/* Reads a rank's last message and closes its socket; returns true if it aborts the group. */
static bool read_last_message(lt_rendezvous *r, int rank, char *text)
{
    lt_socket_header h = {.kind = LT_SOCKET_DATA};
    const double deadline = lt_clock_seconds() + 1;
    lt_status st = lt_socket_recv_header(r->socket[rank], &h, deadline);
    if (!st && h.kind == LT_SOCKET_ABORT)
        st = lt_socket_recv_abort(r->socket[rank], text, deadline);
    else if (!st && h.kind != LT_SOCKET_LEAVE)
        st = lt_fail(LT_E_COMM, "sends an unexpected message of kind %u", (unsigned)h.kind);
    lt_socket_close(&r->socket[rank]);
    if (st)
        snprintf(text, LT_SOCKET_TEXT, "comm: rank %d: %s", rank, lt_error_message());
    return st || h.kind != LT_SOCKET_LEAVE;
}

bool lt_rendezvous_poll_abort(lt_rendezvous *r, char *why, size_t bytes)
{
    char text[LT_SOCKET_TEXT] = "";
    for (int i = 0; i < r->size; i++) {
        if (r->socket[i] < 0 || !lt_socket_wait(r->socket[i], POLLIN, 0))
            continue;
        if (!read_last_message(r, i, text))
            continue;
        if (!r->rank)
            lt_rendezvous_abort(r, text);
        snprintf(why, bytes, "%s", text);
        return true;
    }
    return false;
}
