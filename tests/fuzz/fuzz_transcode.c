/* Lossless JPEG transcoding: any bytes give an error, or a JPEG of the same width and height. */

#include "base/alloc.h"
#include "data/formats/image.h"
#include "data/formats/jpeg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST = 1 << 18 }; /* pixels, to limit the time */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    int32_t width, height, w, h;
    uint8_t *out = NULL;
    size_t out_size = 0;
    if (lt_jpeg_size(bytes, size, &width, &height) || (int64_t)width * height > MOST)
        return 0;
    if (!lt_jpeg_transcode(bytes, size, &out, &out_size)
        && (lt_jpeg_size(out, out_size, &w, &h) || w != width || h != height))
        abort();
    lt_free(out);
    return 0;
}
