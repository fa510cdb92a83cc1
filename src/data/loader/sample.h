/* Makes one input: reads or finds a sample in the image cache, decodes and transforms it. */
#ifndef LT_DATA_SAMPLE_H
#define LT_DATA_SAMPLE_H

#include "data/loader/image_cache.h"
#include "data/transform/transform.h"

typedef struct lt_sample {
    const lt_dataset *dataset;
    lt_image_cache *cache; /* cache of decoded images; may be NULL */
    const lt_transform *transform;
    int64_t index;
    uint64_t key;       /* seed of the sample's random numbers */
    uint64_t epoch_key; /* value of lt_record.epoch_key */
} lt_sample;

/* Returns the bytes of an input: an image of size x size, or numbers of the data set's shape. */
size_t lt_sample_bytes(const lt_dataset *dataset, int size);

/* Returns the number of labels of a sample: 1, or one per token. */
size_t lt_sample_label_count(const lt_dataset *dataset);

/* Writes the labels and the input: [size][size][channels] for an image, numbers in the memory order of their tensor.
 * Sets *fatal if replacing the sample would not help (out of memory, a missing library, a label out of range); then the
 * message names the sample. */
lt_status lt_sample_make(const lt_sample *sample, lt_sample_workspace *workspace, int32_t *label,
                         uint8_t *out, bool *fatal);

#endif
