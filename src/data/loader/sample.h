/* One sample of a data set to one input, read or from the image cache. */
#ifndef LT_DATA_SAMPLE_H
#define LT_DATA_SAMPLE_H

#include "data/loader/image_cache.h"
#include "data/transform/transform.h"

typedef struct lt_sample {
    const lt_dataset *dataset;
    lt_image_cache *cache; /* NULL: none */
    const lt_transform *transform;
    int64_t index;
    uint64_t key;       /* of its random numbers */
    uint64_t epoch_key; /* as lt_record has it */
} lt_sample;

/* Bytes of an input: of an image size x size, of numbers the data set's shape. */
size_t lt_sample_bytes(const lt_dataset *dataset, int size);

/* Labels of a sample: 1, or as many as tokens. */
size_t lt_sample_labels(const lt_dataset *dataset);

/* Writes the labels and the input: [size][size][channels] of an image, numbers as their tensor
 * stores them. *fatal: the failure is not the sample's (out of memory, a missing library, a label
 * out of range), so that replacing it would not help; the message names the sample. */
lt_status lt_sample_make(const lt_sample *sample, lt_scratch *scratch, int32_t *label, uint8_t *out,
                         bool *fatal);

#endif
