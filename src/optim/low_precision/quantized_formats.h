/* Storage formats of quantized state, and conversions on host arrays.
 *
 * Elements are quantized in blocks of consecutive elements; the scale s of a block is its largest magnitude:
 *
 *   bf16            no blocks: rounded to nearest even
 *   int8, matrices  blocks of 64, s rounded to bf16; x = s c/127, c in [-127,127], nearest
 *   int4, matrices  blocks of 64, s rounded to bf16; x = +-s (c/7)^2, c in [0,7], nearest, as in Wang et al.
 *                   2024 (arXiv 2405.18144): small elements keep a bounded relative error
 *   int8, moments   blocks of 128, s in f32; x = s times a level of a dynamic tree (Dettmers et al., 2021,
 *                   arXiv 2110.02861): seven decades, each with twice as many levels as the one below.
 *                   Moments >= 0 have no sign and twice the levels, and positive ones remain positive: a
 *                   second moment of 0 would divide a step by epsilon alone.
 *
 * Scales below 2^-100 are 0; a block with an element that is not finite becomes NaN. A symmetric matrix keeps its
 * diagonal in f32, and quantizes the triangle below it row by row. A factor is stored as its Cholesky factor, so the
 * dequantized matrix has no negative eigenvalue, however it was rounded. With int8 and int4 the quantization error
 * is stored too, in 4 bits, and added when dequantizing (error feedback: Li et al. 2024, arXiv 2412.10663, which
 * dequantizes the codes alone).
 *
 * Rounding is to nearest, or stochastic: up with the probability that makes the mean the number itself (Gupta et al.
 * 2015, arXiv 1502.02551), so that an average which moves by less than half a level per step still follows its
 * gradients. A bf16 scale is rounded stochastically too, and the largest element of a block equals its scale. Numbers
 * that are levels are unchanged. Where the error is stored it is rounded stochastically, and the codes to nearest. */
#ifndef LT_OPTIM_QUANTIZED_FORMATS_H
#define LT_OPTIM_QUANTIZED_FORMATS_H

#include "lather/detail/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lt_quantized_kind {
    LT_QUANTIZED_MOMENT,      /* moment of any shape */
    LT_QUANTIZED_NONNEGATIVE, /* moment of any shape, all elements >= 0 */
    LT_QUANTIZED_MATRIX,      /* matrix of any shape, evenly spaced levels */
    LT_QUANTIZED_SYMMETRIC,   /* symmetric [n,n] */
    LT_QUANTIZED_CHOLESKY     /* Cholesky factor of [n,n], positive semidefinite */
} lt_quantized_kind;

typedef struct lt_quantized_format {
    lt_quantized_kind kind;
    lt_state_dtype dtype; /* int4 for Shampoo's factors and quantization errors only */
} lt_quantized_format;

/* How to round a state. The 16-bit random draws are a function (Philox) of these and of an
 * element's position, so they repeat in a resumed run, and for any number of ranks or threads. */
typedef struct lt_quantized_rounding {
    bool stochastic; /* false: rounds to nearest, other members are not read */
    uint64_t key;    /* lt_quantized_random_key() of the state */
    int64_t step;
} lt_quantized_rounding;

/* Returns the bytes of `elements` elements; for square matrices elements = n * n. */
int64_t lt_quantized_bytes(lt_quantized_format format, int64_t elements);
/* Quantize to memory, and dequantize from it. x: f32 in memory order; square matrices are dense; of a Cholesky
 * factor x is L, below the diagonal. apart: x also has the quantization errors, transposed above the diagonal, as
 * checkpoints do; else encoding adds them up and ignores the part above the diagonal, and decoding leaves that
 * unchanged. */
void lt_quantized_encode(lt_quantized_format format, const float *x, int64_t elements,
                         unsigned char *memory, bool apart, lt_quantized_rounding rounding);
void lt_quantized_decode(lt_quantized_format format, const unsigned char *memory, int64_t elements,
                         bool apart, float *x);
/* Replaces the lower triangle by C with C C^T = x. A pivot below max(n 2^-24, 1e-6) of the largest diagonal
 * element, which is rounding, is raised to that, and the column below it set to 0. */
void lt_quantized_cholesky(float *x, int64_t n);

#endif
