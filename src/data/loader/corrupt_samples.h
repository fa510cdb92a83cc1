/* Samples that could not be read or decoded. */
#ifndef LT_DATA_BROKEN_H
#define LT_DATA_BROKEN_H

#include "lather/ext/dataset.h"

/* Why a sample is broken. */
typedef struct lt_broken_sample {
    int64_t index; /* in the data set */
    int place;     /* in the batch */
    char *why;
} lt_broken_sample;

/* Broken samples that a thread met while making one place of a batch. Starts as {0}. */
typedef struct lt_broken_samples {
    lt_broken_sample *item;
    size_t count, capacity;
} lt_broken_samples;

/* Adds the sample with the thread's last message. Errors: LT_E_NOMEM. */
lt_status lt_broken_samples_add(lt_broken_samples *f, const lt_dataset *d, int64_t index,
                                int place);
void lt_broken_samples_clear(lt_broken_samples *f);

/* For failures that replacing the sample cannot fix (out of memory, a missing library): returns st,
 * with the sample's name in the message. */
lt_status lt_broken_fatal(const lt_dataset *d, int64_t index, lt_status st);

/* A loader's broken samples, each once. */
typedef struct lt_broken_list {
    char **text; /* path and why */
    size_t count, capacity;
    uint8_t *seen; /* a bit per sample */
} lt_broken_list;

/* Adds the sample unless it is listed. Errors: LT_E_NOMEM. */
lt_status lt_broken_list_add(lt_broken_list *list, const lt_broken_sample *sample);
void lt_broken_list_clear(lt_broken_list *list);

#endif
