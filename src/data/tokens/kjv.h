/* Reads the King James Bible from Debian's package bible-kjv-text. */
#ifndef LT_DATA_KJV_H
#define LT_DATA_KJV_H

#include "lather/status.h"

#include <stddef.h>

/* Reads the text, one verse per line, from the file $LATHER_KJV or that of the package; lt_free() *out. Errors:
 * LT_E_IO, naming the package; LT_E_FORMAT. */
lt_status lt_kjv_text(char **out, size_t *bytes);

/* Decodes the text of a file in memory; lt_free() *out. name: for messages. Errors: LT_E_FORMAT. */
lt_status lt_kjv_decode(const void *file, size_t file_bytes, const char *name, char **out,
                        size_t *bytes);

#endif
