/** Calls between threads, processes and machines: bytes go to a service, bytes come back. */
#ifndef LATHER_SERVICE_H
#define LATHER_SERVICE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * Answers calls at an address, several at once.
 *
 * An address is a URL: `inproc://NAME` (threads of this process), `ipc:///PATH` (processes of this machine and
 * user: a socket file of mode 0600) or `tcp://HOST:PORT`; port 0 takes a free one. Beyond loopback a service
 * needs a secret, by which each side proves to the other that it knows it (docs/adr/0081); what follows is
 * neither encrypted nor signed.
 */
typedef struct lt_service lt_service;
/** Calls one service. Any number of threads may call at once; calls at once are as many connections. */
typedef struct lt_client lt_client;

/** Bytes of a request or an answer, where a config does not say another number. */
enum { LT_SERVICE_MAX_BYTES = 1 << 28 };

/** What a handler answers with. */
typedef struct lt_reply lt_reply;
/** Memory of the answer, bytes of it, for the handler to fill; without a call the answer is empty, a second call
 *  replaces the first. Aligned as by malloc(), not zeroed; lent until the handler returns. NULL: no memory, or larger
 *  than what a call may carry. */
LT_API void *lt_reply_data(lt_reply *reply, size_t bytes);

/** Answers one call. request is borrowed and not aligned. Called by the service's threads, several at once. A
 *  status that is not LT_OK goes to the caller, with this thread's message, instead of the answer. */
typedef lt_status (*lt_service_handler)(void *context, const void *request, size_t bytes,
                                        lt_reply *reply);

typedef struct lt_service_config {
    const char *address;
    lt_service_handler handler;
    void *context;      /**< borrowed, for handler */
    const char *secret; /**< NULL: any process that can connect may call; else 16 to 255 bytes */
    int threads;        /**< handlers that run at once, of any number of connections; 0: 4 */
    size_t max_bytes;   /**< of a request and of an answer; 0: 256 MiB */
} lt_service_config;

/**
 * Starts answering.
 *
 * Owns    *out is the caller's
 * Errors  LT_E_ARG: no address of these forms, beyond loopback without a secret, or one of fewer than 16 bytes;
 *         LT_E_IO: the port is in use, the host is not of this machine
 */
LT_API LT_MUST_CHECK lt_status lt_service_open(lt_service **out, const lt_service_config *config);
/** The address that clients are to be given: with the port that it got. Borrowed. */
LT_API const char *lt_service_address(const lt_service *service);
/** Takes no more calls, waits for handlers that are running, hands their answers to the connections, and frees. An
 *  answer that is still being sent a second later is cut off: its caller gets LT_E_COMM. */
LT_API void lt_service_close(lt_service **service);

typedef struct lt_client_config {
    const char *address;
    const char *secret; /**< the service's; NULL: it has none */
    bool repeat;      /**< a call may be done twice: when the connection breaks it is sent again */
    size_t max_bytes; /**< of a request and of an answer; 0: 256 MiB */
} lt_client_config;

/** The answer to a call; starts as {0}. */
typedef struct lt_answer {
    const void *data; /**< not aligned */
    size_t bytes;
    void *owner; /**< the library's */
} lt_answer;
LT_API void lt_answer_free(lt_answer *answer);

/** The service need not be there yet, and may go and come back at the same address.
 *  Owns: *out is the caller's. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_client_open(lt_client **out, const lt_client_config *config);
/**
 * One call, which waits for the answer at most seconds, connecting included.
 *
 * Owns    the answer is the caller's, for lt_answer_free()
 * Errors  LT_E_COMM: no answer in time; the connection broke and the client does not repeat, so that the call
 *         may or may not have been done; the service does not prove the secret, or refuses this one's;
 *         LT_E_ARG: the request is larger than max_bytes; what the handler returned, its message behind the address
 * Threads any
 */
LT_API LT_MUST_CHECK lt_status lt_client_call(lt_client *client, const void *request, size_t bytes,
                                              double seconds, lt_answer *answer);
/** After all calls have returned. */
LT_API void lt_client_close(lt_client **client);

#endif
