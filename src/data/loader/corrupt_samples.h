/* Lists samples that could not be read or decoded. */
#ifndef LT_DATA_CORRUPT_SAMPLES_H
#define LT_DATA_CORRUPT_SAMPLES_H

#include "lather/ext/dataset.h"

typedef struct lt_corrupt_sample {
    int64_t index; /* index of the sample in the data set */
    int row;       /* row of the sample in the batch */
    char *why;     /* name of the sample and reason; owned */
} lt_corrupt_sample;

/* Corrupt samples that a thread found while making one row of a batch. Starts as {0}. */
typedef struct lt_corrupt_samples {
    lt_corrupt_sample *item;
    size_t count, capacity;
} lt_corrupt_samples;

/* Adds the sample with the thread's last error message as the reason. Errors: LT_E_NOMEM. */
lt_status lt_corrupt_samples_add(lt_corrupt_samples *f, const lt_dataset *d, int64_t index,
                                 int row);
void lt_corrupt_samples_clear(lt_corrupt_samples *f);

/* Adds the sample's name to the last error message and returns st. For failures that replacing the sample cannot fix,
 * such as out of memory or a missing library. */
lt_status lt_add_sample_name_to_error(const lt_dataset *d, int64_t index, lt_status st);

/* All corrupt samples that a loader found, each once. */
typedef struct lt_corrupt_list {
    char **text; /* [count] name of each sample and the reason */
    size_t count, capacity;
    uint8_t *seen; /* a bit per sample of the data set: it is in the list */
} lt_corrupt_list;

/* Adds the sample unless it is in the list. Errors: LT_E_NOMEM. */
lt_status lt_corrupt_list_add(lt_corrupt_list *list, const lt_corrupt_sample *sample);
void lt_corrupt_list_clear(lt_corrupt_list *list);

#endif
