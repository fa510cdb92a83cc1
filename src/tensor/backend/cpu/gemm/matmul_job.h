/* Matrix products of views, the work of the entries matmul and linear. */
#ifndef LT_BACKEND_CPU_MATMUL_JOB_H
#define LT_BACKEND_CPU_MATMUL_JOB_H

#include "tensor/backend/cpu/internal.h"

enum { LT_MATMUL_BATCH, LT_MATMUL_ROWS, LT_MATMUL_COLS }; /* dimensions of an operand */

/* y = a * b + bias; 3-D views, bias [N] or absent. */
typedef struct lt_matmul_job {
    lt_view a, b, bias, y;
    bool weight; /* b is a parameter, rounded to a's dtype */
} lt_matmul_job;

/* Finds the stride between rows (if transposed, columns). Returns false if a gemm cannot read the matrix. */
bool lt_matmul_find_stride(const lt_view *v, bool *transposed, int64_t *stride);
/* Replaces *v by a copy in the slot unless a gemm can read it in this dtype. */
lt_status lt_matmul_make_readable(lt_cpu *cpu, lt_cpu_slot slot, lt_dtype dtype, lt_view *v);

/* Multiply by oneDNN. *done is false if the built-in kernels are to be used: without oneDNN, where they are faster, or
 * where oneDNN has no primitive. f32: operands that a gemm can read, without the bias. */
lt_status lt_onednn_multiply_f32(lt_cpu *cpu, const lt_matmul_job *p, bool *done);
lt_status lt_onednn_multiply_bf16(lt_cpu *cpu, const lt_matmul_job *p, bool *done);

#endif
