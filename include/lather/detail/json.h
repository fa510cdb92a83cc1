/** JSON (RFC 8259): a strict reader, for untrusted files, and a writer. */
#ifndef LATHER_DETAIL_JSON_H
#define LATHER_DETAIL_JSON_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lt_json_type {
    LT_JSON_NULL,
    LT_JSON_BOOL,
    LT_JSON_NUMBER,
    LT_JSON_STRING,
    LT_JSON_ARRAY,
    LT_JSON_OBJECT
} lt_json_type;

/** One value of a document; all pointers are borrowed from it. */
typedef struct lt_json_value {
    lt_json_type type;
    bool boolean;
    bool is_integer; /**< a number without point and exponent that fits integer */
    int64_t integer;
    double number;
    const char *string;                 /**< text of a string: UTF-8, no NUL inside */
    const char *key;                    /**< key of a member; NULL outside an object */
    struct lt_json_value *child, *next; /**< members or elements, in the order of the text */
    size_t count;                       /**< number of children */
    size_t offset;                      /**< offset of the value in the text, for messages */
} lt_json_value;

/** A document; owns its values. */
typedef struct lt_json lt_json;

/** Parses bytes of text. name prefixes messages, which contain line and column. Arrays and objects
 *  nest at most depth levels (1 .. 64).
 *  Errors: LT_E_FORMAT (duplicate keys, text after the value, control characters, bad UTF-8, lone
 *  surrogates, NUL), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_json_parse(lt_json **out, const char *text, size_t bytes,
                                             const char *name, int depth);
/** Reads and parses a file of at most 64 MiB. Errors: LT_E_IO, and those of lt_json_parse(). */
LT_API LT_MUST_CHECK lt_status lt_json_load(lt_json **out, const char *path);
LT_API void lt_json_free(lt_json **json);
LT_API const lt_json_value *lt_json_root(const lt_json *json);

/** Returns a member, or NULL if object is NULL, not an object, or has no such key. */
LT_API const lt_json_value *lt_json_member(const lt_json_value *object, const char *key);
/** Read required members of a given type. Errors: LT_E_FORMAT, with the key. */
LT_API LT_MUST_CHECK lt_status lt_json_integer(const lt_json_value *object, const char *key,
                                               int64_t *value);
LT_API LT_MUST_CHECK lt_status lt_json_number(const lt_json_value *object, const char *key,
                                              double *value);
LT_API LT_MUST_CHECK lt_status lt_json_string(const lt_json_value *object, const char *key,
                                              const char **value);

/** Growing text; starts as {0}. lt_json_text() reports an earlier failure. Keys are NULL in arrays and
 *  for the outermost value. */
typedef struct lt_json_writer {
    char *text;
    size_t bytes, capacity;
    lt_status status;
    int depth;
    char close[64]; /**< bracket that closes each level */
    bool has_items; /**< in the innermost level: a comma precedes the next item */
} lt_json_writer;

/** Open an object or array, and close the innermost. */
LT_API void lt_json_begin_object(lt_json_writer *w, const char *key);
LT_API void lt_json_begin_array(lt_json_writer *w, const char *key);
LT_API void lt_json_end(lt_json_writer *w);
/** Writes a string; NULL: null. Bytes that are not UTF-8 become U+FFFD: escape names by lt_text_escape() first. */
LT_API void lt_json_put_string(lt_json_writer *w, const char *key, const char *value);
LT_API void lt_json_put_integer(lt_json_writer *w, const char *key, int64_t value);
/** Writes a number in the shortest digits that read back as the same double; null if it is not finite. */
LT_API void lt_json_put_number(lt_json_writer *w, const char *key, double value);
LT_API void lt_json_put_bool(lt_json_writer *w, const char *key, bool value);
/** Writes raw characters between values: a newline for readability. */
LT_API void lt_json_put_raw(lt_json_writer *w, const char *text);
/** Returns the text, NUL-terminated, borrowed from the writer. Errors: an earlier failure. */
LT_API LT_MUST_CHECK lt_status lt_json_text(lt_json_writer *w, const char **text, size_t *bytes);
/** Writes text and a newline to a file. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_json_save(lt_json_writer *w, const char *path);
/** Empties the writer but keeps its memory: for consecutive lines. */
LT_API void lt_json_rewind(lt_json_writer *w);
LT_API void lt_json_writer_clear(lt_json_writer *w);

#endif
