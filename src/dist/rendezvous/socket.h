/* Sockets and framed messages of the rendezvous: a header and its bytes, in native byte order like all data of a
 * communicator. Errors are LT_E_COMM with a predicate for the peer: "closed the connection". */
#ifndef LT_DIST_SOCKET_H
#define LT_DIST_SOCKET_H

#include "base/socket.h"

#include "lather/ext/fail.h"

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>

enum { LT_SOCKET_TEXT = 384, LT_SOCKET_MAGIC = 0x4c545354 };

typedef enum lt_socket_kind {
    LT_SOCKET_CHALLENGE,
    LT_SOCKET_HELLO,
    LT_SOCKET_DATA,
    LT_SOCKET_ABORT,
    LT_SOCKET_LEAVE
} lt_socket_kind;

typedef struct lt_socket_header {
    uint32_t magic, kind, bytes;
} lt_socket_header;

/* Sends a framed message. deadline: time of lt_clock_seconds(). */
lt_status lt_socket_send(int fd, lt_socket_kind kind, const void *bytes, size_t count,
                         double deadline);
/* Receives a message of that kind and size; if an abort arrives instead, fails with its reason. */
lt_status lt_socket_recv(int fd, lt_socket_kind kind, void *bytes, size_t count, double deadline);
/* Receives a header of any kind; and the text of an abort, of LT_SOCKET_TEXT bytes. */
lt_status lt_socket_recv_header(int fd, lt_socket_header *header, double deadline);
lt_status lt_socket_recv_abort(int fd, char *text, double deadline);

/* Resolves rank 0's address; passive: to listen on it; address NULL: all of this machine's interfaces. */
lt_status lt_socket_resolve(const char *address, int port, bool passive, struct addrinfo **out);
/* Open a listening socket, a connection. Return it, or -1 with errno set. */
int lt_socket_listen(const struct addrinfo *a);
int lt_socket_connect(const struct addrinfo *all);

#endif
