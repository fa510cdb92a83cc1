/* What the parts of JSON share besides lather/json.h. */
#ifndef LT_BASE_JSON_H
#define LT_BASE_JSON_H

#include "lather/json.h"

/* The whole file, at most 64 MiB, with a NUL behind it; free with lt_free(). */
LT_MUST_CHECK lt_status lt_json_read_file(const char *path, char **text, size_t *bytes);

/* Where the number at c ends by the grammar, or NULL. */
const char *lt_json_number_end(const char *c, const char *end, bool *is_integer);

/* Bytes of the UTF-8 character at `at`, 1 to 4; 0: it is none. */
int lt_json_utf8(const char *at, const char *end);

#endif
