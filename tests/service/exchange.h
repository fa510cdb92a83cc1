/* Frames by hand. */
#ifndef LT_TEST_SERVICE_EXCHANGE_H
#define LT_TEST_SERVICE_EXCHANGE_H

#include "base/clock.h"
#include "increment.h"
#include "service/frame.h"
#include "service/stream.h"

#define SECRET "a secret of tests"

/* Sends a frame and receives one into *back; false: the connection ended. */
static inline bool exchange(lt_stream *s, lt_frame_kind kind, const void *data, size_t bytes,
                            lt_frame *back)
{
    const lt_frame frame = {.kind = kind, .data = data, .bytes = bytes};
    const double deadline = lt_clock_seconds() + SECONDS;
    return !lt_stream_send(s, &frame, deadline)
           && !lt_stream_receive(s, back, LT_STREAM_SMALL, deadline);
}

#endif
