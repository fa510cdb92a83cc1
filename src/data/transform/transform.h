/* Makes an input of an encoded sample: decodes, crops, resamples, flips, changes colours. */
#ifndef LT_DATA_TRANSFORM_H
#define LT_DATA_TRANSFORM_H

#include "data/transform/augment.h"

#include "lather/ext/dataset.h"

#include <stdatomic.h>

/* Workspace of a thread, reused from sample to sample. Starts as {0}. */
typedef struct lt_sample_workspace {
    lt_record record;
    lt_image image, stored, intermediate;
    lt_taps x, y;
    const atomic_bool *stop;                             /* set to abort; may be NULL */
    double read_seconds, decode_seconds, resize_seconds; /* sums over samples */
} lt_sample_workspace;

void lt_sample_workspace_clear(lt_sample_workspace *s);

/* Transforms s->record and writes it to out, [size][size][channels]. transform: after lt_transform_check().
 * Errors: LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM; LT_E_COMM after *s->stop. */
lt_status lt_transform_run(const lt_transform *transform, int channels, lt_rng *rng,
                           lt_sample_workspace *s, uint8_t *out);

#endif
