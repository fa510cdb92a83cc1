/* Requests for samples and responses, as bytes. Client and service must have the same version and byte order; the first
 * word of each message ensures this. */
#ifndef LT_DATA_CODEC_H
#define LT_DATA_CODEC_H

#include "lather/data.h"

#define LT_DATA_MAGIC UINT32_C(0x4C544402) /* first word of each message: "LTD", version 2 */

typedef enum lt_request_kind {
    LT_REQUEST_INFO,   /* response: lt_data_info, then NUL-terminated class names if it has names */
    LT_REQUEST_RECORD, /* response: lt_data_record, then its bytes */
    LT_REQUEST_SAMPLE, /* response: labels, then the input */
    LT_REQUEST_KINDS
} lt_request_kind;

enum { LT_REQUEST_INTEGERS = 12, LT_REQUEST_REALS = 16 };

typedef struct lt_data_request {
    uint32_t magic, kind, train, unused;
    uint64_t data; /* data set, as in lt_data_info.data; unused in LT_REQUEST_INFO */
    int64_t index;
    uint64_t key, epoch_key;
    int64_t integer[LT_REQUEST_INTEGERS]; /* integer fields of the transform */
    double real[LT_REQUEST_REALS];
} lt_data_request;

/* Header of a response. After it: the data, or for a sample that cannot be made the error message without a NUL. */
typedef struct lt_data_response {
    uint32_t magic;
    int32_t status; /* lt_status of the sample */
    uint32_t fatal; /* replacing the sample would not help: see lt_sample_make() */
    uint32_t unused;
} lt_data_response;

typedef struct lt_data_info {
    uint64_t data;        /* hash of the fields below and of the library's version */
    uint64_t fingerprint; /* lt_dataset_fingerprint() of the data */
    int64_t count, dim[LT_MAX_DIMS];
    int32_t classes, channels, ndim, tokens, names, unsplit;
} lt_data_info;

typedef struct lt_data_record {
    int32_t encoding, width, height, channels, label, unused;
} lt_data_record;

void lt_encode_transform(lt_data_request *to, const lt_transform *transform);
/* Reads and checks the transform of a request. Errors: LT_E_ARG (values out of range). */
lt_status lt_decode_transform(lt_transform *out, const lt_data_request *from);

#endif
