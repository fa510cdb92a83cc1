/* JSON declarations in addition to lather/detail/json.h. */
#ifndef LT_BASE_JSON_H
#define LT_BASE_JSON_H

#include "lather/detail/json.h"

/* Callback for each member of the outermost object, which is valid during the call; its strings live as long as the
 * document. */
typedef lt_status lt_json_visit(void *context, const lt_json_value *member);
typedef struct lt_json_visitor {
    const char *name;
    int depth;
    size_t most; /* largest number of values in one member */
    lt_json_visit *visit;
    void *context;
} lt_json_visitor;
/* Parses an object too large for memory: frees each member after the visit and leaves the root empty. Does not check
 * for duplicate keys of the root. Errors: as lt_json_parse(). */
LT_MUST_CHECK lt_status lt_json_parse_members(lt_json **out, const char *text, size_t bytes,
                                              const lt_json_visitor *visitor);

/* Reads a whole file of at most 64 MiB and appends a NUL; free *text with lt_free(). */
LT_MUST_CHECK lt_status lt_json_read_file(const char *path, char **text, size_t *bytes);

#endif
