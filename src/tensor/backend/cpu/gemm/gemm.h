/* Matrix products from packed panels. gemm.c splits the work; a micro-kernel packs and multiplies, with a tile of the
 * result in registers. */
#ifndef LT_BACKEND_CPU_GEMM_H
#define LT_BACKEND_CPU_GEMM_H

#include "tensor/backend/cpu/gemm_microkernel.h"
#include "tensor/backend/cpu/internal.h"

/* Arguments of a matrix product y [rows, cols] = a b + bias; y is row-major with y_step elements between rows. */
typedef struct lt_gemm_product {
    lt_gemm_operand a, b;
    void *y;
    lt_dtype y_dtype; /* dtype of y: f32 or bf16 */
    int64_t rows, cols, depth, y_step;
    const float *bias; /* [cols] added to each row, or NULL */
} lt_gemm_product;

/* Returns the micro-kernel for operands rounded to bf16, or NULL if the CPU has none. */
const lt_gemm_microkernel *lt_gemm_microkernel_bf16(lt_cpu_isa isa);

/* Computes the product; results do not depend on the number of threads. Errors: LT_E_NOMEM. */
lt_status lt_gemm(lt_cpu *cpu, const lt_gemm_microkernel *kernel, const lt_gemm_product *p);

#endif
