/* Sockets at addresses. */
#ifndef LT_SERVICE_ENDPOINT_H
#define LT_SERVICE_ENDPOINT_H

#include "service/address.h"

#include <sys/stat.h>

/* text is the address as it was given, for messages. *file: the socket file of ipc. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_endpoint_listen(int *fd, struct stat *file, const lt_address *address,
                                           const char *text);
/* Removes the socket file of ipc, unless another one has its name now. */
void lt_endpoint_remove(const lt_address *address, const struct stat *file);
/* The next connection; -1: none this time, and errno. */
int lt_endpoint_accept(int listener, const lt_address *address);
/* A socket that does not block. deadline: of lt_clock_seconds(). Errors: LT_E_COMM, also when nothing listens yet. */
LT_MUST_CHECK lt_status lt_endpoint_connect(int *fd, const lt_address *address, const char *text,
                                            double deadline);
/* Closes; -1 is none. */
void lt_endpoint_close(int fd);

#endif
