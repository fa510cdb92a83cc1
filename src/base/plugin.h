/* Plugins of hardware, liblather-KIND.so, which lie beside the library and are loaded when they are
 * asked for. */
#ifndef LT_BASE_PLUGIN_H
#define LT_BASE_PLUGIN_H

#include "lather/status.h"

#include <stdbool.h>

/* *table: what the plugin exports under the name symbol. It stays loaded. user ("comm mpi") begins
 * the message. Errors: LT_E_UNSUPPORTED: there is none, or it, or a library it needs, cannot be
 * loaded. */
lt_status lt_plugin_open(const char *user, const char *kind, const char *symbol,
                         const void **table);
/* LT_OK if the plugin was built from this version of the library. */
lt_status lt_plugin_check_version(const char *user, const char *version);
/* Whether there is a file to load. */
bool lt_plugin_exists(const char *kind);

#endif
