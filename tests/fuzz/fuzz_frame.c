/* Frames received by clients and services: any bytes give an error, or frames with the bytes after their headers as
 * payloads. */

#include "service/stream.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST_PAYLOAD = 8192, MOST_BYTES = 16384 }; /* less than the buffer of a socket */

/* Encoding the header again gives its bytes, except two unused ones. */
static void check_header(const lt_frame *frame, const uint8_t *bytes)
{
    uint8_t again[LT_FRAME_BYTES];
    lt_frame_write_header(again, frame);
    LT_ASSERT(!memcmp(again, bytes, 6) && !memcmp(again + 8, bytes + 8, 8));
    LT_ASSERT((frame->status != LT_OK) == (frame->kind == LT_FRAME_ERROR));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static lt_stream s;
    lt_frame frame;
    int pair[2];
    if (size > MOST_BYTES || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 0;
    s.fd = pair[1];
    LT_ASSERT(send(pair[0], bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    (void)close(pair[0]);
    if (!lt_stream_receive(&s, &frame, MOST_PAYLOAD, (double)INFINITY)) {
        check_header(&frame, bytes);
        LT_ASSERT(frame.bytes <= MOST_PAYLOAD && LT_FRAME_BYTES + frame.bytes <= size);
        LT_ASSERT(!memcmp(frame.data, bytes + LT_FRAME_BYTES, frame.bytes));
        LT_ASSERT(frame.bytes + LT_FRAME_BYTES == size || size > LT_STREAM_SMALL);
    }
    lt_stream_clear(&s);
    (void)close(pair[1]);
    return 0;
}
