/* Socket helpers shared by ranks and services. */
#ifndef LT_BASE_SOCKET_H
#define LT_BASE_SOCKET_H

#include <stdbool.h>

/* Waits until fd is ready for events of poll(). Returns false after the deadline, in lt_clock_seconds() or INFINITY. */
bool lt_socket_wait(int fd, short events, double deadline);
/* Sets TCP_NODELAY and SO_KEEPALIVE. */
void lt_socket_set_options(int fd);
/* Returns the port of a TCP socket, or -1. */
int lt_socket_port(int fd);
/* Closes *fd unless it is -1, and sets it to -1. */
void lt_socket_close(int *fd);

#endif
