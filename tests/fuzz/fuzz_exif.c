/* EXIF orientation: any bytes give 1 to 8 without reads past the end. The input is used as a file and as the content of
 * an APP1 segment, so that the fuzzer reaches the TIFF part. */

#include "base/alloc.h"
#include "data/formats/exif.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look(const uint8_t *bytes, size_t size)
{
    int turn = lt_exif_orientation(bytes, size);
    LT_ASSERT(turn >= LT_EXIF_UPRIGHT && turn <= LT_EXIF_MOST);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { MOST = 0xFFFF - 2 - 6, HEAD = 12 };
    look(bytes, size);
    size = size < MOST ? size : MOST;
    size_t length = size + 8;
    uint8_t head[HEAD] = {0xFF, 0xD8, 0xFF, 0xE1, (uint8_t)(length >> 8), (uint8_t)length, 'E', 'x',
                          'i',  'f',  0,    0};
    uint8_t *file = malloc(HEAD + size); /* exact size, so that a sanitizer detects overreads */
    if (!file)
        abort();
    memcpy(file, head, HEAD);
    if (size)
        memcpy(file + HEAD, bytes, size);
    look(file, HEAD + size);
    free(file);
    return 0;
}
