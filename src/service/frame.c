/* Frames: 16 bytes, little-endian, then the payload. */

#include "service/frame.h"

#include "lather/ext/fail.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static const char magic[3] = {'L', 'T', 'S'}, version = '2';
enum { VERSION_AT = sizeof magic, KIND_AT, STATUS_AT, BYTES_AT = 8, BYTE_BITS = 8 };

void lt_frame_write_header(void *header, const lt_frame *frame)
{
    uint8_t *h = header;
    memset(h, 0, LT_FRAME_BYTES);
    memcpy(h, magic, sizeof magic);
    h[VERSION_AT] = (uint8_t)(frame->version ? frame->version : version);
    h[KIND_AT] = (uint8_t)frame->kind;
    h[STATUS_AT] = (uint8_t)frame->status;
    for (int i = 0; i < (int)sizeof(uint64_t); i++)
        h[BYTES_AT + i] = (uint8_t)((uint64_t)frame->bytes >> (BYTE_BITS * i));
}

lt_status lt_frame_read_header(lt_frame *frame, const void *header, size_t most)
{
    const uint8_t *h = header;
    if (memcmp(h, magic, sizeof magic) != 0 || h[VERSION_AT] < '1' || h[VERSION_AT] > '9')
        return lt_fail(LT_E_FORMAT, "service: message of another protocol");
    frame->version = (char)h[VERSION_AT];
    if (frame->version != version)
        return lt_fail(
            LT_E_UNSUPPORTED,
            "service: protocol versions %c and %c differ: use the same version of Lather on both "
            "sides",
            frame->version, version);
    uint64_t payload = 0;
    for (int i = 0; i < (int)sizeof payload; i++)
        payload |= (uint64_t)h[BYTES_AT + i] << (BYTE_BITS * i);
    if (h[KIND_AT] < LT_FRAME_CALL || h[KIND_AT] >= LT_FRAME_KINDS)
        return lt_fail(LT_E_FORMAT, "service: unknown message kind %u", h[KIND_AT]);
    const bool is_error = h[KIND_AT] == LT_FRAME_ERROR;
    if (is_error != (h[STATUS_AT] != LT_OK) || h[STATUS_AT] > LT_END)
        return lt_fail(LT_E_FORMAT, "service: message of kind %u with invalid status %u",
                       h[KIND_AT], h[STATUS_AT]);
    if (payload > most)
        return lt_fail(LT_E_FORMAT,
                       "service: message of %" PRIu64 " bytes, at most %zu are allowed", payload,
                       most);
    *frame = (lt_frame){.kind = (lt_frame_kind)h[KIND_AT],
                        .status = (lt_status)h[STATUS_AT],
                        .bytes = (size_t)payload,
                        .version = version};
    return LT_OK;
}

const char *lt_frame_payload_text(const lt_frame *frame, const char *other)
{
    const char *text = frame->data;
    return frame->bytes && !text[frame->bytes - 1] ? text : other;
}
