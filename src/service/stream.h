/* Frames on a connected socket. */
#ifndef LT_SERVICE_STREAM_H
#define LT_SERVICE_STREAM_H

#include "service/frame.h"

#include <stdbool.h>

enum { LT_STREAM_SMALL = 4096 };

/* Received frames of up to LT_STREAM_SMALL bytes take one recv() and no allocation. Texts of errors are shorter. */
typedef struct lt_stream {
    int fd;
    char *large; /* the payload of the frame received last, if it does not fit into small */
    char small[LT_STREAM_SMALL];
} lt_stream;

typedef enum lt_stream_end {
    LT_STREAM_DONE,
    LT_STREAM_LATE,   /* the deadline passed */
    LT_STREAM_BROKEN, /* the other side is gone */
    LT_STREAM_FORGED, /* no frame of this protocol, or too large a one: the message is set */
    LT_STREAM_OTHER,  /* a frame of another version of it: frame->version and the message are set */
    LT_STREAM_NOMEM   /* the message is set */
} lt_stream_end;

/* Deadlines are of lt_clock_seconds(); INFINITY is none. After any end but LT_STREAM_DONE the socket is to be closed. */
LT_MUST_CHECK lt_stream_end lt_stream_send(const lt_stream *s, const lt_frame *frame,
                                           double deadline);
/* frame->data lies in the stream until it receives again or lt_stream_clear(). */
LT_MUST_CHECK lt_stream_end lt_stream_receive(lt_stream *s, lt_frame *frame, size_t most,
                                              double deadline);
/* Frees the payload. */
void lt_stream_clear(lt_stream *s);

#endif
