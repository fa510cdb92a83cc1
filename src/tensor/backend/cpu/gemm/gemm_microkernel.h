/* A unit of matrix products: packing and tiles, with the instructions of one kind of processor. */
#ifndef LT_BACKEND_CPU_GEMM_UNIT_H
#define LT_BACKEND_CPU_GEMM_UNIT_H

#include "lather/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lanes of an operand (rows of a, columns of b) and steps along the contraction: element (l, k) is
 * data[l * lane + k * step]; one of the strides is 1. f32 or bf16. */
typedef struct lt_gemm_operand {
    const void *data;
    lt_dtype dtype;
    int64_t lane, step;
} lt_gemm_operand;

/* What becomes of a tile's sums. They begin with what `from` holds (NULL: 0) and get bias (NULL: none),
 * one number a column. */
typedef struct lt_gemm_save {
    const float *from;
    void *to;
    int64_t from_step, to_step; /* elements between rows */
    lt_dtype dtype;             /* of to: f32 or bf16 */
    const float *bias;
    int rows, cols; /* how much of the tile counts */
} lt_gemm_save;

/* Packed, an operand is a list of panels of `width` lanes, each [steps / adds][width][adds] elements,
 * filled up with 0. */
typedef struct lt_gemm_unit {
    int rows, cols; /* of a tile; the widths of a's and b's panels */
    int adds;       /* steps that one instruction adds up */
    size_t size;    /* bytes of a packed element */
    void (*pack)(const lt_gemm_operand *x, int64_t lanes, int64_t steps, int width, void *to);
    void (*tile)(const void *a, const void *b, int64_t steps, const lt_gemm_save *save);
    /* Whether a can be multiplied as it lies, and the tile that does: its rows are `step` elements apart. */
    bool (*reads_rows)(const lt_gemm_operand *a, int64_t depth);
    void (*tile_of_rows)(const void *a, int64_t step, const void *b, int64_t steps,
                         const lt_gemm_save *save);
    /* Products of at most `few` rows, whose time is that of reading b: nothing is packed. Steps are
     * neighbours in a, which is bf16; save: all rows, and columns of b. */
    int few;
    void (*dots)(const lt_gemm_operand *a, const lt_gemm_operand *b, int64_t steps,
                 const lt_gemm_save *save);
} lt_gemm_unit;

extern const lt_gemm_unit lt_gemm_bf16;

#endif
