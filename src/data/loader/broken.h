/* Samples that could not be read or decoded. */
#ifndef LT_DATA_BROKEN_H
#define LT_DATA_BROKEN_H

#include "lather/ext/dataset.h"

/* Why a sample is broken. */
typedef struct lt_report {
    int64_t index; /* in the data set */
    int place;     /* in the batch */
    char *why;
} lt_report;

/* Broken samples that a thread met while making one place of a batch. Starts as {0}. */
typedef struct lt_failures {
    lt_report *item;
    size_t count, capacity;
} lt_failures;

/* Adds the sample with the thread's last message. Errors: LT_E_NOMEM. */
lt_status lt_failures_add(lt_failures *f, const lt_dataset *d, int64_t index, int place);
void lt_failures_clear(lt_failures *f);

/* For failures that replacing the sample cannot fix (out of memory, a missing library): returns st, with the sample's name in the message. */
lt_status lt_failures_fatal(const lt_dataset *d, int64_t index, lt_status st);

/* A loader's broken samples, each once. */
typedef struct lt_bad_list {
    char **text; /* path and why */
    size_t count, capacity;
    uint8_t *seen; /* a bit per sample */
} lt_bad_list;

/* Adds an image that was not known to be broken. Errors: LT_E_NOMEM. */
lt_status lt_bad_list_add(lt_bad_list *list, const lt_report *report);
void lt_bad_list_clear(lt_bad_list *list);

#endif
