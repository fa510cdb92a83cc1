/* Matrix products from packed panels, with tiles of the result in registers. gemm.c cuts the work and
 * walks; a unit packs and multiplies, with the instructions of one kind of processor. */
#ifndef LT_BACKEND_CPU_GEMM_H
#define LT_BACKEND_CPU_GEMM_H

#include "tensor/backend/cpu/internal.h"

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

/* y [rows, cols] = a b + bias, y row-major with y_step elements between rows. */
typedef struct lt_gemm_product {
    lt_gemm_operand a, b;
    void *y;
    lt_dtype y_dtype; /* f32 or bf16 */
    int64_t rows, cols, depth, y_step;
    const float *bias; /* [cols], or NULL */
} lt_gemm_product;

/* The unit for operands that are rounded to bf16, or NULL. */
const lt_gemm_unit *lt_gemm_unit_bf16(lt_cpu_isa isa);

/* Sums have one order: the same bits for any number of threads. Errors: LT_E_NOMEM. */
lt_status lt_gemm(lt_cpu *cpu, const lt_gemm_unit *unit, const lt_gemm_product *p);

#endif
