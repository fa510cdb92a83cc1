/* INI text: sections of key = value lines; a line that begins with a blank continues the value before. */
#ifndef LT_LAUNCH_INI_H
#define LT_LAUNCH_INI_H

#include "lather/status.h"

#include <stdio.h>

/* Calls with each section, key NULL, then with its keys. A failure of the callback ends the reading; its message has
 * path and line put in front. */
typedef lt_status (*lt_ini_visit)(void *context, const char *section, const char *key,
                                  const char *value);
/* path: for messages. Errors: LT_E_FORMAT. */
LT_MUST_CHECK lt_status lt_ini_read(FILE *file, const char *path, lt_ini_visit visit,
                                    void *context);

#endif
