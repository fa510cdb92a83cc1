/* The service's end of connections: a thread for each. */
#ifndef LT_SERVICE_CONNECTION_H
#define LT_SERVICE_CONNECTION_H

#include "service/stream.h"

#include "lather/service.h"

#include <pthread.h>

typedef struct lt_connection {
    struct lt_connection *next;
    struct lt_connections *owner;
    pthread_t thread;
    lt_stream stream; /* its fd under the lock; -1: the thread is at its end */
    bool known;       /* the client has proved the secret; if there is none: has made a call */
    bool dropped;     /* shut down in favour of newer ones */
} lt_connection;

typedef struct lt_connections {
    lt_service_handler handler;
    void *context;      /* borrowed, for handler */
    const char *secret; /* borrowed; NULL: none */
    size_t max_bytes;
    double handshake_seconds; /* all of it; 30 */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lt_connection *first;
    int threads, handling,
        open; /* handlers that may run at once, that run, threads not at their end */
    bool closing;
} lt_connections;

void lt_connections_init(lt_connections *all);
/* Serves a socket, which it owns, and joins threads of those that have ended. */
void lt_connections_add(lt_connections *all, int fd);
/* Shuts down the oldest connection that is not known, if there are more than `most` of them. */
void lt_connections_drop(lt_connections *all, int most);
/* Takes no more calls, waits for handlers, gives their answers a second to leave, and frees. */
void lt_connections_close(lt_connections *all);

#endif
