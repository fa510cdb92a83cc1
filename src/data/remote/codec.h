/* Requests for samples and their answers, as bytes. Both ends are of one version on machines of one byte order: the
 * first word says so, and what does not fit is refused. */
#ifndef LT_DATA_WIRE_H
#define LT_DATA_WIRE_H

#include "lather/data.h"

#define LT_WIRE_MAGIC UINT32_C(0x4C544401) /* "LTD", 1 */

typedef enum lt_wire_kind {
    LT_WIRE_INFO, /* of the data set: lt_wire_info, then classes' names, each with its NUL, if it has names */
    LT_WIRE_RECORD, /* lt_wire_record, then its bytes */
    LT_WIRE_SAMPLE, /* labels, then the input */
    LT_WIRE_KINDS
} lt_wire_kind;

enum { LT_WIRE_WHOLE = 12, LT_WIRE_REAL = 12 };

typedef struct lt_wire_request {
    uint32_t magic, kind, train, unused;
    uint64_t data; /* lt_wire_info.data; not of LT_WIRE_INFO */
    int64_t index;
    uint64_t key, epoch_key;
    int64_t whole[LT_WIRE_WHOLE]; /* of the transform */
    double real[LT_WIRE_REAL];
} lt_wire_request;

/* In front of what was asked for; of a sample that cannot be made: of the message, without a NUL. */
typedef struct lt_wire_answer {
    uint32_t magic;
    int32_t status; /* lt_status of the sample */
    uint32_t fatal; /* its failure is not the sample's */
    uint32_t unused;
} lt_wire_answer;

typedef struct lt_wire_info {
    uint64_t data;        /* hash of all that follows, and of the version */
    uint64_t fingerprint; /* lt_dataset_fingerprint() */
    int64_t count, dim[LT_MAX_DIMS];
    int32_t classes, channels, ndim, tokens, names, unsplit;
} lt_wire_info;

typedef struct lt_wire_record {
    int32_t encoding, width, height, channels, label, unused;
} lt_wire_record;

void lt_wire_put_transform(lt_wire_request *to, const lt_transform *transform);
/* Errors: LT_E_ARG (values that no loader asks for). */
lt_status lt_wire_get_transform(lt_transform *out, const lt_wire_request *from);

#endif
