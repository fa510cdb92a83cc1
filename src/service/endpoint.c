/* Sockets for addresses. inproc is a Unix socket with an abstract name (unix(7)) that contains a random word of this
 * process; connections from other processes are rejected. Portable: a file in /tmp, open to the user's processes. */

#include "service/endpoint.h"

#include "base/hash.h"
#include "base/os.h"
#include "base/socket.h"
#include "base/token.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Socket addresses that a service's address resolves to: local for Unix sockets, resolved for TCP. */
typedef struct target {
    struct sockaddr_un local;
    struct addrinfo first, *resolved; /* resolved: to be freed, or NULL */
} target;

static char process_word[LT_TOKEN_NONCE];
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void draw_word(void)
{
    if (lt_token_draw(process_word))
        process_word[0] = 0;
}

static void make_unix_target(target *t, const lt_address *a)
{
    char *name = t->local.sun_path;
    const size_t most = sizeof t->local.sun_path;
    t->local.sun_family = AF_UNIX;
    if (a->kind == LT_ADDRESS_IPC) {
        snprintf(name, most, "%s", a->name);
    } else {
        pthread_once(&process_once, draw_word);
        snprintf(name + LT_LINUX, most - LT_LINUX, "%slather-%ld-%016" PRIx64 "-%016" PRIx64,
                 LT_LINUX ? "" : "/tmp/", (long)getpid(),
                 lt_fnv1a_text(LT_FNV1A_BEGIN, process_word),
                 lt_fnv1a_text(LT_FNV1A_BEGIN, a->name));
    }
    t->first = (struct addrinfo){.ai_family = AF_UNIX,
                                 .ai_addr = (struct sockaddr *)&t->local,
                                 .ai_addrlen = sizeof t->local};
}

/* Resolves an address. Returns NULL, or the error. */
static const char *resolve_target(target *t, const lt_address *a)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[16];
    memset(t, 0, sizeof *t);
    if (a->kind != LT_ADDRESS_TCP) {
        make_unix_target(t, a);
        return NULL;
    }
    snprintf(port, sizeof port, "%d", a->port);
    const int code = getaddrinfo(a->host, port, &hints, &t->resolved);
    if (code)
        return gai_strerror(code);
    t->first = *t->resolved;
    return NULL;
}

static void target_free(target *t)
{
    if (t->resolved)
        freeaddrinfo(t->resolved);
}

static void set_options(int fd, int family)
{
    if (family != AF_UNIX)
        lt_socket_set_options(fd);
}

void lt_endpoint_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* Closes fd, keeps errno, and returns -1. */
static int close_and_fail(int fd)
{
    const int why = errno;
    lt_endpoint_close(fd);
    errno = why;
    return -1;
}

static int connect_one(const struct addrinfo *a, double deadline)
{
    const int fd = lt_os_socket(a->ai_family, false);
    int code = 0;
    socklen_t bytes = sizeof code;
    if (fd < 0 || (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS))
        return close_and_fail(fd);
    if (!lt_socket_wait(fd, POLLOUT, deadline))
        code = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes))
        code = errno;
    if (code) {
        errno = code;
        return close_and_fail(fd);
    }
    set_options(fd, a->ai_family);
    return fd;
}

/* Rejects a connection to itself: connect() may choose the target port as its own (RFC 9293, simultaneous open). */
static int reject_self_connection(int fd)
{
    struct sockaddr_storage own, other;
    socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
    memset(&own, 0, sizeof own);
    memset(&other, 0, sizeof other);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&own, &own_bytes)
        || getpeername(fd, (struct sockaddr *)&other, &other_bytes) || own.ss_family == AF_UNIX
        || own_bytes != other_bytes || memcmp(&own, &other, own_bytes) != 0)
        return fd;
    errno = ECONNREFUSED;
    return close_and_fail(fd);
}

lt_status lt_endpoint_connect(int *fd, const lt_address *address, const char *text, double deadline)
{
    target t;
    const char *why = resolve_target(&t, address);
    *fd = -1;
    for (const struct addrinfo *a = &t.first; !why && a && *fd < 0; a = a->ai_next)
        *fd = reject_self_connection(connect_one(a, deadline));
    if (*fd < 0)
        (void)lt_fail(LT_E_COMM, "service: %s: cannot connect within the timeout: %s", text,
                      why ? why : strerror(errno));
    target_free(&t);
    return *fd < 0 ? LT_E_COMM : LT_OK;
}

static const char *path_of(const struct addrinfo *a)
{
    const struct sockaddr_un *local = (const struct sockaddr_un *)(const void *)a->ai_addr;
    return a->ai_family == AF_UNIX && local->sun_path[0] ? local->sun_path : NULL;
}

/* Removes the socket file of a killed service, which refuses connections, if it is this user's. */
static bool remove_stale(const struct addrinfo *a)
{
    struct stat info;
    const char *path = path_of(a);
    if (errno != EADDRINUSE || !path)
        return false;
    if (lstat(path, &info) || !S_ISSOCK(info.st_mode)) {
        errno = ENOTSOCK;
        return false;
    }
    const bool own = info.st_uid == geteuid();
    const int fd = own ? connect_one(a, 0) : -1;
    const bool stale = own && fd < 0 && errno == ECONNREFUSED;
    lt_endpoint_close(fd);
    errno = EADDRINUSE;
    return stale && !unlink(path);
}

static int listen_one(const struct addrinfo *a, struct stat *file)
{
    const int yes = 1, fd = lt_os_socket(a->ai_family, true);
    if (fd < 0)
        return -1;
    if (a->ai_family == AF_UNIX)
        (void)fchmod(fd, S_IRUSR | S_IWUSR); /* Linux gives the file the mode of its socket */
    else
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen)
        && (!remove_stale(a) || bind(fd, a->ai_addr, a->ai_addrlen)))
        return close_and_fail(fd);
    return listen(fd, SOMAXCONN) || (path_of(a) && lstat(path_of(a), file)) ? close_and_fail(fd)
                                                                            : fd;
}

lt_status lt_endpoint_listen(int *fd, struct stat *file, const lt_address *address,
                             const char *text)
{
    target t;
    const char *why = resolve_target(&t, address);
    *fd = -1;
    *file = (struct stat){0};
    for (const struct addrinfo *a = &t.first; !why && a && *fd < 0; a = a->ai_next)
        *fd = listen_one(a, file);
    if (*fd < 0)
        (void)lt_fail(LT_E_IO, "service: cannot listen at %s: %s", text,
                      why                 ? why
                      : errno == ENOTSOCK ? "the file exists and is not a socket: use another path"
                                          : strerror(errno));
    target_free(&t);
    return *fd < 0 ? LT_E_IO : LT_OK;
}

void lt_endpoint_remove_file(const lt_address *address, const struct stat *file)
{
    struct stat now;
    target t = {0};
    if (address->kind == LT_ADDRESS_TCP)
        return;
    make_unix_target(&t, address);
    const char *path = path_of(&t.first);
    if (path && !lstat(path, &now) && now.st_dev == file->st_dev && now.st_ino == file->st_ino
        && S_ISSOCK(now.st_mode))
        (void)unlink(path);
}

int lt_endpoint_accept(int listener, const lt_address *address)
{
    const int fd = lt_os_accept(listener);
    if (fd < 0)
        return -1;
    if (address->kind == LT_ADDRESS_INPROC && LT_LINUX && lt_os_peer(fd) != getpid()) {
        errno = EPERM;
        return close_and_fail(fd);
    }
    set_options(fd, address->kind == LT_ADDRESS_TCP ? AF_INET : AF_UNIX);
    return fd;
}
