/* Sockets that listen at, or connect to, the addresses of services. */
#ifndef LT_SERVICE_ENDPOINT_H
#define LT_SERVICE_ENDPOINT_H

#include "service/address.h"

#include <sys/stat.h>

/* Opens a listening socket. text: the address, for messages. *file: the socket file, if any. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_endpoint_listen(int *fd, struct stat *file, const lt_address *address,
                                           const char *text);
/* Removes the socket file, unless it has been replaced. */
void lt_endpoint_remove_file(const lt_address *address, const struct stat *file);
/* Accepts a connection. Returns -1 with errno on failure. */
int lt_endpoint_accept(int listener, const lt_address *address);
/* Connects a non-blocking socket. deadline: in lt_clock_seconds(). Errors: LT_E_COMM, also if nothing listens yet. */
LT_MUST_CHECK lt_status lt_endpoint_connect(int *fd, const lt_address *address, const char *text,
                                            double deadline);
/* Closes fd unless it is negative. */
void lt_endpoint_close(int fd);

#endif
