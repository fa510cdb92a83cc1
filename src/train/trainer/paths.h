/* Files that belong to the program: in the source tree it was built in, or installed beside it. */
#ifndef PLACES_H
#define PLACES_H

#include "lather/status.h"

#include <stddef.h>

/* Looks for a file above the program's folder: as FOLDER/in_source in any of the folders above a
 * build, or FOLDER/installed where the program lies in FOLDER/bin.
 * Errors: LT_E_IO (in neither place; names what was looked for). */
lt_status place_find(char *path, size_t size, const char *in_source, const char *installed);

#endif
