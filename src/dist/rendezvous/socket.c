/* Sockets and framed messages of the rendezvous. */

#include "dist/rendezvous/socket.h"

#include "base/os.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends count bytes of in, or receives them to out; the other one is NULL. */
static lt_status transfer_bytes(int fd, const char *in, char *out, size_t count, double deadline)
{
    for (size_t at = 0; at < count;) {
        if (!lt_socket_wait(fd, in ? POLLOUT : POLLIN, deadline))
            return lt_fail(LT_E_COMM, "does not respond");
        const ssize_t n =
            in ? send(fd, in + at, count - at, LT_NO_SIGPIPE) : recv(fd, out + at, count - at, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return lt_fail(LT_E_COMM, "%s", n ? strerror(errno) : "closed the connection");
        at += (size_t)n;
    }
    return LT_OK;
}

lt_status lt_socket_send(int fd, lt_socket_kind kind, const void *bytes, size_t count,
                         double deadline)
{
    const lt_socket_header h = {LT_SOCKET_MAGIC, (uint32_t)kind, (uint32_t)count};
    LT_TRY(transfer_bytes(fd, (const char *)&h, NULL, sizeof h, deadline));
    return count ? transfer_bytes(fd, bytes, NULL, count, deadline) : LT_OK;
}

lt_status lt_socket_recv_header(int fd, lt_socket_header *header, double deadline)
{
    LT_TRY(transfer_bytes(fd, NULL, (char *)header, sizeof *header, deadline));
    return header->magic == LT_SOCKET_MAGIC
               ? LT_OK
               : lt_fail(LT_E_COMM, "does not speak the rendezvous protocol");
}

lt_status lt_socket_recv_abort(int fd, char *text, double deadline)
{
    lt_status st = transfer_bytes(fd, NULL, text, LT_SOCKET_TEXT, deadline);
    text[LT_SOCKET_TEXT - 1] = 0;
    return st;
}

lt_status lt_socket_recv(int fd, lt_socket_kind kind, void *bytes, size_t count, double deadline)
{
    char text[LT_SOCKET_TEXT];
    lt_socket_header h;
    LT_TRY(lt_socket_recv_header(fd, &h, deadline));
    if (h.kind == LT_SOCKET_ABORT && h.bytes == sizeof text
        && !lt_socket_recv_abort(fd, text, deadline))
        return lt_fail(LT_E_COMM, "%s", text);
    if (h.kind != (uint32_t)kind || h.bytes != count)
        return lt_fail(LT_E_COMM, "sends a message of kind %u with %u bytes, want kind %u with %zu",
                       (unsigned)h.kind, (unsigned)h.bytes, (unsigned)kind, count);
    return transfer_bytes(fd, NULL, bytes, count, deadline);
}

lt_status lt_socket_resolve(const char *address, int port, bool passive, struct addrinfo **out)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    /* Without an address IPv4, which every machine has. */
    hints.ai_family = address ? AF_UNSPEC : AF_INET;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(address, service, &hints, out);
    if (code)
        return lt_fail(LT_E_COMM, "comm: address %s of rank 0: %s", address ? address : "*",
                       gai_strerror(code));
    return LT_OK;
}

int lt_socket_listen(const struct addrinfo *a)
{
    /* Non-blocking: a connection may be reset between poll() and accept(). */
    const int on = 1, fd = lt_os_socket(a->ai_family, false);
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

int lt_socket_connect(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        const int fd = lt_os_socket(a->ai_family, true);
        if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}
