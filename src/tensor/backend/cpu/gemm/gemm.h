/* Matrix products from packed panels, with tiles of the result in registers. gemm.c cuts the work and
 * walks; a unit packs and multiplies, with the instructions of one kind of processor. */
#ifndef LT_BACKEND_CPU_GEMM_H
#define LT_BACKEND_CPU_GEMM_H

#include "gemm_microkernel.h"
#include "tensor/backend/cpu/internal.h"

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
