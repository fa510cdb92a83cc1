/* What sockets of ranks and of services share. */
#ifndef LT_BASE_SOCKET_H
#define LT_BASE_SOCKET_H

#include <stdbool.h>

/* Waits until fd can be read or written (events of poll()); false: not before the deadline, which is of
 * lt_clock_seconds() or INFINITY. */
bool lt_socket_wait(int fd, short events, double deadline);
/* Of TCP: small messages leave at once; a connection whose other machine is gone ends some day. */
void lt_socket_set_options(int fd);
/* Of a socket that listens by TCP; -1: none. */
int lt_socket_port(int fd);
/* Sets *fd to -1, which may be it already. */
void lt_socket_close(int *fd);

#endif
