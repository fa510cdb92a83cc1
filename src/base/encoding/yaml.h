/* Flat YAML: key: scalar, and key: list of scalars. Read by libyaml. */
#ifndef LT_BASE_YAML_H
#define LT_BASE_YAML_H

#include "lather/status.h"

/* Gets each pair; a list calls once per element, with the same key. */
typedef lt_status lt_yaml_fn(void *context, const char *key, const char *value, int line);

/* Errors: LT_E_IO; LT_E_FORMAT (no YAML, not flat, a key twice), with path and line; what fn says,
 * with the path in front; LT_E_UNSUPPORTED (built without libyaml). */
LT_MUST_CHECK lt_status lt_yaml_read(const char *path, lt_yaml_fn *fn, void *context);

#endif
