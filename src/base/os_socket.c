/* Stream sockets that exec closes, and who is at their other end. */

#include "base/os.h"

#include <sys/socket.h>

#if !LT_LINUX
/* Sets a new socket's flags, whatever it inherited from its listener. */
static int set_flags(int fd, bool blocks)
{
    const int flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    if (fd < 0)
        return fd;
    fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
#if defined(SO_NOSIGPIPE)
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
#endif
    return fd;
}
#endif

int lt_os_socket(int family, bool blocks)
{
#if LT_LINUX
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0);
#else
    return set_flags(socket(family, SOCK_STREAM, 0), blocks);
#endif
}

int lt_os_accept(int listener)
{
#if LT_LINUX
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
#else
    return set_flags(accept(listener, NULL, NULL), true);
#endif
}

pid_t lt_os_peer(int fd)
{
#if LT_LINUX
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ? -1 : peer.pid;
#else
    (void)fd;
    return -1;
#endif
}
