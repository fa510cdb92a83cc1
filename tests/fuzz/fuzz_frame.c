/* A message between client and service: any bytes give a status, or a payload that lies inside them. */

#include "service/frame.h"

#include "lather/ext/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    lt_frame frame;
    if (lt_frame_read(&frame, bytes, size))
        return 0;
    const uint8_t *data = frame.data;
    LT_ASSERT(data >= bytes && data + frame.bytes == bytes + size);
    uint64_t said = 0; /* by the header, as src/service/frame.h has it */
    for (int i = 15; i >= 8; i--)
        said = said << 8 | bytes[i];
    LT_ASSERT(said == frame.bytes);
    unsigned sum = 0;
    for (size_t i = 0; i < frame.bytes; i++)
        sum += data[i];
    LT_ASSERT(frame.bytes || !sum);
    LT_ASSERT((frame.status != LT_OK) == (frame.kind == LT_FRAME_ERROR));
    return 0;
}
