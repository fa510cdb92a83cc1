/* Broken pictures, each once. */
#ifndef LT_DATA_BAD_LIST_H
#define LT_DATA_BAD_LIST_H

#include "data/loader/ring.h"

typedef struct lt_bad_list {
    char **text; /* path and why */
    size_t count, capacity;
    uint8_t *seen; /* a bit per sample */
} lt_bad_list;

/* Adds a picture that was not known to be broken. Errors: LT_E_NOMEM. */
lt_status lt_bad_list_add(lt_bad_list *list, const lt_report *report);
void lt_bad_list_clear(lt_bad_list *list);

#endif
