/* INI text: sections of key = value lines; an indented line continues the previous value. */
#ifndef LT_LAUNCH_INI_H
#define LT_LAUNCH_INI_H

#include "lather/status.h"

#include <stdio.h>

/* Called for each section with key NULL, then for its keys. A failure stops the parser; its message is prefixed by path
 * and line. */
typedef lt_status (*lt_ini_visit)(void *context, const char *section, const char *key,
                                  const char *value);
/* Parses a file; path is for messages. Errors: LT_E_FORMAT; the callback's. */
LT_MUST_CHECK lt_status lt_ini_read(FILE *file, const char *path, lt_ini_visit visit,
                                    void *context);

#endif
