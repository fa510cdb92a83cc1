/* Frames on a connected socket. */
#ifndef LT_SERVICE_STREAM_H
#define LT_SERVICE_STREAM_H

#include "service/frame.h"

#include <stdbool.h>

enum { LT_STREAM_SMALL = 4096 };

/* A connection. Received frames of up to LT_STREAM_SMALL bytes, which include all errors, need one recv() and no
 * allocation. */
typedef struct lt_stream {
    int fd;
    char *large; /* payload of the last received frame if it does not fit small; else NULL */
    char small[LT_STREAM_SMALL];
} lt_stream;

typedef enum lt_stream_end {
    LT_STREAM_DONE,
    LT_STREAM_LATE,   /* failed: the deadline passed */
    LT_STREAM_BROKEN, /* failed: the peer closed the connection */
    LT_STREAM_FORGED, /* failed: not a frame of this protocol, or too large; sets the message */
    LT_STREAM_OTHER,  /* failed: another protocol version; sets frame->version and the message */
    LT_STREAM_NOMEM   /* failed: out of memory; sets the message */
} lt_stream_end;

/* Sends a frame. Deadlines are in lt_clock_seconds(), or INFINITY. On any result but LT_STREAM_DONE, close the
 * socket. */
LT_MUST_CHECK lt_stream_end lt_stream_send(const lt_stream *s, const lt_frame *frame,
                                           double deadline);
/* Receives a frame. frame->data is valid until the next receive or lt_stream_clear(). */
LT_MUST_CHECK lt_stream_end lt_stream_receive(lt_stream *s, lt_frame *frame, size_t most,
                                              double deadline);
/* Frees the payload of the last received frame. */
void lt_stream_clear(lt_stream *s);

#endif
