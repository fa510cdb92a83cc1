/* Whether a BMP or GIF file is whole: stb_image takes what is missing for zeros. */
#ifndef LT_DATA_STB_WHOLE_H
#define LT_DATA_STB_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: the file ends within the pixels, those of the first frame of a GIF. Other formats, and what
 * is no such file, are for stb_image to judge. */
bool lt_stb_is_whole(const uint8_t *bytes, size_t size);

#endif
