/* The launcher asks for round trips of one byte, then for as many bytes as the host can send in the time. Hosts take turns,
 * so that they do not share the launcher's interface. */

#include "launch/host_link.h"

#include "base/clock.h"
#include "base/os.h"
#include "base/socket.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>

enum { ECHO_BYTE = 'e', SEND_ALL = 's', BLOCK = 1 << 16 };

void lt_host_link_serve(int fd, double seconds)
{
    static const char block[BLOCK];
    const double end = lt_clock_seconds() + seconds;
    char asked = 0;
    lt_socket_set_options(fd);
    while (lt_socket_wait(fd, POLLIN, end) && recv(fd, &asked, 1, 0) == 1 && asked == ECHO_BYTE)
        if (send(fd, &asked, 1, LT_NO_SIGPIPE) != 1)
            return;
    while (asked == SEND_ALL && lt_socket_wait(fd, POLLOUT, end))
        if (send(fd, block, sizeof block, LT_NO_SIGPIPE) < 0 && errno != EAGAIN)
            return;
}

/* Waits for bytes and reads them. Returns their number, 0 at the end of the time or of the connection. */
static size_t receive(int fd, double end)
{
    char block[BLOCK];
    const ssize_t got = lt_socket_wait(fd, POLLIN, end) ? recv(fd, block, sizeof block, 0) : 0;
    return got > 0 ? (size_t)got : 0;
}

static bool ask(int fd, char what)
{
    return send(fd, &what, 1, LT_NO_SIGPIPE) == 1;
}

bool lt_host_link_measure(int listener, double seconds, lt_host_link *out)
{
    enum { ROUND_TRIPS = 3 };
    const double end = lt_clock_seconds() + seconds, to_gbit = 8e-9;
    double least = HUGE_VAL, bytes = 0;
    int fd = lt_socket_wait(listener, POLLIN, end) ? lt_os_accept(listener) : -1;
    bool there = fd >= 0;
    for (int i = 0; there && i < ROUND_TRIPS; i++) {
        const double begin = lt_clock_seconds();
        there = ask(fd, ECHO_BYTE) && receive(fd, end);
        least = fmin(least, lt_clock_seconds() - begin);
    }
    there = there && ask(fd, SEND_ALL) && receive(fd, end); /* the first bytes came in a burst */
    const double begin = lt_clock_seconds();
    for (size_t got; there && (got = receive(fd, end));)
        bytes += (double)got;
    *out = (lt_host_link){0};
    if (bytes > 0)
        *out = (lt_host_link){to_gbit * bytes / (lt_clock_seconds() - begin), 1e3 * least / 2};
    lt_socket_close(&fd);
    return bytes > 0;
}
