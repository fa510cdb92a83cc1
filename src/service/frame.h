/* Header of messages between client and service: magic, version, kind, status, bytes of payload. */
#ifndef LT_SERVICE_FRAME_H
#define LT_SERVICE_FRAME_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LT_FRAME_BYTES = 16 };

typedef enum lt_frame_kind {
    LT_FRAME_CALL = 1,  /* from a client: the payload is the request */
    LT_FRAME_HELLO,     /* from a client: its nonce */
    LT_FRAME_PROOF,     /* from a client: its proof */
    LT_FRAME_RESULT,    /* from a service: response to a call; to a valid proof: its own proof */
    LT_FRAME_ERROR,     /* from a service: the handler's message, with its status */
    LT_FRAME_CHALLENGE, /* from a service: its nonce */
    LT_FRAME_REFUSED,   /* from a service: rejects the connection, with the reason as text */
    LT_FRAME_KINDS
} lt_frame_kind;

typedef struct lt_frame {
    lt_frame_kind kind;
    lt_status status; /* status of the handler, in LT_FRAME_ERROR */
    const void *data;
    size_t bytes;
    char version; /* sender's protocol version '1' to '9'; 0 when sending: this version */
} lt_frame;

/* Writes the header of a frame, which precedes its payload. */
void lt_frame_write_header(void *header, const lt_frame *frame);
/* Parses a header; sets frame->data to NULL. Errors: LT_E_UNSUPPORTED (another protocol version; sets only
 * frame->version), LT_E_FORMAT (another protocol, or a payload of more than `most` bytes). */
LT_MUST_CHECK lt_status lt_frame_read_header(lt_frame *frame, const void *header, size_t most);
/* Returns the payload as text if it ends with NUL, else `other`. */
const char *lt_frame_payload_text(const lt_frame *frame, const char *other);

#endif
