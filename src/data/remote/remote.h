/* Client of data services. */
#ifndef LT_DATA_REMOTE_H
#define LT_DATA_REMOTE_H

#include "base/token.h"

#include "lather/ext/dataset.h"

/* A sample to request; fields as in lt_sample. */
typedef struct lt_remote_sample {
    int64_t index;
    uint64_t key, epoch_key;
    const lt_transform *transform;
    size_t label_bytes, bytes; /* expected size of the sample's labels and of its input */
} lt_remote_sample;

/* As lt_sample_make(), but a data service makes the sample (d->remote). The error message already names it. */
lt_status lt_remote_make_sample(const lt_dataset *d, const lt_remote_sample *sample, int32_t *label,
                                uint8_t *out, bool *fatal);

/* If *secret is NULL, sets it to LATHER_JOB_TOKEN, or to the contents of the file LATHER_JOB_TOKEN_FILE, which are
 * stored in text. Leaves it NULL if neither is set. Errors: LT_E_IO, LT_E_ARG. */
lt_status lt_remote_secret_from_env(char text[LT_TOKEN_BYTES], const char **secret);

#endif
