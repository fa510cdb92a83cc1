/* The service's side of connections: one thread each. */
#ifndef LT_SERVICE_CONNECTION_H
#define LT_SERVICE_CONNECTION_H

#include "service/stream.h"

#include "lather/service.h"

#include <pthread.h>

typedef struct lt_connection {
    struct lt_connection *next;
    struct lt_connections *owner;
    pthread_t thread;
    lt_stream stream; /* fd is protected by the lock; -1: the thread has finished */
    bool known;       /* the client is authenticated or, without a secret, has made a call */
    bool dropped;     /* the socket was shut down in favour of newer connections */
} lt_connection;

typedef struct lt_connections {
    lt_service_handler handler;
    void *context;      /* first argument of handler; borrowed */
    const char *secret; /* shared secret; borrowed, or NULL */
    size_t max_bytes;
    double handshake_seconds; /* timeout of the whole handshake in seconds; default 30 */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lt_connection *first;
    int threads, handling, open; /* most concurrent handlers; handlers running; open threads */
    bool closing;
} lt_connections;

void lt_connections_init(lt_connections *all);
/* Starts a thread that serves a socket, taking ownership of it; joins finished threads. */
void lt_connections_add(lt_connections *all, int fd);
/* Shuts down the oldest unknown connection if there are more than `most` of them. */
void lt_connections_drop_oldest(lt_connections *all, int most);
/* Accepts no more calls, waits for handlers, gives responses a second to be sent, and frees. */
void lt_connections_close(lt_connections *all);

#endif
