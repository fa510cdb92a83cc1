/* Flat YAML by libyaml: key: scalar, and key: list of scalars. */
#ifndef LT_BASE_YAML_H
#define LT_BASE_YAML_H

#include "lather/status.h"

/* Callback for each pair; for a list once per element, with the same key. */
typedef lt_status lt_yaml_fn(void *context, const char *key, const char *value, int line);

/* Reads a file and calls fn with each pair. Errors: LT_E_IO; LT_E_FORMAT (not YAML, not flat, duplicate keys), with
 * path and line; fn's errors, prefixed by the path; LT_E_UNSUPPORTED (built without libyaml). */
LT_MUST_CHECK lt_status lt_yaml_read(const char *path, lt_yaml_fn *fn, void *context);

#endif
