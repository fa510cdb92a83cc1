/* Restricted reader of Python's pickle format: tensors of PyTorch, containers and plain values. Nothing is executed. */
#ifndef LT_TENSOR_PICKLE_H
#define LT_TENSOR_PICKLE_H

#include "base/arena.h"

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum lt_pickle_kind {
    LT_PICKLE_PLAIN, /* None, a float, an integer beyond 64 bits (its bytes), an object without contents */
    LT_PICKLE_INT,  /* an integer, or a bool */
    LT_PICKLE_TEXT, /* str or bytes */
    LT_PICKLE_LIST, /* list, tuple or set */
    LT_PICKLE_DICT, /* keys and values alternate in item */
    LT_PICKLE_GLOBAL,
    LT_PICKLE_STORAGE, /* item: "storage", its class, key, device, elements, view */
    LT_PICKLE_TENSOR,  /* item: storage, offset, sizes, strides; their kinds are checked */
    LT_PICKLE_MARK
} lt_pickle_kind;

typedef struct lt_pickle_value {
    lt_pickle_kind kind;
    int64_t integer;  /* value if kind is LT_PICKLE_INT */
    const char *text; /* not NUL-terminated, but the dtype of a storage's class, "F32" */
    size_t bytes;     /* length of text */
    struct lt_pickle_value **item;
    size_t count, capacity; /* elements in item, and its size */
} lt_pickle_value;

/* A list of values that grows. */
typedef struct lt_pickle_list {
    lt_pickle_value **item; /* free with lt_free() */
    size_t count, capacity;
} lt_pickle_list;

/* Reads a pickle at *at, advances *at to the byte after it, and sets *root. Values are the arena's; texts point to
 * the input. Storages are appended to `storages`. path is for messages. Errors: LT_E_FORMAT (truncated, malformed, too
 * large), LT_E_UNSUPPORTED (a class or function other than those of tensors, named), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_pickle_read(lt_pickle_value **root, const char **at, const char *end,
                                       const char *path, lt_arena *arena, lt_pickle_list *storages);

#endif
