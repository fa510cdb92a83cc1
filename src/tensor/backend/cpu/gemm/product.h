/* Matrix products in f32 of operands that are read where they lie, whatever their strides. */
#ifndef LT_BACKEND_CPU_PRODUCT_H
#define LT_BACKEND_CPU_PRODUCT_H

#include "tensor/backend/cpu/internal.h"

/* An index that runs through several dimensions, the last one fastest, to an offset. */
typedef struct lt_axis {
    int dims;
    int64_t count[LT_MAX_DIMS], stride[LT_MAX_DIMS];
} lt_axis;

typedef struct lt_operand {
    const float *data;
    lt_axis lane, step; /* step: along the contraction */
} lt_operand;

/* y [rows, cols] = beta * y + alpha * (a b). */
typedef struct lt_product {
    lt_operand a, b;
    float *y;
    lt_axis row, col; /* of y; as a's and b's lanes */
    int64_t rows, cols, depth;
    float alpha, beta;
    bool
        symmetric; /* y is square, and a symmetric matrix: compute j >= i; if a and b begin at one place they
                       are one operand */
    bool half; /* and leave what is below the diagonal's tiles alone, instead of mirroring */
} lt_product;

static inline lt_axis lt_axis_line(int64_t count, int64_t stride)
{
    return (lt_axis){.dims = 1, .count = {count}, .stride = {stride}};
}

/* All products of a list on the team; sums have one order: the same bits for any number of threads.
 * Errors: LT_E_NOMEM. */
lt_status lt_cpu_multiply(lt_cpu *cpu, const lt_product *p, size_t count);

/* One product on the calling thread; work: lt_cpu_multiply_work() floats at 64 bytes. */
void lt_cpu_multiply_here(const lt_cpu_kernels *kernels, const lt_product *p, float *work);
int64_t lt_cpu_multiply_work(void);

#endif
