/* A service: a listening socket, and a thread that starts one thread per connection. */

#include "lather/service.h"

#include "base/alloc.h"
#include "base/socket.h"
#include "service/challenge_response.h"
#include "service/connection.h"
#include "service/endpoint.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { THREADS = 4, MOST_THREADS = 1024 };

struct lt_service {
    char *address, *secret;
    lt_address target; /* parsed address; points into `given` */
    char *given;       /* address in the config */
    int listener;      /* -1 if not open */
    struct stat file;  /* socket file of ipc */
    pthread_t thread;
    bool started;
    atomic_bool closing;
    lt_connections connections;
};

static void *run_accept_thread(void *context)
{
    enum { AGAIN_US = 10000 };
    lt_service *s = context;
    while (!atomic_load(&s->closing)) {
        const int fd = lt_endpoint_accept(s->listener, &s->target);
        if (fd >= 0)
            lt_connections_add(&s->connections, fd);
        else if (errno != EINTR && errno != ECONNABORTED && errno != EPERM) {
            if (errno == EMFILE || errno == ENFILE)
                lt_connections_drop_oldest(&s->connections, 0);
            (void)usleep(AGAIN_US); /* out of descriptors, or closing */
        }
    }
    return NULL;
}

/* Builds the address for clients: with the actual port, and this machine's name for 0.0.0.0. */
static lt_status make_client_address(lt_service *s)
{
    char host[LT_ADDRESS_HOST];
    if (s->target.kind != LT_ADDRESS_TCP) {
        s->address = lt_strdup(s->given);
        return s->address ? LT_OK : LT_E_NOMEM;
    }
    const int port = lt_socket_port(s->listener);
    snprintf(host, sizeof host, "%s", s->target.host);
    if (port < 0 || (s->target.is_any && gethostname(host, sizeof host - 1)))
        return lt_fail(LT_E_IO, "service: %s: cannot get the port or this machine's name",
                       s->given);
    const bool brackets = strchr(host, ':') != NULL;
    s->address = lt_format("tcp://%s%s%s:%d", brackets ? "[" : "", host, brackets ? "]" : "", port);
    return s->address ? LT_OK : LT_E_NOMEM;
}

static lt_status start_service(lt_service *s, const lt_service_config *config)
{
    s->given = lt_strdup(config->address);
    s->secret = config->secret ? lt_strdup(config->secret) : NULL;
    if (!s->given || (config->secret && !s->secret))
        return LT_E_NOMEM;
    s->connections.handler = config->handler;
    s->connections.context = config->context;
    s->connections.secret = s->secret;
    s->connections.max_bytes = config->max_bytes ? config->max_bytes : LT_SERVICE_MAX_BYTES;
    s->connections.threads = config->threads ? config->threads : THREADS;
    LT_TRY(lt_address_parse(&s->target, s->given));
    LT_TRY(lt_endpoint_listen(&s->listener, &s->file, &s->target, s->given));
    LT_TRY(make_client_address(s));
    s->started = !pthread_create(&s->thread, NULL, run_accept_thread, s);
    return s->started ? LT_OK : lt_fail(LT_E_NOMEM, "service: %s: cannot start a thread", s->given);
}

lt_status lt_service_open(lt_service **out, const lt_service_config *config)
{
    lt_address address;
    LT_TRY(lt_address_parse(&address, config->address));
    LT_TRY(lt_token_check(config->secret, "service"));
    if (!address.is_loopback && !config->secret)
        return lt_fail(LT_E_ARG,
                       "service: %s is reachable from other machines: a secret is required",
                       config->address);
    if (config->threads < 0 || config->threads > MOST_THREADS)
        return lt_fail(LT_E_ARG, "service: %d threads, want 0 to %d", config->threads,
                       MOST_THREADS);
    lt_service *s = NULL;
    LT_TRY(LT_ALLOC(&s, 1));
    s->listener = -1;
    lt_connections_init(&s->connections);
    const lt_status st = start_service(s, config);
    if (st)
        lt_service_close(&s);
    else
        *out = s;
    return st;
}

const char *lt_service_address(const lt_service *service)
{
    return service->address;
}

void lt_service_close(lt_service **service)
{
    lt_service *s = *service;
    if (!s)
        return;
    *service = NULL;
    atomic_store(&s->closing, true);
    if (s->listener >= 0)
        lt_endpoint_remove_file(&s->target, &s->file);
    if (s->started) {
        (void)shutdown(s->listener, SHUT_RDWR); /* ends accept() */
        pthread_join(s->thread, NULL);
    }
    lt_endpoint_close(s->listener);
    lt_connections_close(&s->connections);
    lt_free(s->address);
    lt_free(s->given);
    lt_free(s->secret);
    lt_free(s);
}
