/* Stands in for jpeg_write.c in a build without libjpeg. */

#include "data/pack/pack.h"

lt_status lt_jpeg_repack(const uint8_t *bytes, size_t size, uint8_t **out, size_t *out_size)
{
    (void)bytes, (void)size, (void)out, (void)out_size;
    return lt_fail(LT_E_UNSUPPORTED, "pack: this build lacks libjpeg");
}

lt_status lt_jpeg_encode(const lt_pixels *picture, int quality, uint8_t **out, size_t *out_size)
{
    (void)picture, (void)quality, (void)out, (void)out_size;
    return lt_fail(LT_E_UNSUPPORTED, "pack: this build lacks libjpeg");
}
