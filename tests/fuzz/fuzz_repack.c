/* Rewriting JPEG with the same coefficients: any bytes give a status, or a file of the same size in
 * pixels. */

#include "base/alloc.h"
#include "data/formats/image.h"
#include "data/formats/jpeg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST = 1 << 18 }; /* pixels: beyond it a run takes too long */

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
