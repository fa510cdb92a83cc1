/* One sample of a data set to one input: out of the cache of pictures, or read. */
#ifndef LT_DATA_SAMPLE_H
#define LT_DATA_SAMPLE_H

#include "data/cache/picture_cache.h"
#include "data/transform/transform.h"

typedef struct lt_sample {
    const lt_dataset *dataset;
    lt_picture_cache *cache; /* NULL: none */
    const lt_transform *transform;
    int64_t index;
    uint64_t key; /* of its random numbers */
} lt_sample;

/* Bytes of an input: of a picture size x size, of numbers the data set's shape. */
size_t lt_sample_bytes(const lt_dataset *dataset, int size);

/* Writes the label and the input, [size][size][channels], or numbers as a tensor of them is stored. *fatal: a failure that another sample in its
 * place would not mend; the message names the sample then. */
lt_status lt_sample_make(const lt_sample *sample, lt_scratch *scratch, int32_t *label, uint8_t *out,
                         bool *fatal);

#endif
