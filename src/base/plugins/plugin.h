/* Hardware plugins, liblather-KIND.so, which are installed next to the library and loaded on demand. */
#ifndef LT_BASE_PLUGIN_H
#define LT_BASE_PLUGIN_H

#include "lather/status.h"

#include <stdbool.h>

/* Loads a plugin permanently and sets *table to its symbol. user ("comm mpi"): prefix of messages. Errors:
 * LT_E_UNSUPPORTED (absent, or it or a library it needs cannot be loaded). */
lt_status lt_plugin_open(const char *user, const char *kind, const char *symbol,
                         const void **table);
/* Checks that a plugin was built from this version of the library. Errors: LT_E_UNSUPPORTED. */
lt_status lt_plugin_check_version(const char *user, const char *version);
/* Returns true if the plugin's file exists. */
bool lt_plugin_exists(const char *kind);

#endif
