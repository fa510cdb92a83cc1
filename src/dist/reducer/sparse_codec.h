/* Codec of sparse messages: the values of selected elements, then their indices. */
#ifndef LT_DIST_REDUCER_SPARSE_CODEC_H
#define LT_DIST_REDUCER_SPARSE_CODEC_H

#include "lather/tensor.h"

/* Encoding of indices, and its bytes for `count` of `elements`:
 *   INDICES  4 count: 32-bit indices
 *   BLOCKS  2 count + 2 ceil(elements / 4096): the count of each block of 4096 elements, then each index in its block
 *   BITS    ceil(elements / 8): a bitmap */
typedef enum lt_sparse_form { LT_SPARSE_INDICES, LT_SPARSE_BLOCKS, LT_SPARSE_BITS } lt_sparse_form;

/* Layout of a message, derived from the first four members, so that ranks agree without communication. */
typedef struct lt_sparse {
    int64_t elements, count;
    lt_dtype dtype;      /* dtype of the values: f32, f64, bf16, f16 */
    bool two_bits;       /* values are a sign and one of two levels */
    lt_sparse_form form; /* the smallest encoding of the indices, the first of equal ones */
    int64_t value_bytes; /* bytes of the values, padded to a multiple of 4 */
    int64_t bytes;       /* size of the message, a multiple of 4 */
} lt_sparse;

/* Returns ceil(density elements), at most elements. */
int64_t lt_sparse_count_selected(double density, int64_t elements);
lt_sparse lt_sparse_layout(int64_t elements, int64_t count, lt_dtype dtype);
/* Layout of f32 values in two bits: each block of 4096 selected elements has two f32 levels, low and high, and each value
 * a sign and its level. With m the mean of |v| in the block, low is the mean of the |v| <= m and high that of the others,
 * which minimizes the squared error of that partition. */
lt_sparse lt_sparse_layout_2bit(int64_t elements, int64_t count);

/* Encodes elements x[index] (f64 if dtype is, else f32); index is ascending. message is aligned to 8 bytes, for
 * lt_sparse_add_message() to 4. */
void lt_sparse_encode(const lt_sparse *p, const void *x, const uint32_t *index, void *message);
/* Adds a message: x[index] += sign * value for all its values; x is f32 or f64. Errors: LT_E_COMM (invalid). */
LT_MUST_CHECK lt_status lt_sparse_add_message(const lt_sparse *p, const void *message, double sign,
                                              void *x, lt_dtype dtype);

#endif
