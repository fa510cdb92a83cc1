/* Contents of cuBLASLt's opaque descriptors in the stand-in. */
#ifndef LT_TESTS_STANDIN_CUBLASLT_H
#define LT_TESTS_STANDIN_CUBLASLT_H

#include "open_things.h"

#include <cublasLt.h>

namespace blaslt
{

extern open_things things;

struct operation : cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    int32_t scale, pointer_mode, transpose_a, transpose_b;
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type;
};
struct layout : cublasLtMatrixLayoutOpaque_t {
    int32_t type, order, batches;
    int64_t rows, columns, leading, batch_stride;
};
struct preference : cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace;
    uint32_t schemes, alignment[4];
};

} /* namespace blaslt */

#endif
