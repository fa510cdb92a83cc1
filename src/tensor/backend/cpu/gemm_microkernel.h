/* Micro-kernels of matrix products (as in BLIS): packing and tiles for one instruction set. */
#ifndef LT_BACKEND_CPU_GEMM_MICROKERNEL_H
#define LT_BACKEND_CPU_GEMM_MICROKERNEL_H

#include "lather/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Operand with lanes (rows of a, columns of b) and steps along the contraction: element (l, k) is
 * data[l * lane + k * step]; one of the strides is 1. f32 or bf16. */
typedef struct lt_gemm_operand {
    const void *data;
    lt_dtype dtype;
    int64_t lane, step;
} lt_gemm_operand;

/* Initial value and destination of a tile's sums. They start at `from` (NULL: 0) and get bias (or NULL), one per
 * column. */
typedef struct lt_gemm_save {
    const float *from;
    void *to;
    int64_t from_step, to_step; /* elements between rows of from, of to */
    lt_dtype dtype;             /* dtype of to: f32 or bf16 */
    const float *bias;
    int rows, cols; /* size of the valid part of the tile */
} lt_gemm_save;

/* A packed operand is a list of panels of `width` lanes, each [steps / n][width][n] elements, zero-padded, with
 * n = steps_per_instruction. */
typedef struct lt_gemm_microkernel {
    int rows, cols; /* tile size, which is the width of a's and b's panels */
    int steps_per_instruction;
    size_t size; /* bytes of a packed element */
    void (*pack)(const lt_gemm_operand *x, int64_t lanes, int64_t steps, int width, void *to);
    void (*tile)(const void *a, const void *b, int64_t steps, const lt_gemm_save *save);
    /* Returns true if a can be multiplied without packing, by tile_unpacked: step elements between its rows. */
    bool (*can_skip_packing_a)(const lt_gemm_operand *a, int64_t depth);
    void (*tile_unpacked)(const void *a, int64_t step, const void *b, int64_t steps,
                          const lt_gemm_save *save);
    /* Products of at most max_dots_rows rows, bound by reading b: nothing is packed. a is bf16 with adjacent steps;
     * save: all rows, and columns of b. */
    int max_dots_rows;
    void (*dots)(const lt_gemm_operand *a, const lt_gemm_operand *b, int64_t steps,
                 const lt_gemm_save *save);
} lt_gemm_microkernel;

extern const lt_gemm_microkernel lt_gemm_bf16;

/* For kernels that multiply pairs of steps of bf16: returns true if pairs of a are adjacent in memory. */
static inline bool lt_gemm_has_pairs_of_steps(const lt_gemm_operand *a, int64_t depth)
{
    return a->dtype == LT_BF16 && a->step == 1 && depth % 2 == 0;
}

/* Computes where rows of an unpacked a begin; those that a tile lacks are its last one again. */
static inline void lt_gemm_offsets_of_rows(const lt_gemm_save *s, int64_t step, int rows,
                                           int64_t *row)
{
    for (int r = 0; r < rows; r++)
        row[r] = (r < s->rows ? r : s->rows - 1) * step;
}

#endif
