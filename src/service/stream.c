/* Frames on a connected socket: one sendmsg() for header and payload, one recv() for frames that fit the stream's
 * buffer. The protocol alternates, so bytes after a frame are an error. */

#include "service/stream.h"

#include "base/alloc.h"
#include "base/os.h"
#include "base/socket.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Handles a failed socket call: waits if it would block. Returns LT_STREAM_DONE to retry. */
static lt_stream_end wait_to_retry(int fd, short events, double deadline)
{
    if (errno == EINTR)
        return LT_STREAM_DONE;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return LT_STREAM_BROKEN;
    return lt_socket_wait(fd, events, deadline) ? LT_STREAM_DONE : LT_STREAM_LATE;
}

/* Returns flags that make a socket call block only if there is no deadline. */
static int blocking_flags(double deadline)
{
    return isinf(deadline) ? 0 : MSG_DONTWAIT;
}

lt_stream_end lt_stream_send(const lt_stream *s, const lt_frame *frame, double deadline)
{
    char header[LT_FRAME_BYTES];
    struct iovec parts[] = {{header, sizeof header},
                            {(void *)(uintptr_t)frame->data, frame->bytes}};
    lt_frame_write_header(header, frame);
    while (parts[0].iov_len + parts[1].iov_len) {
        const bool skip = !parts[0].iov_len;
        const struct msghdr message = {.msg_iov = parts + skip, .msg_iovlen = skip ? 1 : 2};
        const ssize_t n = sendmsg(s->fd, &message, LT_NO_SIGPIPE | blocking_flags(deadline));
        if (n < 0) {
            const lt_stream_end end = wait_to_retry(s->fd, POLLOUT, deadline);
            if (end)
                return end;
        }
        size_t left = n < 0 ? 0 : (size_t)n;
        for (int i = 0; i < 2; i++) {
            const size_t part = left < parts[i].iov_len ? left : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            left -= part;
        }
    }
    return LT_STREAM_DONE;
}

/* Receives until *got is at least `least` and at most `most`. */
static lt_stream_end receive_at_least(int fd, char *at, size_t least, size_t most, size_t *got,
                                      double deadline)
{
    const int all = least == most ? MSG_WAITALL : 0;
    while (*got < least) {
        const ssize_t n = recv(fd, at + *got, most - *got, blocking_flags(deadline) | all);
        if (n == 0)
            return LT_STREAM_BROKEN;
        const lt_stream_end end = n > 0 ? LT_STREAM_DONE : wait_to_retry(fd, POLLIN, deadline);
        if (end)
            return end;
        *got += n > 0 ? (size_t)n : 0;
    }
    return LT_STREAM_DONE;
}

/* Receives the rest of a payload, of which `got` bytes are in the small buffer. */
static lt_stream_end receive_payload(lt_stream *s, lt_frame *frame, size_t got, double deadline)
{
    char *at = s->small + LT_FRAME_BYTES;
    if (frame->bytes > sizeof s->small - LT_FRAME_BYTES) {
        s->large = lt_realloc(NULL, 1, frame->bytes);
        if (!s->large)
            return LT_STREAM_NOMEM;
        at = memcpy(s->large, at, got);
    }
    frame->data = at;
    return receive_at_least(s->fd, at, frame->bytes, frame->bytes, &got, deadline);
}

lt_stream_end lt_stream_receive(lt_stream *s, lt_frame *frame, size_t most, double deadline)
{
    size_t got = 0;
    lt_stream_clear(s);
    if (!isinf(deadline) && !lt_socket_wait(s->fd, POLLIN, deadline))
        return LT_STREAM_LATE;
    const lt_stream_end end =
        receive_at_least(s->fd, s->small, LT_FRAME_BYTES, sizeof s->small, &got, deadline);
    if (end)
        return end;
    const lt_status st = lt_frame_read_header(frame, s->small, most);
    if (st)
        return st == LT_E_UNSUPPORTED ? LT_STREAM_OTHER : LT_STREAM_FORGED;
    got -= LT_FRAME_BYTES;
    if (got > frame->bytes) {
        (void)lt_fail(LT_E_FORMAT, "service: message of %zu bytes is followed by more: got %zu",
                      frame->bytes, got);
        return LT_STREAM_FORGED;
    }
    return receive_payload(s, frame, got, deadline);
}

void lt_stream_clear(lt_stream *s)
{
    lt_free(s->large);
    s->large = NULL;
}
