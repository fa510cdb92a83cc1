/* One encoded sample to one input: decode, crop, resample, flip. */
#ifndef LT_DATA_TRANSFORM_H
#define LT_DATA_TRANSFORM_H

#include "data/transform/augment.h"

#include "lather/ext/dataset.h"

#include <stdatomic.h>

/* A thread's workspace, reused from sample to sample. Start with {0}. */
typedef struct lt_scratch {
    lt_record record;
    lt_image image, turned, between;
    lt_taps x, y;
    const atomic_bool *stop; /* NULL, or set while the result is no longer wanted */
    double read_seconds, decode_seconds, resize_seconds; /* sums */
} lt_scratch;

void lt_scratch_clear(lt_scratch *scratch);

/* Writes scratch->record to out, [size][size][channels]. transform is checked already.
 * Errors: LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM; LT_E_COMM after *scratch->stop. */
lt_status lt_transform_run(const lt_transform *transform, int channels, lt_rng *rng,
                           lt_scratch *scratch, uint8_t *out);

#endif
