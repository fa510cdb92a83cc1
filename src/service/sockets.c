/* Messages of nng with a frame in them. */

#include "service/sockets.h"

#include "base/token.h"

#include "lather/ext/fail.h"

#include <string.h>

nng_msg *lt_service_message(lt_frame_kind kind, lt_status status, const void *data, size_t bytes)
{
    nng_msg *message = NULL;
    if (nng_msg_alloc(&message, LT_FRAME_BYTES + bytes)) {
        (void)lt_fail(LT_E_NOMEM, "service: no memory for a message of %zu bytes", bytes);
        return NULL;
    }
    lt_frame_write(nng_msg_body(message), kind, status, bytes);
    if (data && bytes)
        memcpy(lt_service_payload(message), data, bytes);
    return message;
}

void *lt_service_payload(nng_msg *message)
{
    return (char *)nng_msg_body(message) + LT_FRAME_BYTES;
}

lt_status lt_service_fail(int code, const char *what, const char *address)
{
    lt_status st = LT_E_IO;
    if (code == NNG_ENOMEM)
        st = LT_E_NOMEM;
    else if (code == NNG_EADDRINVAL)
        st = LT_E_ARG;
    return lt_fail(st, "service: %s %s: %s", what, address, nng_strerror(code));
}

lt_status lt_service_check_secret(const char *secret)
{
    const size_t bytes = secret ? strlen(secret) : 1;
    if (bytes < 1 || bytes >= LT_TOKEN_BYTES)
        return lt_fail(LT_E_ARG, "service: a secret of %zu bytes, want 1 to %d", bytes,
                       LT_TOKEN_BYTES - 1);
    return LT_OK;
}
