/* Sockets: waiting with a deadline, options, port. */

#include "base/socket.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

bool lt_socket_wait(int fd, short events, double deadline)
{
    enum { MOST_MS = 1 << 30 };
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const double left = ceil(1e3 * (deadline - lt_clock_seconds()));
        int ms = left < 0 ? 0 : (int)fmin(left, MOST_MS);
        if (isinf(deadline))
            ms = -1;
        const int ready = poll(&p, 1, ms);
        if (ready > 0)
            return true;
        if ((!ready && left <= MOST_MS) || (ready < 0 && errno != EINTR))
            return false;
    }
}

void lt_socket_set_options(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

int lt_socket_port(int fd)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    char port[16];
    if (getsockname(fd, (struct sockaddr *)&own, &bytes)
        || getnameinfo((struct sockaddr *)&own, bytes, NULL, 0, port, sizeof port, NI_NUMERICSERV))
        return -1;
    return (int)strtol(port, NULL, 10);
}

void lt_socket_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
