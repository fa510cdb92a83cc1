/* Sockets and messages of the star. */

#include "dist/rendezvous/socket.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Waits until the socket can be read (or written); false: not before end. */
bool lt_wire_ready(int fd, short events, double end)
{
    for (;;) {
        const double left = end - lt_clock_seconds();
        struct pollfd p = {.fd = fd, .events = events};
        const int got = poll(&p, 1, left > 0 ? (int)(1e3 * left) + 1 : 0);
        if (got > 0)
            return true;
        if (got == 0 || errno != EINTR)
            return false;
    }
}

/* All bytes, or false: then why has words that follow the name of the other side. */
bool lt_wire_transfer(int fd, void *bytes, size_t count, bool out, double end, const char **why)
{
    char *at = bytes;
    while (count > 0) {
        if (!lt_wire_ready(fd, out ? POLLOUT : POLLIN, end)) {
            *why = "says nothing";
            return false;
        }
        const ssize_t n = out ? send(fd, at, count, MSG_NOSIGNAL) : recv(fd, at, count, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            *why = n ? strerror(errno) : "went away";
            return false;
        }
        at += n;
        count -= (size_t)n;
    }
    return true;
}

bool lt_wire_put(int fd, lt_wire_kind what, const void *bytes, size_t count, double end,
                 const char **why)
{
    lt_wire_head h = {LT_WIRE_MAGIC, (uint32_t)what, (uint32_t)count};
    /* send() does not write to it */
    union {
        const void *in;
        void *out;
    } data = {bytes};
    return lt_wire_transfer(fd, &h, sizeof h, true, end, why)
           && (!count || lt_wire_transfer(fd, data.out, count, true, end, why));
}

bool lt_wire_get(int fd, lt_wire_kind what, void *bytes, size_t count, double end, const char **why)
{
    static __thread char told[LT_WIRE_WORDS];
    lt_wire_head h;
    if (!lt_wire_transfer(fd, &h, sizeof h, false, end, why))
        return false;
    if (h.magic == LT_WIRE_MAGIC && h.kind == LT_WIRE_END && h.bytes == sizeof told
        && lt_wire_transfer(fd, told, sizeof told, false, end, why)) {
        told[sizeof told - 1] = 0;
        *why = told;
        return false;
    }
    if (h.magic != LT_WIRE_MAGIC || h.kind != (uint32_t)what || h.bytes != count) {
        *why = "says something else";
        return false;
    }
    return lt_wire_transfer(fd, bytes, count, false, end, why);
}

void lt_wire_set_options(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

lt_status lt_wire_find(const lt_star_config *config, bool passive, struct addrinfo **out)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    /* Any address of an own: IPv4's, which every machine has. */
    hints.ai_family = config->address ? AF_UNSPEC : AF_INET;
    snprintf(port, sizeof port, "%d", config->port);
    const int code = getaddrinfo(config->address, port, &hints, out);
    if (code)
        return lt_fail(LT_E_COMM, "comm: the address %s of rank 0: %s",
                       config->address ? config->address : "*", gai_strerror(code));
    return LT_OK;
}

int lt_wire_listen(const struct addrinfo *a)
{
    /* A connection may be reset between poll() and accept(), which then must not wait. */
    const int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN))
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int lt_wire_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    socklen_t bytes = sizeof a;
    if (getsockname(fd, &a.any, &bytes))
        return -1;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

int lt_wire_connect(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}
