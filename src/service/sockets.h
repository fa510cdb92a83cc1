/* What services and clients have in common: messages, and what nng's codes mean. */
#ifndef LT_SERVICE_SOCKETS_H
#define LT_SERVICE_SOCKETS_H

#include "service/frame.h"

#include <nng/nng.h>

enum { LT_SERVICE_MAX_BYTES = 1 << 28 };

/* A message with a frame's header and bytes of payload, copied from data or, if that is NULL, not yet written.
 * NULL: no memory, with the message set. */
nng_msg *lt_service_message(lt_frame_kind kind, lt_status status, const void *data, size_t bytes);
/* The payload of a message of lt_service_message(). */
void *lt_service_payload(nng_msg *message);
/* As lt_fail(), with what was to be done and nng's text for code. */
lt_status lt_service_fail(int code, const char *what, const char *address);
/* Checks a secret's length; NULL is none. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_service_check_secret(const char *secret);

#endif
