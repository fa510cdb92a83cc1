/* Socket helpers shared by ranks and services. */
#ifndef LT_BASE_SOCKET_H
#define LT_BASE_SOCKET_H

#include <stdbool.h>

/* Waits until fd can be read or written (events of poll()); false: not before the deadline, which is of
 * lt_clock_seconds() or INFINITY. */
bool lt_socket_wait(int fd, short events, double deadline);
/* Sets TCP_NODELAY and SO_KEEPALIVE. */
void lt_socket_set_options(int fd);
/* Port of a listening TCP socket; -1: none. */
int lt_socket_port(int fd);
/* Sets *fd to -1, which may be it already. */
void lt_socket_close(int *fd);

#endif
