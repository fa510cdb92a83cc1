/* The client's side of a data set that services have. */
#ifndef LT_DATA_REMOTE_H
#define LT_DATA_REMOTE_H

#include "base/token.h"

#include "lather/ext/dataset.h"

/* What a loader wants made; as lt_sample has it. */
typedef struct lt_remote_sample {
    int64_t index;
    uint64_t key, epoch_key;
    const lt_transform *transform;
    size_t label_bytes, bytes; /* of what comes */
} lt_remote_sample;

/* As lt_sample_make(), of a data set with d->remote; the message of a failure is the whole description. */
lt_status lt_remote_make(const lt_dataset *d, const lt_remote_sample *sample, int32_t *label,
                         uint8_t *out, bool *fatal);

/* *secret NULL: that of LATHER_JOB_TOKEN or of the file that LATHER_JOB_TOKEN_FILE names, which goes into text; NULL if
 * there is neither. Errors: LT_E_IO, LT_E_ARG. */
lt_status lt_remote_secret(char text[LT_TOKEN_BYTES], const char **secret);

#endif
