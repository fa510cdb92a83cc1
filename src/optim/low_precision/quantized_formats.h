/* How quantized state lies in memory, and the conversions, on arrays of the host.
 *
 * Elements are coded in blocks of neighbours in memory, each block with its largest magnitude s as its scale:
 *
 *   bf16            no blocks: rounded to nearest even
 *   int8, matrices  blocks of 64, s rounded to bf16; x is s c/127, c in [-127,127], nearest
 *   int4, matrices  blocks of 64, s rounded to bf16; x is +-s (c/7)^2, c in [0,7], nearest, as in Wang et al.
 *                   2024 (arXiv 2405.18144): small elements keep a relative error
 *   int8, moments   blocks of 128, s in f32; x is s times a level of a dynamic tree (Dettmers et al., 2021,
 *                   arXiv 2110.02861): seven decades, each with twice as many levels as the one below.
 *                   Moments >= 0 have no sign and twice the levels, and what is positive stays so: a second
 *                   moment of 0 would leave a step divided by epsilon alone.
 *
 * Scales below 2^-100 are 0; a block with an element that is not finite becomes NaN. Of a symmetric matrix
 * the diagonal stays f32 and the triangle below it is coded, row by row. A factor is coded as its Cholesky
 * factor: what is opened has no negative eigenvalue, whatever the rounding was. With int8 and int4 what the codes
 * leave is coded too, in 4 bits, and added where it is opened, so that the next rounding has it back (error
 * feedback: Li et al. 2024, arXiv 2412.10663, where the codes alone are opened).
 *
 * Rounding is to nearest, or stochastic: up with the probability that makes the mean the number itself (Gupta et
 * al. 2015, arXiv 1502.02551), so that an average which moves by less than half a level a step follows its
 * gradients all the same. A scale in bf16 is rounded likewise, and the largest element of a block is its scale. A
 * number that is a level stays; where errors are kept they are what is rounded so, and the codes to nearest. */
#ifndef LT_OPTIM_QUANTIZED_FORMATS_H
#define LT_OPTIM_QUANTIZED_FORMATS_H

#include "lather/detail/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lt_quantized_kind {
    LT_QUANTIZED_MOMENT,      /* any shape */
    LT_QUANTIZED_NONNEGATIVE, /* the same, all elements >= 0 */
    LT_QUANTIZED_MATRIX,      /* any shape, evenly spaced levels */
    LT_QUANTIZED_SYMMETRIC,   /* [n,n] */
    LT_QUANTIZED_CHOLESKY     /* [n,n], positive semidefinite */
} lt_quantized_kind;

typedef struct lt_quantized_format {
    lt_quantized_kind kind;
    lt_state_dtype dtype; /* int4 of matrices only; Shampoo's are factors and what codes leave */
} lt_quantized_format;

/* Draws of 16 bits are a function of these and of where an element lies, by Philox: they repeat in a run that
 * is resumed, or that is divided over another number of ranks or threads. */
typedef struct lt_quantized_rounding {
    bool stochastic; /* else to nearest, and the rest is not read */
    uint64_t key;    /* of the state */
    int64_t step;
} lt_quantized_rounding;

/* Bytes of `elements` elements; of squares n * n. */
int64_t lt_quantized_bytes(lt_quantized_format format, int64_t elements);
/* x: f32, in memory order. Squares are dense; of a Cholesky factor x is L below the diagonal. apart: of the
 * codes' errors too, which lie above it, transposed: so a checkpoint has them; else encoding does not read what
 * is above, and decoding leaves it as it is. */
void lt_quantized_encode(lt_quantized_format format, const float *x, int64_t elements,
                         unsigned char *memory, bool apart, lt_quantized_rounding rounding);
void lt_quantized_decode(lt_quantized_format format, const unsigned char *memory, int64_t elements,
                         bool apart, float *x);
/* In place: the lower triangle becomes C with C C^T = x. A pivot that is rounding's, below
 * max(n 2^-24, 1e-6) of the largest diagonal element, is that, and the column below it 0. */
void lt_quantized_cholesky(float *x, int64_t n);

#endif
