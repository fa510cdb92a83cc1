/* Matrix products in f32 of operands with any strides. */
#ifndef LT_BACKEND_CPU_PRODUCT_H
#define LT_BACKEND_CPU_PRODUCT_H

#include "tensor/backend/cpu/internal.h"

/* Maps an index over several dimensions, the last one fastest, to an offset. */
typedef struct lt_axis {
    int dims;
    int64_t count[LT_MAX_DIMS], stride[LT_MAX_DIMS];
} lt_axis;

typedef struct lt_operand {
    const float *data;
    lt_axis lane, step; /* lane: row of a or column of b; step: along the contraction */
} lt_operand;

/* Arguments of a matrix product y [rows, cols] = beta * y + alpha * (a b). */
typedef struct lt_product {
    lt_operand a, b;
    float *y;
    lt_axis row, col; /* axes of y; equal to a's and b's lanes */
    int64_t rows, cols, depth;
    float alpha, beta;
    bool
        symmetric; /* y is symmetric: computes columns j >= row i. a and b with the same data are one operand */
    bool half; /* if symmetric: leaves y below the tiles on the diagonal unchanged */
} lt_product;

static inline lt_axis lt_axis_1d(int64_t count, int64_t stride)
{
    return (lt_axis){.dims = 1, .count = {count}, .stride = {stride}};
}

/* Computes all products of a list on the team; results do not depend on the number of threads. Errors: LT_E_NOMEM. */
lt_status lt_cpu_multiply_list(lt_cpu *cpu, const lt_product *p, size_t count);

/* Computes one product on the calling thread; work: lt_cpu_multiply_workspace() floats, 64-byte aligned. */
void lt_cpu_multiply_serial(const lt_cpu_kernels *kernels, const lt_product *p, float *work);
int64_t lt_cpu_multiply_workspace(void);

#endif
