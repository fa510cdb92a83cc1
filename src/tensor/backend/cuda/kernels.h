/* The parts of the CUDA backend: each sets its entries of the table by lt_cuda_install_NAME(). */
#ifndef LT_CUDA_KERNELS_H
#define LT_CUDA_KERNELS_H

#include "lather/detail/backend.h"

/* Parts that are kernels, that work on matrices, and that call cuDNN and cuBLASLt. */
#define LT_CUDA_KERNELS(X) \
    X(elementwise)         \
    X(cast)                \
    X(pixels)              \
    X(sum)                 \
    X(norm_stats)          \
    X(norm_apply)          \
    X(norm_grad)           \
    X(group_norm)          \
    X(layernorm)           \
    X(embedding)           \
    X(rotary)              \
    X(pool)                \
    X(loss)                \
    X(optim)               \
    X(grad_norm)           \
    X(vec)
#define LT_CUDA_MATRIX_PARTS(X) \
    X(products_of_matrices)     \
    X(functions_of_matrices)    \
    X(rational)                 \
    X(norms_of_matrices)        \
    X(ritz)
#define LT_CUDA_LIBRARY_PARTS(X) X(convs) X(fused_convs) X(norm_convs) X(products) X(attention)

#define LT_CUDA_DECLARE(name) void lt_cuda_install_##name(lt_backend *be);
LT_CUDA_KERNELS(LT_CUDA_DECLARE)
LT_CUDA_MATRIX_PARTS(LT_CUDA_DECLARE)
LT_CUDA_LIBRARY_PARTS(LT_CUDA_DECLARE)
#undef LT_CUDA_DECLARE

/* The backend's table, and access to it for entries that call others. */
extern lt_backend lt_cuda_entries;
const lt_backend *lt_cuda_table(void);

#endif
