/* Messages of selected elements: their values, then where they are. */
#ifndef LT_DIST_REDUCER_SPARSE_CODEC_H
#define LT_DIST_REDUCER_SPARSE_CODEC_H

#include "lather/tensor.h"

/* How places are written. Bytes for `count` of `elements`:
 *   PLACES  4 count: each place
 *   CHUNKS  2 count + 2 ceil(elements / 4096): of each chunk of 4096 elements, how many there are; then each
 *           place in its chunk
 *   BITS    ceil(elements / 8): a bit for each element */
typedef enum lt_sparse_form { LT_SPARSE_PLACES, LT_SPARSE_CHUNKS, LT_SPARSE_BITS } lt_sparse_form;

/* Derived from the first four members, so that ranks agree without a message. */
typedef struct lt_sparse {
    int64_t elements, count;
    lt_dtype dtype;      /* of values: f32, f64, bf16, f16 */
    bool two_bits;       /* they are a sign and one of two levels */
    lt_sparse_form form; /* with the fewest bytes; the first of those */
    int64_t value_bytes; /* values, filled up to a multiple of 4 */
    int64_t bytes;       /* of the message, a multiple of 4 */
} lt_sparse;

/* ceil(density elements), at most all. */
int64_t lt_sparse_count(double density, int64_t elements);
lt_sparse lt_sparse_plan(int64_t elements, int64_t count, lt_dtype dtype);
/* Values of f32 in two bits, in blocks of 4096 selected elements: two f32 levels, low and high, and for each value its
 * sign and which level. With m the mean of |v| in the block, low is the mean of the |v| <= m and high that of the
 * others: the best levels, in squares, for that division. */
lt_sparse lt_sparse_plan_2bit(int64_t elements, int64_t count);

/* Elements are f64 if dtype is, else f32; memory to write a message is aligned to 8, to read it to 4. index: ascending. */
void lt_sparse_write(const lt_sparse *p, const void *x, const uint32_t *index, void *message);
/* x[index] += sign * value, for every value of the message; x is f32 or f64. Errors: LT_E_COMM (not such a message). */
LT_MUST_CHECK lt_status lt_sparse_add(const lt_sparse *p, const void *message, double sign, void *x,
                                      lt_dtype dtype);

#endif
