/* Declarations shared by the JSON parser and writer, beyond lather/detail/json.h. */
#ifndef LT_BASE_JSON_H
#define LT_BASE_JSON_H

#include "lather/detail/json.h"

/* Called with each member of the outermost object; it lives until the visitor returns, its strings as long
 * as the document. */
typedef lt_status lt_json_visit(void *context, const lt_json_value *member);
typedef struct lt_json_visitor {
    const char *name;
    int depth;
    size_t most; /* values in one member */
    lt_json_visit *visit;
    void *context;
} lt_json_visitor;
/* As lt_json_parse(), of an object too large to be kept as a whole: each member is freed after the visit,
 * the root stays empty. Members of the same key are the visitor's business. */
LT_MUST_CHECK lt_status lt_json_each(lt_json **out, const char *text, size_t bytes,
                                     const lt_json_visitor *visitor);

/* The whole file, at most 64 MiB, with a NUL behind it; free with lt_free(). */
LT_MUST_CHECK lt_status lt_json_read_file(const char *path, char **text, size_t *bytes);

#endif
