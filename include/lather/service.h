/** Remote procedure calls between threads, processes and machines: requests and responses are bytes. */
#ifndef LATHER_SERVICE_H
#define LATHER_SERVICE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * Handles requests at an address, several concurrently.
 *
 * An address is a URL: `inproc://NAME` (threads of this process), `ipc:///PATH` (processes of this machine and
 * user: a socket file of mode 0600) or `tcp://HOST:PORT`; port 0 takes a free one. Beyond loopback a service
 * requires a secret: client and service authenticate each other by challenge-response (docs/adr/0043). The
 * messages after that are neither encrypted nor signed.
 */
typedef struct lt_service lt_service;
/** Calls one service. Any number of threads may call concurrently; each concurrent call has its own connection. */
typedef struct lt_client lt_client;

/** Default limit of the bytes of a request or a response. */
enum { LT_SERVICE_MAX_BYTES = 1 << 28 };

/** The response of a handler. */
typedef struct lt_response_buffer lt_response_buffer;
/** Allocates the response's memory for the handler to fill; without a call the response is empty, a second call
 * replaces the first. Aligned as by malloc(), not zeroed; borrowed until the handler returns. NULL: no memory, or
 * larger than max_bytes. */
LT_API void *lt_response_allocate(lt_response_buffer *reply, size_t bytes);

/** Handles one request. request is borrowed and not aligned. Called by the service's threads, several concurrently. A
 *  status other than LT_OK is sent to the caller, with this thread's message, instead of the response. */
typedef lt_status (*lt_service_handler)(void *context, const void *request, size_t bytes,
                                        lt_response_buffer *reply);

typedef struct lt_service_config {
    const char *address;
    lt_service_handler handler;
    void *context;      /**< argument of handler; borrowed */
    const char *secret; /**< shared, of 16 to 255 bytes; NULL: any process may call */
    int threads;        /**< concurrent handlers, for any number of connections; 0: 4 */
    size_t max_bytes;   /**< limit of a request and of a response; 0: 256 MiB */
} lt_service_config;

/**
 * Starts a service.
 *
 * Owns    *out is the caller's
 * Errors  LT_E_ARG: an invalid address, an address beyond loopback without a secret, a secret of fewer than 16 bytes;
 *         LT_E_IO: the port is in use, the host is not this machine
 */
LT_API LT_MUST_CHECK lt_status lt_service_open(lt_service **out, const lt_service_config *config);
/** Returns the address for clients, with the actual port. Borrowed. */
LT_API const char *lt_service_address(const lt_service *service);
/** Stops accepting requests, waits for running handlers, sends their responses, and frees the service. A response that
 *  is not sent within a second is cancelled: its caller gets LT_E_COMM. */
LT_API void lt_service_close(lt_service **service);

typedef struct lt_client_config {
    const char *address;
    const char *secret; /**< the secret of the service; NULL: it has none */
    bool repeat;      /**< calls are idempotent: a call is sent again when the connection breaks */
    size_t max_bytes; /**< limit of a request and of a response; 0: 256 MiB */
} lt_client_config;

/** The response to a call; starts as {0}. */
typedef struct lt_response {
    const void *data; /**< the bytes of the response, not aligned */
    size_t bytes;
    void *owner; /**< private: memory that the response holds */
} lt_response;
LT_API void lt_response_free(lt_response *answer);

/** Opens a client. The service may start later than the client, and may restart at the same address.
 *  Owns: *out is the caller's. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_client_open(lt_client **out, const lt_client_config *config);
/**
 * Calls the service and waits at most seconds for the response, including the time to connect.
 *
 * Owns    the response is the caller's, for lt_response_free()
 * Errors  LT_E_COMM: a timeout; the connection broke and the client does not repeat, so the call may or may not have
 *         been executed; the authentication failed; LT_E_ARG: the request is larger than max_bytes; the status of the
 *         handler, its message prefixed by the address
 * Threads any
 */
LT_API LT_MUST_CHECK lt_status lt_client_call(lt_client *client, const void *request, size_t bytes,
                                              double seconds, lt_response *answer);
/** Closes a client; call it after all calls have returned. */
LT_API void lt_client_close(lt_client **client);

#endif
